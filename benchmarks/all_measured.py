"""The posterior with every setting measured, compared with models without physics.

    .venv/bin/python -m benchmarks.all_measured --data DIR [--only NAME] [--phones 10]

``DIR``: as for ``real_data.py``. The validation leaves one setting out, but uses its times. The
table has the mean error of energy out of fold and the mean loss of the picks by these predictions
over kernels, both in %. ``ours``: the posterior; ``physics``: the physics fit. The other columns,
on the same folds, predict the logarithm of power minus the kernel's mean over the other settings:

- ``boosting``, ``forest``, ``extra``: gradient boosting, a random forest, extra trees
  (scikit-learn), from log clocks, the kernel's mean log power and its log time relative to the
  mean over the other settings;
- ``process``: a Gaussian process over log clocks that all kernels share, and one for each kernel;
- ``quadratic``: a quadratic of log clocks for each kernel;
- ``mixed``: a quadratic that the kernels share, and each kernel's shrunk deviations from it.

Exits 0 if in every row neither the error nor the loss of ours exceeds the smallest of the others.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from pathlib import Path

from benchmarks.shared import argument_parser

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from analysis.choice.crossval import cross_validate
from analysis.choice.few_crossval import FewTruth
from analysis.choice.objectives import ENERGY
from analysis.measurements.observations import (
    FitError,
    kernel_names,
    kernel_numbers,
)
from benchmarks.few_measurements import Table
from benchmarks.real_data import cpus, gpus, phones, read_sets
from benchmarks.smooth_models import by_process, by_quadratic, places, quadratic_columns
from dvfs.setting import clock_columns

TREES = ("boosting", "forest", "extra")
OTHERS = (*TREES, "process", "quadratic", "mixed")
COLUMNS = ("ours", "physics", *OTHERS)


def of_trees(name):
    """Return a new regressor."""
    from sklearn.ensemble import (
        ExtraTreesRegressor,
        GradientBoostingRegressor,
        RandomForestRegressor,
    )

    if name == "boosting":
        return GradientBoostingRegressor(random_state=0)
    kind = RandomForestRegressor if name == "forest" else ExtraTreesRegressor
    return kind(n_estimators=100, random_state=0)


def by_own_quadratic(place, log_w, measured):
    """Fit a quadratic to each kernel by least squares (minimum norm)."""
    x = quadratic_columns(place)
    return (x @ np.linalg.lstsq(x[measured], log_w[:, measured].T, rcond=None)[0]).T


def predicted(log_w, log_s, place):
    """Return column -> log power (K, S) out of fold."""
    settings = log_w.shape[1]
    log_w_by_model = {name: np.empty_like(log_w) for name in OTHERS}
    for out in range(settings):
        measured = np.delete(np.arange(settings), out)
        for name, predict in (
            ("process", by_process),
            ("quadratic", by_own_quadratic),
            ("mixed", by_quadratic),
        ):
            log_w_by_model[name][:, out] = predict(place, log_w, measured)[:, out]
        mean_w = log_w[:, measured].mean(axis=1, keepdims=True)
        slower = log_s - log_s[:, measured].mean(axis=1, keepdims=True)
        features = np.stack(
            [
                *(np.broadcast_to(column, log_w.shape) for column in place.T),
                np.broadcast_to(mean_w, log_w.shape),
                slower,
            ],
            axis=2,
        )
        x = features[:, measured].reshape(-1, features.shape[2])
        y = (log_w - mean_w)[:, measured].ravel()
        for name in TREES:
            deviation = of_trees(name).fit(x, y).predict(features[:, out])
            log_w_by_model[name][:, out] = mean_w[:, 0] + deviation
    return log_w_by_model


def judged(data):
    """Return column -> (errors of all rows, losses of all kernels), both in %."""
    truth = FewTruth.of(data, ENERGY)
    labels = list(truth.row)
    table = Table(data, labels)
    log_s, log_j = np.log(table.time_s), np.log(table.energy_j)
    result = {}
    for name, log_w in predicted(
        log_j - log_s, log_s, places(clock_columns(list(truth.column)))
    ).items():
        energy_j = np.exp(log_w + log_s)
        lost = truth.above_pct[np.arange(len(labels)), energy_j.argmin(axis=1)]
        result[name] = (np.abs(energy_j / table.energy_j - 1.0).ravel() * 100.0, lost)
    ours = cross_validate(data, "leave-one-setting-out", time="measured")
    result["physics"] = (
        ours.error_pct,
        np.array([case.mean_pct("physics") for case in ours.cases]),
    )
    result["ours"] = (
        ours.picks_error_pct,
        np.array([case.mean_pct("picks") for case in ours.cases]),
    )
    return result


def show(name, sites):
    """Print a row and return whether the posterior is the best in it."""
    began = time.perf_counter()
    parts = {column: ([], []) for column in COLUMNS}
    for site in sites:
        everywhere = [k for k in kernel_names(site) if measured_everywhere(site, k)]
        try:
            figures = judged(site.take(kernel_numbers(site, everywhere) >= 0))
        except FitError:
            continue
        for column, (errors, lost) in figures.items():
            parts[column][0].append(errors)
            parts[column][1].append(lost)
    means = [
        {column: float(np.mean(np.concatenate(parts[column][i]))) for column in COLUMNS}
        for i in range(2)
    ]
    passed = True
    for quantity, mean in zip(("error", "lost"), means, strict=True):
        best = min(mean[column] for column in OTHERS)
        passed &= mean["ours"] <= best
        shown = " ".join(f"{mean[column]:9.2f}" for column in COLUMNS)
        print(
            f"{name:30} {quantity:6}{shown}  {'' if mean['ours'] <= best else 'above'}", flush=True
        )
    print(f"{'':30} {time.perf_counter() - began:.0f} s", flush=True)
    return passed


def measured_everywhere(data, kernel):
    """Return whether a kernel was measured at every setting of the site."""
    measured = np.unique(data.setting[data.of_kernel(kernel)])
    return len(measured) == len(np.unique(data.setting))


def main() -> int:
    """Print the table; returns the exit code."""
    parser = argument_parser(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", default="", help="data sets whose name contains this")
    parser.add_argument("--phones", type=int, default=10)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    folder = arguments.data
    phone_sets = {"phones, every cluster a site": lambda: list(phones(folder, arguments.phones))}
    print(f"{'leave-one-setting-out, %':37}" + " ".join(f"{column:>9}" for column in COLUMNS))
    passed = True
    for name, sites in read_sets(gpus(folder) | cpus(folder) | phone_sets, arguments.only):
        passed &= show(name, sites)
    print("passed" if passed else "failed")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
