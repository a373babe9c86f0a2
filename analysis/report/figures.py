"""The report's figures: inline SVG, drawn with the page's own colours and type.

Axes and text take ``currentColor`` and marks take classes that the page's style colours, so one
drawing serves the light page and the dark one. Text is escaped; nothing depends on the date.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup, escape

from analysis.observations import setting_text
from analysis.roofline import OPERATION_CLASSES, PairPoints, Roofline

WIDTH, HEIGHT = 380, 280
LEFT, RIGHT, TOP, BOTTOM = 46, 14, 44, 42
SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
CURVE_POINTS = 97


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

    def ticks(self) -> list[tuple[float, str]]:
        """Round values inside the scale, and how each is written."""
        values = _log_ticks(self.low, self.high) if self.log else _ticks(self.low, self.high)
        inside = [v for v in values if self.low * (1 - 1e-9) <= v <= self.high * (1 + 1e-9)] \
            if self.log else [v for v in values if self.low <= v <= self.high]
        return [(v, tick_text(v)) for v in inside]


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
    first, last = math.ceil(low / step), math.floor(high / step)
    return [round(i * step, 12) for i in range(first, last + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    """Decades where there are three or more, else 1, 2, 5 of each."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    decades = math.log10(high / low)
    if decades >= 2.5:
        every = max(1, math.ceil(decades / 6))
        return [10.0**k for k in range(first, last + 1) if k % every == 0]
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


def x_pixels() -> tuple[float, float]:
    """Where a panel's horizontal axis starts and ends."""
    return LEFT, WIDTH - RIGHT


def y_pixels() -> tuple[float, float]:
    """Where a panel's vertical axis starts (at the bottom) and ends."""
    return HEIGHT - BOTTOM, TOP


def panel(
    title: str, x_label: str, x: Scale, y: Scale, marks: Sequence[str], description: str
) -> Markup:
    """One panel: title with the vertical axis' unit, axes, grid, and marks drawn upon them."""
    bottom, top = y_pixels()
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(description)}">',
        f'<text class="title" x="2" y="13">{escape(title)}</text>',
    ]
    for value, text in x.ticks():
        at = _px(x.at(value))
        parts.append(f'<path class="grid" d="M{at} {bottom}V{top}"/>')
        parts.append(f'<text class="mid" x="{at}" y="{bottom + 15}">{escape(text)}</text>')
    for value, text in y.ticks():
        up = y.at(value)
        parts.append(f'<path class="grid" d="M{LEFT} {_px(up)}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text class="end" x="{LEFT - 6}" y="{_px(up + 3.8)}">{escape(text)}</text>')
    parts.append(f'<path class="axis" d="M{LEFT} {top}V{bottom}H{WIDTH - RIGHT}"/>')
    parts.append(
        f'<text class="mid" x="{(LEFT + WIDTH - RIGHT) / 2:g}" y="{HEIGHT - 8}">'
        f"{escape(x_label)}</text>"
    )
    return Markup("".join([*parts, *marks, "</svg>"]))  # noqa: S704  (every text is escaped)


def _px(pixel: float) -> str:
    return f"{pixel:.1f}".removesuffix(".0")


def curve(x: Scale, y: Scale, xs: np.ndarray, ys: np.ndarray, name: str) -> str:
    """A line through points, in the style ``name``; it breaks where it leaves the panel."""
    parts = []
    pen_down = False
    for a, b in zip(xs, ys, strict=True):
        inside = bool(np.isfinite(b)) and y.low * (1 - 1e-9) <= b <= y.high * (1 + 1e-9)
        if inside:
            parts.append(f"{'L' if pen_down else 'M'}{_px(x.at(a))} {_px(y.at(b))}")
        pen_down = inside
    return f'<path class="line {name}" d="{"".join(parts)}"/>'


