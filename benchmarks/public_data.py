"""Public measurements of real machines, for the benchmarks that take ``--data DIR``.

``DIR`` is a folder of data sets, none of which is part of this project: ``ulisboa_gtxtitanx_micro``
(Guerreiro et al.), ``nvdvfs_gtx980_low`` (Wang and Chu), ``odroid_xu3_armpm`` (Nikov),
``freqbench_phone_socs`` (freqbench), ``zeus_power_limits`` (You et al., NSDI 2023),
``NV-DVFS-Benchmark`` and ``GPU-DVFS-Job-Schedule`` (clones of
github.com/blackjack2015/NV-DVFS-Benchmark and github.com/HKBU-HPML/GPU-DVFS-Job-Schedule). Missing
data sets are left out. No choice in the model was made by the last two.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.choice.few_crossval import FewTruth
from analysis.choice.objectives import ENERGY
from analysis.measurements.observations import (
    MEMORY_CLASSES,
    Observations,
    cell_means,
    distinct_kernels,
    first_rows,
    kernel_numbers,
    observations,
)
from benchmarks.shared import ROOT
from dvfs.setting import clock_columns, distinct_settings

LONGEST_GAP = 3.0
"""The longest time that a sample stands for, in usual intervals between samples."""


class Grid:
    """The K kernels of a data set that were measured at all of its S settings.

    ``labels``, ``settings``: their names and settings; ``data``: their rows; ``kernel``,
    ``setting``: the indices of each row; ``time_s``, ``energy_j``: float64 (K, S), means over
    repeats; ``first``: int64 (K, S), the first row of each cell; ``truth``: what judges picks."""

    def __init__(self, data):
        self.truth = FewTruth.of(data, ENERGY)
        self.labels, self.settings = list(self.truth.row), list(self.truth.column)
        self.shape = len(self.labels), len(self.settings)
        self.mhz = clock_columns(self.settings)
        self.data = rows = data.take(kernel_numbers(data, self.labels) >= 0)
        self.kernel = kernel_numbers(rows, self.labels)
        self.setting = np.searchsorted(self.truth.settings, rows.setting)
        self.time_s, self.energy_j = (
            cell_means(rows, self.labels, values)[:, self.truth.settings]
            for values in (rows.time_s, rows.energy_j)
        )
        self.first = first_rows(rows, self.labels)[:, self.truth.settings]
        self.log_s, self.log_j = np.log(self.time_s), np.log(self.energy_j)

    def cells_of(self, settings):
        """Return the cells of all kernels at some settings, bool (K, S)."""
        cells = np.zeros(self.shape, bool)
        cells[:, settings] = True
        return cells

    def random_settings(self, count, seed):
        """Return ``count`` random settings, int64 (count,)."""
        return np.sort(
            np.random.default_rng((20261124, seed)).choice(self.shape[1], count, replace=False)
        )

    def lost_pct(self, log_j):
        """Return the loss of each kernel's setting with the least predicted energy (K, S), %."""
        return self.truth.above_pct[np.arange(len(log_j)), log_j.argmin(axis=1)]


def make_observations(
    site,
    kernel,
    core_mhz=None,
    mem_mhz=None,
    *,
    time_s,
    energy_j,
    counts=None,
    core_v=None,
    power_limit_w=None,
):
    """Return observations from arrays; ``core_v``: measured voltages, None if not known."""
    n = len(kernel)
    core_mhz, mem_mhz, limit_w = (
        np.full(n, np.nan) if values is None else np.asarray(values, float)
        for values in (core_mhz, mem_mhz, power_limit_w)
    )
    settings, setting = distinct_settings(core_mhz, mem_mhz, np.full(n, np.nan), limit_w)
    counts = counts or {}
    kernels, number = distinct_kernels(kernel)
    return Observations(
        site=site,
        simulated=False,
        kernel=number,
        kernels=kernels,
        core_mhz=core_mhz,
        mem_mhz=mem_mhz,
        core_v=np.ones(n) if core_v is None else np.asarray(core_v, float),
        mem_v=np.ones(n),
        time_s=np.asarray(time_s, float),
        energy_j=np.asarray(energy_j, float),
        counts=counts,
        domains={name: "mem" if name in MEMORY_CLASSES else "core" for name in counts},
        voltage="unit" if core_v is None else "measured",
        setting=setting,
        settings=settings,
        energy_std_j=np.full(n, np.nan),
        node=np.full(n, "", object),
        mem_volts_known=False,
    )


def imported(table: Path, map_file: Path) -> Observations:
    """Return the rows of a table, read through a temporary store as ``campaign import`` reads
    them."""
    from campaign.store.layout import create_store
    from campaign.table.checking import checked_rows
    from campaign.table.importing import import_rows
    from campaign.table.map_file import read_map
    from campaign.table.reading import read_table

    mapping = read_map(map_file)
    checked = checked_rows(read_table(table, mapping), mapping)
    with tempfile.TemporaryDirectory() as folder:
        store = create_store(Path(folder) / "store", "store")
        rows = import_rows(checked, store, mapping)
    return observations(rows.measurements, rows.sites[0])


