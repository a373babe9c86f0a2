"""All variants of a kernel that were measured, of any problem and at any setting, as arrays."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from analysis.costs.linear_cost import at_clocks
from analysis.measurements.observations import FitError, second_clock, site_names
from analysis.measurements.problems import of_problem
from dvfs.dataset import COUNT_PREFIX, is_complete
from dvfs.kernel_instance import KernelInstance, dataset_kernels
from dvfs.names import unknown_name
from dvfs.setting import Setting, axis_values, distinct_settings

if TYPE_CHECKING:
    import xarray as xr

    from dvfs.dataset import Columns

CLOCKS = ("core_mhz", "mem_mhz")
Terms = Callable[[Sequence[KernelInstance]], Mapping[str, np.ndarray]]
"""The numbers that the time of each variant is a sum of: term -> (variants,)."""


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
        FitError: unknown names, no measurement that succeeded, or no terms.
    """
    known_sites = site_names(dataset)
    if site not in known_sites:
        raise FitError(f"--site: {unknown_name('site', site, known_sites)}")
    mine = np.asarray(dataset["site"]) == site
    if not (mine & (np.asarray(dataset["kernel"]) == kernel)).any():
        kernels = sorted(set(np.asarray(dataset["kernel"])[mine].tolist()))
        raise FitError(f"{site} has no measurement of {kernel!r}; it has {', '.join(kernels)}")
    done = is_complete(np.asarray(dataset["status"])) & (np.asarray(dataset["time_s"]) > 0)
    rows = np.flatnonzero(mine & done & (np.asarray(dataset["kernel"]) == kernel))
    if not len(rows):
        raise FitError(f"no measurement of {kernel} at {site} has succeeded")
    core_mhz, mem_mhz, uncore_mhz, limit_w, profile = axis_values(dataset, rows)
    if np.isfinite(limit_w).any() or (profile != "").any():
        raise FitError(
            f"{kernel} was measured at {site} under power limits or profiles; its variants' costs "
            f"are modelled by clocks alone: measure it without"
        )
    known = dataset_kernels(dataset)
    own = [known[kernel, params] for params in np.asarray(dataset["params"])[rows].tolist()]
    kept = of_problem(own, problem or {})
    rows, own = rows[kept], [own[place] for place in kept]
    mhz = dict(zip(CLOCKS, (core_mhz, second_clock(site, mem_mhz, uncore_mhz)), strict=True))
    mhz = {name: values[kept] for name, values in mhz.items()}
    _, setting = distinct_settings(*(mhz[name] for name in CLOCKS))
    keys = list(zip((instance.label for instance in own), setting.tolist(), strict=True))
    distinct = {key: place for place, key in enumerate(dict.fromkeys(sorted(keys)))}
    at = np.array([distinct[key] for key in keys])
    first = np.full(len(distinct), -1)
    first[at[::-1]] = np.arange(len(at))[::-1]
    instances = list({own[place].label: own[place] for place in first.tolist()}.values())
    places = {instance.label: place for place, instance in enumerate(instances)}
    variant = np.array([places[own[place].label] for place in first.tolist()])
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
