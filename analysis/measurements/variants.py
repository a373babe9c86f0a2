"""The variants of a kernel that were measured: costs, and metrics of each.

A variant is a choice of parameters that compute the same. Its costs are the means over its
repeats. Failed measurements, those without an energy and those whose clocks nothing showed are
left out and counted.
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
    COUNT_PREFIX,
    COUNTERS,
    METRICS,
    class_unit,
    is_complete,
    moves_data,
)
from dvfs.errors import unknown_name
from dvfs.groups import Groups
from dvfs.kernel_instance import KernelInstance, dataset_kernels
from dvfs.setting import Setting, axis_values, distinct_settings

if TYPE_CHECKING:
    import xarray as xr

    from dvfs.dataset import Columns

SAME_WORK = 1.01
"""Parameter sets whose flops differ by more than this factor compute different things."""
FEWEST = 3
"""Variants that a report shows."""
WITHOUT_ENERGY = "without energy"
LABELS = "labels"
"""The key of a measurement's provenance that has the further columns of an imported table."""
CLOCKS = ("core_mhz", "mem_mhz")
Terms = Callable[[Sequence[KernelInstance]], Mapping[str, np.ndarray]]
"""The numbers that the time of each variant is a sum of: term -> (variants,)."""


@dataclass(frozen=True, kw_only=True)
class KernelVariants:
    """The variants of one problem at one setting.

    ``problem``: the parameters that all variants have in common. ``time_s``, ``energy_j``: float64
    (variants,), of one iteration, the mean of ``repeats`` (int64) measurements. ``work``: what
    every variant computes, in ``work_unit``: flops, those of the variant that counts the fewest;
    or 1 run, where none is counted. ``most_work``: that of the variant that counts most.
    ``left_out``: reason -> measurements at this setting. ``settings``: how many have variants.
    ``estimated_energies``: whether the energies of some were estimated, not measured.
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
    dataset: xr.Dataset | Columns,
    site: str,
    kernel: str,
    *,
    tuned: Collection[str] = (),
    problem: Mapping[str, str] | None = None,
    setting: Setting | None = None,
) -> KernelVariants:
    """The variants of a kernel at a site, in the order of their labels.

    ``tuned``: the parameters that a space declares; all others are the problem. Without any, every
    parameter set is a variant of one problem. ``problem``: parameter -> value as text, for those
    that are fixed. ``setting``: by default the one with most variants, of several the highest
    (:func:`analysis.ties.highest`).

    Raises:
        FitError: unknown names, several problems, a variant with different numbers of ranks, or no
            variant that was measured with its energy.
    """
    rows = _rows(dataset, site, kernel)
    of_rows = _instances(dataset, rows)
    kept = of_problem(of_rows, problem or {})
    rows, of_rows = rows[kept], [of_rows[i] for i in kept]
    if tuned:
        check_one_problem(of_rows, tuned)
    why = _left_out(dataset, rows)
    usable = np.array([not reason for reason in why], bool)
    if not usable.any():
        counted = ", ".join(f"{n} {reason}" for reason, n in Counter(why).items())
        raise FitError(
            f"{site} has no variant of {kernel} with a time and an energy at known clocks: it has "
            f"{counted}"
        )
    labels = [of_rows[i].label for i in np.flatnonzero(usable)]
    refuse_other_ranks(dataset, rows[usable], *distinct_kernels(labels))
    setting, settings, here = _at_setting(dataset, rows, of_rows, usable, setting)
    left_out = Counter(why[i] for i in np.flatnonzero(here & ~usable))
    at = np.flatnonzero(here & usable)
    _, first, variant = np.unique(
        np.array([of_rows[i].label for i in at], object).astype(str),
        return_index=True,
        return_inverse=True,
    )
    at, instances = rows[at], [of_rows[int(at[i])] for i in first]
    repeats = np.bincount(variant)

    def mean(name: str) -> np.ndarray:
        return np.bincount(variant, np.asarray(dataset[name])[at].astype(float)) / repeats

    counts = {
        name.removeprefix(COUNT_PREFIX): mean(name)
        for name in sorted(map(str, dataset))
        if name.startswith(COUNT_PREFIX)
    }
    flops = _total(counts, "flop")
    if not tuned and not problem:
        _check_same_work(instances, _total(counts, "op") if flops is None else flops)
    known = flops[np.isfinite(flops)] if flops is not None else np.ones(1)
    provenance = np.asarray(dataset["provenance"])[at].tolist()
    time_s = mean("time_s")
    return KernelVariants(
        site=site,
        simulated=bool(np.asarray(dataset["simulated"])[at].any()),
        kernel=kernel,
        problem=_common(instances),
        setting=setting,
        settings=settings,
        instances=instances,
        time_s=time_s,
        energy_j=mean("energy_j"),
        repeats=repeats,
        work=float(known.min()),
        most_work=float(known.max()),
        work_unit="run" if flops is None else "flop",
        metrics=variant_metrics(instances, variant, provenance, counts, time_s),
        left_out=dict(left_out),
        estimated_energies=bool((estimated_energies(dataset, at) != "").any()),
    )


def _rows(dataset: xr.Dataset | Columns, site: str, kernel: str) -> np.ndarray:
    known = site_names(dataset)
    if site not in known:
        raise FitError(f"--site: {unknown_name('site', site, known)}")
    of_site = np.asarray(dataset["site"]) == site
    rows = np.flatnonzero(of_site & (np.asarray(dataset["kernel"]) == kernel))
    if not len(rows):
        kernels = sorted(set(np.asarray(dataset["kernel"])[of_site].tolist()))
        raise FitError(f"--kernel: {unknown_name('kernel', kernel, kernels)}")
    return rows


def _instances(dataset: xr.Dataset | Columns, rows: np.ndarray) -> list[KernelInstance]:
    known = dataset_kernels(dataset)
    kernels, params = (np.asarray(dataset[name])[rows].tolist() for name in ("kernel", "params"))
    return [known[pair] for pair in zip(kernels, params, strict=True)]


def _left_out(dataset: xr.Dataset | Columns, rows: np.ndarray) -> list[str]:
    """Why each row is left out; empty where it is not."""
    status = np.asarray(dataset["status"])[rows]
    complete = is_complete(status)
    energy_j, time_s = (np.asarray(dataset[name])[rows] for name in ("energy_j", "time_s"))
    measured = (energy_j > 0) & (time_s > 0)
    why = np.where(measured, "", WITHOUT_ENERGY).astype(object)
    why[clock_proofs(dataset, rows) == UNPROVEN] = CLOCK_UNPROVEN
    why[~complete] = status[~complete]
    return [str(reason) for reason in why]


def _at_setting(
    dataset: xr.Dataset | Columns,
    rows: np.ndarray,
    instances: Sequence[KernelInstance],
    usable: np.ndarray,
    setting: Setting | None,
) -> tuple[Setting, int, np.ndarray]:
    """The setting to study, how many have variants, and the rows at the one to study (bool)."""
    settings, of = distinct_settings(*axis_values(dataset, rows))
    variants: dict[Setting, set[str]] = {}
    for i in np.flatnonzero(usable).tolist():
        variants.setdefault(settings[of[i]], set()).add(instances[i].label)
    if setting is None:
        most = max(map(len, variants.values()))
        among = np.array([len(variants.get(one, ())) == most for one in settings])
        time_s = np.asarray(dataset["time_s"])[rows[usable]]
        n = np.maximum(np.bincount(of[usable], minlength=len(settings)), 1)
        mean_s = np.bincount(of[usable], time_s, len(settings)) / n
        setting = settings[highest(settings, among, mean_s)]
    if setting not in variants:
        texts = [one.option_text for one in sorted(variants)]
        raise FitError(
            f"--setting: no variant was measured at {setting_text(setting)}; "
            f"there are {' '.join(texts[:SHOWN])}{' ...' if len(texts) > SHOWN else ''}"
        )
    return setting, len(variants), of == settings.index(setting)


def _total(counts: Mapping[str, np.ndarray], unit: str) -> np.ndarray | None:
    """The operations of a unit that each variant counts, float64, NaN where it counts none; None
    where none does."""
    parts = [values for name, values in counts.items() if class_unit(name) == unit]
    total = np.sum([np.nan_to_num(values) for values in parts], axis=0) if parts else np.zeros(1)
    return np.where(total > 0, total, np.nan) if (total > 0).any() else None


def _check_same_work(instances: Sequence[KernelInstance], work: np.ndarray | None) -> None:
    """Refuse parameter sets that count different work (FitError), and name those that decide it."""
    if work is None or np.nanmax(work) <= SAME_WORK * np.nanmin(work):
        return
    counted: dict[str, dict[str, list[float]]] = {}
    for one, count in zip(instances, work.tolist(), strict=True):
        for name, value in one.params.items():
            counted.setdefault(name, {}).setdefault(value_text(value), []).append(count)
    decide = [
        (len(by_value), name, next(iter(by_value)))
        for name, by_value in counted.items()
        if all(max(some) <= SAME_WORK * min(some) for some in by_value.values())
    ]
    example = ", such as --problem {1}={2}".format(*min(decide)) if decide else ""
    raise FitError(
        f"the parameter sets of {instances[0].name} count {np.nanmin(work):.4g} to "
        f"{np.nanmax(work):.4g} operations: they are of several problems; name the parameters of "
        f"one{example}"
    )


def _common(instances: Sequence[KernelInstance]) -> dict[str, Any]:
    """The parameters that have one value in all of these."""
    return {
        name: value
        for name, value in instances[0].params.items()
        if all(name in one.params and one.params[name] == value for one in instances)
    }


def studied_variants(
    dataset: xr.Dataset | Columns, site: str, tuned: Mapping[str, Collection[str]]
) -> list[KernelVariants]:
    """The variants of every problem of a site that a report studies: those of :data:`FEWEST` or
    more variants.

    ``tuned``: kernel -> the parameters that its space declares. Of further kernels, those whose
    rows are all imported: a table without spaces, in which parameter sets that count the same
    flops, or none, are taken for variants of one problem.
    """
    studied = []
    rows_of_site = np.flatnonzero(np.asarray(dataset["site"]) == site)
    kernels, kernel_of = distinct_kernels(np.asarray(dataset["kernel"])[rows_of_site].tolist())
    imported, params = (np.asarray(dataset[name]) for name in ("imported", "params"))
    for kernel, places in zip(kernels, Groups(kernel_of).rows(), strict=True):
        rows = rows_of_site[places]
        if kernel not in tuned and not imported[rows].all():
            continue
        if len(set(params[rows].tolist())) < FEWEST:
            continue
        names = tuned.get(kernel, ())
        several = problems(_instances(dataset, rows), names).values() if names else [{}]
        for rest in several:
            problem = {name: value_text(value) for name, value in rest.items()}
            try:
                variants = kernel_variants(dataset, site, kernel, tuned=names, problem=problem)
            except FitError:
                continue
            if len(variants) >= FEWEST:
                studied.append(variants)
    return studied


@dataclass(frozen=True)
class Metric:
    """A number of each variant: ``values``, float64 (variants,), NaN where it is not known.

    ``kind``: parameter, count, kernel, counter or label, which is where it is from.
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
    """Every metric that is known of two variants or more and differs between them.

    In this order: the parameters that are numbers; operations a second of each class, and flops a
    byte; what the kernel states of itself, such as ``occupancy`` or ``registers``; what hardware
    counters counted, a second, and instructions per cycle; the columns of an imported table that
    are numbers. Of two with the same name the first.

    ``variant``: int64 (rows,), each row's; ``provenance``: its JSON. ``counts`` and ``time_s``:
    float64 (variants,).
    """
    metrics = [
        *_parameters(instances),
        *_counted(counts, time_s),
        *_of_provenance(variant, provenance, time_s),
    ]
    by_name = {metric.name: metric for metric in reversed(metrics)}
    return [m for m in metrics if by_name[m.name] is m and _differs(m.values)]


