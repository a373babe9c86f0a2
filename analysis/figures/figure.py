"""Figures as data: panels with axes and series, drawn by :mod:`.svg` and :mod:`.paper`.

This module and the modules of figures decide what is drawn; the two drawing modules decide how it
looks. Both take limits and ticks from here, so that the report and files agree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from analysis.figures.labels import told_apart

SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
NONE = np.zeros(0)


@dataclass(frozen=True)
class Line:
    """A line through points, with a gap at each NaN."""

    x: np.ndarray
    y: np.ndarray
    style: str
    label: str = ""


@dataclass(frozen=True)
class Points:
    """A mark at each point; ``texts``: shown under the pointer."""

    x: np.ndarray
    y: np.ndarray
    style: str = "dot"
    label: str = ""
    texts: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Bars:
    """Bars from ``start`` to ``end`` at the positions ``at``; ``across``: horizontal bars."""

    at: np.ndarray
    start: np.ndarray
    end: np.ndarray
    style: str
    label: str = ""
    texts: Sequence[str] = ()
    width: float = 0.7
    across: bool = False


@dataclass(frozen=True)
class Rule:
    """A reference line across the panel at the value ``at``, drawn if that is within the limits.

    ``text`` stands at the upper end of a vertical line, on its left or right.
    """

    at: float
    style: str
    label: str = ""
    text: str = ""
    text_left: bool = False
    vertical: bool = True


@dataclass(frozen=True)
class Band:
    """A shaded interval of x."""

    start: float
    end: float
    style: str
    label: str = ""


@dataclass(frozen=True)
class Texts:
    """Small texts, each above a point."""

    x: np.ndarray
    y: np.ndarray
    texts: Sequence[str]


Labelled = Line | Points | Bars | Rule | Band


Series = Labelled | Texts


@dataclass(frozen=True)
class Axis:
    """An axis: its label with the unit, its limits, and its ticks if they are not numbers.

    ``low``, ``high``: limits; None: from the series. ``include``: values within the limits.
    ``names``: (position, text) of ticks instead of numbers; ``groups``: the same, in a second row.
    """

    label: str = ""
    log: bool = False
    low: float | None = None
    high: float | None = None
    include: Sequence[float] = ()
    names: Sequence[tuple[float, str]] = ()
    groups: Sequence[tuple[float, str]] = ()


@dataclass(frozen=True)
class Panel:
    """One drawing; its title includes the unit of the vertical axis.

    The first of the names on a vertical axis stands at the top.
    """

    title: str
    x: Axis
    y: Axis
    series: Sequence[Series]
    description: str
    wide: bool = False

    def scales(self) -> tuple[Scale, Scale]:
        """The scales of both axes, from 0 to 1; y upwards, or downwards if it has names."""
        x = _scale(self.x, [_values(series, along_x=True) for series in self.series])
        y = _scale(self.y, [_values(series, along_x=False) for series in self.series])
        return x, Scale(y.high, y.low) if self.y.names else y

    def legend(self) -> list[Labelled]:
        """The series of the legend: the first of each style and label."""
        first: dict[tuple[str, str], Labelled] = {}
        for series in self.series:
            if not isinstance(series, Texts) and series.label:
                first.setdefault((series.style, series.label), series)
        return list(first.values())


@dataclass(frozen=True)
class Figure:
    """Panels under one caption; ``name``: the stem of its files' names."""

    name: str
    caption: str
    panels: list[Panel]

    @property
    def wide(self) -> bool:
        """Whether the panels have the full width, one under the other."""
        return any(panel.wide for panel in self.panels)


@dataclass(frozen=True)
class Scale:
    """A linear or logarithmic map of the values ``low`` to ``high`` to 0 to 1."""

    low: float
    high: float
    log: bool = False

    def at(self, value: float | np.ndarray) -> Any:
        """The position of a value: 0 at ``low``, 1 at ``high``."""
        if self.log:
            return np.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def holds(self, value: float) -> bool:
        """Whether a value is within the limits."""
        low, high = sorted((self.low, self.high))
        tolerance = 1e-9 * (low if self.log else high - low)
        return low - tolerance <= value <= high + tolerance

    def clipped(self, value: float | np.ndarray) -> Any:
        """The position of a value, clipped to the limits."""
        return self.at(np.clip(value, min(self.low, self.high), max(self.low, self.high)))

    def ticks(self) -> list[tuple[float, str]]:
        """Round values within the limits, each with its text."""
        low, high = sorted((self.low, self.high))
        values = _log_ticks(low, high) if self.log else _ticks(low, high)
        return [(value, tick_text(value)) for value in values if self.holds(value)]


def log_scale(values: Sequence[float] | np.ndarray, room: float = 0.06) -> Scale:
    """A logarithmic scale of all positive values, extended by the share ``room`` on both sides."""
    numbers = np.asarray(values, float)
    positive = numbers[np.isfinite(numbers) & (numbers > 0)]
    low, high = float(positive.min()), float(positive.max())
    if high / low < 1.5:
        low, high = low / 1.25, high * 1.25
    factor = (high / low) ** room
    return Scale(low / factor, high * factor, log=True)


