"""Ridge regression over kernels: how one behaves elsewhere, from how the others did.

Of K other kernels both are known: their features ``x`` (K, d), such as power and rates of
operations at a setting, standardised (:func:`standardised`), and what is wanted, ``y`` (K, S), such
as log times at S settings relative to that one. It makes no assumption on how times or energies
scale with the clocks.
"""

from __future__ import annotations

import numpy as np

PENALTIES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)
"""Of the regression, a kernel."""
RATE_SCALE = 20.0
"""Rates from a twentieth of the highest on are told apart by their logarithms."""
TINY = 1e-9


def standardised(features: np.ndarray, others: np.ndarray) -> np.ndarray:
    """``features`` (rows, d) less their mean over the rows ``others``, by their standard
    deviation."""
    middle, scale = features[others].mean(axis=0), features[others].std(axis=0) + TINY
    return np.asarray((features - middle) / scale)


def log_rates(counts: np.ndarray, time_s: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Log rates of operations, float64 (rows, classes), from ``counts`` (rows, classes) and the
    times (rows,): relative to the highest of the rows ``others``, and 0 for none."""
    rate = counts / time_s[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        highest = np.nanmax(rate[others], axis=0, initial=0.0)
        relative = np.where(highest > 0, rate / highest, 0.0)
    return np.log1p(RATE_SCALE * relative)


def by_regression(x: np.ndarray, y: np.ndarray, new: np.ndarray, itself: np.ndarray) -> np.ndarray:
    """Ridge regression of y on x (Hoerl & Kennard 1970), at ``new`` (rows, d): float64 (rows, S).

    ``itself``: int64 (rows,), which of the K kernels each row is, -1 for none. One of them is
    predicted by the rest.
    """
    n, mean = len(x), y.mean(axis=0)
    away = y - mean
    best: tuple[float, np.ndarray, np.ndarray] | None = None
    for penalty in PENALTIES:
        slopes = np.linalg.solve(x.T @ x + penalty * n * np.eye(x.shape[1]), x.T)
        leverage = np.einsum("ij,ji->i", x, slopes) + 1.0 / n
        # What a kernel's own row does to its prediction is taken out (Allen 1974, PRESS).
        without = y - (away - x @ slopes @ away) / (1.0 - leverage)[:, None]
        error = float(((without - y) ** 2).mean())
        if best is None or error < best[0]:
            best = (error, slopes @ away, without)
    assert best is not None  # noqa: S101
    _, slope, without = best
    return np.where((itself < 0)[:, None], mean + new @ slope, without[itself])
