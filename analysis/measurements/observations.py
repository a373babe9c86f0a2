"""The input of the models: the measurements of a site as arrays, a row each, and cell means."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from analysis.measurements.provenance import UNPROVEN, clock_proofs, estimated_energies
from dvfs.dataset import (
    MEMORY_CLASSES,
    STATED,
    Columns,
    complete_rows,
    count_columns,
)
from dvfs.errors import UserError, unknown_name
from dvfs.groups import Groups
from dvfs.kernel_instance import KernelInstance, relabelled
from dvfs.setting import LegalVolts, Setting, axis_values, clock_columns, distinct_settings

OFF_CLOCK = 0.02
"""The relative deviation from the requested core clock beyond which a clock was not held."""
OFF_LIMITED = 0.005
"""The same under a power limit."""
SAME_CLOCK = 0.02
"""The relative distance within which clocks that were not held count as one."""
OFF_AS_FOUND = 0.05
"""The greatest relative range of achieved core clocks, where no clock was requested, that counts as
one clock."""


class FitError(UserError):
    """The measurements do not suffice for the request; the message says what is needed."""


@dataclass(frozen=True, kw_only=True)
class Observations:
    """The complete rows of a site that have an energy. All arrays have one entry a row.

    ``kernel``: int64, index into ``kernels``. ``core_mhz``, ``mem_mhz``: float64, the clocks at
    which the row ran (:func:`clocks_run_at`), NaN if the site has no such domain. ``core_v``,
    ``mem_v``: float64, V, at these clocks; 1 if unknown (see ``voltage``). ``time_s``,
    ``energy_j``: float64, of one iteration. ``counts``: class -> float64, operations of one
    iteration; an unknown number is the mean of the other rows of its kernel, at its setting if
    there are any; NaN if no row of the kernel has the class. ``setting``: int64, index into
    ``settings``, the requested ones.
    """

    site: str
    simulated: bool
    kernel: np.ndarray
    kernels: list[str]
    """The labels of kernels, sorted; some may have no row."""
    core_mhz: np.ndarray
    mem_mhz: np.ndarray
    core_v: np.ndarray
    mem_v: np.ndarray
    time_s: np.ndarray
    energy_j: np.ndarray
    counts: dict[str, np.ndarray]
    domains: dict[str, str]
    """Class -> core or mem."""
    voltage: str
    """The origin of the voltages: measured, table, or unit (unknown: V = 1)."""
    setting: np.ndarray
    settings: list[Setting]
    """The requested settings, sorted; some may have no row."""
    energy_std_j: np.ndarray
    """float64 (rows,), the standard uncertainties of the energies; NaN if unknown."""
    node: np.ndarray
    """object (rows,), the node of each measurement; empty if unknown."""
    instances: Mapping[str, KernelInstance] = field(default_factory=dict)
    """Label -> the kernel's name and parameters; some may have no row."""
    unproven_clocks: bool = False
    """Whether nothing proves the clocks of some rows, and there are several settings."""
    stated_clocks: bool = False
    """Whether only the author of an imported table states the clocks of some rows."""
    estimated_energies: bool = False
    """Whether the energies of some rows are estimates, not measured."""
    mem_volts_known: bool = True
    """Whether ``mem_v`` are voltages; else all are 1."""
    perf_per_watt_mhz: float = np.nan
    """The core clock of the best performance per watt by NVML's power model; NaN if unknown."""

    def instance(self, label: str) -> KernelInstance:
        """The kernel of a label; if ``instances`` lacks it, one without parameters."""
        return self.instances.get(label) or KernelInstance(label)

    def __len__(self) -> int:
        return len(self.kernel)

    def take(self, rows: np.ndarray | slice) -> Observations:
        """A subset of the rows, by mask, index or slice; the indices of kernels and settings
        stay."""
        if isinstance(rows, np.ndarray) and rows.dtype == bool:
            rows = np.flatnonzero(rows)
        arrays: dict[str, Any] = {
            name: values[rows]
            for name, values in vars(self).items()
            if isinstance(values, np.ndarray)
        }
        counts = {name: values[rows] for name, values in self.counts.items()}
        return replace(self, **arrays, counts=counts)

    @property
    def labels(self) -> np.ndarray:
        """The label of each row's kernel, object (rows,)."""
        return np.asarray(np.array(self.kernels, object)[self.kernel])

    def of_kernel(self, label: str) -> np.ndarray:
        """bool (rows,): the rows of a kernel."""
        index = self.kernels.index(label) if label in self.kernels else -1
        return np.asarray(self.kernel == index)

    @property
    def mhz(self) -> np.ndarray:
        """The clocks of ``settings``, float64 (settings, 2), NaN for no clock."""
        return clock_columns(self.settings)

    @property
    def has_counts(self) -> np.ndarray:
        """bool (rows,): whether a row has operation counts."""
        if not self.counts:
            return np.zeros(len(self), bool)
        return np.asarray(np.any([np.isfinite(v) for v in self.counts.values()], axis=0))


