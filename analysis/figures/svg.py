"""Panels as SVG inside an HTML page, coloured by the page's style sheets.

Axes and text have ``currentColor``, and marks have classes, which ``marks.css`` colours, so that
one drawing serves light and dark pages. All texts are escaped. Lengths are in units of the drawing:
a panel is 380 wide, a wide one 780.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup, escape

from analysis.figures.figure import Band, Bars, Figure, Line, Panel, Points, Rule, Scale, Series
from dvfs.groups import Groups
from dvfs.texts import group_codes

CHARACTER, SMALL_CHARACTER = 6.6, 5.6
"""The approximate width of a character in each text size, slightly more than in most fonts."""
BROAD = "mwMW@%…"
"""Characters of one and a half times that width."""
WIDTH, WIDE = 380.0, 780.0
HEIGHT, WIDE_HEIGHT, ROW = 194.0, 148.0, 17.0
"""The heights of a panel's plot, of a wide panel's plot, and of a row of names."""
RIGHT, LINE_HEIGHT, MOST_LEFT = 14.0, 16.0, 250.0
MANY, CLOUD_STEP = 5_000, 0.5
"""In a cloud of more points than ``MANY``, points within a step of ``CLOUD_STEP`` are drawn once: a
dot hides the others."""


@dataclass(frozen=True, kw_only=True)
class Frame:
    """The positions of a drawing's axes, and its scales."""

    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float
    x_scale: Scale
    y_scale: Scale

    def x(self, value: float | np.ndarray) -> Any:
        """The horizontal position of a value, clipped to the limits."""
        return self.left + self.x_scale.clipped(value) * (self.right - self.left)

    def y(self, value: float | np.ndarray) -> Any:
        """The vertical position of a value, clipped to the limits."""
        return self.bottom - self.y_scale.clipped(value) * (self.bottom - self.top)


def figure_svgs(figure: Figure) -> list[Markup]:
    """The panels of a figure as ``svg`` elements, with their plots aligned."""
    key_rows = max(_legend(panel)[1] for panel in figure.panels)
    return [svg(panel, key_rows) for panel in figure.panels]


def svg(panel: Panel, key_rows: int = 0) -> Markup:
    """The panel as an ``svg`` element; ``key_rows``: the least number of rows for the legend."""
    key, panel_rows = _legend(panel)
    frame = _frame(panel, max(key_rows, panel_rows))
    parts = [
        f'<svg viewBox="0 0 {px(frame.width)} {px(frame.height)}" role="img" '
        f'aria-label="{escape(panel.description)}">'
        f'<text class="title" x="2" y="13">{escape(panel.title)}</text>',
        *key,
        *_axes(panel, frame),
        *(mark for series in panel.series for mark in _marks(series, frame)),
        "</svg>",
    ]
    return Markup("".join(parts))  # noqa: S704  (every text in it is escaped)


def px(length: float) -> str:
    """The text of a length, to a tenth."""
    return f"{length:.1f}".removesuffix(".0")


def _broad(text: str) -> float:
    """The approximate width of a text, in characters of usual width."""
    return len(text) + 0.5 * sum(character in BROAD for character in text)


def _text(style: str, x: float, y: float, text: str) -> str:
    return f'<text class="{style}" x="{px(x)}" y="{px(y)}">{escape(text)}</text>'


def _title(texts: Sequence[str], i: int) -> str:
    return f"<title>{escape(texts[i])}</title>" if texts else ""


def _frame(panel: Panel, key_rows: int) -> Frame:
    width = WIDE if panel.wide else WIDTH
    x_scale, y_scale = panel.scales()
    widest = max((_broad(text) for _, text in panel.y.names), default=0.0)
    left = min(SMALL_CHARACTER * widest + 12, MOST_LEFT) if panel.y.names else 46.0
    plot = WIDE_HEIGHT if panel.wide else HEIGHT
    plot = ROW * len(panel.y.names) if panel.y.names else plot
    top = 24 + LINE_HEIGHT * key_rows
    top += 14 if any(isinstance(s, Rule) and s.text for s in panel.series) else 0
    bottom_margin = 24 + (18 if panel.x.label else 0) + (17 if panel.x.groups else 0)
    return Frame(
        width=width,
        height=top + plot + bottom_margin,
        left=left,
        right=width - RIGHT,
        top=top,
        bottom=top + plot,
        x_scale=x_scale,
        y_scale=y_scale,
    )


def _legend(panel: Panel) -> tuple[list[str], int]:
    """The elements of the legend, for the series with a label; and the number of its rows."""
    width = WIDE if panel.wide else WIDTH
    parts, x, row = [], 2.0, 0
    entries = panel.legend()
    for series in entries:
        entry_width = 15 + CHARACTER * len(series.label) + 12
        if x > 2 and x + entry_width > width:
            x, row = 2.0, row + 1
        y = 30 + LINE_HEIGHT * row
        if isinstance(series, Points):
            parts.append(f'<circle class="{series.style}" cx="{px(x + 5)}" cy="{y - 4}" r="3.6"/>')
        elif isinstance(series, Line | Rule):
            parts.append(f'<path class="line {series.style}" d="M{px(x)} {y - 4}h11"/>')
        else:
            parts.append(_box(series.style, x, y - 9, x + 10, y + 1))
        parts.append(_text("key", x + 15, y, series.label))
        x += entry_width
    return parts, row + 1 if entries else 0


