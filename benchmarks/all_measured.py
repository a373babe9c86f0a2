"""The posterior with every setting measured, compared with models without physics.

    .venv/bin/python -m benchmarks.all_measured --data DIR [--only NAME] [--phones 10]

``DIR``: as for ``public_data.py``. The validation leaves one setting out, but uses its times. The
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

from benchmarks.shared import argument_parser

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from analysis.choice.crossval import cross_validate
from analysis.measurements.observations import (
    FitError,
)
from benchmarks.public_data import Grid, add_data, cpus, gpus, phones, read_sets
from benchmarks.smooth_models import by_process, by_quadratic, places, quadratic_columns

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
    grid, result = Grid(data), {}
    log_w_by_model = predicted(grid.log_j - grid.log_s, grid.log_s, places(grid.mhz))
    for name, log_w in log_w_by_model.items():
        log_j = log_w + grid.log_s
        errors = np.abs(np.exp(log_j) / grid.energy_j - 1.0).ravel() * 100.0
        result[name] = errors, grid.lost_pct(log_j)
    ours = cross_validate(grid.data, "leave-one-setting-out", time="measured")
    for name, chooser, errors in (
        ("physics", "physics", ours.error_pct),
        ("ours", "picks", ours.picks_error_pct),
    ):
        result[name] = errors, np.array([case.mean_pct(chooser) for case in ours.cases])
    return result


def show(name, sites):
    """Print a row and return whether the posterior is the best in it."""
    began = time.perf_counter()
    parts = {column: ([], []) for column in COLUMNS}
    for site in sites:
        try:
            figures = judged(site)
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


def main() -> int:
    """Print the table; returns the exit code."""
    parser = argument_parser(__doc__)
    add_data(parser)
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
