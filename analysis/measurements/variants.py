"""The variants of one problem as a store holds them: costs at one setting, and metrics.

A variant is a choice of parameters that compute the same. Its costs are the means over its
repeats. Failed measurements, those without an energy and those whose clocks nothing showed are
left out and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.measurements.clock_proof import UNPROVEN, clock_proofs
from analysis.measurements.observations import FitError, distinct_kernels, setting_text, site_names
from analysis.measurements.problems import (
    SHOWN,
    check_one_problem,
    of_problem,
    problems,
    value_text,
)
from analysis.measurements.variant_metrics import Metric, variant_metrics
from dvfs.dataset import CLOCK_UNPROVEN, COUNT_PREFIX, class_unit, is_complete
from dvfs.groups import Groups
from dvfs.kernel_instance import KernelInstance, dataset_kernels
from dvfs.names import unknown_name
from dvfs.setting import Setting, axis_values, distinct_settings

if TYPE_CHECKING:
    import xarray as xr

    from dvfs.dataset import Columns

SAME_WORK = 1.01
"""Parameter sets whose flops differ by more than this factor compute different things."""
FEWEST = 3
"""Variants that a report shows."""
WITHOUT_ENERGY = "without energy"


@dataclass(frozen=True, kw_only=True)
class KernelVariants:
    """The variants of one problem at one setting.

    ``problem``: the parameters that all variants have in common. ``time_s``, ``energy_j``: float64
    (variants,), of one iteration, the mean of ``repeats`` (int64) measurements. ``work``: what
    every variant computes, in ``work_unit``: flops, those of the variant that counts the fewest;
    or 1 run, where none is counted. ``most_work``: that of the variant that counts most.
    ``left_out``: reason -> measurements at this setting. ``settings``: how many have variants.
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
    that are fixed. ``setting``: by
    default the one with most variants, of several the one with the highest clocks.

    Raises:
        FitError: unknown names, several problems, or no variant that was measured with its energy.
    """
    rows = _rows(dataset, site, kernel)
    own = _instances(dataset, rows)
    kept = of_problem(own, problem or {})
    rows, own = rows[kept], [own[i] for i in kept]
    if tuned:
        check_one_problem(own, tuned)
    why = _left_out(dataset, rows)
    usable = np.array([not reason for reason in why], bool)
    if not usable.any():
        counted = ", ".join(f"{n} {reason}" for reason, n in Counter(why).items())
        raise FitError(
            f"{site} has no variant of {kernel} with a time and an energy at known clocks: it has "
            f"{counted}"
        )
    setting, settings, here = _at_setting(dataset, rows, own, usable, setting)
    left_out = Counter(why[i] for i in np.flatnonzero(here & ~usable))
    at = np.flatnonzero(here & usable)
    _, first, variant = np.unique(
        np.array([own[i].label for i in at], object).astype(str),
        return_index=True,
        return_inverse=True,
    )
    at, instances = rows[at], [own[int(at[i])] for i in first]
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
    )


def _rows(dataset: xr.Dataset | Columns, site: str, kernel: str) -> np.ndarray:
    known = site_names(dataset)
    if site not in known:
        raise FitError(f"--site: {unknown_name('site', site, known)}")
    mine = np.asarray(dataset["site"]) == site
    rows = np.flatnonzero(mine & (np.asarray(dataset["kernel"]) == kernel))
    if not len(rows):
        kernels = sorted(set(np.asarray(dataset["kernel"])[mine].tolist()))
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
    own: Sequence[KernelInstance],
    usable: np.ndarray,
    setting: Setting | None,
) -> tuple[Setting, int, np.ndarray]:
    """The setting to study, how many have variants, and the rows at the one to study (bool)."""
    settings, of = distinct_settings(*axis_values(dataset, rows))
    variants: dict[Setting, set[str]] = {}
    for i in np.flatnonzero(usable).tolist():
        variants.setdefault(settings[of[i]], set()).add(own[i].label)
    if setting is None:
        setting = max(variants, key=lambda one: (len(variants[one]), one))
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
    mine = np.flatnonzero(np.asarray(dataset["site"]) == site)
    kernels, kernel_of = distinct_kernels(np.asarray(dataset["kernel"])[mine].tolist())
    imported, params = (np.asarray(dataset[name]) for name in ("imported", "params"))
    for kernel, places in zip(kernels, Groups(kernel_of).rows(), strict=True):
        rows = mine[places]
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
