"""The measurements of one site as the model takes them: arrays, a row a measurement, and means."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from analysis.measurements.provenance import UNPROVEN, clock_proofs, estimated_energies
from dvfs.dataset import (
    COUNT_PREFIX,
    MEMORY_CLASSES,
    STATED,
    Columns,
    complete_rows,
    texts_of,
)
from dvfs.errors import UserError, unknown_name
from dvfs.groups import Groups
from dvfs.kernel_instance import KernelInstance, kernels_of_rows, relabelled
from dvfs.setting import LegalVolts, Setting, axis_values, clock_columns, distinct_settings

if TYPE_CHECKING:
    import xarray as xr

OFF_CLOCK = 0.02
"""Relative: an achieved core clock further than this from the one asked for was not held."""
OFF_LIMITED = 0.005
"""The same under a power limit."""
SAME_CLOCK = 0.02
"""Relative: clocks that were not held and are this near to each other count as one."""
OFF_AS_FOUND = 0.05
"""How far the achieved core clocks of a site whose clock is left as found may be apart."""


class FitError(UserError):
    """These measurements do not allow what was asked; the text says what is needed."""


@dataclass(frozen=True, kw_only=True)
class Observations:
    """Complete rows of one site, with an energy. All arrays have one entry a row.

    ``kernel``: int64, index into ``kernels``. ``core_mhz``, ``mem_mhz``:
    float64, the clocks that the row ran at (:func:`clocks_run_at`), NaN where the site has no such
    domain. ``core_v``, ``mem_v``: float64, V, at these clocks; 1 where none is known (see
    ``voltage``). ``time_s``, ``energy_j``: float64, of one iteration.
    ``counts``: class -> float64, operations of one iteration, NaN where a kernel's are not known.
    ``setting``: int64, index into ``settings``, which were asked for.
    """

    site: str
    simulated: bool
    kernel: np.ndarray
    kernels: list[str]
    """The label of every kernel with its parameters, sorted; more than these rows' may be there."""
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
    """Where the voltages are from: measured, table, or unit (none is known: V = 1)."""
    setting: np.ndarray
    settings: list[Setting]
    """Every setting, sorted."""
    energy_std_j: np.ndarray | None = None
    """float64 (rows,), the energies' own standard uncertainties; NaN where not known."""
    node: np.ndarray | None = None
    """object (rows,), the node that was measured on; empty where not known."""
    instances: Mapping[str, KernelInstance] = field(default_factory=dict)
    """Label -> the kernel's name and parameters; more than these rows' labels may be there."""
    unproven_clocks: bool = False
    """Whether some of them are at settings that nothing showed, and there are several settings."""
    stated_clocks: bool = False
    """Whether the clocks of some are as the author of an imported table states them."""
    estimated_energies: bool = False
    """Whether the energies of some were estimated, not measured."""
    perf_per_watt_mhz: float = np.nan
    """The core clock at which NVML's own power model expects the best performance per watt; NaN
    where no record has it."""

    def instance(self, label: str) -> KernelInstance:
        """The kernel that has a label; one without parameters where ``instances`` lacks it."""
        return self.instances.get(label) or KernelInstance(label)

    def __len__(self) -> int:
        return len(self.kernel)

    def take(self, rows: np.ndarray) -> Observations:
        """Some of the rows, by mask or index; kernels and settings keep their numbers."""
        names = (
            "kernel",
            "core_mhz",
            "mem_mhz",
            "core_v",
            "mem_v",
            "time_s",
            "energy_j",
            "setting",
        )
        return replace(
            self,
            **{name: getattr(self, name)[rows] for name in names},
            energy_std_j=None if self.energy_std_j is None else self.energy_std_j[rows],
            node=None if self.node is None else self.node[rows],
            counts={name: values[rows] for name, values in self.counts.items()},
        )

    @property
    def labels(self) -> np.ndarray:
        """The label of each row's kernel, object (rows,)."""
        return np.asarray(np.array(self.kernels, object)[self.kernel])

    def of_kernel(self, label: str) -> np.ndarray:
        """bool (rows,): the rows of a kernel."""
        number = self.kernels.index(label) if label in self.kernels else -1
        return np.asarray(self.kernel == number)

    @property
    def mhz(self) -> np.ndarray:
        """The clocks of ``settings``, float64 (settings, 2), NaN where there is none."""
        return clock_columns(self.settings)

    @property
    def has_counts(self) -> np.ndarray:
        """bool: whether a row's kernel has operation counts."""
        if not self.counts:
            return np.zeros(len(self), bool)
        return np.asarray(np.any([np.isfinite(v) for v in self.counts.values()], axis=0))


