"""The loss of picks among power limits, and the accuracy of energies under them.

    .venv/bin/python -m benchmarks.power_limits --data DIR [--seeds 20]

1. Simulated: the built-in board at the 16 settings of Choi & Vuduc 2016, Table I, without a limit
   and with two (one of which some 40 % of the kernels reach at some setting). Picks are made from a
   quarter and three eighths of the settings and with each pair of clocks left out, and judged by
   the energies without noise.
2. Deep-learning training on a V100 and an RTX 6000 (You et al., NSDI 2023; ``DIR``: as for
   ``public_data.py``): each limit left out with measured times, and m = 2, 3, 4 random limits for
   all. The picks are compared with a quadratic in the limit for each workload (the better of two:
   logarithms, and power by limit), a Gaussian process for each workload, the best single limit,
   and the highest.

``held``: the share of energies in their 95 % intervals.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from analysis.choice.crossval import cross_validate, folds
from analysis.choice.few_crossval import few_cross_validate, few_folds
from analysis.measurements.observations import (
    Observations,
    cell_means,
    kernel_names,
    measured_volts,
    observations,
)
from analysis.predict.site import cells_of, site_posterior
from benchmarks.public_data import power_limits
from benchmarks.shared import argument_parser
from sites.simulated.machine import mean_w, phases_s, under_limit
from tests.analysis.simulated_tk1 import kernels, simulated_columns, simulated_tk1

LIMITS_W = (14.5, 25.0)
SHARES = (0.25, 0.375)


def true_j(data: Observations) -> np.ndarray:
    """Return the energy without noise of every kernel at every setting, J, (K, S)."""
    site = simulated_tk1("off")
    energy_j = []
    for counts in kernels().values():
        parts = {"": counts}
        limited = [under_limit(site, parts, setting) for setting in data.settings]
        energy_j.append(
            [mean_w(site, parts, state) * phases_s(site, parts, state).sum() for state in limited]
        )
    return np.array(energy_j)


def simulated(seed: int) -> dict[str, dict[str, float]]:
    """Return the mean loss of picks, %, and the mean error of energies under a reached limit, %."""
    figures_by_name: dict[str, dict[str, float]] = {}
    for name, limits in (("clocks", (None,)), ("limits", LIMITS_W)):
        data = observations(simulated_columns("default", str(seed), limits_w=limits), "tk1")
        true = true_j(data)
        labels = list(kernels())
        above = 100.0 * (true / true.min(axis=1, keepdims=True) - 1.0)
        row, column = cells_of(data, labels, data.settings)
        rng = np.random.default_rng(seed)
        is_limited = data.core_mhz != data.mhz[data.setting, 0]
        figures = figures_by_name.setdefault(name, {})
        figures["limited"] = len(set(row[is_limited].tolist())) / len(labels)
        for share in SHARES:
            S = len(data.settings)
            is_training = np.isin(data.setting, rng.choice(S, round(share * S), replace=False))
            prediction = site_posterior(data.take(is_training), measured_volts(data))
            order = [prediction.labels.index(label) for label in labels]
            pick = prediction.energy_j[order].argmin(axis=1)
            figures[f"{share:g} of the settings"] = float(above[np.arange(len(pick)), pick].mean())
        predicted_j = np.empty(len(data))
        full = site_posterior(data, measured_volts(data))
        cells = full.cells(data)
        for test in folds(data, "leave-one-setting-out", None):
            held_out = data.take(test)
            without = full.from_cells(cells - full.cells(held_out))
            predicted_j[test] = without.of_rows(held_out).energy_j
        grid = np.empty_like(true)
        grid[row, column] = predicted_j
        figures["clocks left out"] = float(above[np.arange(len(grid)), grid.argmin(axis=1)].mean())
        off = 100.0 * np.abs(predicted_j / data.energy_j - 1.0)
        figures["error, all"] = float(off.mean())
        figures["error, limited"] = float(off[is_limited].mean()) if is_limited.any() else np.nan
    return figures_by_name


def lost_pct(predicted: np.ndarray, log_j: np.ndarray) -> float:
    """Return the mean loss, %, of the measured setting with the least ``predicted`` value (K,
    S)."""
    pick = np.where(np.isfinite(log_j), predicted, np.inf).argmin(axis=1)
    least = np.nanmin(log_j, axis=1)
    return 100.0 * float(np.expm1(log_j[np.arange(len(pick)), pick] - least).mean())


def polynomials(limits: np.ndarray, log_w: np.ndarray, logs: bool) -> np.ndarray:
    """Predict log powers by a quadratic in the limit for each workload; by a line with fewer
    limits."""
    x, predicted = np.log(limits) if logs else limits / limits.max(), np.empty_like(log_w)
    for k, row in enumerate(log_w if logs else np.exp(log_w)):
        measured = np.isfinite(row)
        fitted = np.polyfit(x[measured], row[measured], min(2, measured.sum() - 1))
        predicted[k] = np.polyval(fitted, x)
    return predicted if logs else np.log(np.maximum(predicted, 1.0))


def processes(limits: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Predict values by a Gaussian process over the log limit for each workload."""
    x, predicted = np.log(limits)[:, None], np.empty_like(values)
    for k, row in enumerate(values):
        measured = np.isfinite(row)
        kernel = ConstantKernel(0.1) * RBF(0.5) + WhiteKernel(1e-4, (1e-6, 1e-2))
        model = GaussianProcessRegressor(kernel, normalize_y=True)
        predicted[k] = model.fit(x[measured], row[measured]).predict(x)
    return predicted


