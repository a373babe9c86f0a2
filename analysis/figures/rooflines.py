"""Rooflines in time, arch lines and power lines (Choi & Vuduc 2012, figures 2, 4 and 5)."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from analysis.figures.figure import Axis, Figure, Line, Panel, Points, Rule, log_scale
from analysis.figures.labels import setting_label, unit_name
from analysis.rooflines.power_cap import CappedRoofline
from analysis.rooflines.roofline import PairPoints, Roofline

CURVE_POINTS = 97


def roofline_figure(
    points: PairPoints, line: Roofline, simulated: bool, cap_w: float | None = None
) -> Figure:
    """Roofline in time, arch line and power line of a pair; the first alone without energies.

    ``cap_w`` draws a cap on power as a ceiling.

    Raises:
        ValueError: a cap at or below the constant power.
    """
    op = unit_name(points.operation)
    with_energy = bool(np.isfinite(line.eps_op_j)) and line.op_energy_j > 0
    capped = CappedRoofline(line, cap_w) if cap_w is not None and with_energy else None
    balances = [
        (value, style, name)
        for value, style, name in (
            (line.time_balance, "tau", "Bτ"),
            (line.half_efficiency_intensity, "eps", "B\u0302ε"),
        )
        if math.isfinite(value)
    ]
    lowest = min(value for value, _, _ in balances)
    x = log_scale([*points.intensity, *(value for value, _, _ in balances)], 0.08)
    xs = np.sort(np.append(np.geomspace(x.low, x.high, CURVE_POINTS), line.time_balance))
    xs = xs[(xs >= x.low) & (xs <= x.high)]
    where = f"{points.operation} and {points.memory} at {setting_label(points.setting)}"
    where += ", simulated" if simulated else ""

    def panel(
        title: str,
        unit: str,
        measured: np.ndarray,
        model: Callable[[Roofline | CappedRoofline], np.ndarray],
    ) -> Panel:
        texts = [
            f"{kernel.label}: {v:.4g} {unit} at intensity {i:.4g}"
            for kernel, v, i in zip(points.kernels, measured, points.intensity, strict=True)
        ]
        # The texts of two rules stand on either side, so that they do not overlap.
        rules = [
            Rule(
                value,
                style,
                text=f"{name} {value:.3g}",
                text_left=len(balances) > 1 and value == lowest,
            )
            for value, style, name in balances
        ]
        lines = [Line(xs, model(line), "model", "model")]
        if capped is not None:
            lines.append(Line(xs, model(capped), "capped", "under the cap"))
        dots = Points(points.intensity, measured, "dot", "measured kernel", texts)
        return Panel(
            f"{title}, {unit}",
            Axis(
                f"intensity, {op}/B ({points.operation} per {points.memory} byte)",
                log=True,
                low=x.low,
                high=x.high,
            ),
            Axis(log=unit != "W", include=[cap_w] if cap_w and unit == "W" else []),
            [*rules, *lines, dots],
            f"{title} of {where}: {len(points.kernels)} measured kernels and the model's line",
        )

    speed = points.operations / points.time_s / 1e9
    panels = [panel("Roofline in time", f"G{op}/s", speed, lambda of: of.speed_ops_s(xs) / 1e9)]
    if with_energy:
        per_joule = points.operations / points.energy_j / 1e9
        power_w = points.energy_j / points.time_s
        panels += [
            panel("Arch line", f"G{op}/J", per_joule, lambda of: of.efficiency_ops_j(xs) / 1e9),
            panel("Power line", "W", power_w, lambda of: of.power_w(xs)),
        ]
    caption = (
        f"{points.operation} {op}s on {points.memory} bytes: {len(points.kernels)} kernels at "
        f"{setting_label(points.setting)}."
    )
    caption += f" Dashed: under a cap of {cap_w:g} W." if capped else ""
    return Figure(f"roofline_{points.operation}_{points.memory}", caption, panels)