def site_names(dataset: xr.Dataset | Columns) -> list[str]:
    """The sites that a store's Dataset has measurements of, sorted."""
    return sorted(texts_of(dataset, "site").values) if "site" in dataset else []


def observations(
    dataset: xr.Dataset | Columns,
    site: str,
    domains: dict[str, str] | None = None,
    legal: LegalVolts | None = None,
) -> Observations:
    """The complete rows (:data:`dvfs.dataset.COMPLETE`) of ``site`` with a positive time and
    energy.

    ``domains`` says which classes pay which domain, where it differs from
    :data:`dvfs.dataset.MEMORY_CLASSES`. ``legal``: the voltages of the site's legal settings.

    Raises:
        FitError: the site is not in the store, or no row of it has an energy.
    """

    def column(name: str) -> np.ndarray:
        return np.asarray(dataset[name])

    known = site_names(dataset)
    if site not in known:
        raise FitError(f"--site: {unknown_name('site', site, known)}")
    energy_j = column("energy_j")
    time_s = column("time_s")
    ok = complete_rows(dataset, site)
    rows = np.flatnonzero(ok & (energy_j > 0) & (time_s > 0))
    if not len(rows):
        n = int((column("site") == site).sum())
        none = f"none of the {n} measurements of {site} can be fitted"
        if ok.any() and "imported" in dataset and column("imported")[ok].all():
            raise FitError(f"{none}: the imported table has their times, and no energy or power")
        reason = "their energy is missing: this site has no meter" if ok.any() else "none succeeded"
        raise FitError(f"{none} ({reason}); see `campaign doctor` for what this site can measure")
    known_kernels, kernel_of = kernels_of_rows(dataset)
    there, kernel = np.unique(kernel_of[rows], return_inverse=True)
    instances = [known_kernels[i] for i in there.tolist()]
    kernels = [one.label for one in instances]
    refuse_other_ranks(dataset, rows, kernels, kernel)
    counts = {}
    for name in sorted(name for name in map(str, dataset) if name.startswith(COUNT_PREFIX)):
        values = column(name)[rows].astype(float)
        if np.isfinite(values).any():
            counts[name.removeprefix(COUNT_PREFIX)] = values

    def numbers(name: str) -> np.ndarray:
        return column(name)[rows].astype(float) if name in dataset else np.full(len(rows), np.nan)

    asked = axis_values(dataset, rows)
    settings, setting = distinct_settings(*asked)
    core_v, mem_v = numbers("core_v"), numbers("mem_v")
    core_mhz = clocks_run_at(asked[0], numbers("core_mhz_achieved"), asked[3])
    mem_mhz = second_clock(site, asked[1], asked[2])
    origins = texts_of(dataset, "voltage_origin")[rows]
    of_table = origins.array(bool, [name != "measured" for name in origins.values])
    core_v = _volts_at(core_mhz, asked[0], core_v, of_table, legal or {})
    origin = set(origins.present()) - {""}
    voltage = "+".join(sorted(origin)) or "unit"
    if not np.isfinite(core_v).all():
        voltage = "unit"
    if voltage == "unit":
        core_v, mem_v = np.ones(len(rows)), np.ones(len(rows))
    mem_v = np.where(np.isfinite(mem_v), mem_v, 1.0)
    proofs = clock_proofs(dataset, rows)
    memory = {name: "mem" if name in MEMORY_CLASSES else "core" for name in counts}
    return Observations(
        site=site,
        simulated=bool(column("simulated")[rows].any()),
        kernel=kernel,
        kernels=kernels,
        core_mhz=core_mhz,
        mem_mhz=mem_mhz,
        core_v=core_v,
        mem_v=mem_v,
        time_s=time_s[rows].astype(float),
        energy_j=energy_j[rows].astype(float),
        counts=counts,
        domains=memory | {k: v for k, v in (domains or {}).items() if k in counts},
        voltage=voltage,
        setting=setting,
        settings=settings,
        energy_std_j=numbers("energy_std_j") if "energy_std_j" in dataset else None,
        node=column("node")[rows].astype(object) if "node" in dataset else None,
        instances=dict(zip(kernels, instances, strict=True)),
        unproven_clocks=len(settings) > 1 and bool((proofs == UNPROVEN).any()),
        stated_clocks=bool((proofs == STATED).any()),
        estimated_energies=bool((estimated_energies(dataset, rows) != "").any()),
        perf_per_watt_mhz=float(
            json.loads(dataset.attrs.get("perf_per_watt_mhz", "{}")).get(site, np.nan)
        ),
    )