def _axes(panel: Panel, frame: Frame) -> Iterator[str]:
    for value, text in panel.x.names or frame.x_scale.ticks():
        x = frame.x(value)
        if not panel.x.names:
            yield f'<path class="grid" d="M{px(x)} {px(frame.bottom)}V{px(frame.top)}"/>'
        yield _text("mid small" if panel.x.names else "mid", x, frame.bottom + 15, text)
    for value, text in panel.x.groups:
        yield _text("mid", frame.x(value), frame.bottom + 31, text)
    for value, text in panel.y.names or frame.y_scale.ticks():
        y = frame.y(value)
        if not panel.y.names:
            yield f'<path class="grid" d="M{px(frame.left)} {px(y)}H{px(frame.right)}"/>'
        yield _text("end small" if panel.y.names else "end", frame.left - 6, y + 3.6, text)
    yield (
        f'<path class="axis" d="M{px(frame.left)} {px(frame.top)}V{px(frame.bottom)}'
        f'H{px(frame.right)}"/>'
    )
    if panel.x.label:
        yield _text("mid", (frame.left + frame.right) / 2, frame.height - 7, panel.x.label)


def _marks(series: Series, frame: Frame) -> Iterator[str]:
    """The elements of a series."""
    if isinstance(series, Line):
        yield f'<path class="line {series.style}" d="{_path(series, frame)}"/>'
    elif isinstance(series, Points):
        yield from _points(series, frame)
    elif isinstance(series, Bars):
        yield from _bars(series, frame)
    elif isinstance(series, Rule):
        yield from _rule(series, frame)
    elif isinstance(series, Band):
        left, right = frame.x(series.start), frame.x(series.end)
        yield _box(series.style, left, frame.top, right, frame.bottom)
    else:
        for x, y, text in zip(series.x, series.y, series.texts, strict=True):
            yield _text("mid small", frame.x(x), frame.y(y) - 4, text)


def _path(line: Line, frame: Frame) -> str:
    parts, pen_down = [], False
    for x, y in zip(line.x.tolist(), line.y.tolist(), strict=True):
        inside = frame.x_scale.holds(x) and frame.y_scale.holds(y)
        if inside:
            parts.append(f"{'L' if pen_down else 'M'}{px(frame.x(x))} {px(frame.y(y))}")
        pen_down = inside
    return "".join(parts)


def _points(points: Points, frame: Frame) -> Iterator[str]:
    drawn = np.isfinite(points.x) & np.isfinite(points.y)
    for scale, values in ((frame.x_scale, points.x), (frame.y_scale, points.y)):
        drawn &= values > 0 if scale.log else drawn
    places = np.column_stack([frame.x(points.x[drawn]), frame.y(points.y[drawn])])
    if points.texts:
        radius = 6 if points.style == "ring" else 3.2
        for i, (x, y) in zip(np.flatnonzero(drawn).tolist(), places.tolist(), strict=True):
            yield (
                f'<circle class="{points.style}" cx="{px(x)}" cy="{px(y)}" r="{radius}">'
                f"{_title(points.texts, i)}</circle>"
            )
    else:  # very many: strokes without length and with round ends, in one path
        if len(places) > MANY:
            steps = np.round(places / CLOUD_STEP).astype(np.int64)
            places = steps[Groups(group_codes(steps.T)).firsts] * CLOUD_STEP
        path = "".join(f"M{px(x)} {px(y)}h0" for x, y in places.tolist())
        yield f'<path class="cloud {points.style}" d="{path}"/>'


def _bars(bars: Bars, frame: Frame) -> Iterator[str]:
    half = bars.width / 2
    for i, (place, start, end) in enumerate(zip(bars.at, bars.start, bars.end, strict=True)):
        if not np.isfinite(end) or end == start:
            continue
        if bars.across:
            y = sorted((frame.y(place - half), frame.y(place + half)))
            x = sorted((frame.x(start), frame.x(end)))
        else:
            x = sorted((frame.x(place - half), frame.x(place + half)))
            y = sorted((frame.y(start), frame.y(end)))
        yield _box(bars.style, x[0], y[0], x[1], y[1], _title(bars.texts, i))


def _box(style: str, left: float, top: float, right: float, bottom: float, title: str = "") -> str:
    return (
        f'<rect class="{style}" x="{left:.2f}" y="{top:.2f}" width="{right - left:.2f}" '
        f'height="{bottom - top:.2f}">{title}</rect>'
    )


def _rule(rule: Rule, frame: Frame) -> Iterator[str]:
    if not (frame.x_scale if rule.vertical else frame.y_scale).holds(rule.at):
        return
    if not rule.vertical:
        y = px(frame.y(rule.at))
        yield f'<path class="line {rule.style}" d="M{px(frame.left)} {y}H{px(frame.right)}"/>'
        return
    x_rule = frame.x(rule.at)
    top = frame.top - (10 if rule.text else 0)
    yield f'<path class="line {rule.style}" d="M{px(x_rule)} {px(frame.bottom)}V{px(top)}"/>'
    if rule.text:
        text_width = CHARACTER * len(rule.text)
        left_side = (rule.text_left or x_rule + text_width > frame.width) and x_rule > text_width
        style, x = ("end", x_rule - 4) if left_side else ("start", x_rule + 4)
        yield _text(style, x, frame.top - 5, rule.text)
