"""The fittable rows of one site as arrays, and their provenance."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from analysis.measurements.observations import setting_text
from analysis.measurements.provenance import clock_proofs, every_row, mention
from dvfs.dataset import MEMORY_CLASSES, Columns, complete_rows, count_columns
from dvfs.groups import Groups
from dvfs.kernel_instance import KernelInstance
from dvfs.setting import (
    NUMBERS,
    Setting,
    axis_values,
    clock_columns,
    distinct_settings,
    number_columns,
)


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The fittable rows of one site; arrays have one entry a row.

    ``kernel``, ``setting``, ``node``: int64, indices into ``kernels``, ``settings``, ``nodes``.
    ``mhz``: the clocks of ``settings``, float64 (settings, 2), NaN for none. ``values``: natural
    logarithms of time (s), power (W) and energy (J). ``volts``: float64 (rows, 2), of core and
    memory, NaN if unknown. ``counts``: class -> operations of one iteration, NaN if unknown.
    ``clock_proof``: of :func:`analysis.measurements.provenance.clock_proofs`.
    """

    index: np.ndarray
    kernel: np.ndarray
    kernels: list[str]
    instances: list[KernelInstance]
    setting: np.ndarray
    settings: list[Setting]
    mhz: np.ndarray
    node: np.ndarray
    nodes: list[str]
    partition: np.ndarray
    repeat: np.ndarray
    start_unix_s: np.ndarray
    achieved_mhz: np.ndarray
    clock_proof: np.ndarray
    volts: np.ndarray
    values: dict[str, np.ndarray]
    counts: dict[str, np.ndarray]
    simulated: bool

    @property
    def limit_w(self) -> np.ndarray:
        """The power limit of each row, W, float64; NaN for none."""
        limits = number_columns(self.settings)[:, NUMBERS.index("power_limit_w")]
        return np.asarray(limits[self.setting])

    @cached_property
    def log_mhz(self) -> np.ndarray:
        """float64 (settings, 2): the logarithms of the core and the memory clock."""
        return np.asarray(np.log(self.mhz))

    @cached_property
    def cell(self) -> np.ndarray:
        """int64 (rows,): the number of each row's cell, a kernel at a setting."""
        return np.asarray(self.kernel * len(self.mhz) + self.setting)

    @cached_property
    def cells(self) -> Groups:
        """The rows by :attr:`cell`."""
        return Groups(self.cell)

    def kernels_at(self, rows: np.ndarray) -> tuple[KernelInstance, ...]:
        """The distinct kernels of ``rows``, indices into the measurements, by label."""
        codes = np.unique(self.kernel[np.isin(self.index, rows)])
        kernels = {self.instances[code].label: self.instances[code] for code in codes}
        return tuple(kernels[label] for label in sorted(kernels))

    def in_cells(self, cells: np.ndarray) -> np.ndarray:
        """int64: the rows in the cells, as indices into these arrays, not into the columns."""
        return np.flatnonzero(np.isin(self.cell, cells))

    @cached_property
    def kernel_counts(self) -> dict[str, np.ndarray]:
        """Class -> the median count of each kernel, float64 (kernels,), NaN if unknown."""
        medians = {}
        for name, n in self.counts.items():
            counted = ~np.isnan(n)
            groups = Groups(self.kernel[counted])
            medians[name] = np.full(len(self.kernels), np.nan)
            medians[name][groups.codes] = groups.medians(n[counted])
        return medians

    def kernel_bytes_and_operations(self) -> tuple[np.ndarray, np.ndarray]:
        """Each kernel's count in the memory classes, and that in all others, float64 (kernels,)."""
        transferred, operations = np.zeros(len(self.kernels)), np.zeros(len(self.kernels))
        for name, n in self.kernel_counts.items():
            (transferred if name in MEMORY_CLASSES else operations)[:] += np.nan_to_num(n)
        return transferred, operations

    def where(self, kernel: int, setting: int) -> str:
        """The text of a kernel and a setting in messages."""
        return f"{self.kernels[kernel]} at {self.setting_text(setting)}"

    def setting_text(self, setting: int) -> str:
        """The text of a setting, an index into ``settings``: ``852/924 MHz``."""
        return setting_text(self.settings[setting])


