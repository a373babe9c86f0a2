"""The loss of picks if ``campaign next`` chooses what to measure, compared with other models.

    .venv/bin/python -m benchmarks.next_measurements --data DIR [--only NAME]
        [--settings 3,4,6,8,12] [--seeds 5] [--table next|quarter|all]

``DIR``: as for ``public_data.py``. Picks are made among all settings of the data set and judged by
the measurements there; ``posterior.py`` has those from random settings. The tables have means over
kernels, in %. In the first, ``campaign next`` chooses M cells (a kernel at a setting) a kernel, so
that kernels have different settings. The picks (ours) are compared with

- ``quadratic``: log energy as a quadratic of both log clocks. A kernel's coefficients are the
  shared ones plus its deviations;
- ``process``: log energy as a Gaussian process over log clocks, one that all kernels share and one
  for each kernel, with the likeliest reach and noise;
- ``single``: the measured setting that is best on average; ``measured``: each kernel's best
  measured one; ``fastest``: the fastest of all settings.

In the second, a quarter of all cells is measured, all of the same cost: ``random`` and ``spread``
settings for all kernels, and ``next``: five spread settings, then the cells that ``campaign next``
chooses, in batches of half as many as there are kernels. ``all``: the model's picks, without the
measured energies, if everything is measured.

Exits 0 if in every row our loss is at most 1.05 times the smallest of the others, and ``next``
loses at most 0.3 points more than ``all``, its worst kernel at most 3 points more than that of
``all``, and less than all random draws but one of twenty (``next better``; if neither a draw nor
``next`` loses anything, ``next`` counts as better).
"""

from __future__ import annotations

import os
import sys
import time
import warnings

from benchmarks.shared import argument_parser
from dvfs.setting import Setting

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from analysis.choice.next_measurements import (
    MeasuredCells,
    next_measurements,
    spread_settings,
)
from analysis.choice.objectives import ENERGY
from analysis.choice.pick import picks
from analysis.energy.fit import fit
from analysis.measurements.observations import measured_volts
from analysis.predict.site import site_posterior
from benchmarks.public_data import Grid, add_data, cpus, gpus, read_sets
from benchmarks.smooth_models import (
    joint_process,
    joint_quadratic,
    places,
)

COLUMNS = ("ours", "quadratic", "process", "single", "measured", "fastest")