def site_names(columns: Columns) -> list[str]:
    """The sites of a store's measurements, sorted."""
    return sorted(columns.texts("site").values)


def observations(
    columns: Columns,
    site: str,
    domains: dict[str, str] | None = None,
    legal: LegalVolts | None = None,
) -> Observations:
    """The complete rows (:data:`dvfs.dataset.COMPLETE`) of ``site`` with a positive time and
    energy.

    ``domains``: class -> core or mem, where it differs from :data:`dvfs.dataset.MEMORY_CLASSES`.
    ``legal``: the voltages of the site's legal settings.

    Raises:
        FitError: the store has no such site, or none of its rows has an energy.
    """

    sites = site_names(columns)
    if site not in sites:
        raise FitError(f"--site: {unknown_name('site', site, sites)}")
    energy_j = columns["energy_j"]
    time_s = columns["time_s"]
    complete = complete_rows(columns, site)
    rows = np.flatnonzero(complete & (energy_j > 0) & (time_s > 0))
    if not len(rows):
        n = int((columns["site"] == site).sum())
        none = f"none of the {n} measurements of {site} can be fitted"
        if complete.any() and columns["imported"][complete].all():
            raise FitError(f"{none}: the imported table has their times, and no energy or power")
        no_meter = "their energy is missing: this site has no meter"
        reason = no_meter if complete.any() else "none succeeded"
        raise FitError(f"{none} ({reason}); see `campaign doctor` for what this site can measure")
    all_kernels, kernel_of_row = columns.kernels
    used, kernel = np.unique(kernel_of_row[rows], return_inverse=True)
    instances = [all_kernels[i] for i in used.tolist()]
    kernels = [instance.label for instance in instances]
    refuse_other_ranks(columns, rows, kernels, kernel)
    counts = {}
    for name, count_column in count_columns(columns).items():
        values = columns[count_column][rows].astype(float)
        if np.isfinite(values).any():
            counts[name] = values

    def numbers(name: str) -> np.ndarray:
        return columns[name][rows].astype(float)

    requested = axis_values(columns, rows)
    settings, setting = distinct_settings(*requested)
    for name, values in counts.items():
        if not np.isfinite(values).all():
            of_cell = _filled(values, kernel * len(settings) + setting)
            counts[name] = _filled(of_cell, kernel)
    core_v, mem_v = numbers("core_v"), numbers("mem_v")
    core_mhz = clocks_run_at(requested[0], numbers("core_mhz_achieved"), requested[3])
    mem_mhz = second_clock(site, requested[1], requested[2])
    origins = columns.texts("voltage_origin")[rows]
    is_tabulated = origins.array(bool, [name != "measured" for name in origins.values])
    core_v = _volts_at(core_mhz, requested[0], core_v, is_tabulated, legal or {})
    voltage = "+".join(sorted(set(origins.present()) - {""})) or "unit"
    known_core_v = None if voltage == "unit" else _filled_volts(core_mhz, core_v)
    if known_core_v is None:
        voltage = "unit"
    known_mem_v = None if voltage == "unit" else _filled_volts(mem_mhz, mem_v)
    unit_v = np.ones(len(rows))
    proofs = clock_proofs(columns, rows)
    default_domains = {name: "mem" if name in MEMORY_CLASSES else "core" for name in counts}
    return Observations(
        site=site,
        simulated=bool(columns["simulated"][rows].any()),
        kernel=kernel,
        kernels=kernels,
        core_mhz=core_mhz,
        mem_mhz=mem_mhz,
        core_v=unit_v if known_core_v is None else known_core_v,
        mem_v=unit_v if known_mem_v is None else known_mem_v,
        time_s=time_s[rows].astype(float),
        energy_j=energy_j[rows].astype(float),
        counts=counts,
        domains=default_domains | {k: v for k, v in (domains or {}).items() if k in counts},
        voltage=voltage,
        setting=setting,
        settings=settings,
        energy_std_j=numbers("energy_std_j"),
        node=columns["node"][rows].astype(object),
        instances=dict(zip(kernels, instances, strict=True)),
        unproven_clocks=len(settings) > 1 and bool((proofs == UNPROVEN).any()),
        stated_clocks=bool((proofs == STATED).any()),
        estimated_energies=bool((estimated_energies(columns, rows) != "").any()),
        mem_volts_known=known_mem_v is not None,
        perf_per_watt_mhz=float(
            json.loads(columns.attrs.get("perf_per_watt_mhz", "{}")).get(site, np.nan)
        ),
    )


