"""Where the energy goes, as stacked bars: predicted, and measured by phase (Choi & Vuduc 2016,
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
"""The style of a part, so that one thing looks the same in every figure."""
SPARE = ("k6", "k2", "k7", "k0", "k3", "k1", "k4", "k5", "k8")
"""For parts without a fixed style; first those that few figures use."""


def part_styles(parts: Sequence[str]) -> dict[str, str]:
    """Part -> its style; two parts of one drawing never share one while there are enough."""
    styles: dict[str, str] = {}
    for part in parts:
        wanted = STYLES.get(part)
        taken = set(styles.values())
        free = [s for s in SPARE if s not in taken]
        styles[part] = wanted if wanted and wanted not in taken else (free or list(SPARE))[0]
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
    """A horizontal bar a row, stacked of its parts in their order.

    ``parts``: part -> float64 (rows,), in ``unit``; NaN and 0 draw nothing. ``names``: row -> its
    name beside the bar, by default the row itself.
    """
    styles = part_styles(list(parts))
    shown = [names[row] if names else row for row in rows]
    values = {name: np.nan_to_num(np.asarray(v, float)).clip(0.0) for name, v in parts.items()}
    whole = np.sum(list(values.values()), axis=0)
    exact = unit == "%" and abs(float(whole.max(initial=0.0)) - 100.0) < 1e-6
    at = np.arange(len(rows), dtype=float)
    series, start = [], np.zeros(len(rows))
    for part, value in values.items():
        share = np.divide(value, whole, out=np.zeros_like(value), where=whole > 0) * 100.0
        texts = [
            f"{name}: {part} {v:.4g} {unit}" + ("" if unit == "%" else f", {percent:.3g} %")
            for name, v, percent in zip(rows, value, share, strict=True)
        ]
        series.append(
            Bars(
                at=at,
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
        Axis(names=list(enumerate(told_apart(shown, 40 if wide else 30)))),
        series,
        description,
        wide,
    )


def mean_at(data: Observations, kernels: Sequence[str], setting: int) -> Observations:
    """One row a kernel: the first of its repeats at a setting, with their mean time and energy.

    ``setting``: index into ``data.settings``; kernels that were not measured there are left out.
    """
    rows, means = [], []
    for kernel in kernels:
        rows_of_kernel = np.flatnonzero(data.of_kernel(kernel) & (data.setting == setting))
        if len(rows_of_kernel):
            rows.append(rows_of_kernel[0])
            means.append((data.time_s[rows_of_kernel].mean(), data.energy_j[rows_of_kernel].mean()))
    time_s, energy_j = np.array(means, float).reshape(-1, 2).T
    return replace(data.take(np.array(rows, int)), time_s=time_s, energy_j=energy_j)


def shown_kernels(
    data: Observations, setting: int, families: Mapping[str, str], most: int = SHOWN
) -> list[str]:
    """Kernels measured at a setting: those with the most energy, one of each family first.

    In order of their names, so that a family stands together.
    """
    return sorted(foremost(data.take(data.setting == setting), families, most), key=natural)


def count_figure(data: Observations, kernels: Sequence[str], setting: int) -> Figure | None:
    """What kernels do: operations and bytes by class, in percent (Choi & Vuduc 2016, figure 4).

    None where every kernel does at most one class of operations and moves at most one of bytes:
    the picture would then show nothing.
    """
    there = mean_at(data, kernels, setting)
    there = there.take(there.has_counts)
    if not len(there):
        return None
    where = f"{data.site}{', simulated' if data.simulated else ''}"
    panels = _share_panels(there, there.counts, ("Operations", "Bytes moved"), where)
    if not panels:
        return None
    which = _most_energy(data, there.labels.tolist(), setting)
    caption = f"What the kernels do: operations and bytes moved, by class; {which}."
    return Figure("count_shares", caption, panels)


def _most_energy(data: Observations, shown: Sequence[str], setting: int) -> str:
    """Which kernels a figure shows, of those measured at a setting."""
    there = len(np.unique(data.kernel[data.setting == setting]))
    if len(shown) == there:
        return f"all {there} kernels" if there > 1 else "the one kernel"
    some = some_of(len(shown), there, "kernels")
    return f"the {some} with the most energy, one of each family first"


def _share_panels(
    there: Observations, values: Mapping[str, np.ndarray], titles: tuple[str, str], where: str
) -> list[Panel]:
    """A panel for classes of operations and one for those of bytes, each in percent of its sum.

    None at all where no kernel has two classes of either.
    """
    panels, mixed = [], False
    for title, wanted in zip(titles, (True, False), strict=True):
        joules = {
            name: np.nan_to_num(amount)
            for name, amount in values.items()
            if moves_data(name) is not wanted and np.nan_to_num(amount).any()
        }
        if not joules:
            continue
        whole = np.sum(list(joules.values()), axis=0)
        some = whole > 0
        shares = {name: v[some] / whole[some] * 100.0 for name, v in joules.items()}
        mixed = mixed or bool((np.max(list(shares.values()), axis=0) < 99.9).any())
        rows = there.labels[some].tolist()
        panels.append(
            stacked_panel(
                f"{title} by class, %",
                f"share of {title[0].lower()}{title[1:]}, %",
                rows,
                shares,
                unit="%",
                description=f"{title} of kernels by class, {where}",
                names=short_labels(map(there.instance, rows)),
            )
        )
    return panels if mixed else []


def class_figure(model: Fit, data: Observations, kernels: Sequence[str], setting: int) -> Figure:
    """The energy of kernels by class of operation and constant power, in percent and in joules.

    Figure 4 of Choi & Vuduc 2016 with energies in place of counts, and its figure 7 for kernels.
    ``setting``: an index into ``data.settings``.
    """
    there = mean_at(data, kernels, setting)
    split = class_parts(model, there)
    where = f"{data.site} at {setting_label(data.settings[setting])}"
    where += ", simulated" if data.simulated else ""
    rows = there.labels.tolist()
    names = short_labels(map(there.instance, rows))
    return Figure(
        "energy_by_class",
        f"Predicted energy by its use, at {setting_label(data.settings[setting])}: "
        f"{_most_energy(data, rows, setting)}.",
        [
            stacked_panel(
                "Share of energy, %",
                "share of predicted energy, %",
                rows,
                _columns(split.names, 100.0 * split.share),
                unit="%",
                description=f"Energy shares by class, {where}",
                names=names,
            ),
            stacked_panel(
                "Power by class, W",
                "predicted energy over time, W",
                rows,
                _columns(split.names, split.energy_j / there.time_s[:, None]),
                unit="W",
                description=f"Average power by class, {where}",
                names=names,
            ),
        ],
    )


def instruction_data_figure(
    model: Fit, data: Observations, kernels: Sequence[str], setting: int
) -> Figure | None:
    """Energy by type for operations and for data access (Choi & Vuduc 2016, figure 6).

    None where no kernel mixes classes of either.
    """
    there = mean_at(data, kernels, setting)
    there = there.take(there.has_counts)
    if not len(there) or not any(term.kind == "class" for term in model.terms):
        return None
    split = class_parts(model, there)
    columns = _columns(split.names, split.energy_j)
    spent = {term.of: columns[term.of] for term in model.terms if term.kind == "class"}
    where = f"{data.site} at {setting_label(data.settings[setting])}"
    where += ", simulated" if data.simulated else ""
    panels = _share_panels(there, spent, ("Energy of operations", "Energy of data access"), where)
    if not panels:
        return None
    return Figure(
        "energy_operations_data",
        f"Predicted energy of operations and of data access by class, at "
        f"{setting_label(data.settings[setting])}: "
        f"{_most_energy(data, there.labels.tolist(), setting)}.",
        panels,
    )


def kind_figure(
    model: Fit, data: Observations, inputs: Sequence[str], settings: Sequence[Setting]
) -> Figure:
    """Computation, data and constant power of kernels at settings, in percent (figure 7)."""
    where = f"{data.site}{', simulated' if data.simulated else ''}"
    size = min(max(CASES_A_PANEL // max(len(settings), 1), 1), len(inputs))
    numbers = {data.settings[s]: int(s) for s in np.unique(data.setting)}
    by_setting = []
    for setting in settings:
        there = mean_at(data, inputs, numbers[setting])
        split = kind_parts(model, there)
        rows = [
            dict(zip(split.names, row, strict=True))
            for row in np.nan_to_num(100.0 * split.share).tolist()
        ]
        by_setting.append(dict(zip(there.labels.tolist(), rows, strict=True)))
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
    places = [setting_label(setting) for setting in settings]
    there_are = (len(np.unique(data.kernel)), len(numbers))
    clock = any(term.part == "clock" for term in model.terms)
    return Figure(
        "energy_by_kind",
        f"Predicted energy by computation, data access and constant power"
        f"{', which includes that of the clock trees' if clock else ''}, by kernel and setting. "
        f"{which_cases(len(inputs), len(places), there_are)} "
        f"{numbered(inputs, 'F')}. {numbered(places, 'S')}.",
        panels,
    )


def phase_figure(model: Fit, data: Observations, phase: np.ndarray, title: str) -> Figure:
    """Energy of an application by phase, and by class within each (Choi & Vuduc 2016, section IV).

    ``phase``: (rows,), each row's label.
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
    """Part -> its column."""
    return dict(zip(names, values.T, strict=True))


