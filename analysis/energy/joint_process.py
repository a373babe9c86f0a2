"""Energies by Gaussian processes, where kernels were measured at settings of their own.

As in :mod:`analysis.energy.process`, the logarithm of a kernel's energy is its level, a curve over
the logarithms of both clocks that all kernels share, and the kernel's own deviation from it. There
the shared curve is the mean over kernels. Where each kernel has settings of its own, as ``campaign
next`` chooses them, such means take the choice of kernels for the curve. So here all three are one
process of all measured cells (Rasmussen and Williams, Gaussian Processes for Machine Learning,
2006, chapter 2): two cells have the covariance

    c(x, x') + [same kernel] (share c(x, x') + noise [same cell] + LEVEL_VARIANCE)

times a variance, c being the squared exponential. It also says how sure each prediction is.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from analysis.energy.process import NOISES, REACHES
from analysis.energy.surface import correlation, known_mean, patterns, scaled_clocks

SHARES = (0.01, 0.1, 1.0)
"""Variances of the kernels' own curves that are tried, relative to the shared one's."""
LEVEL_VARIANCE = 100.0
"""Of levels, relative to the shared curve's: they may be anything."""
ROUNDING = 1e-8
"""Added to the shared curve's variances, so that close settings can be solved."""


@dataclass(frozen=True)
class Predicted:
    """Log energies and the variances of their errors, both float64 (K, M), NaN where there is none:
    without the noise of a measurement, except where a measured cell was left out."""

    log_j: np.ndarray
    variance: np.ndarray