def second_clock(site: str, mem_mhz: np.ndarray, uncore_mhz: np.ndarray) -> np.ndarray:
    """The clock of the energy model's memory domain, MHz, float64 (rows,): the memory clock, or a
    CPU's uncore clock, which drives its caches and memory controllers.

    Raises:
        FitError: both clocks vary.
    """
    if np.isnan(uncore_mhz).all():
        return mem_mhz
    if len(np.unique(mem_mhz)) > 1:
        raise FitError(
            f"{site} was measured at several memory clocks and at uncore clocks, and the energy "
            f"model has one clock for both; import those of one memory clock, as a site of its own"
        )
    return np.where(np.isnan(uncore_mhz), mem_mhz, uncore_mhz)


def clocks_run_at(
    requested_mhz: np.ndarray, achieved_mhz: np.ndarray, limit_w: np.ndarray
) -> np.ndarray:
    """The core clock of each row in the energy model, MHz, float64 (rows,): the requested clock.

    Instead the achieved clock, if it was read, under a power limit or if the clock was not held,
    and if no clock was requested and the achieved ones differ.
    """
    with np.errstate(invalid="ignore"):
        most = np.where(np.isfinite(limit_w), OFF_LIMITED, OFF_CLOCK)
        not_held = np.abs(achieved_mhz / requested_mhz - 1.0) > most
    free = achieved_mhz[np.isnan(requested_mhz) & np.isfinite(achieved_mhz)]
    if len(free) and np.ptp(free) > OFF_AS_FOUND * free.max():
        not_held |= np.isnan(requested_mhz)
    return np.where(not_held & np.isfinite(achieved_mhz), achieved_mhz, requested_mhz)


def _volts_at(
    mhz: np.ndarray,
    requested_mhz: np.ndarray,
    volts: np.ndarray,
    is_tabulated: np.ndarray,
    legal: LegalVolts,
) -> np.ndarray:
    """Core voltages at the clocks ``mhz`` of the rows, V, float64 (rows,).

    A measured voltage belongs to that clock. A tabulated one, bool (rows,), belongs to the
    requested clock: if the row ran at another, interpolate between the clocks whose voltage the
    rows or ``legal`` state.
    """
    moved = is_tabulated & np.isfinite(mhz) & (mhz != requested_mhz)
    usable = is_tabulated & np.isfinite(requested_mhz) & np.isfinite(volts)
    if not moved.any() or not usable.any():
        return volts
    table = {s.core_mhz: v for s, (v, _) in legal.items() if s.core_mhz and v is not None}
    clocks, first = np.unique(requested_mhz[usable], return_index=True)
    table |= dict(zip(clocks.tolist(), volts[usable][first].tolist(), strict=True))
    table_mhz, table_v = np.array(sorted(table.items()), float).T
    return np.where(moved, np.interp(mhz, table_mhz, table_v), volts)


def _filled_volts(mhz: np.ndarray, volts: np.ndarray) -> np.ndarray | None:
    """The voltages of a domain, V, float64 (rows,): an unknown one is the mean of the others at its
    clock. None if a clock has no others, which a check reports
    (:func:`analysis.quality.possible_values.voltages_missing`)."""
    if not np.isfinite(volts).all():
        volts = _filled(volts, np.unique(mhz, return_inverse=True)[1])
    return volts if np.isfinite(volts).all() else None


def _filled(values: np.ndarray, group: np.ndarray) -> np.ndarray:
    """``values``, float64 (rows,), with the mean of the others of its group for each NaN; NaN if
    there are no others. ``group``: int64 (rows,), from 0."""
    known = np.isfinite(values)
    n = np.bincount(group[known], minlength=int(group.max()) + 1)
    with np.errstate(invalid="ignore"):
        mean = np.bincount(group[known], values[known], len(n)) / n
    return np.where(known, values, mean[group])


