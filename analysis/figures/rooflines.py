"""Rooflines of a site and of published machines, and kernels' fractions of the roof.

Machines are drawn as in Choi & Vuduc 2012: roofline in time and arch line on one plot (figure 2a),
the power line over the power of operations (figure 2b), with the balance without constant power
(figures 4 and 5).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from analysis.figures.figure import (
    Axis,
    Figure,
    Line,
    Panel,
    Points,
    Rule,
    Series,
    log_scale,
    range_panel,
)
from analysis.figures.labels import by_family, marked, setting_label, unit_name
from analysis.figures.tradeoffs import greenup_figure
from analysis.measurements.hardware_counters import KernelCounters
from analysis.rooflines.platforms import Platform
from analysis.rooflines.power_cap import CappedRoofline
from analysis.rooflines.roofline import PairPoints, RoofFraction, Roofline

PLATFORM_CURVE_POINTS = 193
REACH = 16.0
"""The factor by which intensities extend below the least and above the greatest balance."""
STYLES = tuple(f"k{i}" for i in (4, 5, 2, 6, 1, 0, 7, 3, 8))
CURVE_POINTS = 97


def utilisation_figure(
    roofs: Sequence[RoofFraction],
    counters: Sequence[KernelCounters],
    families: Mapping[str, str],
    site: str,
    simulated: bool,
) -> Figure:
    """The fraction of the roof in %, and instructions per cycle if counters were read: the median
    over the kernels of a family, and the range."""
    where = marked(site, simulated)
    shares = {roof.label: 100.0 * roof.fraction for roof in roofs}
    panels = [_panel("Fraction of the roof, %", "fraction of the roof, %", shares, families, where)]
    per_cycle = {
        entry.label: entry.instructions_per_cycle
        for entry in counters
        if np.isfinite(entry.instructions_per_cycle)
    }
    if per_cycle:
        title = "Instructions per cycle"
        panels.append(_panel(title, title.lower(), per_cycle, families, where))
    return Figure(
        "utilisation",
        "How close kernels come to the best rate of any kernel at the same setting, by family: "
        "the median over the kernels of a family, and the range.",
        panels,
    )


def _panel(
    title: str, axis: str, values: Mapping[str, float], families: Mapping[str, str], subject: str
) -> Panel:
    return range_panel(
        title,
        axis,
        list(by_family(values, families).items()),
        middle="median",
        text="{name}: {middle:.3g} in the median, {low:.3g} to {high:.3g}, {n} kernels",
        description=f"{title} by family of kernels, {subject}",
    )


def platform_figures(platform: Platform, cap_w: float | None = None) -> list[Figure]:
    """For each class of operations: normalised lines and power, and speedup against greenup.

    Raises:
        CapError: a cap at or below the constant power.
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
    """Roofline in time and arch line, each over its maximum (figure 2a), with the balances.

    ``attained``: the roofline from the best rates of the paper's microbenchmarks.
    """
    peak = platform.operations[line.operation]
    xs = _intensities([line])
    series: list[Series] = [
        *_all_balances(line),
        Line(xs, line.speed_ops_s(xs) * line.tau_op_s, "power", "roofline in time"),
        Line(xs, line.efficiency_ops_j(xs) * line.op_energy_j, "model", "arch line"),
    ]
    if math.isfinite(peak.attained_gop_s):
        attained = np.minimum(peak.attained_gop_s, peak.attained_gb_s * xs) / peak.gop_s
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
        CapError: a cap at or below the constant power.
    """
    xs, unit_w = _intensities([line]), line.op_power_w
    series: list[Series] = list(_all_balances(line))
    series.append(Line(xs, line.power_w(xs) / unit_w, "model", "power"))
    if line.constant_w > 0:
        dynamic = (line.power_w(xs) - line.constant_w) / unit_w
        series.append(Line(xs, dynamic, "power", "power without constant power"))
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
    """A figure for each pair of classes: machines in operations per second and per joule.

    ``lines``: the machine's name, and one of its rooflines with energies. A pair of classes of a
    single machine has no figure.
    """
    figures = []
    names = list(dict.fromkeys(name for name, _ in lines))
    for pair in dict.fromkeys((line.operation, line.memory) for _, line in lines):
        with_pair = [(name, line) for name, line in lines if (line.operation, line.memory) == pair]
        if len(with_pair) < 2:
            continue
        xs = _intensities([line for _, line in with_pair])
        unit = unit_name(pair[0])
        panels = []
        for title, per, values in (
            ("Roofline in time", "s", [line.speed_ops_s(xs) for _, line in with_pair]),
            ("Arch line", "J", [line.efficiency_ops_j(xs) for _, line in with_pair]),
        ):
            series: list[Series] = [
                Line(xs, value / 1e9, STYLES[names.index(name) % len(STYLES)], name)
                for (name, _), value in zip(with_pair, values, strict=True)
            ]
            panels.append(
                Panel(
                    f"{title}, G{unit}/{per}",
                    _intensity_axis(with_pair[0][1], xs),
                    Axis(log=True),
                    series,
                    f"{title} of {len(with_pair)} machines, {pair[0]} on {pair[1]}",
                )
            )
        note = ", one of them simulated" if simulated else ""
        figures.append(
            Figure(
                f"machines_{pair[0]}_{pair[1]}",
                f"{pair[0]} operations on bytes of {pair[1]}: {len(with_pair)} machines{note}.",
                panels,
            )
        )
    return figures


def _intensities(lines: Sequence[Roofline]) -> np.ndarray:
    """Intensities around all balances, including each time balance: float64, rising."""
    balances = [
        value
        for line in lines
        for value in (line.time_balance, line.half_efficiency_intensity, line.energy_balance)
        if math.isfinite(value) and value > 0
    ]
    low, high = min(balances) / REACH, max(balances) * REACH
    corners = [line.time_balance for line in lines]
    return np.sort(np.append(np.geomspace(low, high, PLATFORM_CURVE_POINTS), corners))


def _intensity_axis(line: Roofline, xs: np.ndarray) -> Axis:
    label = f"intensity, {unit_name(line.operation)}/B"
    x = log_scale(xs.tolist(), 0.0)
    return Axis(label, log=True, low=x.low, high=x.high)


def _balances(line: Roofline) -> list[Rule]:
    """B_tau and, if it is known, B^_eps. Their texts stand on their outer sides, so that they do
    not overlap."""
    half, b_tau = line.half_efficiency_intensity, line.time_balance
    rules = [
        Rule(b_tau, "tau", text=f"Bτ {b_tau:.3g}", text_left=b_tau <= half),
        Rule(half, "eps", text=f"B\u0302ε {half:.3g}", text_left=half < b_tau),
    ]
    return [rule for rule in rules if math.isfinite(rule.at)]


def _all_balances(line: Roofline) -> list[Rule]:
    """Also B_eps, the balance without constant power, if there is such power."""
    rules = _balances(line)
    if line.constant_w > 0 and math.isfinite(line.energy_balance):
        label = f"Bε {line.energy_balance:.3g} without constant power"
        rules.append(Rule(line.energy_balance, "eps_free", label))
    return rules


def roofline_figure(
    points: PairPoints, line: Roofline, simulated: bool, cap_w: float | None = None
) -> Figure:
    """Roofline in time, arch line and power line of a pair; without energies only the first.

    ``cap_w``: also the lines under a cap on power.

    Raises:
        CapError: a cap at or below the constant power.
    """
    op = unit_name(points.operation)
    with_energy = bool(np.isfinite(line.eps_op_j)) and line.op_energy_j > 0
    capped = CappedRoofline(line, cap_w) if cap_w is not None and with_energy else None
    rules = _balances(line)
    x = log_scale([*points.intensity, *(rule.at for rule in rules)], 0.08)
    xs = np.sort(np.append(np.geomspace(x.low, x.high, CURVE_POINTS), line.time_balance))
    xs = xs[(xs >= x.low) & (xs <= x.high)]
    at = setting_label(points.setting)
    where = marked(f"{points.operation} and {points.memory} at {at}", simulated)

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
    panels = [panel("Roofline in time", f"G{op}/s", speed, lambda roof: roof.speed_ops_s(xs) / 1e9)]
    if with_energy:
        per_joule = points.operations / points.energy_j / 1e9
        power_w = points.energy_j / points.time_s
        panels += [
            panel("Arch line", f"G{op}/J", per_joule, lambda roof: roof.efficiency_ops_j(xs) / 1e9),
            panel("Power line", "W", power_w, lambda roof: roof.power_w(xs)),
        ]
    caption = (
        f"{points.operation} {op}s on {points.memory} bytes: {len(points.kernels)} kernels at {at}."
    )
    caption += f" Dashed: under a cap of {cap_w:g} W." if capped else ""
    return Figure(f"roofline_{points.operation}_{points.memory}", caption, panels)