@dataclass(frozen=True, kw_only=True)
class JointProcess:
    """A process of this shape, and the cells that it is given.

    ``range_mhz``: float64 (R, 2), the settings over whose range log clocks are scaled; ``mhz``:
    (S, 2), the measured ones; ``log_j``: (K, S), NaN where a kernel was not measured. ``reach`` is
    in units of that range, ``share`` and ``noise`` are relative to the shared curve's variance.
    """

    range_mhz: np.ndarray
    mhz: np.ndarray
    log_j: np.ndarray
    reach: float
    share: float
    noise: float

    def at(self, mhz: np.ndarray) -> Predicted:
        """At M settings ``mhz`` (M, 2)."""
        at, wanted = (scaled_clocks(self.range_mhz, clocks)[1] for clocks in (self.mhz, mhz))
        cross = correlation(wanted, at, self.reach)
        to_curve = np.linalg.solve(self._of_curve, cross.T).T
        beyond = np.maximum(1.0 - np.sum(to_curve * cross, axis=1), 0.0)
        shape = (len(self.log_j), len(mhz))
        log_j, variance = np.full(shape, np.nan), np.full(shape, np.nan)
        for there, kernels, inverse in self._blocks:
            of_kernel = self.share * cross[:, there] + LEVEL_VARIANCE
            to_cells = of_kernel @ inverse
            log_j[kernels] = self._middle[kernels, None] + to_curve @ self._curve
            log_j[kernels] += self._beside_curve(there, kernels) @ to_cells.T
            own = self.share + LEVEL_VARIANCE - np.sum(to_cells * of_kernel, axis=1)
            unsure = to_curve.copy()
            unsure[:, there] -= to_cells
            shared = np.sum((unsure @ self._curve_covariance) * unsure, axis=1)
            variance[kernels] = self._scale * (beyond + own + shared)
        return Predicted(log_j, variance)

    def left_out(self) -> Predicted:
        """At each measured cell from all others: (K, S). A kernel with one cell has none.

        Rasmussen and Williams 2006, equations 5.10 to 5.12.
        """
        log_j, variance = np.full(self.log_j.shape, np.nan), np.full(self.log_j.shape, np.nan)
        for there, kernels, inverse in self._blocks:
            if len(there) < 2:
                continue
            cells = np.ix_(kernels, there)
            of_curve = self._curve_covariance[np.ix_(there, there)]
            precision = np.diag(inverse) - np.diag(inverse @ of_curve @ inverse)
            solved = self._beside_curve(there, kernels) @ inverse
            log_j[cells] = self.log_j[cells] - solved / precision
            variance[cells] = self._scale / precision
        return Predicted(log_j, variance)

    @cached_property
    def log_likelihood(self) -> float:
        """That of all cells at the likeliest variance, up to a constant."""
        n = int(np.isfinite(self.log_j).sum())
        log_det = np.linalg.slogdet(self._of_curve)[1] + np.linalg.slogdet(self._precision)[1]
        for _, kernels, inverse in self._blocks:
            log_det -= len(kernels) * np.linalg.slogdet(inverse)[1]
        return float(-0.5 * (n * np.log(self._scale) + log_det))

    # The shared curve g at the S settings, and what kernels measured, away from it, are independent
    # of each other: kernels at the same settings are solved together, and what they say of g is
    # added up (Woodbury's identity, equation A.9).

    @cached_property
    def _middle(self) -> np.ndarray:
        """The mean of each kernel's cells, (K,), from which its level is expected to differ."""
        return known_mean(self.log_j)

    @cached_property
    def _of_curve(self) -> np.ndarray:
        """The covariance of g before anything was measured, (S, S)."""
        at = scaled_clocks(self.range_mhz, self.mhz)[1]
        return correlation(at, at, self.reach) + ROUNDING * np.eye(len(at))

    @cached_property
    def _blocks(self) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """The settings, the kernels that have just these, and the inverse of the covariance of
        such a kernel's cells about g."""
        at = scaled_clocks(self.range_mhz, self.mhz)[1]
        own = self.share * correlation(at, at, self.reach) + self.noise * np.eye(len(at))
        return [
            (there, kernels, np.linalg.inv(own[np.ix_(there, there)] + LEVEL_VARIANCE))
            for there, kernels in patterns(self.log_j.T)
        ]

    @cached_property
    def _precision(self) -> np.ndarray:
        """The inverse of the covariance of g, all cells known: (S, S)."""
        precision = np.linalg.inv(self._of_curve)
        for there, kernels, inverse in self._blocks:
            precision[np.ix_(there, there)] += len(kernels) * inverse
        return precision

    @cached_property
    def _curve_covariance(self) -> np.ndarray:
        return np.asarray(np.linalg.inv(self._precision))

    @cached_property
    def _right(self) -> np.ndarray:
        right = np.zeros(len(self.mhz))
        for there, away, inverse in self._away():
            right[there] += inverse @ away.sum(axis=0)
        return right

    @cached_property
    def _curve(self) -> np.ndarray:
        """The mean of g, all cells known: (S,)."""
        return np.linalg.solve(self._precision, self._right)

    @cached_property
    def _scale(self) -> float:
        """The likeliest variance of the shared curve."""
        square = sum(
            float(np.einsum("ks,st,kt->", away, inverse, away)) for _, away, inverse in self._away()
        )
        square -= float(self._right @ self._curve)
        return max(square, 1e-300) / int(np.isfinite(self.log_j).sum())

    def _away(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """For each block its settings, how far its kernels are from their middle, its inverse."""
        for there, kernels, inverse in self._blocks:
            yield there, self.log_j[np.ix_(kernels, there)] - self._middle[kernels, None], inverse

    def _beside_curve(self, there: np.ndarray, kernels: np.ndarray) -> np.ndarray:
        """How far kernels are from their middle and the mean of g."""
        return self.log_j[np.ix_(kernels, there)] - self._middle[kernels, None] - self._curve[there]


def have_own_settings(log_j: np.ndarray) -> bool:
    """Whether half of the kernels or more lack settings that others have: ``log_j`` (K, S), NaN
    where not measured. With fewer, those with all settings carry the shared curve."""
    return bool(2 * np.isnan(log_j).any(axis=1).sum() >= len(log_j) > 0)


def fit_joint_process(
    mhz: np.ndarray, log_j: np.ndarray, range_mhz: np.ndarray | None = None
) -> JointProcess:
    """The process under which all measured cells are the likeliest.

    ``mhz``: float64 (S, 2), each measured for some kernel; ``log_j``: float64 (K, S), NaN where a
    kernel was not measured, each kernel somewhere; ``range_mhz``: (R, 2), ``mhz`` where None.
    """
    tried = (
        JointProcess(
            range_mhz=mhz if range_mhz is None else range_mhz,
            mhz=mhz,
            log_j=log_j,
            reach=reach,
            share=share,
            noise=noise,
        )
        for reach, share, noise in itertools.product(REACHES, SHARES, NOISES)
    )
    return max(tried, key=lambda one: one.log_likelihood)
