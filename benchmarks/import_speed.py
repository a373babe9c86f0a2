"""The cost of ``campaign import`` of a large table, compared with pandas.

    .venv/bin/python -m benchmarks.import_speed [--rows 200000 1000000] [--rounds 3]
    .venv/bin/python -m benchmarks.import_speed --long

The import includes its quality checks; pandas only reads the table and writes it as Parquet. The
table is a clean simulated sweep with 2 % noise: kernels x core clocks x memory clocks x repeats,
with voltages and two classes of operations. Each import and each run of pandas is a separate
process, timed from start to end; they take turns. Processor time is user and system seconds, memory
the largest resident set. ``--long``: a table that does not fit in memory, 200 kernels x 20 settings
x 2,500 repeats (1.3 GB), by ``campaign import`` alone.
"""

from __future__ import annotations

import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.shared import CAMPAIGN, argument_parser, cost_of

MEM_MHZ = np.array([400.0, 800.0, 1600.0, 3200.0])
NOISE = 0.02
LONG_ROWS, LONG = 10_000_000, (20, 2500)
PANDAS = "import sys, pandas; pandas.read_csv(sys.argv[1]).to_parquet(sys.argv[2])"


def sweep(n_rows: int, settings: int = 80, repeats: int = 5) -> pd.DataFrame:
    """Return a table of ``n_rows`` rows with the columns that ``campaign import`` reads.

    ``settings``: a multiple of the four memory clocks.
    """
    rng = np.random.default_rng(0)
    core_mhz = np.linspace(600.0, 1500.0, settings // MEM_MHZ.size).round()
    n_kernels = -(-n_rows // (settings * repeats))
    kernel, core, mem, repeat = (
        grid.ravel()[:n_rows]
        for grid in np.meshgrid(
            np.arange(n_kernels), core_mhz, MEM_MHZ, np.arange(repeats), indexing="ij"
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


def write_table(path: Path, rows: int, *shape: int) -> None:
    """Write a :func:`sweep` in another process: this one's memory would count as its children's."""
    with ProcessPoolExecutor(1) as pool:
        pool.submit(_write, path, rows, *shape).result()


def _write(path: Path, rows: int, *shape: int) -> None:
    sweep(rows, *shape).to_csv(path, index=False)


def main() -> None:
    """Write the tables, import them and read them by pandas in turn, and print the costs."""
    arguments = argument_parser(__doc__)
    arguments.add_argument("--rows", type=int, nargs="+", default=[200_000, 1_000_000])
    arguments.add_argument("--rounds", type=int, default=1)
    arguments.add_argument("--long", action="store_true", help="a table that is read in parts")
    options = arguments.parse_args()
    shape = LONG if options.long else ()
    for rows in [LONG_ROWS] if options.long else options.rows:
        with tempfile.TemporaryDirectory() as folder:
            table = Path(folder) / "table.csv"
            write_table(table, rows, *shape)
            print(f"{rows:,} rows, {table.stat().st_size / 1e6:.1f} MB")
            importing = [*CAMPAIGN, "import", str(table), "--store"]
            if options.long:
                cost = cost_of([*importing, f"{folder}/store"])
                print(
                    f"  processor {cost.cpu_s:.2f} s, wall {cost.wall_s:.2f} s, "
                    f"memory {cost.memory_mb:.0f} MB"
                )
                continue
            for i in range(options.rounds):
                pandas = [sys.executable, "-c", PANDAS, str(table), f"{folder}/table.parquet"]
                by_pandas = cost_of(pandas)
                ours = cost_of([*importing, f"{folder}/store-{i}"])
                for name, cost in (("pandas", by_pandas), ("campaign import", ours)):
                    print(
                        f"  {name:<16} processor {cost.cpu_s:6.2f} s "
                        f"({cost.cpu_s / by_pandas.cpu_s:4.1f} times), wall {cost.wall_s:6.2f} s, "
                        f"memory {cost.memory_mb:5.0f} MB",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
