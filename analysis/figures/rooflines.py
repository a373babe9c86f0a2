"""Rooflines in time, arch lines and power lines (seed 000, figures 2, 4 and 5)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from analysis.dataset import class_unit, moves_data
from analysis.figures.axes import (
    FRAME,
    Figure,
    Panel,
    Scale,
    curve,
    dots,
    log_scale,
    panel,
    px,
)
from analysis.measurements.observations import setting_text
from analysis.rooflines.power_cap import CappedRoofline
from analysis.rooflines.roofline import PairPoints, Roofline

CURVE_POINTS = 97


def place_text(setting: Sequence[float]) -> str:
    """A setting as the report writes it: ``852/924 MHz``; ``clocks as found`` without any."""
    return "clocks as found" if all(math.isnan(mhz) for mhz in setting) else setting_text(setting)


def unit_name(name: str) -> str:
    """What a class counts: ``flop``, ``op`` or ``B`` (bytes)."""
    return "B" if moves_data(name) else class_unit(name)


def balance_marks(x: Scale, line: Roofline) -> str:
    """B_tau and the effective energy balance as dashed lines, each with its value on top."""
    marks = [
        ("τ", "", line.time_balance, "tau"),
        ("ε", "\u0302", line.half_efficiency_intensity, "eps"),
    ]
    marks = [m for m in marks if math.isfinite(m[2]) and x.low <= m[2] <= x.high]
    marks.sort(key=lambda m: m[2])
    (left, right), (bottom, top) = FRAME.x, FRAME.y
    drawn = []
    for i, (sub, hat, value, name) in enumerate(marks):
        at = x.at(value)
        # The left of two labels stands to the left of its line, so that they never overlap.
        to_left = (len(marks) == 2 and i == 0 and at > left + 50) or at > right - 50
        drawn.append(
            f'<path class="mark {name}" d="M{px(at)} {px(bottom)}V{px(top - 10)}"/>'
            f'<text class="{"end" if to_left else "start"}" '
            f'x="{px(at + (-4 if to_left else 4))}" y="{px(top - 6)}">B{hat}'
            f'<tspan class="sub" dy="3">{sub}</tspan><tspan dy="-3"> {value:.3g}</tspan></text>'
        )
    return "".join(drawn)


def roofline_figure(
    points: PairPoints, line: Roofline, simulated: bool, cap_w: float | None = None
) -> Figure:
    """The three panels of a pair of classes; ``cap_w`` draws a cap on power as a ceiling.

    Raises:
        ValueError: a cap at or below the constant power.
    """
    what = f"{points.operation} {unit_name(points.operation)}s on {points.memory} bytes"
    caption = f"{what}: {len(points.kernels)} kernels at {place_text(points.setting)}."
    if cap_w is not None and np.isfinite(line.constant_w):
        caption += f" Dashed: under a cap of {cap_w:g} W."
    return Figure(
        f"roofline_{points.operation}_{points.memory}",
        caption,
        roofline_panels(points, line, simulated, cap_w),
    )


def roofline_panels(
    points: PairPoints, line: Roofline, simulated: bool, cap_w: float | None = None
) -> list[Panel]:
    """Roofline in time, arch line and power line of a pair; the first alone without energies.

    Raises:
        ValueError: a cap at or below the constant power.
    """
    op = unit_name(points.operation)
    balances = [line.time_balance, line.half_efficiency_intensity]
    x = log_scale([*points.intensity, *(b for b in balances if math.isfinite(b))], *FRAME.x)
    xs = np.geomspace(x.low, x.high, CURVE_POINTS)
    xs = np.sort(np.append(xs, line.time_balance))
    xs = xs[(xs >= x.low) & (xs <= x.high)]
    x_label = f"intensity, {op}/B ({points.operation} per {points.memory} byte)"
    where = f"{points.operation} and {points.memory} at {place_text(points.setting)}"
    where += ", simulated" if simulated else ""
    with_energy = bool(np.isfinite(line.eps_op_j)) and line.op_energy_j > 0
    capped = CappedRoofline(line, cap_w) if cap_w is not None and with_energy else None

    def line_panel(
        title: str, unit: str, measured: np.ndarray, model: np.ndarray, under_cap: np.ndarray | None
    ) -> Panel:
        known = [v for v in (*measured, *model) if math.isfinite(v) and v > 0]
        if unit == "W":
            y = Scale(0.0, max([*known, cap_w or 0.0]) * 1.08, *FRAME.y)
        else:
            y = log_scale([*known, *(under_cap if under_cap is not None else [])], *FRAME.y)
        names = [
            f"{kernel.label}: {v:.4g} {unit} at intensity {i:.4g}"
            for kernel, v, i in zip(points.kernels, measured, points.intensity, strict=True)
        ]
        marks = [balance_marks(x, line), curve(x, y, xs, model, "model")]
        if under_cap is not None:
            marks.append(curve(x, y, xs, under_cap, "capped"))
        marks.append(dots(x, y, points.intensity, measured, names, "dot"))
        return panel(
            f"{title}, {unit}",
            x_label,
            x,
            y,
            marks,
            f"{title} of {where}: {len(points.kernels)} measured kernels and the model's line",
        )

    def giga(values: np.ndarray) -> np.ndarray:
        return values / 1e9

    drawn = [
        line_panel(
            "Roofline in time",
            f"G{op}/s",
            giga(points.operations / points.time_s),
            giga(line.speed_ops_s(xs)),
            giga(capped.speed_ops_s(xs)) if capped else None,
        )
    ]
    if with_energy:
        drawn += [
            line_panel(
                "Arch line",
                f"G{op}/J",
                giga(points.operations / points.energy_j),
                giga(line.efficiency_ops_j(xs)),
                giga(capped.efficiency_ops_j(xs)) if capped else None,
            ),
            line_panel(
                "Power line",
                "W",
                points.energy_j / points.time_s,
                line.power_w(xs),
                capped.power_w(xs) if capped else None,
            ),
        ]
    return drawn