def titan_x(folder: Path, with_voltage: bool):
    """Return GTX Titan X microbenchmarks, with the voltage table of the example map or without."""
    table = folder / "ulisboa_gtxtitanx_micro" / "microbenchmarks_gtxtitanx.csv"
    data = imported(table, ROOT / "examples" / "gtxtitanx.map.toml")
    if with_voltage:
        return data
    ones = np.ones(len(data))
    return replace(data, core_v=ones, mem_v=ones, voltage="unit")


def gtx_980(folder: Path, with_counts: bool):
    """Return GTX 980 data at the lower clocks; counts: nvprof's counters, the median over
    settings."""
    table = pd.read_csv(folder / "nvdvfs_gtx980_low" / "gtx980-low-Performance-Power.csv")
    kernel = table["appName"] + " " + table["argNo"].astype(str) + " " + table["kernel"].astype(str)
    time_s = table["time/ms"] * 1e-3
    counts = None
    if with_counts:
        counted = {
            "sp": table["inst_fp_32"],
            "dp": table["inst_fp_64"],
            "int": table["inst_integer"],
            "shared": (table["shared_load_transactions"] + table["shared_store_transactions"])
            * 128,
            "l2": (table["l2_read_transactions"] + table["l2_write_transactions"]) * 32,
            "dram": (table["dram_read_transactions"] + table["dram_write_transactions"]) * 32,
            "l1": table["tex_cache_transactions"] * 32,
        }
        counts = {
            name: values.astype(float).groupby(kernel).transform("median").to_numpy()
            for name, values in counted.items()
        }
    clocks = table["coreF"], table["memF"]
    return make_observations(
        "gtx980",
        kernel,
        *clocks,
        time_s=time_s,
        energy_j=table["power/W"] * time_s,
        counts=counts,
    )


def by_dcgm(folder: Path, gpu: str, programs: str):
    """Return ``v100`` or ``rtx8000`` data at one memory clock; ``programs``: ``real`` or
    ``microbenchmark``."""
    table = pd.read_csv(folder / "NV-DVFS-Benchmark" / "data" / f"{gpu}-dvfs-{programs}.csv")
    return make_observations(
        f"{gpu}-{programs}",
        table["benchmark"] + " " + table["argNo"] + " " + table["kernel"],
        table["core_frequency"],
        table["memory_frequency"],
        time_s=table["time"],
        energy_j=table["average_power"] * table["time"],
    )


def for_schedules(folder: Path, gpu: str):
    """Return ``gtx1080ti`` or ``gtx2070s`` data at five core and four memory clocks."""
    name = f"{gpu}-dvfs-real-Performance-Power.csv"
    table = pd.read_csv(folder / "GPU-DVFS-Job-Schedule" / "csvs" / name)
    time_s = table["time/ms"] * 1e-3
    return make_observations(
        gpu,
        table["appName"] + " " + table["argNo"] + " " + table["kernel"],
        table["coreF"],
        table["memF"],
        time_s=time_s,
        energy_j=table["power/W"] * time_s,
    )


def power_limits(folder: Path, gpu: str):
    """Return ``v100`` or ``rtx6000`` training runs, those measured at every power limit."""
    table = pd.read_csv(folder / "zeus_power_limits" / f"summary_power_{gpu}.csv")
    keys = ["dataset", "network", "batch_size", "optimizer"]
    kernel = table[keys].astype(str).agg(" ".join, axis=1)
    everywhere = kernel.map(kernel.value_counts()) == table["power_limit"].nunique()
    table = table[everywhere]
    return make_observations(
        gpu,
        kernel[everywhere],
        power_limit_w=table["power_limit"],
        time_s=table["time_per_epoch"],
        energy_j=table["time_per_epoch"] * table["average_power"],
    )


