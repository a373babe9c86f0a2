"""The measured variants of a kernel, with their costs and metrics.

A variant is one choice of parameters among those that compute the same. Its costs are means over
its repeats. Failed measurements, and those without an energy or with unproven clocks, are excluded
and counted.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.costs.linear_cost import at_clocks
from analysis.measurements.observations import (
    FitError,
    distinct_kernels,
    refuse_other_ranks,
    second_clock,
    setting_text,
    site_names,
)
from analysis.measurements.problems import (
    SHOWN,
    check_one_problem,
    of_problem,
    problems,
    value_text,
)
from analysis.measurements.provenance import UNPROVEN, clock_proofs, estimated_energies
from analysis.ties import highest
from dvfs.dataset import (
    CLOCK_UNPROVEN,
    COUNTERS,
    METRICS,
    class_unit,
    count_columns,
    is_complete,
    moves_data,
)
from dvfs.errors import unknown_name
from dvfs.groups import Groups
from dvfs.kernel_instance import KernelInstance
from dvfs.setting import Setting, axis_values, distinct_settings

if TYPE_CHECKING:
    from dvfs.dataset import Columns

SAME_WORK = 1.01
"""Parameter sets whose flops differ by more than this factor compute different results."""
FEWEST = 3
"""The fewest variants of a problem that a report shows."""
WITHOUT_ENERGY = "without energy"
LABELS = "labels"
"""The provenance key of the further columns of an imported table."""
CLOCKS = ("core_mhz", "mem_mhz")
Terms = Callable[[Sequence[KernelInstance]], Mapping[str, np.ndarray]]
"""The terms that add up to the time of each variant: term -> (variants,)."""


@dataclass(frozen=True, kw_only=True)
class KernelVariants:
    """The variants of one problem at one setting.

    ``problem``: the parameters that all variants share. ``time_s``, ``energy_j``: float64
    (variants,), of one iteration, the mean of ``repeats`` (int64) measurements. ``work``: the
    computation of every variant in ``work_unit``: the least flops of a variant, or 1 run if no
    flops are counted. ``most_work``: the most flops of a variant. ``left_out``: reason -> number of
    measurements at this setting. ``settings``: the number of settings with variants.
    ``estimated_energies``: whether some energies are estimates, not measured.
    """

    site: str
    simulated: bool
    kernel: str
    problem: Mapping[str, Any]
    setting: Setting
    settings: int
    instances: Sequence[KernelInstance]
    time_s: np.ndarray
    energy_j: np.ndarray
    repeats: np.ndarray
    work: float
    most_work: float
    work_unit: str
    metrics: Sequence[Metric]
    left_out: Mapping[str, int]
    estimated_energies: bool

    def __len__(self) -> int:
        return len(self.time_s)


def kernel_variants(
    columns: Columns,
    site: str,
    kernel: str,
    *,
    tuned: Collection[str] = (),
    problem: Mapping[str, str] | None = None,
    setting: Setting | None = None,
) -> KernelVariants:
    """The variants of a kernel at a site, in the order of their labels.

    ``tuned``: the parameters that a space declares; all others define the problem. If empty, every
    parameter set is a variant of one problem. ``problem``: fixed parameter -> value as text.
    ``setting``: by default the one with the most variants; of several, the highest
    (:func:`analysis.ties.highest`).

    Raises:
        FitError: unknown names, several problems, a variant with different numbers of ranks, or no
            variant with a measured energy.
    """
    rows = _rows(columns, site, kernel)
    row_instances = _instances(columns, rows)
    matches = of_problem(row_instances, problem or {})
    rows, row_instances = rows[matches], [row_instances[i] for i in matches]
    if tuned:
        check_one_problem(row_instances, tuned)
    why = _left_out(columns, rows)
    usable = np.array([not reason for reason in why], bool)
    if not usable.any():
        counted = ", ".join(f"{n} {reason}" for reason, n in Counter(why).items())
        raise FitError(
            f"{site} has no variant of {kernel} with a time and an energy at known clocks: it has "
            f"{counted}"
        )
    labels = [row_instances[i].label for i in np.flatnonzero(usable)]
    refuse_other_ranks(columns, rows[usable], *distinct_kernels(labels))
    setting, settings, at_setting = _at_setting(columns, rows, row_instances, usable, setting)
    left_out = Counter(why[i] for i in np.flatnonzero(at_setting & ~usable))
    studied = np.flatnonzero(at_setting & usable)
    _, first, variant = np.unique(
        np.array([row_instances[i].label for i in studied], object).astype(str),
        return_index=True,
        return_inverse=True,
    )
    instances = [row_instances[int(studied[i])] for i in first]
    rows = rows[studied]
    repeats = np.bincount(variant)

    def mean(name: str) -> np.ndarray:
        return np.bincount(variant, columns[name][rows].astype(float)) / repeats

    counts = _mean_counts(columns, rows, variant)
    flops = _total(counts, "flop")
    if not tuned and not problem:
        _check_same_work(instances, counts)
    work = flops[np.isfinite(flops)] if flops is not None else np.ones(1)
    provenance = columns["provenance"][rows].tolist()
    time_s = mean("time_s")
    return KernelVariants(
        site=site,
        simulated=bool(columns["simulated"][rows].any()),
        kernel=kernel,
        problem=_common(instances),
        setting=setting,
        settings=settings,
        instances=instances,
        time_s=time_s,
        energy_j=mean("energy_j"),
        repeats=repeats,
        work=float(work.min()),
        most_work=float(work.max()),
        work_unit="run" if flops is None else "flop",
        metrics=variant_metrics(instances, variant, provenance, counts, time_s),
        left_out=dict(left_out),
        estimated_energies=bool((estimated_energies(columns, rows) != "").any()),
    )


def _rows(columns: Columns, site: str, kernel: str) -> np.ndarray:
    """The rows of a kernel at a site, int64; FitError for an unknown name."""
    sites = site_names(columns)
    if site not in sites:
        raise FitError(f"--site: {unknown_name('site', site, sites)}")
    at_site = columns["site"] == site
    rows = np.flatnonzero(at_site & (columns["kernel"] == kernel))
    if not len(rows):
        kernels = sorted(set(columns["kernel"][at_site].tolist()))
        raise FitError(f"--kernel: {unknown_name('kernel', kernel, kernels)}")
    return rows


def _instances(columns: Columns, rows: np.ndarray) -> list[KernelInstance]:
    by_pair = columns.kernels_by_pair
    kernels, params = (columns[name][rows].tolist() for name in ("kernel", "params"))
    return [by_pair[pair] for pair in zip(kernels, params, strict=True)]


def _left_out(columns: Columns, rows: np.ndarray) -> list[str]:
    """Why each row is excluded; empty if it is not."""
    status = columns["status"][rows]
    complete = is_complete(status)
    energy_j, time_s = (columns[name][rows] for name in ("energy_j", "time_s"))
    measured = (energy_j > 0) & (time_s > 0)
    why = np.where(measured, "", WITHOUT_ENERGY).astype(object)
    why[clock_proofs(columns, rows) == UNPROVEN] = CLOCK_UNPROVEN
    why[~complete] = status[~complete]
    return [str(reason) for reason in why]


def _at_setting(
    columns: Columns,
    rows: np.ndarray,
    instances: Sequence[KernelInstance],
    usable: np.ndarray,
    setting: Setting | None,
) -> tuple[Setting, int, np.ndarray]:
    """The setting to study, the number of settings with variants, and whether each row is at the
    setting to study (bool)."""
    settings, index = distinct_settings(*axis_values(columns, rows))
    variants: dict[Setting, set[str]] = {}
    for i in np.flatnonzero(usable).tolist():
        variants.setdefault(settings[index[i]], set()).add(instances[i].label)
    if setting is None:
        most = max(map(len, variants.values()))
        has_most = np.array([len(variants.get(candidate, ())) == most for candidate in settings])
        time_s = columns["time_s"][rows[usable]]
        n = np.maximum(np.bincount(index[usable], minlength=len(settings)), 1)
        mean_s = np.bincount(index[usable], time_s, len(settings)) / n
        setting = settings[highest(settings, has_most, mean_s)]
    if setting not in variants:
        texts = [measured.option_text for measured in sorted(variants)]
        raise FitError(
            f"--setting: no variant was measured at {setting_text(setting)}; "
            f"there are {' '.join(texts[:SHOWN])}{' ...' if len(texts) > SHOWN else ''}"
        )
    return setting, len(variants), index == settings.index(setting)


def _total(counts: Mapping[str, np.ndarray], unit: str) -> np.ndarray | None:
    """Each variant's operations of a unit, float64, NaN if it counts none; None if no variant
    counts any."""
    parts = [values for name, values in counts.items() if class_unit(name) == unit]
    total = np.sum([np.nan_to_num(values) for values in parts], axis=0) if parts else np.zeros(1)
    return np.where(total > 0, total, np.nan) if (total > 0).any() else None


def refuse_other_work(columns: Columns, rows: np.ndarray) -> None:
    """Raise FitError if the parameter sets of a kernel's rows, int64, count different work: they
    are of several problems."""
    row_instances = _instances(columns, rows)
    instances = {instance.label: instance for instance in row_instances}
    index = {label: i for i, label in enumerate(instances)}
    variant = np.array([index[instance.label] for instance in row_instances], np.int64)
    _check_same_work(list(instances.values()), _mean_counts(columns, rows, variant))


def _check_same_work(instances: Sequence[KernelInstance], counts: Mapping[str, np.ndarray]) -> None:
    """Raise FitError if parameter sets count different work; the message suggests a ``--problem``
    that selects one amount. ``counts``: class -> operations of each, float64."""
    flops = _total(counts, "flop")
    work = _total(counts, "op") if flops is None else flops
    if work is None or np.nanmax(work) <= SAME_WORK * np.nanmin(work):
        return
    deciding = _deciding(instances, work)
    fixed = ",".join(f"{name}={value_text(instances[0].params[name])}" for name in deciding)
    example = f", such as --problem {fixed}" if deciding else " by --problem NAME=VALUE,..."
    raise FitError(
        f"the parameter sets of {instances[0].name} count {np.nanmin(work):.4g} to "
        f"{np.nanmax(work):.4g} operations: they are of several problems; name the parameters of "
        f"one{example}"
    )


def _deciding(instances: Sequence[KernelInstance], work: np.ndarray) -> list[str]:
    """The parameters whose values decide the work, none of which can be left out; those with few
    values where there is a choice. Empty if all together do not decide it, or the values of the
    first parameter set are those of no other, as where each tile size counts other work."""
    known = np.isfinite(work)
    amounts = work[known].tolist()
    params = [instances[i].params for i in np.flatnonzero(known).tolist()]
    texts = {
        name: [value_text(values[name]) if name in values else None for values in params]
        for name in dict.fromkeys(name for values in params for name in values)
    }

    def decide(names: Sequence[str]) -> bool:
        by_values: dict[tuple[str | None, ...], list[float]] = {}
        for i, amount in enumerate(amounts):
            by_values.setdefault(tuple(texts[name][i] for name in names), []).append(amount)
        return all(max(counts) <= SAME_WORK * min(counts) for counts in by_values.values())

    names = sorted(texts, key=lambda name: -len(set(texts[name])))
    if not decide(names):
        return []
    for name in tuple(names):
        fewer = [other for other in names if other != name]
        if decide(fewer):
            names = fewer
    values = [tuple(texts[name][i] for name in names) for i in range(len(params))]
    known_in_first = all(name in instances[0].params for name in names)
    return names if known_in_first and values.count(values[0]) > 1 else []


def _common(instances: Sequence[KernelInstance]) -> dict[str, Any]:
    """The parameters that have the same value in all instances."""
    return {
        name: value
        for name, value in instances[0].params.items()
        if all(name in i.params and i.params[name] == value for i in instances)
    }


def studied_variants(
    columns: Columns, site: str, tuned: Mapping[str, Collection[str]]
) -> list[KernelVariants]:
    """The variants of every problem of a site with :data:`FEWEST` or more variants, for a report.

    ``tuned``: kernel -> the parameters that its space declares. Kernels without a space are
    included if all their rows are imported: parameter sets that count the same flops, or none, are
    variants of one problem.
    """
    studied = []
    rows_of_site = np.flatnonzero(columns["site"] == site)
    kernels, kernel_of = distinct_kernels(columns["kernel"][rows_of_site].tolist())
    imported, params = (columns[name] for name in ("imported", "params"))
    for kernel, indices in zip(kernels, Groups(kernel_of).rows(), strict=True):
        rows = rows_of_site[indices]
        if kernel not in tuned and not imported[rows].all():
            continue
        if len(set(params[rows].tolist())) < FEWEST:
            continue
        names = tuned.get(kernel, ())
        of_kernel = problems(_instances(columns, rows), names).values() if names else [{}]
        for params_of_problem in of_kernel:
            problem = {name: value_text(value) for name, value in params_of_problem.items()}
            try:
                variants = kernel_variants(columns, site, kernel, tuned=names, problem=problem)
            except FitError:
                continue
            if len(variants) >= FEWEST:
                studied.append(variants)
    return studied


@dataclass(frozen=True)
class Metric:
    """A number of each variant: ``values``, float64 (variants,), NaN if unknown.

    ``kind``: its origin, parameter, count, kernel, counter or label.
    """

    name: str
    unit: str
    kind: str
    values: np.ndarray


def variant_metrics(
    instances: Sequence[KernelInstance],
    variant: np.ndarray,
    provenance: Sequence[str],
    counts: Mapping[str, np.ndarray],
    time_s: np.ndarray,
) -> list[Metric]:
    """Every metric that at least two variants have and that differs between them.

    In this order: numeric parameters; operations per second of each class, and flops per byte; the
    kernel's own metrics, such as ``occupancy`` or ``registers``; hardware counters per second, and
    instructions per cycle; numeric columns of an imported table. Of two metrics with the same name,
    only the first.

    ``variant``: int64 (rows,), the variant of each row; ``provenance``: each row's JSON. ``counts``
    and ``time_s``: float64 (variants,).
    """
    metrics = [
        *_parameters(instances),
        *_counted(counts, time_s),
        *_of_provenance(variant, provenance, time_s),
    ]
    by_name = {metric.name: metric for metric in reversed(metrics)}
    return [m for m in metrics if by_name[m.name] is m and _differs(m.values)]


def _differs(values: np.ndarray) -> bool:
    finite = values[np.isfinite(values)]
    return len(finite) > 1 and float(np.ptp(finite)) > 0


def _parameters(instances: Sequence[KernelInstance]) -> list[Metric]:
    names = dict.fromkeys(name for instance in instances for name in instance.params)
    by_name = {name: [instance.params.get(name) for instance in instances] for name in names}
    return [
        Metric(name, "", "parameter", np.array([_number(v) for v in values]))
        for name, values in by_name.items()
        if all(value is None or isinstance(value, int | float) for value in values)
    ]


def _counted(counts: Mapping[str, np.ndarray], time_s: np.ndarray) -> list[Metric]:
    units = {name: "B" if moves_data(name) else class_unit(name) for name in counts}
    flops = [np.nan_to_num(values) for name, values in counts.items() if units[name] == "flop"]
    metrics = [
        Metric(f"{name}_per_s", f"{units[name]}/s", "count", values / time_s)
        for name, values in counts.items()
    ]
    for name, values in counts.items():
        if flops and units[name] == "B":
            moved = np.where(values > 0, values, np.nan)
            metrics.append(Metric(f"intensity_{name}", "flop/B", "count", sum(flops) / moved))
    return metrics


def _of_provenance(
    variant: np.ndarray, provenance: Sequence[str], time_s: np.ndarray
) -> list[Metric]:
    """The kernel's own metrics, counters and labels: means over the variant's rows that have it."""
    stated: dict[str, dict[int, float]] = {}
    events: dict[str, dict[int, float]] = {}
    labels: dict[str, dict[int, float]] = {}
    for row, text in enumerate(provenance):
        if any(f'"{key}"' in text for key in (METRICS, COUNTERS, LABELS)):
            facts = json.loads(text)
            for by_name, values in (
                (stated, facts.get(METRICS)),
                (events, (facts.get(COUNTERS) or {}).get("events")),
                (labels, facts.get(LABELS)),
            ):
                for name, value in (values or {}).items():
                    by_name.setdefault(name, {})[row] = _number(value)

    def mean(by_row: Mapping[int, float]) -> np.ndarray:
        with_value = variant[list(by_row)]
        with np.errstate(invalid="ignore"):
            total = np.bincount(with_value, list(by_row.values()), len(time_s))
            return np.asarray(total / np.bincount(with_value, minlength=len(time_s)))

    metrics = [Metric(name, "", "kernel", mean(by_row)) for name, by_row in stated.items()]
    if {"cycles", "instructions"} <= events.keys():
        cycles, instructions = mean(events["cycles"]), mean(events["instructions"])
        cycles = np.where(cycles > 0, cycles, np.nan)
        metrics.append(Metric("instructions_per_cycle", "", "counter", instructions / cycles))
    for name, by_row in sorted(events.items()):
        metrics.append(Metric(f"{name}_per_s", "1/s", "counter", mean(by_row) / time_s))
    for name, by_row in labels.items():
        if all(map(math.isfinite, by_row.values())):
            metrics.append(Metric(name, "", "label", mean(by_row)))
    return metrics


def _number(value: Any) -> float:
    """A finite number, or NaN."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
    return number if math.isfinite(number) else math.nan


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasuredVariants:
    """Variants at settings: a row for each measured pair, the mean over its repeats.

    ``variant``: int64 (rows,), index into ``instances``; ``problem``: index into ``problems``, the
    parameters that define the computation; ``family``: index into ``families``, the texts among
    these, such as a stencil's name: variants of a family differ in sizes and tiles only.
    ``settings``: of each row. ``clocks``: name -> MHz (rows,), NaN for no clock; the uncore clock
    of a CPU is its ``mem_mhz``, as in the energy model. ``counts``: the site's classes ->
    operations or bytes (rows,), float64, of one iteration; NaN in rows without counts.
    ``time_terms``: the terms of the time at these clocks
    (:func:`analysis.costs.linear_cost.at_clocks`), in which counts have the kernel's names of
    classes. ``unproven_clocks``: whether nothing showed the clocks of some rows, of several
    settings. ``time_s``, ``energy_j``: float64 (rows,), of one iteration; an energy may be NaN.
    """

    site: str
    simulated: bool
    unproven_clocks: bool
    kernel: str
    instances: Sequence[KernelInstance]
    variant: np.ndarray
    problem: np.ndarray
    problems: Sequence[Mapping[str, object]]
    family: np.ndarray
    families: Sequence[Mapping[str, object]]
    settings: Sequence[Setting]
    clocks: Mapping[str, np.ndarray]
    counts: Mapping[str, np.ndarray]
    time_terms: Mapping[str, np.ndarray]
    time_s: np.ndarray
    energy_j: np.ndarray

    def __len__(self) -> int:
        return len(self.time_s)

    @property
    def highest(self) -> dict[str, float]:
        """The clocks that have several values, and the highest value of each."""
        return {
            name: float(np.nanmax(mhz))
            for name, mhz in self.clocks.items()
            if len(np.unique(mhz[np.isfinite(mhz)])) > 1
        }


