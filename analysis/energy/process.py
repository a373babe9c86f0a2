"""Energies by a model that knows no physics: Gaussian processes over the clocks.

The logarithm of a kernel's energy is a level of its own, plus a curve over the logarithms of both
clocks that all kernels share, plus the kernel's own deviation from that curve, each curve a
Gaussian process (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, chapter
2). Between measured settings it follows them; far from any, it goes back to the kernel's level.
So it is wrong where the energy model of :mod:`analysis.energy.fit` is right, and the other way
round: the picks of kernels that lack settings listen to both (:mod:`analysis.choice.averaged`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.energy.surface import known_mean, likeliest, patterns, scaled_clocks, smoother

REACHES = (0.3, 0.6, 1.2, 2.4)
"""Correlation lengths that are tried, in units of the range of each log clock: longer than those
of residuals, as an energy changes more slowly with the clocks."""
NOISES = (1e-4, 1e-3, 1e-2, 0.1, 1.0)
LEVEL_ROUNDS = 5
"""Levels and the shared curve are means about each other: where kernels lack settings, in turn."""


@dataclass(frozen=True)
class Process:
    """``mhz``: float64 (S, 2), the measured settings; ``level``: (K,), ``shared``: (S,), ``own``:
    (K, S), NaN where not measured; ``shape``, ``own_shape``: (reach, noise) of the two curves, the
    reach in units of the range of the clocks ``range_mhz`` (R, 2), or of ``mhz`` where None."""

    mhz: np.ndarray
    level: np.ndarray
    shared: np.ndarray
    own: np.ndarray
    shape: tuple[float, float]
    own_shape: tuple[float, float]
    range_mhz: np.ndarray | None = None

    def log_j(self, mhz: np.ndarray) -> np.ndarray:
        """Log energies at M settings ``mhz`` (M, 2): float64 (K, M)."""
        at, wanted = _scaled(self.range_mhz, self.mhz, mhz)
        result = self.level[:, None] + smoother(at, wanted, self.shape) @ self.shared
        for there, kernels in patterns(self.own.T):
            weights = smoother(at[there], wanted, self.own_shape)
            result[kernels] += (weights @ self.own[np.ix_(kernels, there)].T).T
        return np.asarray(result)

    def without(self, setting: int) -> Process:
        """The same without one of the settings; the curves keep their shapes."""
        log_j = self.level[:, None] + self.shared + self.own
        log_j[:, setting] = np.nan
        return _of_shapes(self.mhz, log_j, self.shape, self.own_shape, self.range_mhz)


def fit_process(mhz: np.ndarray, log_j: np.ndarray, range_mhz: np.ndarray | None = None) -> Process:
    """The process under which log energies are the likeliest.

    ``mhz``: float64 (S, 2), each measured for some kernel; ``log_j``: float64 (K, S), NaN where a
    kernel was not measured, each kernel somewhere. ``range_mhz``: as of :class:`Process`.
    """
    level, shared = _levels(log_j)
    own = log_j - level[:, None] - shared
    at = _scaled(range_mhz, mhz, mhz)[0]
    shape, own_shape = likeliest(at, [shared[:, None], own.T], REACHES, NOISES)
    return Process(mhz, level, shared, own, shape, own_shape, range_mhz)


def left_out_log_j(process: Process) -> np.ndarray:
    """Each setting's log energies by the process of the other settings: float64 (K, S).

    NaN for a kernel that has no other setting.
    """
    result = np.empty(process.own.shape)
    for s in range(len(process.mhz)):
        result[:, s] = process.without(s).log_j(process.mhz[[s]])[:, 0]
    return result


def _scaled(
    range_mhz: np.ndarray | None, mhz: np.ndarray, wanted: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    if range_mhz is None:
        return scaled_clocks(mhz, wanted)
    return scaled_clocks(range_mhz, mhz)[1], scaled_clocks(range_mhz, wanted)[1]


def _of_shapes(
    mhz: np.ndarray,
    log_j: np.ndarray,
    shape: tuple[float, float],
    own_shape: tuple[float, float],
    range_mhz: np.ndarray | None,
) -> Process:
    there = np.isfinite(log_j).any(axis=0)
    log_j = log_j[:, there]
    level, shared = _levels(log_j)
    own = log_j - level[:, None] - shared
    return Process(mhz[there], level, shared, own, shape, own_shape, range_mhz)


def _levels(log_j: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each kernel's level (K,) and the shared curve (S,), whose mean is 0."""
    shared = np.zeros(log_j.shape[1])
    for _ in range(LEVEL_ROUNDS if np.isnan(log_j).any() else 1):
        level = known_mean(log_j - shared)
        shared = known_mean((log_j - level[:, None]).T)
        shared = shared - shared.mean()
    return known_mean(log_j - shared), shared