def measured_volts(data: Observations) -> dict[Setting, tuple[float, float]]:
    """The mean core and memory voltage of every setting that was measured, at its clocks."""
    requested_mhz = data.mhz[data.setting, 0]
    core_v = data.core_v
    moved = moved_rows(data)
    if moved.any():
        has_clock = np.isfinite(data.core_mhz)
        clocks, index = np.unique(data.core_mhz[has_clock], return_inverse=True)
        mean_v = np.bincount(index, core_v[has_clock]) / np.bincount(index)
        core_v = np.where(moved, np.interp(requested_mhz, clocks, mean_v), core_v)
    n = np.bincount(data.setting, minlength=len(data.settings))
    with np.errstate(invalid="ignore"):
        means = [np.bincount(data.setting, v, len(n)) / n for v in (core_v, data.mem_v)]
    return {data.settings[s]: (float(means[0][s]), float(means[1][s])) for s in np.flatnonzero(n)}


def moved_rows(data: Observations) -> np.ndarray:
    """bool (rows,): whether a row ran at another core clock than the requested one."""
    return np.asarray(np.isfinite(data.core_mhz) & (data.core_mhz != data.mhz[data.setting, 0]))


def by_clocks(data: Observations) -> Observations:
    """The same rows with the clocks at which they ran as their settings, the second clock as
    ``mem_mhz``: for models of clocks alone. Clocks that were not held are rounded to
    :data:`SAME_CLOCK`."""
    moved = moved_rows(data)
    if not moved.any():
        return data
    core_mhz = np.where(moved, np.nan, data.mhz[data.setting, 0])
    held = np.unique(core_mhz[np.isfinite(core_mhz)])
    rounded = np.exp(SAME_CLOCK * np.round(np.log(data.core_mhz[moved]) / SAME_CLOCK))
    if len(held):
        nearest = held[np.abs(np.log(data.core_mhz[moved, None] / held)).argmin(axis=1)]
        is_same = np.abs(np.log(data.core_mhz[moved] / nearest)) <= SAME_CLOCK / 2
        rounded = np.where(is_same, nearest, rounded)
    core_mhz[moved] = rounded
    settings, setting = distinct_settings(core_mhz, data.mem_mhz)
    return replace(data, settings=settings, setting=setting)


def refuse_other_ranks(
    columns: Columns, rows: np.ndarray, kernels: Sequence[str], kernel: np.ndarray
) -> None:
    """Raise FitError for a kernel that was measured with different numbers of MPI ranks, which are
    different kernels. ``kernel``: each row's index into ``kernels``."""
    ranks = columns["ranks"][rows]
    _, first = np.unique(kernel, return_index=True)
    for i in np.flatnonzero(ranks != ranks[first][kernel])[:1]:
        raise FitError(
            f"{kernels[kernel[i]]} was measured with {ranks[first][kernel[i]]} and with {ranks[i]} "
            f"ranks, which are two kernels: give each a label of its own in the campaign file; in "
            f"a table to import, a name of its own"
        )


def with_equal_mem_volts(sites: Sequence[Observations]) -> list[Observations]:
    """The sites for one energy model: without memory voltages, V = 1, where one of them has
    none."""
    if all(data.mem_volts_known for data in sites):
        return list(sites)
    return [replace(data, mem_v=np.ones(len(data)), mem_volts_known=False) for data in sites]


def pooled(sites: Sequence[Observations]) -> tuple[Observations, np.ndarray]:
    """The rows of several sites as one site, and each row's index into ``sites``.

    Equal settings become one. A class that a site does not count is NaN in its rows. Where a site
    has no memory voltages, all are 1.

    Raises:
        FitError: a class is in the core domain of one site and in the memory domain of another.
    """
    sites = with_equal_mem_volts(sites)
    site_of_row = np.repeat(np.arange(len(sites)), [len(data) for data in sites])

    def joined(name: str) -> np.ndarray:
        return np.concatenate([getattr(data, name) for data in sites])

    instances = [data.instance(label) for data in sites for label in kernel_names(data)]
    new = iter(relabelled(instances))
    by_old_label = [{label: next(new) for label in kernel_names(data)} for data in sites]
    kernels, kernel = distinct_kernels(
        [
            renamed[label].label
            for data, renamed in zip(sites, by_old_label, strict=True)
            for label in data.labels.tolist()
        ]
    )
    all_settings = sorted({setting for data in sites for setting in data.settings})
    index = {setting: i for i, setting in enumerate(all_settings)}
    used, setting = np.unique(
        np.concatenate(
            [np.array([index[s] for s in data.settings])[data.setting] for data in sites]
        ),
        return_inverse=True,
    )
    settings = [all_settings[i] for i in used.tolist()]
    classes = sorted({name for data in sites for name in data.counts})
    domains: dict[str, str] = {}
    for name, domain in (pair for data in sites for pair in data.domains.items()):
        if domains.setdefault(name, domain) != domain:
            raise FitError(
                f"class {name} belongs to the core domain in some of these measurements and to the "
                f"memory domain in others, so one model cannot be fitted to them; give it one "
                f"domain (classes of the site file or of the map)"
            )
    return (
        replace(
            sites[0],
            site="+".join(data.site for data in sites),
            simulated=any(data.simulated for data in sites),
            kernel=kernel,
            kernels=kernels,
            instances={k.label: k for renamed in by_old_label for k in renamed.values()},
            core_mhz=joined("core_mhz"),
            mem_mhz=joined("mem_mhz"),
            core_v=joined("core_v"),
            mem_v=joined("mem_v"),
            time_s=joined("time_s"),
            energy_j=joined("energy_j"),
            counts={
                name: np.concatenate(
                    [data.counts.get(name, np.full(len(data), np.nan)) for data in sites]
                )
                for name in classes
            },
            domains=domains,
            setting=setting,
            settings=settings,
            energy_std_j=joined("energy_std_j"),
            node=np.full(len(site_of_row), "", object),
            unproven_clocks=any(data.unproven_clocks for data in sites),
            stated_clocks=any(data.stated_clocks for data in sites),
            estimated_energies=any(data.estimated_energies for data in sites),
            mem_volts_known=all(data.mem_volts_known for data in sites),
            perf_per_watt_mhz=np.nan,
        ),
        site_of_row,
    )


