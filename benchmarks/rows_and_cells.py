"""The cost of fit, predict, crossval and report with many repeats of each cell, relative to one.

    .venv/bin/python benchmarks/rows_and_cells.py [--kernels 200] [--settings 20] [--repeats 50]
        [--rounds 3]

A simulated sweep of kernels at settings is imported twice: with one repeat of each cell, and with
many. Each verb runs as a separate process on both stores in turn. The table has medians of the
processor time, their ratio, the largest memory, and the size of the report.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.import_speed import sweep  # noqa: E402

VERBS = ("fit", "predict", "crossval", "report")


def cost(verb: str, *arguments: str) -> tuple[float, float]:
    """Return the processor time (s) and largest memory (MB) of ``campaign VERB``."""
    command = [sys.executable, "-m", "campaign", verb, *arguments]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"campaign {verb} failed")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1e3


def main() -> None:
    """Print a table with a row for each verb."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", type=int, default=200)
    parser.add_argument("--settings", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        stores = []
        for repeats in (1, arguments.repeats):
            table = Path(folder) / f"{repeats}.csv"
            sweep(
                arguments.kernels * arguments.settings * repeats, arguments.settings, repeats
            ).to_csv(table, index=False)
            stores.append(str(table.with_suffix(".store")))
            cost("import", str(table), "--store", stores[-1])
        print(f"{arguments.kernels} kernels x {arguments.settings} settings, simulated")
        print(f"{'':10}{'x 1, s':>9}{f'x {arguments.repeats}, s':>9}{'ratio':>7}{'MB':>6}")
        for verb in VERBS:
            page = [["-o", f"{store}.html"] if verb == "report" else [] for store in stores]
            runs = [
                [cost(verb, store, *more) for store, more in zip(stores, page, strict=True)]
                for _ in range(arguments.rounds)
            ]
            one_s, many_s = (statistics.median(run[i][0] for run in runs) for i in (0, 1))
            memory = max(run[1][1] for run in runs)
            print(
                f"{verb:10}{one_s:9.2f}{many_s:9.2f}{many_s / one_s:7.2f}{memory:6.0f}", flush=True
            )
        sizes = [Path(f"{store}.html").stat().st_size / 1e6 for store in stores]
        print(f"report: {sizes[0]:.2f} and {sizes[1]:.2f} MB")


if __name__ == "__main__":
    main()