def dots(
    x: Scale, y: Scale, xs: np.ndarray, ys: np.ndarray, names: Sequence[str], name: str
) -> str:
    """A dot a point, each with a text that shows when it is pointed at."""
    return "".join(
        f'<circle class="{name}" cx="{_px(x.at(a))}" cy="{_px(y.at(b))}" r="3.2">'
        f"<title>{escape(text)}</title></circle>"
        for a, b, text in zip(xs, ys, names, strict=True)
        if np.isfinite(b) and (b > 0 or not y.log)
    )


def cloud(x: Scale, y: Scale, xs: np.ndarray, ys: np.ndarray, name: str) -> str:
    """Very many dots, as one path of strokes without length and with round ends."""
    path = "".join(
        f"M{_px(x.at(a))} {_px(y.at(b))}h0" for a, b in zip(xs, ys, strict=True)
    )
    return f'<path class="cloud {name}" d="{path}"/>'


def balance_marks(x: Scale, line: Roofline) -> str:
    """B_tau and the effective energy balance as dashed lines, each with its value on top."""
    marks = [("τ", "", line.time_balance, "tau"),
             ("ε", "\u0302", line.half_efficiency_intensity, "eps")]
    marks = [m for m in marks if math.isfinite(m[2]) and x.low <= m[2] <= x.high]
    marks.sort(key=lambda m: m[2])
    bottom, top = y_pixels()
    drawn = []
    for i, (sub, hat, value, name) in enumerate(marks):
        at = x.at(value)
        # The left of two labels stands to the left of its line, so that they never overlap.
        to_left = (len(marks) == 2 and i == 0 and at > LEFT + 50) or at > WIDTH - RIGHT - 50
        drawn.append(
            f'<path class="mark {name}" d="M{_px(at)} {bottom}V{top - 10}"/>'
            f'<text class="{"end" if to_left else "start"}" '
            f'x="{_px(at + (-4 if to_left else 4))}" y="{top - 6}">B{hat}'
            f'<tspan class="sub" dy="3">{sub}</tspan><tspan dy="-3"> {value:.3g}</tspan></text>'
        )
    return "".join(drawn)


def place_text(setting: Sequence[float]) -> str:
    """A setting as the report writes it: ``852/924 MHz``; ``clocks as found`` without any."""
    return "clocks as found" if all(math.isnan(mhz) for mhz in setting) else setting_text(setting)


def unit_name(name: str) -> str:
    """What a class counts: ``flop``, ``op`` or ``B`` (bytes)."""
    if name not in OPERATION_CLASSES:
        return "B"
    return "op" if name == "int" else "flop"


def roofline_panels(points: PairPoints, line: Roofline, simulated: bool) -> list[Markup]:
    """Roofline in time, arch line and power line of a pair; the first alone without energies."""
    op = unit_name(points.operation)
    balances = [line.time_balance, line.half_efficiency_intensity]
    x = log_scale([*points.intensity, *(b for b in balances if math.isfinite(b))], *x_pixels())
    xs = np.geomspace(x.low, x.high, CURVE_POINTS)
    xs = np.sort(np.append(xs, line.time_balance))
    xs = xs[(xs >= x.low) & (xs <= x.high)]
    x_label = f"intensity, {op}/B ({points.operation} per {points.memory} byte)"
    where = f"{points.operation} and {points.memory} at {place_text(points.setting)}"
    where += ", simulated" if simulated else ""
    drawn = [
        _line_panel(
            "Roofline in time", f"G{op}/s", x_label, where, x, points, line,
            points.operations / points.time_s / 1e9, xs, line.speed_ops_s(xs) / 1e9, True,
        )
    ]
    if np.isfinite(line.eps_op_j) and line.op_energy_j > 0:
        drawn += [
            _line_panel(
                "Arch line", f"G{op}/J", x_label, where, x, points, line,
                points.operations / points.energy_j / 1e9, xs, line.efficiency_ops_j(xs) / 1e9,
                True,
            ),
            _line_panel(
                "Power line", "W", x_label, where, x, points, line,
                points.energy_j / points.time_s, xs, line.power_w(xs), False,
            ),
        ]
    return drawn