def second_clock(site: str, mem_mhz: np.ndarray, uncore_mhz: np.ndarray) -> np.ndarray:
    """The clock of the energy model's memory domain in each row, MHz, float64 (rows,): the memory
    clock, or of a CPU the uncore clock, on which its caches and memory controllers depend.

    Raises:
        FitError: both were changed.
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
    asked_mhz: np.ndarray, achieved_mhz: np.ndarray, limit_w: np.ndarray
) -> np.ndarray:
    """The core clock at which each row counts in the energy model, MHz, float64 (rows,).

    Under a power limit, or where the clock was not held, the achieved one, if it was read. Where
    no clock was asked for and the achieved ones differ, these.
    """
    with np.errstate(invalid="ignore"):
        most = np.where(np.isfinite(limit_w), OFF_LIMITED, OFF_CLOCK)
        off = np.abs(achieved_mhz / asked_mhz - 1.0) > most
    free = achieved_mhz[np.isnan(asked_mhz) & np.isfinite(achieved_mhz)]
    if len(free) and np.ptp(free) > OFF_AS_FOUND * free.max():
        off |= np.isnan(asked_mhz)
    return np.where(off & np.isfinite(achieved_mhz), achieved_mhz, asked_mhz)


def _volts_at(
    mhz: np.ndarray,
    asked_mhz: np.ndarray,
    volts: np.ndarray,
    of_table: np.ndarray,
    legal: LegalVolts,
) -> np.ndarray:
    """Core voltages at the clocks run at, V, float64 (rows,).

    A measured voltage is one already. A voltage ``of_table``, bool (rows,), is that of the clock
    asked for: where another clock was run at, it is interpolated between the clocks whose voltage
    the rows or ``legal`` have.
    """
    moved = of_table & np.isfinite(mhz) & (mhz != asked_mhz)
    known = of_table & np.isfinite(asked_mhz) & np.isfinite(volts)
    if not moved.any() or not known.any():
        return volts
    table = {one.core_mhz: v for one, (v, _) in legal.items() if one.core_mhz and v is not None}
    clocks, first = np.unique(asked_mhz[known], return_index=True)
    table |= dict(zip(clocks.tolist(), volts[known][first].tolist(), strict=True))
    at, volts_at = np.array(sorted(table.items()), float).T
    return np.where(moved, np.interp(mhz, at, volts_at), volts)


def measured_volts(data: Observations) -> dict[Setting, tuple[float, float]]:
    """The mean core and memory voltage of every setting that was measured, at its clocks."""
    asked_mhz = data.mhz[data.setting, 0]
    core_v = data.core_v
    moved = moved_rows(data)
    if moved.any():
        ran = np.isfinite(data.core_mhz)
        clocks, place = np.unique(data.core_mhz[ran], return_inverse=True)
        mean = np.bincount(place, core_v[ran]) / np.bincount(place)
        core_v = np.where(moved, np.interp(asked_mhz, clocks, mean), core_v)
    n = np.bincount(data.setting, minlength=len(data.settings))
    with np.errstate(invalid="ignore"):
        means = [np.bincount(data.setting, v, len(n)) / n for v in (core_v, data.mem_v)]
    return {data.settings[s]: (float(means[0][s]), float(means[1][s])) for s in np.flatnonzero(n)}


def moved_rows(data: Observations) -> np.ndarray:
    """Which rows ran at another core clock than they asked for: bool (rows,)."""
    return np.asarray(np.isfinite(data.core_mhz) & (data.core_mhz != data.mhz[data.setting, 0]))


def by_clocks(data: Observations) -> Observations:
    """The same rows, of which those that ran at the same clocks have the same setting: for what
    depends on clocks alone, of which the second one is then called ``mem_mhz``. Clocks that were
    not held are the same to :data:`SAME_CLOCK`."""
    moved = moved_rows(data)
    if not moved.any():
        return data
    core_mhz = np.where(moved, np.nan, data.mhz[data.setting, 0])
    held = np.unique(core_mhz[np.isfinite(core_mhz)])
    step = np.exp(SAME_CLOCK * np.round(np.log(data.core_mhz[moved]) / SAME_CLOCK))
    if len(held):
        nearest = held[np.abs(np.log(data.core_mhz[moved, None] / held)).argmin(axis=1)]
        near = np.abs(np.log(data.core_mhz[moved] / nearest)) <= SAME_CLOCK / 2
        step = np.where(near, nearest, step)
    core_mhz[moved] = step
    settings, setting = distinct_settings(core_mhz, data.mem_mhz)
    return replace(data, settings=settings, setting=setting)


def refuse_other_ranks(
    dataset: xr.Dataset | Columns, rows: np.ndarray, kernels: Sequence[str], kernel: np.ndarray
) -> None:
    """Refuse a kernel that was measured with different numbers of MPI ranks: its times and energies
    are those of several. ``kernel``: the place of each row's among ``kernels``."""
    if "ranks" not in dataset:
        return
    ranks = np.asarray(dataset["ranks"])[rows]
    _, first = np.unique(kernel, return_index=True)
    for i in np.flatnonzero(ranks != ranks[first][kernel])[:1]:
        raise FitError(
            f"{kernels[kernel[i]]} was measured with {ranks[first][kernel[i]]} and with {ranks[i]} "
            f"ranks, which are two kernels: give each a label of its own in the campaign file; in "
            f"a table to import, a name of its own"
        )