def measured_phase_figures(
    splits: Sequence[PhaseSplit], site: str, simulated: bool
) -> list[Figure]:
    """A figure for each program that marks phases: joules of an iteration and their shares.

    A bar a kernel and setting, where it is fastest and where it took the least energy. Of more
    than 16 kernels those with the most energy are drawn.
    """
    programs: dict[str, list[PhaseSplit]] = {}
    for split in splits:
        programs.setdefault(split.kernel, []).append(split)
    return [_figure(name, phases, site, simulated) for name, phases in sorted(programs.items())]


def _figure(program: str, splits: Sequence[PhaseSplit], site: str, simulated: bool) -> Figure:
    most_j: dict[str, float] = {}
    for split in splits:
        most_j[split.label] = max(most_j.get(split.label, 0.0), float(split.energy_j.sum()))
    kept = set(sorted(most_j, key=lambda kernel: -most_j[kernel])[:SHOWN])
    shown = sorted((s for s in splits if s.label in kept), key=lambda s: natural(s.label))
    phases = list(dict.fromkeys(phase for split in shown for phase in split.phases))
    joules = {phase: np.full(len(shown), math.nan) for phase in phases}
    for i, split in enumerate(shown):
        for phase, energy_j in zip(split.phases, split.energy_j, strict=True):
            joules[phase][i] = energy_j
    whole_j = np.array([split.energy_j.sum() for split in shown])
    whole_j[~(whole_j > 0)] = math.nan
    bars = [KernelInstance(split.kernel, {**split.params, "at": _clocks(split)}) for split in shown]
    rows, names = [bar.label for bar in bars], short_labels(bars)
    where = f"{site}{', simulated' if simulated else ''}"
    left_out = "" if len(kept) == len(most_j) else f" The {len(kept)} kernels with the most energy."
    shares = {phase: values / whole_j * 100.0 for phase, values in joules.items()}
    return Figure(
        f"phase_energy_{file_stem(program)}",
        f"Measured energy of an iteration of {program} by phase, where each kernel is {FASTEST} "
        f"and where it took the {LEAST}, core/memory MHz.{left_out}",
        [
            stacked_panel(
                title,
                f"{what}, {unit}",
                rows,
                parts,
                unit=unit,
                description=f"{about}, {where}",
                names=names,
                wide=True,
            )
            for title, what, parts, unit, about in (
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
    """A setting as one word: ``852/924``."""
    return split.setting.option_text.replace(",", "/")
