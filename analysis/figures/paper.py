"""Figures as files for a paper, drawn by matplotlib: SVG, PDF and PNG.

White ground, and a palette that colour-blind readers can distinguish (Okabe & Ito 2008). The
style file ``paper.mplstyle`` holds sizes and type. The same figure always gives the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from io import BytesIO
from typing import TYPE_CHECKING, Any

from analysis.figures.figure import (
    Band,
    Bars,
    Figure,
    Line,
    Panel,
    Points,
    Rule,
    Scale,
    Series,
    Texts,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

PAGE_IN = 7.16
"""The width of a page with two columns."""
PANEL_IN, WIDE_PANEL_IN, ROW_IN = 2.3, 2.0, 0.145
"""The heights of a panel, of a wide panel, and of a row of names."""
HIDDEN_DATE = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {"Software": None}}


@cache
def palette() -> dict[str, str]:
    """Colour name -> ``#rrggbb`` on a white ground, from ``marks.css``."""
    css = (files("analysis.figures") / "marks.css").read_text(encoding="utf-8")
    return dict(re.findall(r"--(\w+): (#\w+)", css[: css.index("@media")]))


LINES: dict[str, dict[str, Any]] = {
    "model": {"color": "orange"},
    "capped": {"color": "orange", "linestyle": (0, (4, 3))},
    "front": {"color": "orange"},
    "power": {"color": "blue", "linewidth": 0.7},
    "span": {"color": "blue", "linewidth": 1.2, "alpha": 0.6},
    "range": {"color": "ink", "linewidth": 0.9, "alpha": 0.75},
    "axis": {"color": "ink", "linewidth": 0.6},
    "bound": {"color": "orange", "linewidth": 0.9},
    "even": {"color": "ink", "linewidth": 0.7, "linestyle": (0, (5, 3))},
    "tau": {"color": "ink", "linewidth": 0.8, "linestyle": (0, (5, 3))},
    "eps": {"color": "green", "linewidth": 1.0, "linestyle": (0, (2, 2))},
    "eps_free": {"color": "green", "linewidth": 0.7, "linestyle": (0, (6, 2, 1, 2))},
    "attained": {"color": "blue", "linewidth": 0.7, "linestyle": (0, (1, 2))},
    **{f"by{number}": {"color": f"k{number}", "linewidth": 1.0} for number in range(6)},
}
POINTS: dict[str, dict[str, Any]] = {
    "dot": {"color": "blue", "alpha": 0.8},
    "dot faint": {"color": "blue", "alpha": 0.4},
    "dot above": {"color": "k5", "alpha": 0.8},
    "dot below": {"color": "k4", "alpha": 0.8},
    **{f"dot by{number}": {"color": f"k{number}"} for number in range(6)},
    "ring": {
        "markeredgecolor": "orange",
        "markerfacecolor": "none",
        "markersize": 7,
        "markeredgewidth": 1.2,
    },
}
FILLS: dict[str, dict[str, Any]] = {
    "bar": {"color": "blue", "alpha": 0.8},
    "window": {"color": "green", "alpha": 0.12},
}


def figure_files(figure: Figure, simulated: bool, kinds: Sequence[str]) -> dict[str, bytes]:
    """A figure's files: format (``svg``, ``pdf``, ``png``) -> content.

    ``simulated``: adds that word in the corner of the drawing.
    """
    import matplotlib as mpl  # noqa: PLC0415

    style = mpl.rc_params_from_file(
        str(files("analysis.figures") / "paper.mplstyle"), use_default_template=False
    )
    with mpl.rc_context(style):
        drawing = _drawing(figure, simulated)
        drawing.draw_without_rendering()
        drawing.set_layout_engine(None)  # the layout is done: no second drawing for each format
        contents = {}
        for kind in kinds:
            buffer = BytesIO()
            title = {"Title": figure.name} if kind == "pdf" else {}
            drawing.savefig(buffer, format=kind, metadata={**HIDDEN_DATE[kind], **title})
            contents[kind] = buffer.getvalue()
    return contents


