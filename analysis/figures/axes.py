"""Panels with axes, and the marks upon them: SVG that takes its colours from the style around it.

Axes and text take ``currentColor`` and marks take classes, which ``marks.css`` colours, so one
drawing serves a light page, a dark one and a file for a paper. Text is escaped; nothing depends
on the date. Lengths are in the drawing's own units, of which a single panel is 380 wide.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup, escape

SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
CHARACTER = 6.6
"""About how wide a character of the text is; a little more than most fonts make it."""


@dataclass(frozen=True)
class Frame:
    """A panel's size, and the room around its axes."""

    width: float = 380
    height: float = 280
    left: float = 46
    right: float = 14
    top: float = 44
    bottom: float = 42

    @property
    def x(self) -> tuple[float, float]:
        """Where the horizontal axis starts and ends."""
        return self.left, self.width - self.right

    @property
    def y(self) -> tuple[float, float]:
        """Where the vertical axis starts (at the bottom) and ends."""
        return self.height - self.bottom, self.top


FRAME = Frame()


@dataclass(frozen=True)
class Panel:
    """One drawing with its size; ``body`` is what stands inside its ``svg``."""

    width: float
    height: float
    description: str
    body: str

    def __html__(self) -> str:
        return (
            f'<svg viewBox="0 0 {px(self.width)} {px(self.height)}" role="img" '
            f'aria-label="{escape(self.description)}">{self.body}</svg>'
        )

    def __str__(self) -> str:
        return Markup(self.__html__())  # noqa: S704  (every text in it is escaped)


@dataclass(frozen=True)
class Figure:
    """Panels side by side under one caption; ``name`` is the stem of its files."""

    name: str
    caption: str
    panels: list[Panel]
    wide: bool = False
    """Whether its panels take the whole width, one under the other."""


@dataclass(frozen=True)
class Scale:
    """Values ``low`` to ``high`` on pixels ``start`` to ``end``, linear or logarithmic."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        """The pixel of a value."""
        low, high, v = self.low, self.high, value
        if self.log:
            low, high, v = math.log(low), math.log(high), math.log(v)
        return self.start + (v - low) / (high - low) * (self.end - self.start)

    def value(self, pixel: float) -> float:
        """The value at a pixel: the inverse of :meth:`at`."""
        share = (pixel - self.start) / (self.end - self.start)
        if self.log:
            return self.low * (self.high / self.low) ** share
        return self.low + share * (self.high - self.low)

    def ticks(self) -> list[tuple[float, str]]:
        """Round values inside the scale, and how each is written."""
        values = _log_ticks(self.low, self.high) if self.log else _ticks(self.low, self.high)
        room = 1e-9 * (self.low if self.log else self.high - self.low)
        return [(v, tick_text(v)) for v in values if self.low - room <= v <= self.high + room]


def tick_text(value: float) -> str:
    """A tick: ``0.25``, ``1,000``, ``10⁻⁶``."""
    if value and not 1e-3 <= abs(value) < 1e5:
        exponent = math.floor(math.log10(abs(value)) + 1e-9)
        head = value / 10.0**exponent
        power = f"10{str(exponent).translate(SUPERSCRIPT)}"
        return power if abs(head - 1.0) < 1e-6 else f"{head:g}·{power}"
    return f"{value:,.6g}".replace("-", "−")


def _ticks(low: float, high: float, about: int = 5) -> list[float]:
    raw = (high - low) / about
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(m * unit for m in (1.0, 2.0, 5.0, 10.0) if m * unit >= raw)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    """Decades where there are three or more, else 1, 2, 5 of each, or round steps in less."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    decades = math.log10(high / low)
    if decades >= 2.5:
        every = max(1, math.ceil(decades / 6))
        return [10.0**k for k in range(first, last + 1) if k % every == 0]
    if decades < 0.3:
        return _ticks(low, high, 4)
    heads = (1.0, 2.0, 5.0) if decades > 0.8 else (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0)
    return [head * 10.0**k for k in range(first, last + 1) for head in heads]


def log_scale(values: Sequence[float], start: float, end: float, room: float = 0.08) -> Scale:
    """A logarithmic scale that holds all positive values, with some room on both sides."""
    good = [v for v in values if math.isfinite(v) and v > 0]
    low, high = min(good), max(good)
    if high / low < 1.5:
        low, high = low / 1.25, high * 1.25
    factor = (high / low) ** room
    return Scale(low / factor, high * factor, start, end, log=True)


