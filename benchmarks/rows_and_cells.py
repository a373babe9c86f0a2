"""The cost of fit, predict, crossval and report with many repeats of each cell, relative to one.

    .venv/bin/python -m benchmarks.rows_and_cells [--kernels 200] [--settings 20] [--repeats 50]
        [--rounds 3]

A simulated sweep of kernels at settings is imported twice: with one repeat of each cell, and with
many. Each verb runs as a separate process on both stores in turn. The table has medians of the
processor time, their ratio, the largest memory, and the size of the report.
"""

from __future__ import annotations

import statistics
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.import_speed import sweep
from benchmarks.shared import CAMPAIGN, argument_parser, cost_of, interleaved

VERBS = ("fit", "predict", "crossval", "report")


def main() -> None:
    """Print a table with a row for each verb."""
    parser = argument_parser(__doc__)
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
            cost_of([*CAMPAIGN, "import", str(table), "--store", stores[-1]])
        print(f"{arguments.kernels} kernels x {arguments.settings} settings, simulated")
        print(f"{'':10}{'x 1, s':>9}{f'x {arguments.repeats}, s':>9}{'ratio':>7}{'MB':>6}")
        for verb in VERBS:
            page = ["-o", "{}.html"] if verb == "report" else []
            commands = {
                store: [*CAMPAIGN, verb, store, *(word.format(store) for word in page)]
                for store in stores
            }
            costs = interleaved(
                {store: partial(cost_of, command) for store, command in commands.items()},
                arguments.rounds,
            )
            one_s, many_s = (statistics.median(c.cpu_s for c in costs[store]) for store in stores)
            memory_mb = max(cost.memory_mb for cost in costs[stores[1]])
            print(
                f"{verb:10}{one_s:9.2f}{many_s:9.2f}{many_s / one_s:7.2f}{memory_mb:6.0f}",
                flush=True,
            )
        sizes = [Path(f"{store}.html").stat().st_size / 1e6 for store in stores]
        print(f"report: {sizes[0]:.2f} and {sizes[1]:.2f} MB")


if __name__ == "__main__":
    main()
