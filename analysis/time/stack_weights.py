"""Weights of several predictions of log times, by their errors (stacking, Wolpert 1992; Breiman
1996)."""

from __future__ import annotations

import numpy as np

SUM_TO_1 = 1e4
"""How strongly the weights of the predictions are held to sum to 1."""


def stack_weights(errors: np.ndarray) -> np.ndarray:
    """Weights (P,), none below 0 and all together 1, of P predictions whose errors are ``errors``
    (P, N), so that the sum of squared errors of the weighted mean is least."""
    from scipy.optimize import nnls  # noqa: PLC0415

    scale = max(float(np.sqrt((errors**2).sum())), 1e-300)
    rows = np.vstack([errors.T / scale, np.full((1, len(errors)), SUM_TO_1)])
    weights, _ = nnls(rows, np.append(np.zeros(errors.shape[1]), SUM_TO_1))
    return np.asarray(weights / weights.sum())


def stacked_out_of_fold(errors: np.ndarray, hidden: np.ndarray) -> np.ndarray:
    """The errors (others, S) of the weighted mean, those of each kernel with weights that were
    found on the rest.

    ``errors``: float64 (predictions, others, S); ``hidden``: bool (others, S), which are known.
    """
    left_out = np.zeros(hidden.shape)
    for i in range(len(hidden)):
        rest = hidden.copy()
        rest[i] = False
        left_out[i] = stack_weights(errors[:, rest]) @ errors[:, i]
    return left_out


def relative_errors(errors: np.ndarray, hidden: np.ndarray) -> np.ndarray:
    """The mean absolute relative error of the times of each kernel, float64 (others,)."""
    return np.abs(np.expm1(errors)).sum(axis=1, where=hidden) / hidden.sum(axis=1)


def surely_less(values: np.ndarray, others: np.ndarray) -> bool:
    """Whether the mean is less by more than the standard error of the difference, so that it is
    worth the simpler choice (Breiman, Friedman, Olshen & Stone 1984, the one-standard-error
    rule)."""
    gain = others - values
    return bool(gain.mean() > gain.std(ddof=1) / np.sqrt(len(gain)))