def _drawing(figure: Figure, simulated: bool) -> Drawing:
    from matplotlib.figure import Figure as Drawing  # noqa: PLC0415

    columns = 1 if figure.wide else min(len(figure.panels), 3)
    rows = [figure.panels[i : i + columns] for i in range(0, len(figure.panels), columns)]
    heights = [max(map(_height_in, row)) for row in rows]
    width = PAGE_IN if figure.wide or columns > 1 else PAGE_IN / 2
    drawing = Drawing(figsize=(width, sum(heights) + 0.3), layout="constrained")
    cells = drawing.subplots(len(rows), columns, squeeze=False, height_ratios=heights)
    keys: dict[tuple[str, str], Artist] = {}
    for axes, panel in zip(cells.flat, figure.panels, strict=False):
        _draw(axes, panel, keys)
    for axes in cells.flat[len(figure.panels) :]:
        axes.set_axis_off()
    if keys:
        longest = max(len(label) for _, label in keys)
        max_columns = max(int(width / (0.06 * longest + 0.5)), 1)
        drawing.legend(
            list(keys.values()),
            [_plain(label) for _, label in keys],
            loc="outside upper left",
            ncols=min(max_columns, len(keys)),
        )
    if simulated:
        drawing.text(0.995, 0.99, "simulated", ha="right", va="top", style="italic")
    return drawing


def _plain(text: str) -> str:
    """The text without control characters, which no file format allows."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


def _height_in(panel: Panel) -> float:
    if panel.y.names:
        return 0.75 + ROW_IN * len(panel.y.names)
    return WIDE_PANEL_IN if panel.wide else PANEL_IN


def _draw(axes: Axes, panel: Panel, keys: dict[tuple[str, str], Artist]) -> None:
    x, y = panel.scales()
    has_rule_text = any(isinstance(series, Rule) and series.text for series in panel.series)
    axes.set_title(_plain(panel.title), pad=14 if has_rule_text else None)
    axes.set_xlabel(_plain(panel.x.label))
    for axis, scale, name, drawn in ((panel.x, x, "x", axes.xaxis), (panel.y, y, "y", axes.yaxis)):
        if scale.log:
            axes.set(**{f"{name}scale": "log"})
        axes.set(**{f"{name}lim": (scale.low, scale.high)})
        ticks = list(axis.names) or scale.ticks()
        drawn.set_ticks([value for value, _ in ticks], [_plain(text) for _, text in ticks])
        if axis.names:
            drawn.grid(visible=False)
            drawn.set_tick_params(length=0)
    axes.minorticks_off()
    for value, text in panel.x.groups:
        axes.annotate(
            _plain(text),
            (value, 0),
            (0, -20),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            ha="center",
        )
    for series in panel.series:
        artist = _artist(axes, series, x, y)
        if artist is not None and not isinstance(series, Texts) and series.label:
            keys.setdefault((series.style, series.label), artist)


def _coloured(style: dict[str, Any]) -> dict[str, Any]:
    names = ("color", "markeredgecolor")
    return style | {n: palette()[style[n]] for n in names if n in style}


def _artist(axes: Axes, series: Series, x: Scale, y: Scale) -> Artist | None:
    """Draw a series and return the artist for its key in the legend."""
    if isinstance(series, Line):
        look = LINES.get(series.style, {"color": series.style})
        return axes.plot(series.x, series.y, **_coloured(look))[0]
    if isinstance(series, Points):
        look = {"marker": "o", "linestyle": "none", "markeredgewidth": 0.0}
        look |= {} if series.texts else {"markersize": 2.0}
        return axes.plot(series.x, series.y, **look | _coloured(POINTS[series.style]))[0]
    if isinstance(series, Bars):
        low = min(x.low, x.high) if series.across else min(y.low, y.high)
        start = series.start.clip(low)
        fill = _coloured(FILLS.get(series.style, {"color": series.style}))
        draw = axes.barh if series.across else axes.bar
        bars = draw(series.at, series.end - start, series.width, start, linewidth=0, **fill)
        first: Artist = bars[0]
        return first
    if isinstance(series, Band):
        return axes.axvspan(series.start, series.end, linewidth=0, **_coloured(FILLS[series.style]))
    if isinstance(series, Rule):
        return _rule(axes, series) if (x if series.vertical else y).holds(series.at) else None
    for px, py, text in zip(series.x, series.y, series.texts, strict=True):
        axes.annotate(
            _plain(text),
            (px, py),
            (0, 2),
            textcoords="offset points",
            ha="center",
            fontsize=5.5,
        )
    return None


def _rule(axes: Axes, rule: Rule) -> Artist:
    draw = axes.axvline if rule.vertical else axes.axhline
    line = draw(rule.at, **_coloured(LINES[rule.style]))
    if rule.text:
        axes.annotate(
            _plain(rule.text),
            (rule.at, 1),
            (-2 if rule.text_left else 2, 0),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            ha="right" if rule.text_left else "left",
            va="bottom",
        )
    return line