def pooled(sites: Sequence[Observations]) -> tuple[Observations, np.ndarray]:
    """The rows of several sites as if they were one, and each row's place among ``sites``.

    Settings that are the same pair of clocks are one setting. Classes that a site does not
    count are NaN in its rows.

    Raises:
        FitError: a class is of the core domain in one of them, and of the memory domain in another.
    """
    place = np.repeat(np.arange(len(sites)), [len(data) for data in sites])

    def joined(name: str) -> np.ndarray:
        return np.concatenate([getattr(data, name) for data in sites])

    of_sites = [data.instance(label) for data in sites for label in kernel_names(data)]
    again = iter(relabelled(of_sites))
    instances = [{label: next(again) for label in kernel_names(data)} for data in sites]
    kernels, kernel = distinct_kernels(
        [
            known[label].label
            for data, known in zip(sites, instances, strict=True)
            for label in data.labels.tolist()
        ]
    )
    every = sorted({one for data in sites for one in data.settings})
    number = {one: i for i, one in enumerate(every)}
    there, setting = np.unique(
        np.concatenate(
            [np.array([number[one] for one in data.settings])[data.setting] for data in sites]
        ),
        return_inverse=True,
    )
    settings = [every[i] for i in there.tolist()]
    classes = sorted({name for data in sites for name in data.counts})
    domains: dict[str, str] = {}
    for name, domain in (each for data in sites for each in data.domains.items()):
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
            instances={kernel.label: kernel for known in instances for kernel in known.values()},
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
            energy_std_j=None,
            node=None,
            unproven_clocks=any(data.unproven_clocks for data in sites),
            stated_clocks=any(data.stated_clocks for data in sites),
            estimated_energies=any(data.estimated_energies for data in sites),
            perf_per_watt_mhz=np.nan,
        ),
        place,
    )