def distinct_kernels(labels: Iterable[str]) -> tuple[list[str], np.ndarray]:
    """The distinct labels, sorted, and the index of each row's label, int64 (rows,)."""
    of_rows = list(labels)
    kernels = sorted(set(of_rows))
    index = {label: i for i, label in enumerate(kernels)}
    return kernels, np.fromiter(map(index.__getitem__, of_rows), np.int64, len(of_rows))


def kernel_names(data: Observations) -> list[str]:
    """The labels of the kernels that have rows, sorted."""
    return [data.kernels[index] for index in np.flatnonzero(np.bincount(data.kernel)).tolist()]


def rows_by_kernel(data: Observations) -> Iterator[tuple[str, np.ndarray]]:
    """The label of each kernel, sorted, and its rows, int64."""
    groups = Groups(data.kernel)
    for index, rows in zip(groups.codes.tolist(), groups.rows(), strict=True):
        yield data.kernels[index], rows


def setting_text(setting: Setting) -> str:
    """The text of a setting in reports: ``852/924 MHz``, ``852/924 MHz, 150 W``."""
    pair = (setting.core_mhz, setting.mem_mhz)
    core, mem = ("as found" if mhz is None else f"{mhz:g}" for mhz in pair)
    clocks = [f"{core} MHz" if setting.mem_mhz is None else f"{core}/{mem} MHz"]
    if pair == (None, None):
        clocks = [] if setting.further_texts else [core]
    return ", ".join([*clocks, *setting.further_texts])


def kernel_numbers(data: Observations, kernels: Sequence[str] | None = None) -> np.ndarray:
    """Each row's index into ``kernels``, by default :func:`kernel_names`: int64 (rows,), -1 for a
    kernel that is not in it."""
    names = kernel_names(data) if kernels is None else kernels
    index = {label: i for i, label in enumerate(names)}
    index_of_kernel = np.array([index.get(label, -1) for label in data.kernels], np.int64)
    return np.asarray(index_of_kernel[data.kernel])


def cell_means(data: Observations, kernels: Sequence[str], values: np.ndarray) -> np.ndarray:
    """The mean of ``values`` (rows,) over the repeats of each kernel at each setting.

    Float64 (kernels, settings of ``data``), NaN where a kernel was not measured.
    """
    kernel = kernel_numbers(data, kernels)
    rows = kernel >= 0
    shape = (len(kernels), len(data.settings))
    cell = kernel[rows] * shape[1] + data.setting[rows]
    n = np.bincount(cell, minlength=shape[0] * shape[1])
    with np.errstate(invalid="ignore"):
        return np.asarray((np.bincount(cell, values[rows], len(n)) / n).reshape(shape))


def first_rows(data: Observations, kernels: Sequence[str]) -> np.ndarray:
    """The first row of each kernel at each setting of ``data``: int64 (kernels, settings), -1
    where it was not measured."""
    kernel = kernel_numbers(data, kernels)
    first = np.full((len(kernels), len(data.settings)), -1)
    last_to_first = np.flatnonzero(kernel >= 0)[::-1]
    first[kernel[last_to_first], data.setting[last_to_first]] = last_to_first
    return first