def measured_variants(
    columns: Columns,
    site: str,
    kernel: str,
    terms: Terms,
    *,
    tuned: Collection[str] = (),
    problem: Mapping[str, str] | None = None,
) -> MeasuredVariants:
    """The variants of a kernel at a site.

    ``tuned``: the parameters that a space declares; all others define the computation. If empty,
    all parameter sets are variants of one problem. ``problem``: fixed parameter -> value as text.

    Raises:
        FitError: unknown names, a variant with different numbers of ranks, no successful
            measurement, or no terms.
    """
    rows = _rows(columns, site, kernel)
    done = is_complete(columns["status"]) & (columns["time_s"] > 0)
    rows = rows[done[rows]]
    if not len(rows):
        raise FitError(f"no measurement of {kernel} at {site} has succeeded")
    core_mhz, mem_mhz, uncore_mhz, limit_w, profile = axis_values(columns, rows)
    if np.isfinite(limit_w).any() or (profile != "").any():
        raise FitError(
            f"{kernel} was measured at {site} under power limits or profiles; its variants' costs "
            f"are modelled by clocks alone: measure it without"
        )
    row_instances = _instances(columns, rows)
    matches = of_problem(row_instances, problem or {})
    rows, row_instances = rows[matches], [row_instances[i] for i in matches]
    labels = [instance.label for instance in row_instances]
    refuse_other_ranks(columns, rows, *distinct_kernels(labels))
    mhz = dict(zip(CLOCKS, (core_mhz, second_clock(site, mem_mhz, uncore_mhz)), strict=True))
    mhz = {name: values[matches] for name, values in mhz.items()}
    settings, setting = distinct_settings(*axis_values(columns, rows))
    keys = list(zip(labels, setting.tolist(), strict=True))
    cell_of_key = {key: cell for cell, key in enumerate(dict.fromkeys(sorted(keys)))}
    cell = np.array([cell_of_key[key] for key in keys])
    first = np.full(len(cell_of_key), -1)
    first[cell[::-1]] = np.arange(len(cell))[::-1]
    instances = list({labels[i]: row_instances[i] for i in first.tolist()}.values())
    index = {instance.label: i for i, instance in enumerate(instances)}
    variant = np.array([index[labels[i]] for i in first.tolist()])
    problem_of, problems = _grouped(instances, tuned, texts_only=False)
    family_of, families = _grouped(instances, tuned, texts_only=True)
    stated = terms(instances)
    if not stated:
        raise FitError(
            f"{kernel} counts nothing that its time could be a sum of; use a kernel with counts"
        )
    clocks = {name: values[first] for name, values in mhz.items()}
    return MeasuredVariants(
        site=site,
        simulated=bool(columns["simulated"][rows].any()),
        unproven_clocks=len(settings) > 1 and UNPROVEN in clock_proofs(columns, rows),
        kernel=kernel,
        instances=instances,
        variant=variant,
        problem=problem_of[variant],
        problems=problems,
        family=family_of[variant],
        families=families,
        settings=[settings[s] for s in setting[first].tolist()],
        clocks=clocks,
        counts=_site_counts(_mean_counts(columns, rows, cell)),
        time_terms=at_clocks({name: column[variant] for name, column in stated.items()}, clocks),
        time_s=_means(columns["time_s"][rows], cell),
        energy_j=_means(columns["energy_j"][rows], cell),
    )