def _scale(axis: Axis, values: Sequence[np.ndarray]) -> Scale:
    if axis.names and axis.low is None:
        places = [place for place, _ in axis.names]
        return Scale(min(places) - 0.5, max(places) + 0.5)
    finite = np.concatenate([*values, np.asarray(axis.include, float)])
    finite = finite[np.isfinite(finite)]
    if axis.log:
        scale = log_scale(finite)
    else:
        high = float(finite.max()) if len(finite) else 1.0
        scale = Scale(float(finite.min(initial=0.0)), high * 1.06 or 1.0)
    low = scale.low if axis.low is None else axis.low
    return Scale(low, scale.high if axis.high is None else axis.high, axis.log)


def _values(series: Series, along_x: bool) -> np.ndarray:
    """The values of a series that an axis must include."""
    if isinstance(series, Line | Points):
        return series.x if along_x else series.y
    if isinstance(series, Bars):
        if series.across == along_x:
            return np.concatenate([series.start, series.end])
        return np.concatenate([series.at - series.width / 2, series.at + series.width / 2])
    return NONE


def tick_text(value: float) -> str:
    """The text of a tick: ``0.25``, ``1,000``, ``10⁻⁶``."""
    if value and not 1e-3 <= abs(value) < 1e5:
        exponent = math.floor(math.log10(abs(value)) + 1e-9)
        head = value / 10.0**exponent
        power = f"10{str(exponent).translate(SUPERSCRIPT)}"
        return power if abs(head - 1.0) < 1e-6 else f"{head:g}·{power}".replace("-", "−")
    return f"{value:,.6g}".replace("-", "−")


def _ticks(low: float, high: float) -> list[float]:
    raw = (high - low) / 5  # a step is at most 2.5 times this: two ticks or more
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(m * unit for m in (1.0, 2.0, 5.0, 10.0) if m * unit >= raw)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    """Decades if there are three or more, else 1, 2, 5 of each, or round steps in a short range."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    decades = math.log10(high / low)
    if decades >= 2.5:
        step = max(1, math.ceil(decades / 6))
        return [10.0**k for k in range(first, last + 1) if k % step == 0]
    factors = (1.0, 2.0, 5.0) if decades > 0.8 else (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0)
    values = [factor * 10.0**k for k in range(first, last + 1) for factor in factors]
    values = [value for value in values if low <= value <= high]
    return values if decades >= 0.3 and len(values) > 1 else _ticks(low, high)


def row_axis(names: Sequence[str], characters: int = 20) -> Axis:
    """A vertical axis with a name a row, cut to a number of characters."""
    return Axis(names=list(enumerate(told_apart(names, characters))))


def spans(low: np.ndarray, high: np.ndarray, style: str, label: str) -> Line:
    """A horizontal line in each row, float64 (rows,), from ``low`` to ``high``."""
    rows, gap = np.arange(len(low), dtype=float), np.full(len(low), np.nan)
    x, y = (np.column_stack(columns).ravel() for columns in ((low, high, gap), (rows, rows, gap)))
    return Line(x, y, style, label)


def range_panel(
    title: str,
    axis: str,
    groups: Sequence[tuple[str, Sequence[float] | np.ndarray]],
    *,
    middle: str,
    text: str,
    description: str,
) -> Panel:
    """A panel with a row a group: a line from its smallest to its largest value, and a dot at its
    ``middle``, ``mean`` or ``median``.

    ``axis``: the label of the values; ``text``: of a dot, a format of ``name``, ``low``,
    ``middle``, ``high`` and ``n``.
    """
    low, between, high = np.array(
        [[getattr(np, of)(values) for of in ("min", middle, "max")] for _, values in groups]
    ).T
    texts = [
        text.format(name=name, low=low[i], middle=between[i], high=high[i], n=len(values))
        for i, (name, values) in enumerate(groups)
    ]
    return Panel(
        title,
        Axis(axis, low=0.0, include=[0.1]),
        row_axis([name for name, _ in groups]),
        [
            spans(low, high, "span", "smallest to largest"),
            Points(between, np.arange(len(groups), dtype=float), "dot", middle, texts),
        ],
        description,
    )


def predicted_panel(title: str, axis: str, points: Points, description: str) -> Panel:
    """Predicted (y) over measured values, on logarithmic axes with equal limits, where points that
    are predicted at 0 or below have no place. ``axis``: the label of the measured values."""
    shown = np.flatnonzero(points.y > 0)
    x, y = points.x[shown], points.y[shown]
    texts = [points.texts[i] for i in shown.tolist()] if points.texts else []
    scale = log_scale(np.concatenate([points.x, y]), 0.04)
    ends = np.array([scale.low, scale.high])
    return Panel(
        title,
        Axis(axis, log=True, low=scale.low, high=scale.high),
        Axis(log=True, low=scale.low, high=scale.high),
        [
            Line(ends, ends, "model", "predicted = measured"),
            replace(points, x=x, y=y, texts=texts),
        ],
        description,
    )
