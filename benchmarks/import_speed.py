"""How long ``campaign import`` takes for a large table, its quality checks included.

    .venv/bin/python benchmarks/import_speed.py [--rows 200000] [--rounds 1] [--profile]

The table is a clean simulated sweep with 2 % noise: kernels x core clocks x memory clocks x
repeats, with voltages and two classes of operations. The import is a process of its own, timed
from its start to its end; user seconds are its processor time, which other work on the machine
lengthens less.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

ROOT = Path(__file__).parents[1]
CORE_MHZ = np.linspace(600.0, 1500.0, 20).round()
MEM_MHZ = np.array([400.0, 800.0, 1600.0, 3200.0])
REPEATS = 5
NOISE = 0.02


def sweep(n_rows: int, seed: int = 0) -> pd.DataFrame:
    """A table of at least ``n_rows`` rows, cut to them: columns as ``campaign import`` reads."""
    rng = np.random.default_rng(seed)
    n_kernels = -(-n_rows // (CORE_MHZ.size * MEM_MHZ.size * REPEATS))
    kernel, core, mem, repeat = (
        grid.ravel()[:n_rows]
        for grid in np.meshgrid(
            np.arange(n_kernels), CORE_MHZ, MEM_MHZ, np.arange(REPEATS), indexing="ij"
        )
    )
    ops = 10.0 ** rng.uniform(8, 11, n_kernels)[kernel]
    intensity = 10.0 ** rng.uniform(-1, 2, n_kernels)[kernel]
    core_v = 0.7 + 0.4 * (core / 1500.0) ** 2
    mem_v = np.full(mem.shape, 1.2)
    time_s = np.maximum(ops / (core * 1e8), ops / intensity / (mem * 1e8))
    dynamic_j = ops * 30e-12 * core_v**2 + ops / intensity * 400e-12
    power_w = dynamic_j / time_s + 10.0 * core_v + (20e-3 * core_v**2 * core + 2e-3 * mem)
    time_s = time_s * np.exp(rng.normal(0, NOISE, time_s.size))
    return pd.DataFrame(
        {
            "site": "bench",
            "kernel": pd.Series(kernel).map("kernel_{:04d}".format),
            "node": "node1",
            "repeat": repeat,
            "core_mhz": core,
            "mem_mhz": mem,
            "core_v": core_v,
            "mem_v": mem_v,
            "time_s": time_s,
            "energy_j": power_w * time_s * np.exp(rng.normal(0, NOISE, time_s.size)),
            "n_sp": ops,
            "n_dram": ops / intensity,
        }
    )


def main() -> None:
    """Write the table, import it, print the seconds."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rows", type=int, default=200_000)
    arguments.add_argument("--rounds", type=int, default=1)
    arguments.add_argument("--profile", action="store_true", help="print where the time goes")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "table.csv"
        sweep(given.rows).to_csv(table, index=False)
        print(f"{given.rows} rows, {table.stat().st_size / 1e6:.1f} MB")
        for i in range(given.rounds):
            profile = ["-m", "cProfile", "-s", "cumulative"] if given.profile else []
            command = [sys.executable, *profile, "-m", "campaign", "import", str(table)]
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            began = time.monotonic()
            subprocess.run([*command, "--store", f"{folder}/store-{i}"], cwd=ROOT, check=True)
            wall_s = time.monotonic() - began
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            user_s = after.ru_utime - before.ru_utime
            system_s = after.ru_stime - before.ru_stime
            print(f"wall {wall_s:.2f} s, user {user_s:.2f} s, system {system_s:.2f} s")


if __name__ == "__main__":
    main()
