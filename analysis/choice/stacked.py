"""The energy model stacked with a prediction that knows no physics.

Of a fold's rows the energy is predicted twice: by the model, and by a Gaussian process of log power
over the clocks (:mod:`analysis.energy.process`), which is fitted to the same measurements and given
the same times. A fold's prediction is the model's, the process's or the mean of their logarithms:
the one with which picks lose least in all other folds (stacking: Wolpert 1992, with the loss of
decisions in place of an error), the model's where they lose the same. No prediction of a fold's own
rows goes into that choice. With more weights to choose from, more is chosen by chance.
"""

from __future__ import annotations

import numpy as np

from analysis.choice.objectives import Objective
from analysis.energy.process import fit_process
from analysis.measurements.cells import cell_means
from analysis.measurements.observations import Observations, kernel_names

WEIGHTS = (0.0, 0.5, 1.0)
"""Of the process."""
FEWEST_SETTINGS = 2
"""Of one setting a process knows nothing but the levels of the kernels."""
SAME_PCT = 1e-6
"""Losses that differ by less are equally good."""


def process_energies(training: Observations, held_out: Observations) -> np.ndarray:
    """Joules of the rows ``held_out``, with their times, by the process of ``training``: float64
    (rows,), NaN of kernels that it lacks."""
    present = np.unique(training.setting)
    if len(present) < FEWEST_SETTINGS:
        return np.full(len(held_out), np.nan)
    labels = kernel_names(training)
    log_w = cell_means(training, labels, np.log(training.energy_j / training.time_s))[:, present]
    process = fit_process(training.mhz[present], log_w)
    row = {label: i for i, label in enumerate(labels)}
    number = np.array([row.get(label, -1) for label in held_out.kernel.tolist()])
    settings, column = np.unique(held_out.setting, return_inverse=True)
    log_w = process.log_j(held_out.mhz[settings])[number, column]
    return np.where(number >= 0, np.exp(log_w) * held_out.time_s, np.nan)


def stacked_energies(
    data: Observations,
    model_j: np.ndarray,
    process_j: np.ndarray,
    given_s: np.ndarray,
    fold: np.ndarray,
    objective: Objective,
) -> np.ndarray:
    """The averages of two predictions of rows: float64 (rows,), NaN where the model has none.

    ``model_j``, ``process_j``: joules (rows,); ``given_s``: the times (rows,) that both were given;
    ``fold``: int64 (rows,). All NaN with fewer than two folds, or where the process lacks a row
    that the model predicts.
    """
    known = np.isfinite(model_j)
    folds = np.unique(fold[known])
    averaged = np.full(len(data), np.nan)
    if len(folds) < 2 or not np.isfinite(process_j[known]).all():
        return averaged
    for one in folds:
        others, own = known & (fold != one), known & (fold == one)
        lost_pct = [
            _mean_loss_pct(
                data.take(others),
                _mean(model_j, process_j, weight)[others],
                given_s[others],
                objective,
            )
            for weight in WEIGHTS
        ]
        weight = WEIGHTS[int(np.argmax(np.array(lost_pct) <= min(lost_pct) + SAME_PCT))]
        averaged[own] = _mean(model_j, process_j, weight)[own]
    return averaged


def _mean(model_j: np.ndarray, process_j: np.ndarray, weight: float) -> np.ndarray:
    with np.errstate(invalid="ignore", divide="ignore"):
        log_j = (1.0 - weight) * np.log(model_j) + weight * np.log(process_j)
    return np.asarray(np.exp(log_j))


def _mean_loss_pct(
    data: Observations, predicted_j: np.ndarray, given_s: np.ndarray, objective: Objective
) -> float:
    """What picks by ``predicted_j`` (rows,) lose on average over kernels, in %."""
    labels = kernel_names(data)
    measured_j, time_s, mean_j, mean_s = (
        cell_means(data, labels, values)
        for values in (data.energy_j, data.time_s, predicted_j, given_s)
    )
    there = np.isfinite(measured_j)
    score = np.where(there, objective.score(measured_j.T, time_s.T).T, np.inf)
    guess = np.where(there, objective.score(mean_j.T, mean_s.T).T, np.inf)
    at = np.arange(len(labels)), guess.argmin(axis=1)
    return float(np.mean(score[at] / score.min(axis=1) - 1.0) * 100.0)