def panel(
    title: str,
    x_label: str,
    x: Scale | None,
    y: Scale | None,
    marks: Sequence[str],
    description: str,
    frame: Frame = FRAME,
) -> Panel:
    """One panel: title with the vertical axis' unit, axes, grid, and marks drawn upon them.

    An axis without a scale has no ticks: its marks say themselves what they are.
    """
    (left, right), (bottom, top) = frame.x, frame.y
    parts = [f'<text class="title" x="2" y="13">{escape(title)}</text>']
    for value, text in x.ticks() if x else []:
        at = px(x.at(value)) if x else ""
        parts.append(f'<path class="grid" d="M{at} {px(bottom)}V{px(top)}"/>')
        parts.append(f'<text class="mid" x="{at}" y="{px(bottom + 15)}">{escape(text)}</text>')
    for value, text in y.ticks() if y else []:
        up = y.at(value) if y else 0.0
        parts.append(f'<path class="grid" d="M{px(left)} {px(up)}H{px(right)}"/>')
        parts.append(
            f'<text class="end" x="{px(left - 6)}" y="{px(up + 3.8)}">{escape(text)}</text>'
        )
    parts.append(f'<path class="axis" d="M{px(left)} {px(top)}V{px(bottom)}H{px(right)}"/>')
    if x_label:
        parts.append(
            f'<text class="mid" x="{px((left + right) / 2)}" y="{px(frame.height - 8)}">'
            f"{escape(x_label)}</text>"
        )
    return Panel(frame.width, frame.height, description, "".join([*parts, *marks]))


def px(pixel: float) -> str:
    """A length as the drawing writes it, to a tenth."""
    return f"{pixel:.1f}".removesuffix(".0")


def curve(x: Scale, y: Scale, xs: np.ndarray, ys: np.ndarray, name: str) -> str:
    """A line through points, in the style ``name``; it breaks where it leaves the panel."""
    parts = []
    pen_down = False
    for a, b in zip(xs, ys, strict=True):
        inside = bool(np.isfinite(b)) and y.low * (1 - 1e-9) <= b <= y.high * (1 + 1e-9)
        if inside:
            parts.append(f"{'L' if pen_down else 'M'}{px(x.at(a))} {px(y.at(b))}")
        pen_down = inside
    return f'<path class="line {name}" d="{"".join(parts)}"/>'


def dots(
    x: Scale,
    y: Scale,
    xs: np.ndarray,
    ys: np.ndarray,
    names: Sequence[str],
    name: str,
    radius: float = 3.2,
) -> str:
    """A dot a point, each with a text that shows when it is pointed at."""
    return "".join(
        f'<circle class="{name}" cx="{px(x.at(a))}" cy="{px(y.at(b))}" r="{radius:g}">'
        f"<title>{escape(text)}</title></circle>"
        for a, b, text in zip(xs, ys, names, strict=True)
        if np.isfinite(b) and (b > 0 or not y.log)
    )


def cloud(x: Scale, y: Scale, xs: np.ndarray, ys: np.ndarray, name: str) -> str:
    """Very many dots, as one path of strokes without length and with round ends."""
    path = "".join(f"M{px(x.at(a))} {px(y.at(b))}h0" for a, b in zip(xs, ys, strict=True))
    return f'<path class="cloud {name}" d="{path}"/>'


def box(name: str, left: float, top: float, right: float, bottom: float, text: str = "") -> str:
    """A rectangle between two corners, with a text that shows when it is pointed at."""
    title = f"<title>{escape(text)}</title>" if text else ""
    return (
        f'<rect class="{name}" x="{left:.2f}" y="{top:.2f}" width="{max(right - left, 0):.2f}" '
        f'height="{max(bottom - top, 0):.2f}">{title}</rect>'
    )


def legend(
    entries: Sequence[tuple[str, str]], frame: Frame, top: float = 28, kind: str = "box"
) -> tuple[str, float]:
    """(style, text) entries in rows that fit the panel; also where the last row's text stands.

    ``kind``: what the key is, ``box``, ``dot`` or ``line``.
    """
    left, parts, at, row = 2.0, [], 2.0, top
    for name, text in entries:
        width = 15 + CHARACTER * len(text) + 12
        if at > left and at + width > frame.width:
            at, row = left, row + 16
        if kind == "dot":
            parts.append(f'<circle class="{name}" cx="{px(at + 5)}" cy="{px(row - 4)}" r="3.6"/>')
        elif kind == "line":
            parts.append(f'<path class="line {name}" d="M{px(at)} {px(row - 4)}h11"/>')
        else:
            parts.append(box(name, at, row - 9, at + 10, row + 1))
        parts.append(f'<text x="{px(at + 15)}" y="{px(row)}">{escape(text)}</text>')
        at += width
    return "".join(parts), row


def shortened(text: str, width: float) -> str:
    """A text cut to about a width, with an ellipsis where it is cut."""
    fitting = max(int(width / CHARACTER), 2)
    return text if len(text) <= fitting else f"{text[: fitting - 1].rstrip()}…"


def short_names(kernels: Sequence[str]) -> dict[str, str]:
    """Kernel -> its name with what tells it from the others: ``double dram ops_per_word=4``.

    Parameters that have one value everywhere go, and so does the name of a parameter whose value
    is a word. Full names stay where the short ones would be the same.
    """
    values: dict[str, set[str]] = {}
    for kernel in kernels:
        for word in kernel.split(" ")[1:]:
            name, _, value = word.partition("=")
            values.setdefault(name, set()).add(value)
    short = {}
    for kernel in kernels:
        kept = [kernel.split(" ")[0]]
        for word in kernel.split(" ")[1:]:
            name, _, value = word.partition("=")
            if len(values[name]) > 1 or len(kernels) == 1:
                kept.append(word if not value or value[0].isdigit() else value)
        short[kernel] = " ".join(kept)
    return short if len(set(short.values())) == len(set(kernels)) else {k: k for k in kernels}