def rows_of(columns: Columns, site: str, limited: bool = True) -> Rows:
    """The complete rows of ``site`` with a positive time (s) and energy (J). ``limited``: include
    those under a power limit or a profile, whose clocks follow the load."""
    time_s, energy_j = columns["time_s"], columns["energy_j"]
    usable = complete_rows(columns, site)
    if not limited:
        usable &= np.isnan(columns["power_limit_w"])
        usable &= columns["profile"] == ""
    index = np.flatnonzero(usable & (time_s > 0) & (energy_j > 0))
    rows = every_row(index, time_s)

    def column(name: str) -> np.ndarray:
        return columns[name][rows]

    all_kernels, kernel = columns.kernels
    ranks_code, ranks = _numbered(column("ranks"))
    code, pairs = _numbered(kernel[rows] * max(len(ranks), 1) + ranks_code)
    kernel_of_code, ranks_of_code = np.divmod(np.array(pairs, np.int64), max(len(ranks), 1))
    instances = [all_kernels[i] for i in kernel_of_code.tolist()]
    names = [instance.label for instance in instances]
    if len(ranks) > 1:
        names = [f"{name} ranks={ranks[r]}" for name, r in zip(names, ranks_of_code, strict=True)]
    settings, setting = distinct_settings(*axis_values(columns, index))
    achieved = [column(f"{name}_mhz_achieved") for name in ("core", "mem")]
    volts = [column(f"{name}_v") for name in ("core", "mem")]
    node_texts = columns.texts("node")[rows]
    node, node_codes = _numbered(node_texts.codes)
    counts = {c: column(name).astype(float) for c, name in count_columns(columns).items()}
    log_time, log_energy = np.log(time_s[rows]), np.log(energy_j[rows])
    return Rows(
        index=index.astype(np.int64),
        kernel=code.astype(np.int64),
        kernels=names,
        instances=instances,
        setting=setting,
        settings=settings,
        mhz=clock_columns(settings),
        node=node,
        nodes=[str(node_texts.values[i]) for i in node_codes],
        partition=_numbered(columns.texts("partition")[rows].codes)[0],
        repeat=column("repeat").astype(np.int64),
        start_unix_s=column("start_unix_s").astype(float),
        achieved_mhz=np.column_stack(achieved).astype(float),
        clock_proof=clock_proofs(columns, index),
        volts=np.column_stack(volts).astype(float),
        counts={name: n for name, n in counts.items() if np.isfinite(n).any()},
        values={"time": log_time, "power": log_energy - log_time, "energy": log_energy},
        simulated=bool(column("simulated").any()),
    )


def provenance(columns: Columns, rows: Rows) -> tuple[np.ndarray, dict[str, list[str]]]:
    """The mean power (W) in each row's provenance, NaN without; and labels by name, "" without."""
    power_w = np.full(len(rows.index), np.nan)
    labels: dict[str, list[str]] = {}
    texts = columns["provenance"]
    texts = texts[every_row(rows.index, texts)]
    has_record = mention(texts, '"power_w"') | mention(texts, '"labels"')
    for i in np.flatnonzero(has_record).tolist():
        try:
            record = json.loads(texts[i])
        except ValueError:
            continue
        row_labels = record.get("labels", {})
        try:
            power_w[i] = float(record.get("power_w", row_labels.get("power_w", np.nan)))
        except (TypeError, ValueError):
            power_w[i] = np.nan
        for name, value in row_labels.items():
            labels.setdefault(name, [""] * len(texts))[i] = str(value)
    return power_w, labels


def _numbered(values: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """Each row's index into the distinct values, int64 (rows,); and these values, in the order of
    their first rows."""
    if values.strides == (0,) and len(values):
        return np.zeros(len(values), np.int64), [int(values[0])]
    groups = Groups(values)
    order = np.argsort(groups.firsts)
    code = np.empty(len(order), np.int64)
    code[order] = np.arange(len(order))
    return groups.by_row(code), groups.codes[order].tolist()
