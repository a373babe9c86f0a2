"""The loss of picks for kernels measured at one to three settings, compared with baselines.

    .venv/bin/python -m benchmarks.few_measurements --data DIR [--only NAME] [--new 1,2,3]
        [--draws 3] [--auto]

``DIR``: as for ``public_data.py``. A tenth of the kernels at a time is new: measured at a few
random settings, as in ``campaign crossval --scheme few:all --new Q``. All other kernels are
measured everywhere. The table has the loss of the picks (ours) and, on the same draws, of

- our energy model with times from ridge regression over the kernels, from the nearest kernels, from
  a Gaussian process over the kernels, or with the true times. The first three predict log times
  relative to the time at a measured setting. Their features are log power and rates of operations
  at that setting and relative times at the other measured ones. Leaving kernels out chooses their
  free parameters;
- the best of the measured settings, the setting that is best on average over the other kernels,
  and the fastest setting.

The energy model has the form that ``fit`` chooses on all data; ``--auto`` chooses it in each fold
(slow). Exits 0 when our loss is at most the smallest loss of the others (without the true times) in
every row, and with two settings at most 1.2 times the loss with the true times plus 0.3 points.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from dataclasses import replace

from benchmarks.shared import argument_parser

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from analysis.choice.few_crossval import few_folds
from analysis.choice.losses import rank_single_settings
from analysis.choice.objectives import ENERGY
from analysis.choice.pick import picks
from analysis.energy.fit import fit
from analysis.measurements.observations import measured_volts
from benchmarks.public_data import Grid, add_data, gpus, read_sets

PENALTIES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)
WIDTHS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 5.0, 1e6)
REACHES, NOISES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0), (1e-4, 1e-3, 1e-2, 0.1, 1.0)
BASELINES = ("ridge", "neighbours", "process", "measured", "single", "fastest")
COLUMNS = ("ours", "ridge", "neighbours", "process", "true time", "measured", "single", "fastest")


def features_of(grid, measured, training_rows):
    """Return log power and rates of operations at the first measured setting, and relative log
    times at the others."""
    log_s, first = grid.log_s, measured[0]
    counts = [np.nan_to_num(values)[grid.first[:, 0]] for values in grid.data.counts.values()]
    counts = np.column_stack([*counts, np.zeros(len(log_s))])
    rates = counts / grid.time_s[:, [first]]
    highest = np.maximum(rates[training_rows].max(axis=0), 1e-300)
    return np.column_stack(
        [
            grid.log_j[:, first] - log_s[:, first],
            np.log1p(20.0 * rates / highest),
            log_s[:, measured[1:]] - log_s[:, [first]],
        ]
    )


def by_ridge(x, y, new):
    """Predict y (K, S) at ``new`` by ridge regression on x (K, d), with the penalty that predicts
    left-out kernels best."""
    middle, scale = x.mean(axis=0), x.std(axis=0) + 1e-9
    x, new, mean = (x - middle) / scale, (new - middle) / scale, y.mean(axis=0)
    best = None
    for penalty in PENALTIES:
        inverse = np.linalg.inv(x.T @ x + penalty * len(x) * np.eye(x.shape[1]))
        hat = x @ inverse @ x.T + 1.0 / len(x)
        left_out = (y - mean - (hat - 1.0 / len(x)) @ (y - mean)) / (1.0 - np.diag(hat))[:, None]
        error = float((left_out**2).mean())
        if best is None or error < best[0]:
            best = (error, mean + new @ inverse @ x.T @ (y - mean))
    return best[1]


def by_neighbours(x, y, new):
    """Predict y at ``new`` by a mean over kernels that weights near ones more, with the width that
    predicts left-out kernels best."""
    scale = x.std(axis=0) + 1e-9
    between = (((x[:, None] - x) / scale) ** 2).mean(axis=2)
    to_new = (((new[:, None] - x) / scale) ** 2).mean(axis=2)
    best = None
    for width in WIDTHS:
        weight = np.exp(-between / (2.0 * width))
        np.fill_diagonal(weight, 0.0)
        weight /= weight.sum(axis=1, keepdims=True) + 1e-300
        error = float(((weight @ y - y) ** 2).mean())
        if best is None or error < best[0]:
            new_weight = np.exp(-(to_new - to_new.min(axis=1, keepdims=True)) / (2.0 * width))
            best = (error, new_weight / new_weight.sum(axis=1, keepdims=True) @ y)
    return best[1]


def by_process(x, y, new):
    """Predict y at ``new`` by a Gaussian process over the kernels, about the mean, with the reach
    and noise that best predict left-out kernels."""
    scale, mean = x.std(axis=0) + 1e-9, y.mean(axis=0)
    between = (((x[:, None] - x) / scale) ** 2).mean(axis=2)
    to_new = (((new[:, None] - x) / scale) ** 2).mean(axis=2)
    best = None
    for reach in REACHES:
        covariance = np.exp(-between / (2.0 * reach**2))
        for noise in NOISES:
            inverse = np.linalg.inv(covariance + noise * np.eye(len(x)))
            weights = inverse @ (y - mean)
            # The leave-one-out errors (Rasmussen & Williams 2006, eq. 5.12).
            error = float(((weights / np.diag(inverse)[:, None]) ** 2).mean())
            if best is None or error < best[0]:
                best = (error, mean + np.exp(-to_new / (2.0 * reach**2)) @ weights)
    return best[1]


def chosen_form(data):
    """Return the arguments of ``fit`` for the form that it chooses on all data."""
    whole = fit(data, intervals=False)
    has_volts = whole.voltage in ("table", "measured")
    return {"model": whole.model, "voltage": "known" if has_volts else whole.voltage}


def judged(data, new, draws, form):
    """Return column -> the loss in each case, in %."""
    grid = Grid(data)
    truth, log_s = grid.truth, grid.log_s
    lost = {name: [] for name in COLUMNS}
    for fold in few_folds(data, grid.labels, len(grid.settings), new, draws):
        training = data.take(fold.training)
        fitted = fit(training, **form)
        rows = np.array([truth.row[label] for label in fold.judged])
        training_rows = np.setdiff1d(np.arange(len(grid.labels)), rows)
        measured = np.searchsorted(truth.settings, fold.judged_settings)
        features = features_of(grid, measured, training_rows)
        relative = log_s[training_rows] - log_s[training_rows][:, [measured[0]]]
        level = log_s[rows][:, [measured[0]]]
        times = {
            "ridge": level + by_ridge(features[training_rows], relative, features[rows]),
            "neighbours": level + by_neighbours(features[training_rows], relative, features[rows]),
            "process": level + by_process(features[training_rows], relative, features[rows]),
            "true time": log_s[rows],
        }
        new_data = grid.data.take(grid.first[rows].ravel())
        for name, log_time in times.items():
            log_time[:, measured] = log_s[np.ix_(rows, measured)]
            energy_j = fitted.energy_j(replace(new_data, time_s=np.exp(log_time).ravel()))
            energy_j = energy_j.reshape(log_time.shape)
            energy_j[:, measured] = grid.energy_j[np.ix_(rows, measured)]
            lost[name] += truth.above_pct[rows, energy_j.argmin(axis=1)].tolist()
        for pick in picks(training, fold.judged, volts=measured_volts(data)):
            column = truth.column[pick.setting]
            lost["ours"].append(truth.above_pct[truth.row[pick.label], column])
        best = measured[truth.above_pct[np.ix_(rows, measured)].argmin(axis=1)]
        lost["measured"] += truth.above_pct[rows, best].tolist()
        lost["fastest"] += truth.above_pct[rows, np.array(truth.fastest)[rows]].tolist()
        training_data = data.take(fold.other_kernels)
        rank = rank_single_settings(training_data, ENERGY)
        lost["single"] += truth.above_pct[rows, int(np.argmin(rank[truth.settings]))].tolist()
    return lost


def main() -> int:
    """Print the table; returns the exit code."""
    parser = argument_parser(__doc__)
    add_data(parser)
    parser.add_argument("--new", default="1,2,3")
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--auto", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    print("mean energy lost, %")
    print(f"{'data':25} new cases  " + " ".join(f"{name:>10}" for name in COLUMNS) + "  seconds")
    passed = True
    for name, (data,) in read_sets(gpus(arguments.data), arguments.only):
        form = {} if arguments.auto else chosen_form(data)
        for new in map(int, arguments.new.split(",")):
            begin = time.perf_counter()
            lost = judged(data, new, arguments.draws, form)
            mean = {column: float(np.mean(values)) for column, values in lost.items()}
            print(
                f"{name:25} {new:3} {len(lost['ours']):5}  "
                + " ".join(f"{mean[column]:10.2f}" for column in COLUMNS)
                + f"  {time.perf_counter() - begin:7.0f}",
                flush=True,
            )
            passed &= mean["ours"] <= min(mean[column] for column in BASELINES)
            passed &= new != 2 or mean["ours"] <= 1.2 * mean["true time"] + 0.3
    print("passed" if passed else "failed")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
