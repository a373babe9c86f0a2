"""Energies over one clock, averaged over the voltage curves that devices have.

Where one clock varies, a few settings cannot show both the voltage curve and what each kernel pays
for time and for operations: which form fits them best is a matter of chance. But all forms have in
common that a kernel at the clock f takes the energy

    E(f) = E(top) (b t(f) / t(top) + (1 - b) (V(f) / V(top))^p),

with b the share that power over time has at the highest clock. Where V is not known, it is one
voltage up to a knee, then a straight rise, as of a regulator that cannot go below its lowest
voltage. The exponent p is 2 for the charge that is switched, 3 where leakage and the regulator's
losses grow with it. All these forms, over the whole range that devices have, are averaged by how
likely they make the energies that were measured (Bayesian model averaging: Hoeting et al., Stat.
Sci. 14, 1999). All kernels have the same curve, each its own level and b.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

LOWEST_VOLTS = (0.5, 0.6, 0.7, 0.8, 0.9)
"""Relative to the voltage at the highest clock; 1 is tried too, without a knee."""
KNEES = (0.0, 0.2, 0.4, 0.6, 0.8)
"""Where between the lowest and the highest clock the voltage begins to rise."""
EXPONENTS = (2, 3)
"""The p that are tried."""
TIME_SHARES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""The b that are tried."""
DEVIATIONS = (0.01, 0.02, 0.04, 0.08, 0.16)
"""Standard deviations of log energies about a form that are tried."""


@dataclass(frozen=True)
class OneClock:
    """The average of the forms: ``log_j`` float64 (K, M), log energies at all settings;
    ``left_out_log_j`` (K, M), at each measured setting from the others, else NaN."""

    log_j: np.ndarray
    left_out_log_j: np.ndarray


def varying_domain(mhz: np.ndarray) -> int | None:
    """The column of settings ``mhz``, float64 (M, 2), whose clock varies and is always known; None
    where no clock does, or both do."""
    varying = [i for i in (0, 1) if len(np.unique(mhz[np.isfinite(mhz[:, i]), i])) > 1]
    if len(varying) != 1 or not np.isfinite(mhz[:, varying[0]]).all():
        return None
    return varying[0]


def energies_over_one_clock(
    mhz: np.ndarray,
    volts: np.ndarray,
    log_j: np.ndarray,
    time_s: np.ndarray,
    left_out_s: np.ndarray,
) -> OneClock:
    """Log energies of K kernels at M settings.

    ``mhz``: float64 (M,), the clock that varies; ``volts`` (M,): its domain's voltage, any NaN
    where that is not known. ``log_j``: float64 (K, M), NaN where a kernel was not measured, each
    somewhere. ``time_s``: (K, M), measured or predicted. ``left_out_s``: (K, M), the time of each
    measured setting as predicted without it, NaN where it cannot be.
    """
    curves = _operation_energies(mhz, volts)
    top = int(np.argmax(mhz))
    kernels = [
        _Kernel.of(curves, log_j[k], *(times[k] / time_s[k, top] for times in (time_s, left_out_s)))
        for k in range(len(log_j))
    ]
    likely = np.sum([_log_sum(kernel.likelihoods()) for kernel in kernels], axis=0)
    others_likely = np.sum([kernel.others_likely(len(mhz)) for kernel in kernels], axis=0)
    left_out_log_j = np.full(log_j.shape, np.nan)
    for k, kernel in enumerate(kernels):
        if len(kernel.at) > 1:
            left_out_log_j[k, kernel.at] = kernel.left_out(others_likely[:, kernel.at])
    return OneClock(np.stack([kernel.predicted(likely) for kernel in kernels]), left_out_log_j)


def _operation_energies(mhz: np.ndarray, volts: np.ndarray) -> np.ndarray:
    """(V / V(top))^p of every curve: float64 (C, M)."""
    if np.isfinite(volts).all():
        return np.array([(volts / volts[np.argmax(mhz)]) ** p for p in EXPONENTS])
    low, top = mhz.min(), mhz.max()
    curves = [np.ones(len(mhz))]
    for knee in KNEES:
        start = low + knee * (top - low)
        rise = np.maximum(mhz - start, 0.0) / (top - start)
        curves += [(volt + (1.0 - volt) * rise) ** p for volt in LOWEST_VOLTS for p in EXPONENTS]
    return np.array(curves)