def _line_panel(
    title: str, unit: str, x_label: str, where: str, x: Scale, points: PairPoints,
    line: Roofline, measured: np.ndarray, xs: np.ndarray, model: np.ndarray, log: bool,
) -> Markup:
    known = [v for v in (*measured, *model) if math.isfinite(v) and v > 0]
    y = log_scale(known, *y_pixels()) if log else Scale(0.0, max(known) * 1.08, *y_pixels())
    names = [
        f"{kernel}: {v:.4g} {unit} at intensity {i:.4g}"
        for kernel, v, i in zip(points.kernel, measured, points.intensity, strict=True)
    ]
    marks = [
        balance_marks(x, line), curve(x, y, xs, model, "model"),
        dots(x, y, points.intensity, measured, names, "dot"),
    ]
    return panel(
        f"{title}, {unit}", x_label, x, y, marks,
        f"{title} of {where}: {len(points.kernel)} measured kernels and the model's line",
    )


def prediction_panels(measured_j: np.ndarray, predicted_j: np.ndarray, what: str) -> list[Markup]:
    """Predicted against measured energy, and the histogram of the relative error.

    ``measured_j``, ``predicted_j``: float64 (rows,), J; rows without a prediction are left out.
    """
    known = np.isfinite(predicted_j) & np.isfinite(measured_j)
    measured_j, predicted_j = measured_j[known], predicted_j[known]
    positive = predicted_j > 0
    both = [*measured_j, *predicted_j[positive]]
    x, y = log_scale(both, *x_pixels(), 0.04), log_scale(both, *y_pixels(), 0.04)
    ends = np.array([x.low, x.high])
    scatter = panel(
        "Predicted energy, J", "measured energy, J", x, y,
        [
            curve(x, y, ends, ends, "model"),
            cloud(x, y, measured_j[positive], predicted_j[positive], "dot"),
        ],
        f"Predicted against measured energy, {what}: {len(measured_j)} predictions out of fold",
    )
    return [scatter, error_histogram((predicted_j / measured_j - 1.0) * 100.0, what)]


def error_histogram(error_pct: np.ndarray, what: str) -> Markup:
    """How often each signed relative error in percent occurs: float64 (rows,)."""
    reach = max(float(np.max(np.abs(error_pct))), 0.1)
    width = next(
        step for step in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, reach)
        if 2 * reach / step <= 48
    )
    half = math.ceil(reach / width)
    edges = np.arange(-half, half + 1) * width
    counts, _ = np.histogram(error_pct, edges)
    x = Scale(float(edges[0]), float(edges[-1]), *x_pixels())
    y = Scale(0.0, float(counts.max()) * 1.08, *y_pixels())
    bottom, top = y_pixels()
    bars = "".join(
        f'<rect class="bar" x="{_px(x.at(low) + 0.4)}" y="{_px(y.at(n))}" '
        f'width="{_px(x.at(low + width) - x.at(low) - 0.8)}" height="{_px(bottom - y.at(n))}">'
        f"<title>{low:.3g} to {low + width:.3g} %: {n}</title></rect>"
        for low, n in zip(edges[:-1], counts, strict=True)
        if n
    )
    zero = f'<path class="axis" d="M{_px(x.at(0.0))} {bottom}V{top}"/>'
    return panel(
        f"Predictions by error, count in {width:g} %", "predicted over measured energy − 1, %",
        x, y, [bars, zero], f"Histogram of the relative error of predicted energy, {what}",
    )


def percent_over(values: np.ndarray) -> np.ndarray:
    """How far each value lies above the least, in percent: float64, same shape."""
    return np.asarray((values / np.nanmin(values) - 1.0) * 100.0)


LEVELS = (0.5, 2.0, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0)


def level(percent: float) -> int:
    """Which of the nine shades a cell of an energy grid has."""
    return sum(percent >= limit for limit in LEVELS)