def _differs(values: np.ndarray) -> bool:
    known = values[np.isfinite(values)]
    return len(known) > 1 and float(np.ptp(known)) > 0


def _parameters(instances: Sequence[KernelInstance]) -> list[Metric]:
    names = dict.fromkeys(name for instance in instances for name in instance.params)
    columns = {name: [instance.params.get(name) for instance in instances] for name in names}
    return [
        Metric(name, "", "parameter", np.array([_number(v) for v in values]))
        for name, values in columns.items()
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
            known = np.where(values > 0, values, np.nan)
            metrics.append(Metric(f"intensity_{name}", "flop/B", "count", sum(flops) / known))
    return metrics


def _of_provenance(
    variant: np.ndarray, provenance: Sequence[str], time_s: np.ndarray
) -> list[Metric]:
    """What the kernel states, counters and labels, each the mean over a variant's rows with it."""
    stated: dict[str, dict[int, float]] = {}
    events: dict[str, dict[int, float]] = {}
    labels: dict[str, dict[int, float]] = {}
    for row, text in enumerate(provenance):
        if any(f'"{key}"' in text for key in (METRICS, COUNTERS, LABELS)):
            facts = json.loads(text)
            for into, values_by_name in (
                (stated, facts.get(METRICS)),
                (events, (facts.get(COUNTERS) or {}).get("events")),
                (labels, facts.get(LABELS)),
            ):
                for name, value in (values_by_name or {}).items():
                    into.setdefault(name, {})[row] = _number(value)

    def mean(values: Mapping[int, float]) -> np.ndarray:
        of_value = variant[list(values)]
        with np.errstate(invalid="ignore"):
            total = np.bincount(of_value, list(values.values()), len(time_s))
            return np.asarray(total / np.bincount(of_value, minlength=len(time_s)))

    metrics = [Metric(name, "", "kernel", mean(values)) for name, values in stated.items()]
    if {"cycles", "instructions"} <= events.keys():
        cycles, instructions = mean(events["cycles"]), mean(events["instructions"])
        known = np.where(cycles > 0, cycles, np.nan)
        metrics.append(Metric("instructions_per_cycle", "", "counter", instructions / known))
    for name, values in sorted(events.items()):
        metrics.append(Metric(f"{name}_per_s", "1/s", "counter", mean(values) / time_s))
    for name, values in labels.items():
        if all(map(math.isfinite, values.values())):
            metrics.append(Metric(name, "", "label", mean(values)))
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
    """Variants at settings: a row for each pair that was measured, the mean over its repeats.

    ``variant``: int64 (rows,), index into ``instances``; ``problem``: into ``problems``, the
    parameters that say what is computed; ``family``: into ``families``, those of them that are
    texts, such as a stencil's name: variants of one family differ in sizes and tiles alone.
    ``clocks``: name -> MHz (rows,), NaN where the site has no such clock. ``counted``: the terms
    that are counts of operations or bytes. ``columns``: what the
    time is a sum of, at these clocks (:func:`analysis.costs.linear_cost.at_clocks`). ``time_s``,
    ``energy_j``: float64 (rows,), of one iteration; an energy may be NaN.
    """

    site: str
    simulated: bool
    kernel: str
    instances: Sequence[KernelInstance]
    variant: np.ndarray
    problem: np.ndarray
    problems: Sequence[Mapping[str, object]]
    family: np.ndarray
    families: Sequence[Mapping[str, object]]
    clocks: Mapping[str, np.ndarray]
    counted: tuple[str, ...]
    columns: Mapping[str, np.ndarray]
    time_s: np.ndarray
    energy_j: np.ndarray

    def __len__(self) -> int:
        return len(self.time_s)

    @property
    def highest(self) -> dict[str, float]:
        """The clocks that take several values, and their highest one."""
        return {
            name: float(np.nanmax(mhz))
            for name, mhz in self.clocks.items()
            if len(np.unique(mhz[np.isfinite(mhz)])) > 1
        }

    @property
    def settings(self) -> list[Setting]:
        """Of each row."""
        return list(map(Setting.of, *(self.clocks[name].tolist() for name in CLOCKS)))


def measured_variants(
    dataset: xr.Dataset | Columns,
    site: str,
    kernel: str,
    terms: Terms,
    *,
    tuned: Collection[str] = (),
    problem: Mapping[str, str] | None = None,
) -> MeasuredVariants:
    """The variants of a kernel at a site.

    ``tuned``: the parameters that a space declares; all others say what is computed. Without any,
    all parameter sets are variants of one problem. ``problem``: parameter -> value as text, for
    those that are fixed.

    Raises:
        FitError: unknown names, a variant with different numbers of ranks, no measurement that
            succeeded, or no terms.
    """
    known_sites = site_names(dataset)
    if site not in known_sites:
        raise FitError(f"--site: {unknown_name('site', site, known_sites)}")
    of_site = np.asarray(dataset["site"]) == site
    if not (of_site & (np.asarray(dataset["kernel"]) == kernel)).any():
        kernels = sorted(set(np.asarray(dataset["kernel"])[of_site].tolist()))
        raise FitError(f"{site} has no measurement of {kernel!r}; it has {', '.join(kernels)}")
    done = is_complete(np.asarray(dataset["status"])) & (np.asarray(dataset["time_s"]) > 0)
    rows = np.flatnonzero(of_site & done & (np.asarray(dataset["kernel"]) == kernel))
    if not len(rows):
        raise FitError(f"no measurement of {kernel} at {site} has succeeded")
    core_mhz, mem_mhz, uncore_mhz, limit_w, profile = axis_values(dataset, rows)
    if np.isfinite(limit_w).any() or (profile != "").any():
        raise FitError(
            f"{kernel} was measured at {site} under power limits or profiles; its variants' costs "
            f"are modelled by clocks alone: measure it without"
        )
    known = dataset_kernels(dataset)
    of_rows = [known[kernel, params] for params in np.asarray(dataset["params"])[rows].tolist()]
    kept = of_problem(of_rows, problem or {})
    rows, of_rows = rows[kept], [of_rows[place] for place in kept]
    refuse_other_ranks(dataset, rows, *distinct_kernels(instance.label for instance in of_rows))
    mhz = dict(zip(CLOCKS, (core_mhz, second_clock(site, mem_mhz, uncore_mhz)), strict=True))
    mhz = {name: values[kept] for name, values in mhz.items()}
    _, setting = distinct_settings(*(mhz[name] for name in CLOCKS))
    keys = list(zip((instance.label for instance in of_rows), setting.tolist(), strict=True))
    distinct = {key: place for place, key in enumerate(dict.fromkeys(sorted(keys)))}
    at = np.array([distinct[key] for key in keys])
    first = np.full(len(distinct), -1)
    first[at[::-1]] = np.arange(len(at))[::-1]
    instances = list({of_rows[place].label: of_rows[place] for place in first.tolist()}.values())
    places = {instance.label: place for place, instance in enumerate(instances)}
    variant = np.array([places[of_rows[place].label] for place in first.tolist()])
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
        simulated=bool(np.asarray(dataset["simulated"])[rows].any()),
        kernel=kernel,
        instances=instances,
        variant=variant,
        problem=problem_of[variant],
        problems=problems,
        family=family_of[variant],
        families=families,
        clocks=clocks,
        counted=tuple(name for name in stated if COUNT_PREFIX + name in dataset),
        columns=at_clocks({name: column[variant] for name, column in stated.items()}, clocks),
        time_s=_means(np.asarray(dataset["time_s"])[rows], at),
        energy_j=_means(np.asarray(dataset["energy_j"])[rows], at),
    )


def _means(values: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The mean of the values of each place that are known and positive; NaN of none."""
    known = np.isfinite(values) & (values > 0)
    size = int(at.max()) + 1
    with np.errstate(invalid="ignore"):
        total = np.bincount(at[known], values[known], size)
        return np.asarray(total / np.bincount(at[known], minlength=size))


def _grouped(
    instances: Sequence[KernelInstance], tuned: Collection[str], *, texts_only: bool
) -> tuple[np.ndarray, list[dict[str, object]]]:
    """Each variant's group, int64 (variants,), and the parameters of the groups."""
    rests = [rest_of(instance.params, tuned, texts_only=texts_only) for instance in instances]
    groups: dict[str, int] = {}
    of = [groups.setdefault(json.dumps(rest, sort_keys=True), len(groups)) for rest in rests]
    return np.array(of), [json.loads(text) for text in groups]


def rest_of(
    params: Mapping[str, object], tuned: Collection[str], *, texts_only: bool
) -> dict[str, object]:
    """The parameters that say what is computed: without those of a variant. ``texts_only``: those
    of them that are texts."""
    if not tuned:
        return {}
    return {
        name: value
        for name, value in params.items()
        if name not in tuned and (isinstance(value, str) or not texts_only)
    }