def _site_counts(counts: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The ``counts`` of the classes that some row counts, class -> float64 (rows,). A class that a
    row with counts lacks is 0 there."""
    counted = {name: values for name, values in counts.items() if np.isfinite(values).any()}
    has_counts = np.any([np.isfinite(values) for values in counted.values()], axis=0)
    return {
        name: np.where(has_counts, np.nan_to_num(values), np.nan)
        for name, values in counted.items()
    }


def _mean_counts(columns: Columns, rows: np.ndarray, variant: np.ndarray) -> dict[str, np.ndarray]:
    """Class -> each variant's mean count over the rows that have one; NaN if none has.
    ``variant``: int64, of each of the ``rows``."""
    size = int(variant.max()) + 1
    counts = {}
    for name, column in count_columns(columns).items():
        values = columns[column][rows].astype(float)
        known = np.isfinite(values)
        with np.errstate(invalid="ignore"):
            total = np.bincount(variant[known], values[known], size)
            counts[name] = total / np.bincount(variant[known], minlength=size)
    return counts


def _means(values: np.ndarray, cell: np.ndarray) -> np.ndarray:
    """The mean of each cell's positive values; NaN if it has none."""
    is_positive = np.isfinite(values) & (values > 0)
    cells, size = cell[is_positive], int(cell.max()) + 1
    with np.errstate(invalid="ignore"):
        total = np.bincount(cells, values[is_positive], size)
        return np.asarray(total / np.bincount(cells, minlength=size))


def _grouped(
    instances: Sequence[KernelInstance], tuned: Collection[str], *, texts_only: bool
) -> tuple[np.ndarray, list[dict[str, object]]]:
    """Each variant's group, int64 (variants,), and the parameters of the groups."""
    params = [rest_of(instance.params, tuned, texts_only=texts_only) for instance in instances]
    groups: dict[str, int] = {}
    group = [groups.setdefault(json.dumps(rest, sort_keys=True), len(groups)) for rest in params]
    return np.array(group), [json.loads(text) for text in groups]


def rest_of(
    params: Mapping[str, object], tuned: Collection[str], *, texts_only: bool
) -> dict[str, object]:
    """The parameters that define the computation, without the tuned ones. ``texts_only``: only the
    texts among them."""
    if not tuned:
        return {}
    return {
        name: value
        for name, value in params.items()
        if name not in tuned and (isinstance(value, str) or not texts_only)
    }