@dataclass(frozen=True)
class _Kernel:
    """A kernel's log energies by every form: ``forms`` float64 (C, B, M), relative to their level,
    ``left_out_forms`` the same with the times left out; ``away`` (C, B, n): how far the n measured
    energies, at settings ``at``, are from the forms. Likelihoods are computed when they are needed:
    those of hundreds of kernels would take gigabytes."""

    forms: np.ndarray
    left_out_forms: np.ndarray
    away: np.ndarray
    at: np.ndarray

    @classmethod
    def of(
        cls, curves: np.ndarray, log_j: np.ndarray, slower: np.ndarray, left_out_slower: np.ndarray
    ) -> _Kernel:
        shares = np.array(TIME_SHARES)[:, None]
        forms, left_out = (
            np.log(shares * times + (1.0 - shares) * curves[:, None])
            for times in (slower, left_out_slower)
        )
        at = np.flatnonzero(np.isfinite(log_j))
        return cls(forms, left_out, log_j[at] - forms[..., at], at)

    def likelihoods(self) -> np.ndarray:
        """The log likelihood of each curve, time share and deviation: float64 (C, B, D)."""
        n = self.away.shape[2]
        return _likelihoods(n * self.away.var(axis=2), n)

    def left_out_likelihoods(self) -> np.ndarray:
        """The same without each of the measured settings: float64 (C, B, n, D)."""
        n = self.away.shape[2]
        beside = self.away - self.away.mean(axis=2, keepdims=True)
        square = np.sum(beside**2, axis=2, keepdims=True) - beside**2 * (n / (n - 1))
        return _likelihoods(np.maximum(square, 0.0), n - 1)

    def others_likely(self, settings: int) -> np.ndarray:
        """The log likelihood of each curve and deviation, whatever the time share, without each of
        all M settings: float64 (C, M, D)."""
        curves, n = len(self.away), len(self.at)
        likely = np.zeros((curves, settings, len(DEVIATIONS)))
        likely[:] = _log_sum(self.likelihoods())[:, None]
        likely[:, self.at] = _log_sum(self.left_out_likelihoods()) if n > 1 else 0.0
        return likely

    def predicted(self, likely: np.ndarray) -> np.ndarray:
        """float64 (M,); ``likely`` (C, D): of each curve and deviation, by all kernels."""
        weights = _weights(self.likelihoods(), likely)
        level = np.sum(weights * self.away.mean(axis=2))
        return np.asarray(np.einsum("cb,cbm->m", weights, self.forms) + level)

    def left_out(self, likely: np.ndarray) -> np.ndarray:
        """Each of the measured settings from the others: float64 (n,); ``likely`` (C, n, D)."""
        n = self.away.shape[2]
        weights = _weights(self.left_out_likelihoods(), likely)
        level = (self.away.sum(axis=2, keepdims=True) - self.away) / (n - 1)
        return np.sum(weights * (self.left_out_forms[..., self.at] + level), axis=(0, 1))


def _likelihoods(square: np.ndarray, n: int) -> np.ndarray:
    """Log likelihoods by deviation, float64 (..., D), of n energies of unknown level whose squares
    about their mean sum to ``square``."""
    deviations = np.array(DEVIATIONS)
    return np.asarray(-square[..., None] / (2.0 * deviations**2) - (n - 1) * np.log(deviations))


def _weights(own: np.ndarray, likely: np.ndarray) -> np.ndarray:
    """How likely each curve and time share is, float64 (C, B, ...), which sum to 1. ``own``: the
    kernel's log likelihoods (C, B, ..., D); ``likely``: those of all kernels (C, ..., D)."""
    log = likely[:, None] + own - _log_sum(own)[:, None]
    weights = np.exp(log - log.max(axis=(0, 1, -1), keepdims=True)).sum(axis=-1)
    return np.asarray(weights / weights.sum(axis=(0, 1)))


def _log_sum(values: np.ndarray) -> np.ndarray:
    """The logarithm of the sum of exp(values) over the time shares, the second axis."""
    largest = values.max(axis=1, keepdims=True)
    return np.asarray(np.log(np.exp(values - largest).sum(axis=1)) + largest[:, 0])