class Next(Grid):
    """A data set whose cells (a kernel at a setting) are measured bit by bit."""

    def __init__(self, data):
        super().__init__(data)
        self.volts = measured_volts(self.data)
        order = [(Setting(setting.mem_mhz), setting) for setting in self.settings]
        self.top = order.index(max(order))

    def training(self, cells):
        """Return the rows of some cells, bool (K, S)."""
        return self.data.take(cells[self.kernel, self.setting])

    def lost(self, cells):
        """Return the loss of our picks from some cells, (K,)."""
        rows = self.training(cells)
        our_picks = picks(rows, self.labels, volts=self.volts)
        columns = [self.truth.column[pick.setting] for pick in our_picks]
        return self.truth.above_pct[[self.truth.row[pick.label] for pick in our_picks], columns]

    def others(self, cells):
        """Return column -> the loss of the other models from some cells, (K,)."""
        above, rows, place = self.truth.above_pct, np.arange(len(self.labels)), places(self.mhz)
        measured_log_j = np.where(cells, self.log_j, np.inf)
        chosen = {"measured": measured_log_j.argmin(axis=1), "fastest": self.truth.fastest}
        for name, predict in (("quadratic", joint_quadratic), ("process", joint_process)):
            log_j = np.where(cells, self.log_j, predict(place, self.log_j, cells))
            chosen[name] = log_j.argmin(axis=1)
        relative = np.where(
            cells, measured_log_j - measured_log_j.min(axis=1, keepdims=True), np.nan
        )
        everywhere = np.where(cells.all(axis=0), np.nanmean(np.exp(relative), axis=0), np.inf)
        chosen["single"] = np.full(len(rows), int(np.argmin(everywhere)))
        return {name: above[rows, columns] for name, columns in chosen.items()}

    def next(self, count, cells=None):
        """Return the cells that ``campaign next`` chooses, all of the same cost, after
        ``cells``."""
        cells = np.zeros(self.shape, bool) if cells is None else cells.copy()
        while (remaining := count - int(cells.sum())) > 0:
            rows = self.training(cells) if cells.any() else None
            prediction = None if rows is None else site_posterior(rows, self.volts)
            offer = MeasuredCells(
                labels=[label if cells[k].any() else None for k, label in enumerate(self.labels)],
                settings=self.settings,
                measured=cells,
                free=~cells,
                measurements=np.ones(cells.shape, int),
                node_hours=lambda kernel, time_s: np.ones(len(time_s)),
            )
            batch = len(self.labels) * 5 if prediction is None else max(5, len(self.labels) // 2)
            chosen = next_measurements(
                rows, prediction, offer, ENERGY,
                budget_h=np.inf, most=min(remaining, batch), enough=0.0,
            )  # fmt: skip
            if not chosen.cells:
                break
            for cell in chosen.cells:
                cells[cell] = True
        return cells

    def by_model_alone(self):
        """Return the loss of the model's picks if everything is measured, without the measured
        energies."""
        fitted = fit(self.data, intervals=False)
        energy_j = fitted.energy_j(self.data.take(self.first.ravel())).reshape(self.shape)
        return self.truth.above_pct[np.arange(len(self.labels)), energy_j.argmin(axis=1)]


def next_rows(name, whole, counts):
    """Print a row for each number of measurements per kernel if ``next`` chooses them; return
    whether our loss is small enough in all."""
    passed, cells = True, None
    for count in counts:
        if count >= whole.shape[1]:
            continue
        cells = whole.next(count * whole.shape[0], cells)
        lost = {"ours": whole.lost(cells)} | whole.others(cells)
        mean = {column: float(lost[column].mean()) for column in COLUMNS}
        shown = " ".join(f"{mean[column]:10.2f}" for column in COLUMNS)
        print(f"{name:25} {count:8}  {shown}", flush=True)
        passed &= mean["ours"] <= 1.05 * min(mean[column] for column in COLUMNS[1:])
    return passed


def quarter_row(name, whole, seeds):
    """Print the losses with a quarter of the cells; return whether ``next`` is good enough."""
    kernels, settings = whole.shape
    count = max(2, round(settings / 4))
    began = time.perf_counter()
    next_lost = whole.lost(whole.next(count * kernels))
    seconds = time.perf_counter() - began
    spread = spread_settings(whole.mhz, np.zeros(settings, bool), whole.top, count)
    spread_lost = whole.lost(whole.cells_of(spread))
    random = [
        whole.lost(whole.cells_of(whole.random_settings(count, seed))).mean()
        for seed in range(seeds)
    ]
    alone = whole.by_model_alone()
    next_mean = next_lost.mean()
    better = sum(next_mean < lost or next_mean == lost == 0 for lost in random)
    print(
        f"{name:25} {count:3} of {settings:3}  {next_mean:8.2f} ({next_lost.max():5.1f})"
        f"  {spread_lost.mean():8.2f} ({spread_lost.max():5.1f})  {np.mean(random):8.2f}"
        f" {np.min(random):6.2f} to {np.max(random):5.2f}  {alone.mean():6.2f} ({alone.max():5.1f})"
        f"  {better:3} of {seeds:2}  {seconds:6.0f} s",
        flush=True,
    )
    return (
        next_mean <= alone.mean() + 0.3
        and next_lost.max() <= alone.max() + 3.0
        and better >= 0.95 * seeds
    )


def main() -> int:
    """Print the tables; returns the exit code."""
    parser = argument_parser(__doc__)
    add_data(parser)
    parser.add_argument("--settings", default="3,4,6,8,12")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--table", choices=("next", "quarter", "all"), default="all")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    sets = gpus(arguments.data) | cpus(arguments.data)
    by_name = {name: Next(data) for name, (data,) in read_sets(sets, arguments.only)}
    passed = True
    if arguments.table in ("next", "all"):
        print("mean energy lost, %, so many measurements a kernel, chosen by campaign next")
        print(f"{'data':25} a kernel  " + " ".join(f"{column:>10}" for column in COLUMNS))
        counts = [int(count) for count in arguments.settings.split(",")]
        for name, whole in by_name.items():
            passed &= next_rows(name, whole, counts)
    if arguments.table in ("quarter", "all"):
        print("\nmean energy lost, % (most), by a quarter of all cells; all: by the model alone")
        print(
            f"{'data':25} settings       next           spread             random        range"
            f"            all      next better   took"
        )
        for name, whole in by_name.items():
            passed &= quarter_row(name, whole, arguments.seeds)
    print("passed" if passed else "failed")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
