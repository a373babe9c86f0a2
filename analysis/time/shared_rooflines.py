"""How the times of a site's kernels scale: a distribution of rooflines that all of them share.

A kernel's time is its level times a curve with shares a + b + c = 1 of what the core's clock, the
memory's clock and none of them paces:

    log T = level + log(c + ((a f_top / f_core)^p + (b f_top / f_mem)^p)^(1/p)) + error

How often which shares occur is estimated from all kernels, as weights of a grid of shares: the
nonparametric maximum likelihood of a mixture (Kiefer & Wolfowitz 1956), by expectation
maximization (Laird 1978). p and the variance of the errors are common to all. A kernel that was
measured at few settings starts from these weights and moves as its own times come in (empirical
Bayes, Robbins 1956).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

STEPS = 16
"""The grid of shares has steps of a sixteenth."""
EXPONENTS = (1.0, 1.5, 2.0, 3.0, 4.0, 8.0)
ROUNDS = 60
LEAST_VARIANCE = 1e-6
"""Of log times: no clock is better known than to a tenth of a percent."""
TINY = 1e-12


@dataclass(frozen=True)
class SharedRooflines:
    """``shares``: float64 (G, 3), of the core's clock, the memory's and none; ``membership``:
    float64 (K, G), how probable each kernel's shares are, given its times; ``variance``: of the
    errors of log times."""

    exponent: float
    shares: np.ndarray
    membership: np.ndarray
    variance: float

    def curves(self, core: np.ndarray, mem: np.ndarray) -> np.ndarray:
        """Log times less their level, float64 (G, M), where the clocks' ratios f_top / f are
        ``core`` and ``mem`` (M,), 0 for a domain that is not there."""
        return _curves(self.shares, self.exponent, core, mem)


def fit_shared(log_s: np.ndarray, core: np.ndarray, mem: np.ndarray) -> SharedRooflines:
    """Fit to log times ``log_s``, float64 (K, S), NaN where a kernel was not measured.

    ``core``, ``mem``: float64 (S,), ratios f_top / f, 0 for a domain that is not there.
    """
    i, j = (grid.ravel() for grid in np.indices((STEPS + 1, STEPS + 1)))
    on_grid = i + j <= STEPS
    shares = np.column_stack([i, j, STEPS - i - j])[on_grid] / STEPS
    best: tuple[float, SharedRooflines] | None = None
    for exponent in EXPONENTS:
        likelihood, model = _maximized(log_s, shares, exponent, core, mem)
        if best is None or likelihood > best[0]:
            best = (likelihood, model)
    assert best is not None  # noqa: S101
    return best[1]


def few_times(
    model: SharedRooflines,
    prior: np.ndarray,
    log_s: np.ndarray,
    at: tuple[np.ndarray, np.ndarray],
    to: tuple[np.ndarray, np.ndarray],
) -> np.ndarray:
    """Expected log times (K, M) of K kernels at the settings ``to``, given those at ``at``.

    ``prior``: float64 (K, G), weights of the shares; ``log_s``: float64 (K, Q), measured at
    ``at``, without gaps. ``at``, ``to``: ratios (core, mem) as in :func:`fit_shared`.
    """
    squares, level = _fit_to_curves(log_s, model.curves(*at))
    weight = _normalized(np.log(prior + TINY) - squares / (2.0 * model.variance))[0]
    mean = (weight * level).sum(axis=1, keepdims=True)
    return np.asarray(mean + weight @ model.curves(*to))


def _curves(shares: np.ndarray, exponent: float, core: np.ndarray, mem: np.ndarray) -> np.ndarray:
    a, b, c = shares.T[:, :, None]
    paced = (a * core) ** exponent + (b * mem) ** exponent
    # Where a domain is not there, shares that are all its own take no time.
    return np.asarray(np.log(np.maximum(c + paced ** (1.0 / exponent), TINY)))


def _fit_to_curves(log_s: np.ndarray, curves: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each kernel beside each curve: the sum of squared errors and the level, (K, G)."""
    known = np.isfinite(log_s).astype(float)
    values = np.nan_to_num(log_s)
    n = known.sum(axis=1, keepdims=True)
    level = (values.sum(axis=1, keepdims=True) - known @ curves.T) / n
    squares = (values**2).sum(axis=1, keepdims=True) - 2.0 * values @ curves.T
    squares = squares + known @ (curves**2).T - n * level**2
    return np.maximum(squares, 0.0), level


def _normalized(log_weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights of each row that sum to 1, and the logarithm of what they summed to."""
    top = log_weight.max(axis=1, keepdims=True)
    weight = np.exp(log_weight - top)
    total = weight.sum(axis=1, keepdims=True)
    return weight / total, (np.log(total) + top)[:, 0]


def _maximized(
    log_s: np.ndarray, shares: np.ndarray, exponent: float, core: np.ndarray, mem: np.ndarray
) -> tuple[float, SharedRooflines]:
    """The log likelihood and the model of one exponent."""
    level = np.nanmean(log_s, axis=1, keepdims=True)  # squares of small numbers keep their digits
    squares, _ = _fit_to_curves(log_s - level, _curves(shares, exponent, core, mem))
    free = np.maximum(np.isfinite(log_s).sum(axis=1) - 1.0, 0.0)[:, None]
    common = np.full(len(shares), 1.0 / len(shares))
    variance = 0.01
    for _ in range(ROUNDS):
        likelihood = np.log(common + TINY) - squares / (2.0 * variance)
        membership, total = _normalized(likelihood - 0.5 * free * np.log(variance))
        common = membership.mean(axis=0)
        found = float((membership * squares).sum() / max(float(free.sum()), 1.0))
        variance = max(found, LEAST_VARIANCE)
    return float(total.sum()), SharedRooflines(exponent, shares, membership, variance)