def sweeps(data: Observations, draws: int) -> dict[str, dict[str, float]]:
    """Return the losses of picks and of the other models, %, for each scheme."""
    labels, S = kernel_names(data), len(data.settings)
    limits = np.array([setting.power_limit_w for setting in data.settings])
    log_s, log_j = (
        cell_means(data, labels, np.log(values)) for values in (data.time_s, data.energy_j)
    )
    log_w = log_j - log_s
    judged = cross_validate(data, "leave-one-setting-out")
    predicted = {key: np.empty_like(log_j) for key in ("log", "plain", "process")}
    held = np.empty_like(log_j)
    posterior = site_posterior(data, measured_volts(data)).posterior
    for s in range(S):
        hidden = np.zeros((len(log_j), 2 * S), bool)
        hidden[:, S + s] = True
        some = posterior.without(hidden)
        held[:, s] = np.abs(some.log_j - log_j)[:, s] <= some.energy_reach()[:, s]
        without = np.where(np.arange(S) == s, np.nan, log_w)
        for key, logs in (("log", True), ("plain", False)):
            predicted[key][:, s] = (log_s + polynomials(limits, without, logs))[:, s]
        predicted["process"][:, s] = (log_s + processes(limits, without))[:, s]
    losses = {
        "quadratic": min(lost_pct(predicted[key], log_j) for key in ("log", "plain")),
        "process": lost_pct(predicted["process"], log_j),
    }
    rows = {"each limit left out": row_of(judged.choosers, losses, held)}
    for m in (2, 3, 4):
        few_choosers = few_cross_validate(data, m, draws=draws).choosers
        losses, inside = [], []
        for fold in few_folds(data, labels, m, None, draws):
            is_measured = np.isin(np.arange(S), fold.judged_settings)
            some_j = np.where(is_measured, log_j, np.nan)
            predictions = [polynomials(limits, some_j, True), polynomials(limits, some_j, False)]
            predictions.append(processes(limits, some_j))
            losses.append(
                [
                    lost_pct(np.where(is_measured, log_j, prediction), log_j)
                    for prediction in predictions
                ]
            )
            some = site_posterior(data.take(fold.training), measured_volts(data)).posterior
            inside.append(
                (np.abs(some.log_j - log_j) <= some.energy_reach())[:, ~is_measured].mean()
            )
        mean = np.mean(losses, axis=0)
        others = {"quadratic": min(mean[:2]), "process": mean[2]}
        rows[f"{m} limits"] = row_of(few_choosers, others, inside)
    return rows


def row_of(choosers, losses: dict[str, float], held) -> dict[str, float]:
    """Return a row of the table: losses of the picks, other models and single limits, %."""
    return {
        "picks": choosers["picks"].mean_lost_pct,
        **losses,
        "best single": choosers["best_single"].mean_lost_pct,
        "highest": choosers["highest_clocks"].mean_lost_pct,
        "held": float(np.mean(held)),
    }


def main() -> int:
    parser = argument_parser(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the folder of data sets")
    parser.add_argument("--seeds", type=int, default=20)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    runs = [simulated(seed) for seed in range(max(arguments.seeds // 4, 1))]
    results = {
        "simulated": {
            name: {key: float(np.mean([run[name][key] for run in runs])) for key in runs[0][name]}
            for name in runs[0]
        }
    }
    for name in ("v100", "rtx6000"):
        results[name] = sweeps(power_limits(arguments.data, name), arguments.seeds)
    for name, rows in results.items():
        print(name)
        print(pd.DataFrame(rows).T.round(3).to_string())
    return 0


if __name__ == "__main__":
    sys.exit(main())
