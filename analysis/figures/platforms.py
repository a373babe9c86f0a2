"""Machines as papers print them, and machines side by side.

Choi & Vuduc 2012: roofline in time and arch line on one plot (figure 2a), the power line over the
power of operations (figure 2b), with the balance that would hold without constant power (figures 4
and 5).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from analysis.figures.figure import Axis, Figure, Line, Panel, Rule, Series, log_scale
from analysis.figures.labels import unit_name
from analysis.figures.tradeoffs import greenup_figure
from analysis.rooflines.platforms import Platform
from analysis.rooflines.power_cap import CappedRoofline
from analysis.rooflines.roofline import Roofline

CURVE_POINTS = 193
REACH = 16.0
"""How far the intensities go below the least balance and above the greatest."""
STYLES = tuple(f"k{i}" for i in (4, 5, 2, 6, 1, 0, 7, 3, 8))


def platform_figures(platform: Platform, cap_w: float | None = None) -> list[Figure]:
    """For each class of operations: normalised lines and power; speedup against greenup.

    Raises:
        ValueError: a cap at or below the constant power.
    """
    figures = []
    for operation in platform.operations:
        line = platform.line(operation)
        figures.append(
            Figure(
                f"roofline_{platform.name}_{operation}",
                f"{platform.model}: {operation} operations on bytes of {line.memory}, constants by "
                f"{platform.source}. Left: speed over its peak and operations per joule over "
                f"their most. Right: power over that of the operations alone, "
                f"{line.op_power_w:.4g} W.",
                [normalised_panel(platform, line), power_panel(platform, line, cap_w)],
            )
        )
        greenup = greenup_figure(line, platform.model, False)
        name = f"speedup_greenup_{platform.name}_{operation}"
        figures.append(Figure(name, greenup.caption, greenup.panels))
    return figures


def normalised_panel(platform: Platform, line: Roofline) -> Panel:
    """Roofline in time and arch line, each over its best (figure 2a), with the balances.

    ``attained``: the roofline from the best rates of the paper's microbenchmarks.
    """
    of = platform.operations[line.operation]
    xs = _intensities([line])
    series: list[Series] = [
        *_balances(line),
        Line(xs, line.speed_ops_s(xs) * line.tau_op_s, "power", "roofline in time"),
        Line(xs, line.efficiency_ops_j(xs) * line.op_energy_j, "model", "arch line"),
    ]
    if math.isfinite(of.attained_gop_s):
        attained = np.minimum(of.attained_gop_s, of.attained_gb_s * xs) / of.gop_s
        series.append(Line(xs, attained, "attained", "attained"))
    return Panel(
        "Speed and efficiency, over their best",
        _intensity_axis(line, xs),
        Axis(log=True, high=1.3),
        series,
        f"Roofline in time and arch line of {platform.model}, {line.operation} on {line.memory}",
    )


def power_panel(platform: Platform, line: Roofline, cap_w: float | None = None) -> Panel:
    """Power over the power of operations alone (figure 2b), with and without constant power.

    Raises:
        ValueError: a cap at or below the constant power.
    """
    xs, unit_w = _intensities([line]), line.op_power_w
    series: list[Series] = list(_balances(line))
    series.append(Line(xs, line.power_w(xs) / unit_w, "model", "power"))
    if line.constant_w > 0:
        without = (line.power_w(xs) - line.constant_w) / unit_w
        series.append(Line(xs, without, "power", "power without constant power"))
    if cap_w is not None:
        capped = CappedRoofline(line, cap_w).power_w(xs)
        series.append(Line(xs, capped / unit_w, "capped", f"under a cap of {cap_w:g} W"))
    if math.isfinite(platform.tdp_w):
        label = "stated thermal design power"
        series.append(Rule(platform.tdp_w / unit_w, "range", label, vertical=False))
    series.append(Rule(1.0, "even", "power of operations alone", vertical=False))
    return Panel(
        "Power, over that of the operations",
        _intensity_axis(line, xs),
        Axis(),
        series,
        f"Power line of {platform.model}, {line.operation} on {line.memory}",
    )


def comparison_figures(lines: Sequence[tuple[str, Roofline]], simulated: bool) -> list[Figure]:
    """Machines on one plot, in operations per second and per joule: a figure for each pair.

    ``lines``: the machine's name, and one of its rooflines with energies. A pair of classes that
    a single machine has gives no figure.
    """
    figures = []
    names = list(dict.fromkeys(name for name, _ in lines))
    for pair in dict.fromkeys((line.operation, line.memory) for _, line in lines):
        of = [(name, line) for name, line in lines if (line.operation, line.memory) == pair]
        if len(of) < 2:
            continue
        xs = _intensities([line for _, line in of])
        unit = unit_name(pair[0])
        panels = []
        for title, per, values in (
            ("Roofline in time", "s", [line.speed_ops_s(xs) for _, line in of]),
            ("Arch line", "J", [line.efficiency_ops_j(xs) for _, line in of]),
        ):
            series: list[Series] = [
                Line(xs, value / 1e9, STYLES[names.index(name) % len(STYLES)], name)
                for (name, _), value in zip(of, values, strict=True)
            ]
            panels.append(
                Panel(
                    f"{title}, G{unit}/{per}",
                    _intensity_axis(of[0][1], xs),
                    Axis(log=True),
                    series,
                    f"{title} of {len(of)} machines, {pair[0]} on {pair[1]}",
                )
            )
        marked = ", one of them simulated" if simulated else ""
        figures.append(
            Figure(
                f"machines_{pair[0]}_{pair[1]}",
                f"{pair[0]} operations on bytes of {pair[1]}: {len(of)} machines{marked}.",
                panels,
            )
        )
    return figures


def _intensities(lines: Sequence[Roofline]) -> np.ndarray:
    """Intensities around every balance, each time balance among them: float64, rising."""
    balances = [
        value
        for line in lines
        for value in (line.time_balance, line.half_efficiency_intensity, line.energy_balance)
        if math.isfinite(value) and value > 0
    ]
    low, high = min(balances) / REACH, max(balances) * REACH
    corners = [line.time_balance for line in lines]
    return np.sort(np.append(np.geomspace(low, high, CURVE_POINTS), corners))


def _intensity_axis(line: Roofline, xs: np.ndarray) -> Axis:
    label = f"intensity, {unit_name(line.operation)}/B"
    x = log_scale(xs.tolist(), 0.0)
    return Axis(label, log=True, low=x.low, high=x.high)


def _balances(line: Roofline) -> list[Rule]:
    """B_tau and B^_eps with their values, and B_eps as it is without constant power."""
    half, b_tau = line.half_efficiency_intensity, line.time_balance
    rules = [
        Rule(b_tau, "tau", text=f"Bτ {b_tau:.3g}", text_left=b_tau <= half),
        Rule(half, "eps", text=f"B\u0302ε {half:.3g}", text_left=half < b_tau),
    ]
    if line.constant_w > 0 and math.isfinite(line.energy_balance):
        label = f"Bε {line.energy_balance:.3g} without constant power"
        rules.append(Rule(line.energy_balance, "eps_free", label))
    return rules
