"""Energy by its use, as stacked bars: predicted, and measured by phase (Choi & Vuduc 2016,
figures 4, 6 and 7).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from analysis.energy.breakdown import class_parts, kind_parts, phase_parts
from analysis.energy.fitted import Fit
from analysis.figures.figure import Axis, Bars, Figure, Panel, row_axis
from analysis.figures.labels import file_stem, marked, natural, setting_label, some_of
from analysis.figures.predictions import Cases, foremost
from analysis.measurements.observations import Observations, cell_means, first_rows
from analysis.measurements.phase_energy import FASTEST, LEAST, PhaseSplit
from dvfs.dataset import moves_data
from dvfs.kernel_instance import KernelInstance, short_labels

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
    bar_names = [names[row] if names else row for row in rows]
    values = {name: np.nan_to_num(np.asarray(v, float)).clip(0.0) for name, v in parts.items()}
    total = np.sum(list(values.values()), axis=0)
    exact = unit == "%" and abs(float(total.max(initial=0.0)) - 100.0) < 1e-6
    texts = {}
    for part, value in values.items():
        share_pct = np.divide(value, total, out=np.zeros_like(value), where=total > 0) * 100.0
        texts[part] = [
            f"{name}: {part} {v:.4g} {unit}" + ("" if unit == "%" else f", {percent:.3g} %")
            for name, v, percent in zip(rows, value, share_pct, strict=True)
        ]
    series = _stacked(np.arange(len(rows), dtype=float), values, texts, across=True)
    return Panel(
        title,
        Axis(x_label, low=0.0, high=100.0 if exact else None),
        row_axis(bar_names, 40 if wide else 30),
        series,
        description,
        wide,
    )


def _stacked(
    at: np.ndarray,
    parts: Mapping[str, np.ndarray],
    texts: Mapping[str, Sequence[str]],
    *,
    width: float = 0.7,
    across: bool = False,
) -> list[Bars]:
    """The bars of each part, float64 (bars,), from where those before it end."""
    ends = np.cumsum([np.zeros(len(at)), *parts.values()], axis=0)
    return [
        Bars(
            at=at,
            start=ends[i],
            end=ends[i + 1],
            style=style,
            label=part,
            texts=texts[part],
            width=width,
            across=across,
        )
        for i, (part, style) in enumerate(part_styles(list(parts)).items())
    ]


def mean_at(data: Observations, kernels: Sequence[str], setting: int) -> Observations:
    """One row a kernel: its first repeat at a setting, with the mean time and energy of repeats.

    ``setting``: index into ``data.settings``; kernels that were not measured there are omitted.
    """
    first = first_rows(data, kernels)[:, setting]
    time_s, energy_j = (
        cell_means(data, kernels, values)[first >= 0, setting]
        for values in (data.time_s, data.energy_j)
    )
    return replace(data.take(first[first >= 0]), time_s=time_s, energy_j=energy_j)


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
    where = marked(data.site, data.simulated)
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
    at = setting_label(data.settings[setting])
    where = marked(f"{data.site} at {at}", data.simulated)
    rows = means.labels.tolist()
    names = short_labels(map(means.instance, rows))
    return Figure(
        "energy_by_class",
        f"Predicted energy by its use, at {at}: {_most_energy(data, rows, setting)}.",
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
    at = setting_label(data.settings[setting])
    where = marked(f"{data.site} at {at}", data.simulated)
    panels = _share_panels(means, spent, ("Energy of operations", "Energy of data access"), where)
    if not panels:
        return None
    return Figure(
        "energy_operations_data",
        f"Predicted energy of operations and of data access by class, at {at}: "
        f"{_most_energy(data, means.labels.tolist(), setting)}.",
        panels,
    )


def case_shares(model: Fit, data: Observations, shown: Cases) -> dict[str, np.ndarray]:
    """Computation, data and constant power of cases in % of predicted energy (figure 7): kind ->
    float64 (inputs, settings), NaN if not measured."""
    parts = kind_parts(model, data)
    places = [data.settings.index(setting) for setting in shown.settings]
    means_j = np.array(
        [cell_means(data, shown.inputs, part_j)[:, places] for part_j in parts.energy_j.T]
    )
    return dict(zip(parts.names, means_j / means_j.sum(axis=0) * 100.0, strict=True))


def kind_figure(model: Fit, data: Observations, shown: Cases) -> Figure:
    """The energy of computation, data and constant power, in percent, by case (figure 7)."""
    shares = case_shares(model, data, shown)
    n_measured = (len(np.unique(data.kernel)), len(np.unique(data.setting)))
    clock = any(term.part == "clock" for term in model.terms)
    return Figure(
        "energy_by_kind",
        f"Predicted energy by computation, data access and constant power"
        f"{', which includes that of the clock trees' if clock else ''}, by kernel and setting. "
        f"{shown.caption(n_measured)}",
        [
            Panel(
                "Share of predicted energy, %",
                shown.axis(inputs),
                Axis(low=0.0, high=100.0),
                _stacked(
                    shown.places(inputs),
                    {kind: share[inputs].ravel() for kind, share in shares.items()},
                    {
                        kind: [
                            f"{case}: {kind} {pct:.3g} %"
                            for case, pct in zip(
                                shown.names(inputs), share[inputs].flat, strict=True
                            )
                        ]
                        for kind, share in shares.items()
                    },
                    width=0.84,
                ),
                f"Computation, data and constant power of F{inputs[0] + 1} to "
                f"F{inputs[-1] + 1}, {marked(data.site, data.simulated)}",
                wide=True,
            )
            for inputs in shown.panels
        ],
    )


def phase_figure(model: Fit, data: Observations, phase: np.ndarray, title: str) -> Figure:
    """The energy of an application by phase and class (Choi & Vuduc 2016, section IV).

    ``phase``: (rows,), the phase of each row.
    """
    phases, parts = phase_parts(model, data, phase)
    where = marked(data.site, data.simulated)
    return Figure(
        f"energy_by_phase_{file_stem(title)}",
        f"Predicted energy of {title} by phase and by its use.",
        [
            stacked_panel(
                "Energy by phase, J",
                "predicted energy, J",
                phases,
                _columns(parts.names, parts.energy_j),
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
    where = marked(site, simulated)
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