def odroid(folder: Path, suite: str, with_counts: bool):
    """Return Cortex-A15 runs: samples of power times their time, measured voltage, counted PMU
    events."""
    path = folder / "odroid_xu3_armpm" / "concatenated" / f"{suite}_big.data"
    lines = path.read_text().splitlines()
    header = [line for line in lines if line.startswith("#")][-1].lstrip("#").split("\t")
    samples = [line.split("\t") for line in lines if line and not line.startswith("#")]
    table = pd.DataFrame(samples, columns=[name.strip() for name in header])
    for name in table.columns.drop("Benchmark"):
        table[name] = pd.to_numeric(table[name])
    events = [name for name in table.columns if name.isupper() and "(" not in name]
    keys = ["Benchmark", "Run(#)", "CPU(4) Frequency(MHz)"]
    keys += [name for name in table.columns if name == "Cores(#)"]
    runs = []
    for key, run in table.sort_values("Timestamp").groupby(keys):
        gap_s = np.diff(run["Timestamp"].to_numpy() * 1e-9)
        usual_s = float(np.median(gap_s)) if len(gap_s) else 0.51
        gap_s = np.minimum(np.append(gap_s, usual_s), LONGEST_GAP * usual_s)
        time_s = gap_s.sum()
        runs.append(
            {
                "kernel": " ".join([str(key[0]), *(str(k) for k in key[3:])]),
                "core_mhz": key[2],
                "time_s": time_s,
                "energy_j": (run["A15 Power(W)"] * gap_s).sum(),
                "core_v": (run["A15 Voltage(V)"] * gap_s).sum() / time_s,
            }
            | {name: run[name].sum() for name in events}
        )
    by_run = pd.DataFrame(runs)
    counts = None
    if with_counts:
        counts = {n: by_run[n].to_numpy(float) for n in events if by_run[n].sum() > 0}
    return make_observations(
        f"odroid-{suite}",
        by_run["kernel"],
        by_run["core_mhz"],
        None,
        time_s=by_run["time_s"],
        energy_j=by_run["energy_j"],
        counts=counts,
        core_v=by_run["core_v"],
    )


def phones(folder: Path, files: int) -> Iterator:
    """Yield one CoreMark per cluster of each phone, without rows whose energy is not positive.

    ``files``: the number of phones, spread over all by name.
    """
    paths = sorted((folder / "freqbench_phone_socs").glob("*_main.csv"))
    chosen = np.unique(np.linspace(0, len(paths) - 1, min(files, len(paths))).round().astype(int))
    for path in [paths[i] for i in chosen]:
        table = pd.read_csv(path)
        if not {"CPU", "Energy (J)", "Time (s)"} <= set(table.columns):
            continue
        table = table[table["Energy (J)"] > 0]
        for cpu, cluster in table.groupby("CPU"):
            name = f"{path.stem}-{cpu}"
            mhz = cluster["Frequency (kHz)"] / 1e3
            yield make_observations(
                name,
                ["coremark"] * len(cluster),
                mhz,
                None,
                time_s=cluster["Time (s)"],
                energy_j=cluster["Energy (J)"],
            )


def clusters(folder: Path) -> list:
    """Return the clusters of cores of 40 phones that have ten clocks or more."""
    return [data for data in phones(folder, 40) if len(np.unique(data.setting)) >= 10]


def gpus(folder: Path) -> dict[str, Callable[[], list]]:
    """Return the name of a data set -> the function that loads it, here with one site each."""
    return {
        "GTX 980": lambda: [gtx_980(folder, False)],
        "GTX 980, counts": lambda: [gtx_980(folder, True)],
        "Titan X, voltages": lambda: [titan_x(folder, True)],
        "Titan X, no voltages": lambda: [titan_x(folder, False)],
        "V100": lambda: [by_dcgm(folder, "v100", "real")],
        "V100, microbenchmarks": lambda: [by_dcgm(folder, "v100", "microbenchmark")],
        "RTX 8000": lambda: [by_dcgm(folder, "rtx8000", "real")],
        "RTX 8000, microbenchmarks": lambda: [by_dcgm(folder, "rtx8000", "microbenchmark")],
        "GTX 1080 Ti": lambda: [for_schedules(folder, "gtx1080ti")],
        "RTX 2070 Super": lambda: [for_schedules(folder, "gtx2070s")],
    }


def cpus(folder: Path) -> dict[str, Callable[[], list]]:
    """Return the same for boards with one swept CPU cluster."""
    return {
        "XU3 cBench": lambda: [odroid(folder, "cBench", False)],
        "XU3 cBench, counts": lambda: [odroid(folder, "cBench", True)],
        "XU3 PARSEC": lambda: [odroid(folder, "PARSEC", False)],
        "XU3 PARSEC, counts": lambda: [odroid(folder, "PARSEC", True)],
    }


def add_data(parser: argparse.ArgumentParser, required: bool = True) -> None:
    """Add ``--data`` and ``--only``."""
    parser.add_argument("--data", type=Path, required=required, help="the folder of data sets")
    parser.add_argument("--only", default="", help="data sets whose name contains this")


def read_sets(sets: dict[str, Callable[[], list]], only: str = "") -> Iterator[tuple[str, list]]:
    """Yield the name and sites of each data set whose name contains ``only``.

    Raises:
        SystemExit: no name contains it.
    """
    chosen = {name: load_sites for name, load_sites in sets.items() if only.lower() in name.lower()}
    if not chosen:
        raise SystemExit(f"--only: no data set has {only!r} in its name")
    for name, load_sites in chosen.items():
        try:
            sites = load_sites()
        except FileNotFoundError as error:
            print(f"{name}: left out, {error.filename} is not there", flush=True)
            continue
        yield name, sites
