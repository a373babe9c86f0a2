"""Trade-offs: time against energy over settings, speedup against greenup, savings of the picks.

Speedup against greenup is figure 8 of Choi & Vuduc 2012.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from analysis.choice.candidates import SettingCandidates
from analysis.choice.fronts import pareto_front, pareto_steps
from analysis.choice.pick import Pick
from analysis.figures.figure import (
    Axis,
    Bars,
    Figure,
    Line,
    Panel,
    Points,
    Rule,
    log_scale,
    row_axis,
    spans,
)
from analysis.figures.labels import by_family, marked, setting_label, told_apart, unit_name
from analysis.rooflines.greenup import (
    BECOMES_COMPUTE_BOUND,
    BOTH_COMPUTE_BOUND,
    BOTH_MEMORY_BOUND,
    bounds,
    case,
    greenup,
    speedup,
)
from analysis.rooflines.roofline import Roofline
from dvfs.kernel_instance import KernelInstance, short_labels

CASE_TEXT = {
    BOTH_MEMORY_BOUND: "both memory-bound",
    BECOMES_COMPUTE_BOUND: "becomes compute-bound",
    BOTH_COMPUTE_BOUND: "both compute-bound",
}
WORK = np.geomspace(1.0, 4.0, 7)
"""The f of figure 8, which multiplies the operations."""
SAVED = np.geomspace(1.0, 16.0, 7)
"""The m of figure 8, which divides the bytes."""
INTENSITIES = 5
PARETO_SHOWN = 6
PARETO_TITLE = 25
"""The most characters of a kernel's name in the title of its panel."""


def savings_figure(
    picks: Sequence[Pick], families: Mapping[str, str], site: str, simulated: bool
) -> Figure:
    """The energy saved and the time added by the picks of each family, against the fastest setting.

    A bar is the median over the kernels of a family, the line its range.
    """
    groups = by_family({pick.label: pick for pick in picks}, families)
    panels = []
    for title, label, attribute, style in (
        ("Energy saved by the picks, %", "energy saved", "saving_pct", "k2"),
        ("Additional run time, %", "additional run time", "slowdown_pct", "k1"),
    ):
        values = [[getattr(pick, attribute) for pick in group] for group in groups.values()]
        low, median, high = (np.array([f(v) for v in values]) for f in (np.min, np.median, np.max))
        texts = [
            f"{name}: {m:.1f} % in the median, {a:.1f} to {b:.1f} %, {len(v)} kernels"
            for name, a, m, b, v in zip(groups, low, median, high, values, strict=True)
        ]
        panels.append(
            Panel(
                title,
                Axis(f"{label}, %", include=[0.0, 5.0]),
                row_axis(list(groups)),
                [
                    Bars(
                        at=np.arange(len(groups), dtype=float),
                        start=np.zeros(len(groups)),
                        end=median,
                        style=style,
                        label=f"{label}, median",
                        texts=texts,
                        across=True,
                    ),
                    spans(low, high, "range", "smallest to largest"),
                ],
                marked(f"{title[: -len(', %')]} by family of kernels, {site}", simulated),
            )
        )
    return Figure(
        "savings",
        "Predicted savings of the picks against each kernel's fastest setting, by family of "
        "kernels: the median over the kernels of a family, and the range.",
        panels,
    )


