"""The model on measurements of real machines, by leave-one-setting-out, compared with known errors.

    .venv/bin/python -m benchmarks.real_data --data DIR [--time measured|predicted|both]
                                             [--only NAME] [--phones 10]

``DIR`` is a folder of data sets, none of which is part of this project: ``ulisboa_gtxtitanx_micro``
(Guerreiro et al.), ``nvdvfs_gtx980_low`` (Wang and Chu), ``odroid_xu3_armpm`` (Nikov),
``freqbench_phone_socs`` (freqbench), ``NV-DVFS-Benchmark`` and ``GPU-DVFS-Job-Schedule`` (clones of
github.com/blackjack2015/NV-DVFS-Benchmark and github.com/HKBU-HPML/GPU-DVFS-Job-Schedule). Missing
data sets are left out. No choice in the model was made by the last two.

For each data set the program prints the mean error of energy out of fold; the losses of the picks,
race to halt and a random setting, relative to the best measured setting; the loss of race to halt
less that of the picks, with its 95 % interval and verdict; and the form that most folds chose. The
bars are the largest error and loss of the picks that the model should have.
"""

from __future__ import annotations

import os
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.shared import ROOT, argument_parser

# The matrices are small: threads would only wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pandas as pd

BARS = {"Titan X": "2.7 / 1.4", "GTX 980": "4.3 / 0.9", "XU3 cBench": "5.3", "XU3 PARSEC": "6.1"}
LONGEST_GAP = 3.0
"""The longest time that a sample stands for, in usual intervals between samples."""


def make_observations(
    site, kernel, core_mhz, mem_mhz, *, time_s, energy_j, counts=None, core_v=None
):
    """Return observations from arrays; ``core_v``: measured voltages, None if not known."""
    from analysis.measurements.observations import (
        MEMORY_CLASSES,
        Observations,
        distinct_kernels,
    )
    from dvfs.setting import distinct_settings

    n = len(kernel)
    core_mhz = np.asarray(core_mhz, float)
    mem_mhz = np.full(n, np.nan) if mem_mhz is None else np.asarray(mem_mhz, float)
    settings, setting = distinct_settings(core_mhz, mem_mhz)
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
    )


def titan_x(folder: Path, with_voltage: bool):
    """Return GTX Titan X microbenchmarks, with the voltage table of the example map or without."""
    from dataclasses import replace

    from benchmarks.analysis_speed import titan_x as imported

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


def judge(sites: list, time_of: str):
    """Return (error %, cases, forms chosen, sites left out) of all sites together."""
    from analysis.choice.crossval import cross_validate
    from analysis.measurements.observations import FitError

    errors, cases, chosen, left_out = [], [], Counter(), 0
    for data in sites:
        try:
            crossval = cross_validate(data, "leave-one-setting-out", time=time_of)
        except FitError:
            left_out += 1
            continue
        errors.append(float(crossval.error_pct.mean()))
        cases += crossval.cases
        for form in crossval.chosen:
            chosen[f"{form['model']}, V {form['voltage']}"] += form["folds"]
    return errors, cases, chosen, left_out


def show(name: str, sites: list, time_of: str, bar: str) -> None:
    """Print one line of the table; for many sites, with the median of their errors."""
    from analysis.choice.losses import contest, losses_by_chooser

    start = time.monotonic()
    errors, cases, chosen, left_out = judge(sites, time_of)
    took_s = time.monotonic() - start
    if not errors:
        print(f"{name:<30} nothing can be fitted")
        return
    choosers = losses_by_chooser(cases)
    lost = [f"{choosers[w].mean_lost_pct:9.2f}" for w in ("picks", "race_to_halt", "random")]
    against = contest(cases)
    interval = f"{against.mean_gain_pct:+.2f} ({against.low_pct:.2f} to {against.high_pct:.2f})"
    form, folds = chosen.most_common(1)[0]
    print(
        f"{name:<30}{sum(map(len, sites)):>6}{np.median(errors):>8.2f}{''.join(lost)}"
        f"{interval:>28} {against.verdict:<13}{bar:>10}  {form} ({folds}/{chosen.total()})"
        f"{f'; {left_out} sites left out' if left_out else ''}  {took_s:.1f} s",
        flush=True,
    )


def main() -> int:
    parser = argument_parser(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the folder of data sets")
    parser.add_argument("--time", choices=("measured", "predicted", "both"), default="both")
    parser.add_argument("--phones", type=int, default=10, help="how many of the phones")
    parser.add_argument("--only", default="", help="data sets whose name contains this")
    arguments = parser.parse_args()
    folder = arguments.data
    phone_sets = {"phones, every cluster a site": lambda: list(phones(folder, arguments.phones))}
    loaded = list(read_sets(gpus(folder) | cpus(folder) | phone_sets, arguments.only))
    times = ("measured", "predicted") if arguments.time == "both" else (arguments.time,)
    for time_of in times:
        print(f"\nleave-one-setting-out, time {time_of}; error and losses in %")
        print(
            f"{'data':<30}{'rows':>6}{'error':>8}{'picks':>9}{'race':>9}{'random':>9}"
            f"{'race less picks (95 %)':>28} {'verdict':<13}{'bar':>10}  chosen (folds)"
        )
        for name, sites in loaded:
            bar = BARS.get(name.partition(",")[0], "")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)
                show(name, sites, time_of, bar)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
