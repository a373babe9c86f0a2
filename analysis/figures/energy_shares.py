"""Energy by its use, as stacked bars: predicted, and measured by phase (Choi & Vuduc 2016,
figures 4, 6 and 7).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from analysis.energy.breakdown import by_phase, class_parts, kind_parts
from analysis.energy.fitted import Fit
from analysis.figures.figure import Axis, Bars, Figure, Panel
from analysis.figures.labels import file_stem, natural, setting_label, some_of, told_apart
from analysis.figures.predictions import (
    CASES_A_PANEL,
    case_axis,
    case_place,
    foremost,
    numbered,
    which_cases,
)
from analysis.measurements.observations import Observations
from analysis.measurements.phase_energy import FASTEST, LEAST, PhaseSplit
from dvfs.dataset import moves_data
from dvfs.kernel_instance import KernelInstance, short_labels
from dvfs.setting import Setting

SHOWN = 16
STYLES = {
    "sp": "k1",
    "dp": "k5",
    "int": "k3",
    "shared": "k6",
    "l1": "k6",
    "l2": "k2",
    "l3": "k2",
    "dram": "k4",
    "mem": "k4",
    "core": "k1",
    "memory": "k4",
    "computation": "k1",
    "data": "k4",
    "clock": "k7",
    "constant": "k8",
}
"""Part -> its style, the same in every figure."""
SPARE = ("k6", "k2", "k7", "k0", "k3", "k1", "k4", "k5", "k8")
"""The styles of parts without a fixed one; first those that few figures use."""


def part_styles(parts: Sequence[str]) -> dict[str, str]:
    """Part -> its style; the parts of a drawing share styles only if there are too few."""
    styles: dict[str, str] = {}
    for part in parts:
        fixed = STYLES.get(part)
        used = set(styles.values())
        free = [s for s in SPARE if s not in used]
        styles[part] = fixed if fixed and fixed not in used else (free or list(SPARE))[0]
    return styles


def stacked_panel(
    title: str,
    x_label: str,
    rows: Sequence[str],
    parts: Mapping[str, np.ndarray],
    *,
    unit: str,
    description: str,
    names: Mapping[str, str] | None = None,
    wide: bool = False,
) -> Panel:
    """A panel with a horizontal bar a row, stacked from its parts in order.

    ``parts``: part -> float64 (rows,), in ``unit``; NaN and 0 draw nothing. ``names``: row -> the
    name at the bar, by default the row.
    """
    styles = part_styles(list(parts))
    bar_names = [names[row] if names else row for row in rows]
    values = {name: np.nan_to_num(np.asarray(v, float)).clip(0.0) for name, v in parts.items()}
    total = np.sum(list(values.values()), axis=0)
    exact = unit == "%" and abs(float(total.max(initial=0.0)) - 100.0) < 1e-6
    places = np.arange(len(rows), dtype=float)
    series, start = [], np.zeros(len(rows))
    for part, value in values.items():
        share_pct = np.divide(value, total, out=np.zeros_like(value), where=total > 0) * 100.0
        texts = [
            f"{name}: {part} {v:.4g} {unit}" + ("" if unit == "%" else f", {percent:.3g} %")
            for name, v, percent in zip(rows, value, share_pct, strict=True)
        ]
        series.append(
            Bars(
                at=places,
                start=start,
                end=start + value,
                style=styles[part],
                label=part,
                texts=texts,
                across=True,
            )
        )
        start = start + value
    return Panel(
        title,
        Axis(x_label, low=0.0, high=100.0 if exact else None),
        Axis(names=list(enumerate(told_apart(bar_names, 40 if wide else 30)))),
        series,
        description,
        wide,
    )


def mean_at(data: Observations, kernels: Sequence[str], setting: int) -> Observations:
    """One row a kernel: its first repeat at a setting, with the mean time and energy of repeats.

    ``setting``: index into ``data.settings``; kernels that were not measured there are omitted.
    """
    rows, means = [], []
    for kernel in kernels:
        repeats = np.flatnonzero(data.of_kernel(kernel) & (data.setting == setting))
        if len(repeats):
            rows.append(repeats[0])
            means.append((data.time_s[repeats].mean(), data.energy_j[repeats].mean()))
    time_s, energy_j = np.array(means, float).reshape(-1, 2).T
    return replace(data.take(np.array(rows, int)), time_s=time_s, energy_j=energy_j)


def shown_kernels(
    data: Observations, setting: int, families: Mapping[str, str], most: int = SHOWN
) -> list[str]:
    """The kernels with the most energy at a setting, one of each family first; sorted by name, so
    that a family stands together."""
    return sorted(foremost(data.take(data.setting == setting), families, most), key=natural)


def count_figure(data: Observations, kernels: Sequence[str], setting: int) -> Figure | None:
    """The operations and bytes of kernels by class, in percent (Choi & Vuduc 2016, figure 4).

    None if every kernel has at most one class of operations and one of bytes: all bars would be
    full.
    """
    means = mean_at(data, kernels, setting)
    means = means.take(means.has_counts)
    if not len(means):
        return None
    where = f"{data.site}{', simulated' if data.simulated else ''}"
    panels = _share_panels(means, means.counts, ("Operations", "Bytes moved"), where)
    if not panels:
        return None
    selection = _most_energy(data, means.labels.tolist(), setting)
    caption = f"What the kernels do: operations and bytes moved, by class; {selection}."
    return Figure("count_shares", caption, panels)


def _most_energy(data: Observations, shown: Sequence[str], setting: int) -> str:
    """The text of which kernels a figure shows, of those measured at a setting."""
    n_measured = len(np.unique(data.kernel[data.setting == setting]))
    if len(shown) == n_measured:
        return f"all {n_measured} kernels" if n_measured > 1 else "the one kernel"
    count = some_of(len(shown), n_measured, "kernels")
    return f"the {count} with the most energy, one of each family first"


def _share_panels(
    means: Observations, values: Mapping[str, np.ndarray], titles: tuple[str, str], where: str
) -> list[Panel]:
    """A panel for the classes of operations and one for those of bytes, each in percent of its sum.

    Empty if no kernel has two classes of either.
    """
    panels, mixed = [], False
    for title, is_operation in zip(titles, (True, False), strict=True):
        amounts = {
            name: np.nan_to_num(amount)
            for name, amount in values.items()
            if moves_data(name) is not is_operation and np.nan_to_num(amount).any()
        }
        if not amounts:
            continue
        total = np.sum(list(amounts.values()), axis=0)
        positive = total > 0
        shares = {name: v[positive] / total[positive] * 100.0 for name, v in amounts.items()}
        mixed = mixed or bool((np.max(list(shares.values()), axis=0) < 99.9).any())
        rows = means.labels[positive].tolist()
        panels.append(
            stacked_panel(
                f"{title} by class, %",
                f"share of {title[0].lower()}{title[1:]}, %",
                rows,
                shares,
                unit="%",
                description=f"{title} of kernels by class, {where}",
                names=short_labels(map(means.instance, rows)),
            )
        )
    return panels if mixed else []


def class_figure(model: Fit, data: Observations, kernels: Sequence[str], setting: int) -> Figure:
    """The energy of kernels by class of operation and constant power, in percent and as power in W.

    Figure 4 of Choi & Vuduc 2016 with energies instead of counts, and its figure 7 for kernels.
    ``setting``: index into ``data.settings``.
    """
    means = mean_at(data, kernels, setting)
    parts = class_parts(model, means)
    where = f"{data.site} at {setting_label(data.settings[setting])}"
    where += ", simulated" if data.simulated else ""
    rows = means.labels.tolist()
    names = short_labels(map(means.instance, rows))
    return Figure(
        "energy_by_class",
        f"Predicted energy by its use, at {setting_label(data.settings[setting])}: "
        f"{_most_energy(data, rows, setting)}.",
        [
            stacked_panel(
                "Share of energy, %",
                "share of predicted energy, %",
                rows,
                _columns(parts.names, 100.0 * parts.share),
                unit="%",
                description=f"Energy shares by class, {where}",
                names=names,
            ),
            stacked_panel(
                "Power by class, W",
                "predicted energy over time, W",
                rows,
                _columns(parts.names, parts.energy_j / means.time_s[:, None]),
                unit="W",
                description=f"Average power by class, {where}",
                names=names,
            ),
        ],
    )


def instruction_data_figure(
    model: Fit, data: Observations, kernels: Sequence[str], setting: int
) -> Figure | None:
    """The energy of operations and of data access by class (Choi & Vuduc 2016, figure 6).

    None if no kernel mixes classes of either.
    """
    means = mean_at(data, kernels, setting)
    means = means.take(means.has_counts)
    if not len(means) or not any(term.kind == "class" for term in model.terms):
        return None
    parts = class_parts(model, means)
    columns = _columns(parts.names, parts.energy_j)
    spent = {term.of: columns[term.of] for term in model.terms if term.kind == "class"}
    where = f"{data.site} at {setting_label(data.settings[setting])}"
    where += ", simulated" if data.simulated else ""
    panels = _share_panels(means, spent, ("Energy of operations", "Energy of data access"), where)
    if not panels:
        return None
    return Figure(
        "energy_operations_data",
        f"Predicted energy of operations and of data access by class, at "
        f"{setting_label(data.settings[setting])}: "
        f"{_most_energy(data, means.labels.tolist(), setting)}.",
        panels,
    )


def kind_figure(
    model: Fit, data: Observations, inputs: Sequence[str], settings: Sequence[Setting]
) -> Figure:
    """The energy of computation, data and constant power, in percent, by case (figure 7)."""
    where = f"{data.site}{', simulated' if data.simulated else ''}"
    size = min(max(CASES_A_PANEL // max(len(settings), 1), 1), len(inputs))
    index = {data.settings[s]: int(s) for s in np.unique(data.setting)}
    by_setting = []
    for setting in settings:
        means = mean_at(data, inputs, index[setting])
        parts = kind_parts(model, means)
        rows = [
            dict(zip(parts.names, row, strict=True))
            for row in np.nan_to_num(100.0 * parts.share).tolist()
        ]
        by_setting.append(dict(zip(means.labels.tolist(), rows, strict=True)))
    panels = []
    for first in range(0, len(inputs), size):
        kernels = list(inputs[first : first + size])
        shares: dict[str, list[tuple[float, float, str]]] = {}  # part -> place, share, text
        for i, kernel in enumerate(kernels):
            for j, setting in enumerate(settings):
                for part, share in by_setting[j].get(kernel, {}).items():
                    text = f"{kernel} at {setting_label(setting)}: {part} {share:.3g} %"
                    place = case_place(i, j, len(settings))
                    shares.setdefault(part, []).append((place, share, text))
        styles = part_styles(list(shares))
        ends: dict[float, float] = {}
        series = []
        for part, cases in shares.items():
            starts = [ends.get(place, 0.0) for place, _, _ in cases]
            for place, share, _ in cases:
                ends[place] = ends.get(place, 0.0) + max(share, 0.0)
            series.append(
                Bars(
                    at=np.array([place for place, _, _ in cases]),
                    start=np.array(starts),
                    end=np.array([ends[place] for place, _, _ in cases]),
                    style=styles[part],
                    label=part,
                    texts=[text for _, _, text in cases],
                    width=0.84,
                )
            )
        panels.append(
            Panel(
                "Share of predicted energy, %",
                case_axis(kernels, first, len(settings), short_labels(map(data.instance, inputs))),
                Axis(low=0.0, high=100.0),
                series,
                f"Computation, data and constant power of F{first + 1} to "
                f"F{first + len(kernels)}, {where}",
                wide=True,
            )
        )
    labels = [setting_label(setting) for setting in settings]
    n_measured = (len(np.unique(data.kernel)), len(index))
    clock = any(term.part == "clock" for term in model.terms)
    return Figure(
        "energy_by_kind",
        f"Predicted energy by computation, data access and constant power"
        f"{', which includes that of the clock trees' if clock else ''}, by kernel and setting. "
        f"{which_cases(len(inputs), len(labels), n_measured)} "
        f"{numbered(inputs, 'F')}. {numbered(labels, 'S')}.",
        panels,
    )


def phase_figure(model: Fit, data: Observations, phase: np.ndarray, title: str) -> Figure:
    """The energy of an application by phase and class (Choi & Vuduc 2016, section IV).

    ``phase``: (rows,), the phase of each row.
    """
    split = by_phase(model, data, phase)
    where = f"{data.site}{', simulated' if data.simulated else ''}"
    joules = {str(part): split["energy_j"].sel(part=part).values for part in split["part"].values}
    return Figure(
        f"energy_by_phase_{file_stem(title)}",
        f"Predicted energy of {title} by phase and by its use.",
        [
            stacked_panel(
                "Energy by phase, J",
                "predicted energy, J",
                split["phase"].values.tolist(),
                joules,
                unit="J",
                description=f"Energy of {title} by phase, {where}",
            )
        ],
    )


def _columns(names: Sequence[str], values: np.ndarray) -> dict[str, np.ndarray]:
    """Part -> its column of ``values``."""
    return dict(zip(names, values.T, strict=True))


def measured_phase_figures(
    splits: Sequence[PhaseSplit], site: str, simulated: bool
) -> list[Figure]:
    """A figure for each program that marks phases: the energy of an iteration in J and in shares.

    Each kernel has a bar at its fastest setting and one at that of least energy. If there are more
    than 16 kernels, those with the most energy are drawn.
    """
    programs: dict[str, list[PhaseSplit]] = {}
    for split in splits:
        programs.setdefault(split.kernel, []).append(split)
    return [_figure(name, phases, site, simulated) for name, phases in sorted(programs.items())]


def _figure(program: str, splits: Sequence[PhaseSplit], site: str, simulated: bool) -> Figure:
    most_j: dict[str, float] = {}
    for split in splits:
        most_j[split.label] = max(most_j.get(split.label, 0.0), float(split.energy_j.sum()))
    drawn = set(sorted(most_j, key=lambda kernel: -most_j[kernel])[:SHOWN])
    shown = sorted((s for s in splits if s.label in drawn), key=lambda s: natural(s.label))
    phases = list(dict.fromkeys(phase for split in shown for phase in split.phases))
    joules = {phase: np.full(len(shown), math.nan) for phase in phases}
    for i, split in enumerate(shown):
        for phase, energy_j in zip(split.phases, split.energy_j, strict=True):
            joules[phase][i] = energy_j
    total_j = np.array([split.energy_j.sum() for split in shown])
    total_j[~(total_j > 0)] = math.nan
    bars = [KernelInstance(split.kernel, {**split.params, "at": _clocks(split)}) for split in shown]
    rows, names = [bar.label for bar in bars], short_labels(bars)
    where = f"{site}{', simulated' if simulated else ''}"
    note = "" if len(drawn) == len(most_j) else f" The {len(drawn)} kernels with the most energy."
    shares = {phase: values / total_j * 100.0 for phase, values in joules.items()}
    return Figure(
        f"phase_energy_{file_stem(program)}",
        f"Measured energy of an iteration of {program} by phase, where each kernel is {FASTEST} "
        f"and where it took the {LEAST}, core/memory MHz.{note}",
        [
            stacked_panel(
                title,
                f"{label}, {unit}",
                rows,
                parts,
                unit=unit,
                description=f"{contents}, {where}",
                names=names,
                wide=True,
            )
            for title, label, parts, unit, contents in (
                (
                    "Measured energy by phase, J",
                    "measured energy of an iteration",
                    joules,
                    "J",
                    f"Measured energy of {program} by phase",
                ),
                (
                    "Share of the measured energy, %",
                    "share of the measured energy",
                    shares,
                    "%",
                    f"Shares of the measured energy of {program} by phase",
                ),
            )
        ],
    )


def _clocks(split: PhaseSplit) -> str:
    """The text of a setting as one word: ``852/924``."""
    return split.setting.option_text.replace(",", "/")