def distinct_kernels(labels: Iterable[str]) -> tuple[list[str], np.ndarray]:
    """The distinct labels, sorted, and the number of each row's among them, int64 (rows,)."""
    each = list(labels)
    kernels = sorted(set(each))
    number = {label: i for i, label in enumerate(kernels)}
    return kernels, np.fromiter(map(number.__getitem__, each), np.int64, len(each))


def kernel_names(data: Observations) -> list[str]:
    """The labels of the distinct kernels, sorted."""
    return [data.kernels[number] for number in np.unique(data.kernel).tolist()]


def rows_by_kernel(data: Observations) -> Iterator[tuple[str, np.ndarray]]:
    """The label of each kernel, sorted, and its rows, int64."""
    groups = Groups(data.kernel)
    for number, rows in zip(groups.codes.tolist(), groups.rows(), strict=True):
        yield data.kernels[number], rows


def setting_text(setting: Setting) -> str:
    """A setting as reports write it: ``852/924 MHz``, ``852/924 MHz, 150 W``."""
    pair = (setting.core_mhz, setting.mem_mhz)
    core, mem = ("as found" if mhz is None else f"{mhz:g}" for mhz in pair)
    clocks = [f"{core} MHz" if setting.mem_mhz is None else f"{core}/{mem} MHz"]
    if pair == (None, None):
        clocks = [] if setting.further_texts else [core]
    return ", ".join([*clocks, *setting.further_texts])


def kernel_numbers(data: Observations, kernels: Sequence[str] | None = None) -> np.ndarray:
    """Each row's kernel by its number among ``kernels``, by default all, sorted: int64 (rows,), -1
    for one that is not among them."""
    names = kernel_names(data) if kernels is None else kernels
    numbers = {label: i for i, label in enumerate(names)}
    of_kernel = np.array([numbers.get(label, -1) for label in data.kernels], np.int64)
    return np.asarray(of_kernel[data.kernel])


def cell_means(data: Observations, kernels: Sequence[str], values: np.ndarray) -> np.ndarray:
    """The mean of ``values`` (rows,) over the repeats of each kernel at each setting.

    Float64 (kernels, settings of ``data``), NaN where a kernel was not measured.
    """
    number = kernel_numbers(data, kernels)
    among = number >= 0
    shape = (len(kernels), len(data.settings))
    cell = number[among] * shape[1] + data.setting[among]
    n = np.bincount(cell, minlength=shape[0] * shape[1])
    with np.errstate(invalid="ignore"):
        return np.asarray((np.bincount(cell, values[among], len(n)) / n).reshape(shape))


def first_rows(data: Observations, kernels: Sequence[str]) -> np.ndarray:
    """The first row of each kernel at each setting of ``data``: int64 (kernels, settings), -1
    where it was not measured."""
    number = kernel_numbers(data, kernels)
    first = np.full((len(kernels), len(data.settings)), -1)
    among = np.flatnonzero(number >= 0)[::-1]
    first[number[among], data.setting[among]] = among
    return first