def trade_off_points(line: Roofline) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Intensity, f and m of the points of figure 8, float64, of one length.

    Intensities range from a quarter of the time balance to the greater balance, as in the paper,
    and at least to twice the time balance, so that every case has points.
    """
    balance = line.time_balance
    highest = line.energy_balance if math.isfinite(line.energy_balance) else balance
    intensity = np.geomspace(balance / 4.0, max(highest, 2.0 * balance), INTENSITIES)
    i, f, m = np.meshgrid(intensity, WORK, SAVED, indexing="ij")
    changed = (f > 1.0) | (m > 1.0)
    return i[changed], f[changed], m[changed]


def greenup_figure(line: Roofline, machine: str, simulated: bool) -> Figure:
    """Greenup against speedup by case, with their bounds (Choi & Vuduc 2012, figure 8).

    ``machine``: the setting, or a platform's name. The line's energies must be known.
    """
    i, f, m = trade_off_points(line)
    cases = case(line, i, f, m)
    fast, green = speedup(line, i, f, m), greenup(line, i, f, m)
    limits = bounds(line, i, f, m)
    x, y = log_scale([*fast, 1.0], 0.05), log_scale([*green, 1.0], 0.05)
    where = marked(f"{line.operation} on {line.memory} at {machine}", simulated)
    panels = []
    for code, case_text in CASE_TEXT.items():
        in_case = cases == code
        if not in_case.any():
            continue
        texts = [
            f"I = {a:.3g}, f = {b:.3g}, m = {c:.3g}: speedup {d:.3g}, greenup {e:.3g}"
            for a, b, c, d, e in zip(
                i[in_case],
                f[in_case],
                m[in_case],
                fast[in_case],
                green[in_case],
                strict=True,
            )
        ]
        rules = [Rule(1.0, "even", "1: no change", vertical=v) for v in (True, False)]
        rules += [
            Rule(float(value), "bound", "bounds of the case", vertical=vertical)
            for low, high, vertical in (
                (limits.speedup_low, limits.speedup_high, True),
                (limits.greenup_low, limits.greenup_high, False),
            )
            for value in (low[in_case].min(), high[in_case].max())
        ]
        panels.append(
            Panel(
                f"Greenup; {case_text}",
                Axis("speedup", log=True, low=x.low, high=x.high),
                Axis(log=True, low=y.low, high=y.high),
                [*rules, Points(fast[in_case], green[in_case], "dot", "", texts)],
                f"Greenup against speedup, {case_text}: {int(in_case.sum())} trade-offs, {where}",
            )
        )
    unit = unit_name(line.operation)
    return Figure(
        f"speedup_greenup_{line.operation}_{line.memory}",
        f"Speedup and greenup (how many times less energy) of a change that multiplies the "
        f"{line.operation} operations by f and divides the {line.memory} bytes by m, at "
        f"{machine}: f from 1 to {WORK[-1]:g}, m from 1 to {SAVED[-1]:g}, "
        f"intensities from {i.min():.3g} to {i.max():.3g} {unit}/B. Modelled with eqs. 15 and 16 "
        f"of Choi & Vuduc 2012.",
        panels,
    )


def pareto_panel(
    candidates: SettingCandidates, picked: Pick | None, simulated: bool, name: str
) -> Panel:
    """Energy against time of one kernel, with the Pareto front.

    If there are measured settings, only these. ``name``: the kernel's name in the title.
    """
    eligible = (
        candidates.measured if candidates.measured.any() else np.ones(len(candidates.time_s), bool)
    )
    rows = np.flatnonzero(eligible & np.isfinite(candidates.time_s))
    time_s, energy_j = candidates.time_s[rows], candidates.shown_j[rows]
    settings = [candidates.settings[k] for k in rows]
    front = pareto_front(time_s, energy_j)
    texts = [
        f"{setting_label(s)}: {t:.4g} s, {e:.4g} J"
        for s, t, e in zip(settings, time_s, energy_j, strict=True)
    ]
    series: list[Line | Points] = [
        Line(*pareto_steps(time_s[front], energy_j[front]), "front", "Pareto front"),
        Points(time_s, energy_j, "dot faint", "setting", texts),
        Points(time_s[front], energy_j[front], "dot", "on the front", [texts[k] for k in front]),
    ]
    if picked is not None and picked.setting in settings:
        k = settings.index(picked.setting)
        series.append(Points(time_s[[k]], energy_j[[k]], "ring", "pick", [f"pick: {texts[k]}"]))
    where = marked(candidates.label, simulated)
    return Panel(
        f"Energy, J: {name}",
        Axis("time, s", log=True),
        Axis(log=True),
        series,
        f"Energy against time over {len(rows)} settings, {len(front)} on the Pareto front: {where}",
    )


def pareto_figure(
    among: dict[str, SettingCandidates], picked: dict[str, Pick], simulated: bool, n_kernels: int
) -> Figure:
    """Time and energy over the settings, a panel a kernel; ``n_kernels``: of the site."""
    short = short_labels(
        KernelInstance(kernel.kernel, kernel.params, kernel.label) for kernel in among.values()
    )
    titles = told_apart([short[k] for k in among], PARETO_TITLE)
    selection = (
        f" Of {n_kernels} kernels these {len(among)} use most energy, one of each family first."
        if n_kernels > len(among)
        else ""
    )
    return Figure(
        "pareto",
        "Energy against time over the measured settings. The line joins the settings of the "
        "Pareto front, those that no other setting beats in both; the ring marks the pick, where "
        f"it was measured.{selection}",
        [
            pareto_panel(among[k], picked.get(k), simulated, title)
            for k, title in zip(among, titles, strict=True)
        ],
    )
