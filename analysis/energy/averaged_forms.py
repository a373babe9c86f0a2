"""Energies by all forms of the model, averaged over the voltage curves that devices have.

A few settings cannot show both the voltage curves and what each kernel pays for time and for
operations: which form fits them best is a matter of chance. But all forms have in common that a
kernel takes, relative to its energy at the highest clocks, the energy

    E = t (b + sum_x c_x V_x^2 f_x) + (1 - b - sum_x c_x) sum_x s_x V_x^p

with time t, clocks f_x and voltages V_x of the domains x, all relative to the highest clocks. The
shares say what is paid there: b for power that no clock changes, c_x for the clock tree of a
domain, s_x of the rest for the operations of a domain. Where one clock varies, b is enough: its
clock tree takes a power of the same kind as operations that are done once a cycle.

Where V_x is not known, it is one voltage up to a knee, then a straight rise, as of a regulator
that cannot go below its lowest voltage. The exponent p is 2 for the charge that is switched, 3
where leakage and the regulator's losses grow with it. All these forms, over the whole range that
devices have, are averaged by how likely they make the energies that were measured (Bayesian model
averaging: Hoeting et al., Stat. Sci. 14, 1999). All kernels have the same curves, each its own
level and shares.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LOWEST_VOLTS = (0.5, 0.6, 0.7, 0.8, 0.9)
"""Relative to the voltage at the highest clock; 1 is tried too, without a knee."""
KNEES = (0.0, 0.2, 0.4, 0.6, 0.8)
"""Where between the lowest and the highest clock the voltage begins to rise."""
STEEPEST = 1.0
"""Where a voltage rises, it rises at most so many times as fast as the clock, both relative to
their highest."""
ONE_VOLTAGE = 0.5
"""How likely a memory has one voltage at all clocks, where both clocks vary."""
EXPONENTS = (2, 3)
"""The p that are tried."""
TIME_SHARES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""The b that are tried where one clock varies."""
SHARES_OF_TWO = ((0.0, 0.1, 0.3, 0.6), (0.0, 0.15, 0.4, 0.7), (0.0, 0.1, 0.25, 0.45))
"""Where both vary, the b, the c of the core and the c of the memory that are tried, as far as they
leave something for operations."""
MEMORY_SHARES = (0.0, 0.15, 0.5, 1.0)
"""The s of the memory that are tried there."""
DEVIATIONS = (0.01, 0.02, 0.04, 0.08, 0.16)
"""Standard deviations of log energies about a form that are tried."""

MANY_CURVES = 100
"""With more, those that are unlikely are left out first, as judged by some of the kernels."""
UNLIKELY = 12.0
"""Curves are left out whose log likelihood is so far below the highest; three times as far while
not all kernels that judge them have been counted."""
JUDGES = 32
"""So many kernels judge many curves."""


@dataclass(frozen=True)
class AveragedForms:
    """The average of the forms: ``log_j`` float64 (K, M), log energies at all settings;
    ``left_out_log_j`` (K, M), at each measured setting from the others, else NaN."""

    log_j: np.ndarray
    left_out_log_j: np.ndarray


def varying_domains(mhz: np.ndarray) -> tuple[int, ...]:
    """The columns of settings ``mhz``, float64 (M, 2), whose clocks vary; none where one of these
    is not always known."""
    varying = [i for i in (0, 1) if len(np.unique(mhz[np.isfinite(mhz[:, i]), i])) > 1]
    return tuple(varying) if np.isfinite(mhz[:, varying]).all() else ()


def average_forms(
    mhz: np.ndarray,
    volts: np.ndarray,
    log_j: np.ndarray,
    time_s: np.ndarray,
    left_out_s: np.ndarray,
) -> AveragedForms:
    """Log energies of K kernels at M settings.

    ``mhz``: float64 (M, 1 or 2), the clocks that vary; ``volts``, of the same shape: voltages of
    these domains, any NaN in a column whose voltages are not known. ``log_j``: float64 (K, M), NaN
    where a kernel was not measured, each somewhere. ``time_s``: (K, M), measured or predicted.
    ``left_out_s``: (K, M), the time of each measured setting as predicted without it, NaN where it
    cannot be.
    """
    forms = _Forms.of(mhz, volts)
    top = int(np.argmax(np.log(mhz).sum(axis=1)))
    kernels = [
        _Kernel(log_j[k], *(times[k] / time_s[k, top] for times in (time_s, left_out_s)))
        for k in range(len(log_j))
    ]
    judging = np.ones(len(kernels), bool)
    if len(forms) > MANY_CURVES:
        judging[:] = False
        judging[np.linspace(0, len(kernels) - 1, JUDGES).round().astype(int)] = True
        forms = _likely_forms(forms, list(itertools.compress(kernels, judging)))
    judges = list(itertools.compress(kernels, judging))
    likely, others_likely = forms.log_prior[:, None], forms.log_prior[:, None, None]
    for fitted in (kernel.fitted(forms) for kernel in judges):
        likely = likely + _log_sum(fitted.likelihoods())
        others_likely = others_likely + fitted.others_likely(len(mhz))
    predicted, left_out = np.empty(log_j.shape), np.full(log_j.shape, np.nan)
    for k, kernel in enumerate(kernels):
        at = kernel.at
        fitted = kernel.fitted(forms)
        predicted[k] = fitted.predicted(likely, judging[k])
        if len(at) > 1:
            left_out[k, at] = fitted.left_out(others_likely[:, at], judging[k])
    return AveragedForms(predicted, left_out)


@dataclass(frozen=True)
class _Forms:
    """The parts of energy by C curves at M settings, relative to the highest clocks: ``timed``
    float64 (C, T, M), those that take as much as time; ``switched``: (C, S, M), those of
    operations; ``shares``: (B, T + S), the shares of the parts that are tried; ``log_prior``: (C,),
    how likely the curves are."""

    timed: np.ndarray
    switched: np.ndarray
    shares: np.ndarray
    log_prior: np.ndarray

    @classmethod
    def of(cls, mhz: np.ndarray, volts: np.ndarray) -> _Forms:
        domains = mhz.shape[1]
        curves = [_voltage_curves(mhz[:, x], volts[:, x]) for x in range(domains)]
        each = [
            (np.stack(volt), p) for volt in itertools.product(*curves) for p in EXPONENTS
        ]  # (D, M)
        switched = np.array([volt**p for volt, p in each])
        timed = np.ones((len(each), 1, len(mhz)))
        if domains == 1:
            of_time = np.array(TIME_SHARES)
            of_one = np.column_stack([of_time, 1.0 - of_time])
            return cls(timed, switched, of_one, np.zeros(len(each)))
        relative = (mhz / mhz.max(axis=0)).T
        trees = np.array([volt**2 * relative for volt, _ in each])
        shares = [
            (*paid, *((1.0 - sum(paid)) * s for s in (1.0 - memory, memory)))
            for paid in itertools.product(*SHARES_OF_TWO)
            if sum(paid) < 0.99
            for memory in MEMORY_SHARES
        ]
        flat = np.array([np.ptp(volt[1]) == 0.0 for volt, _ in each])
        prior = np.ones(len(each))
        if flat.any() and not flat.all():
            prior[flat] = ONE_VOLTAGE / flat.sum()
            prior[~flat] = (1.0 - ONE_VOLTAGE) / (~flat).sum()
        return cls(
            np.concatenate([timed, trees], axis=1), switched, np.array(shares), np.log(prior)
        )

    def __len__(self) -> int:
        return len(self.timed)

    def only(self, curves: np.ndarray) -> _Forms:
        """Those of some curves."""
        return _Forms(
            self.timed[curves], self.switched[curves], self.shares, self.log_prior[curves]
        )

    def parts(self, slower: np.ndarray, at: np.ndarray | slice = slice(None)) -> np.ndarray:
        """The parts of a kernel that takes ``slower`` (M,) times as long: (C, T + S, n)."""
        timed = self.timed[..., at] * slower[at]
        return np.concatenate([timed, self.switched[..., at]], axis=1)


def _voltage_curves(mhz: np.ndarray, volts: np.ndarray) -> np.ndarray:
    """Voltages relative to that at the highest clock: float64 (curves, M)."""
    if np.isfinite(volts).all():
        return np.asarray(volts / volts[np.argmax(mhz)])[None]
    low, top = mhz.min(), mhz.max()
    curves = [np.ones(len(mhz))]
    for knee in KNEES:
        start = low + knee * (top - low)
        rise = np.maximum(mhz - start, 0.0) / (top - start)
        curves += [
            volt + (1.0 - volt) * rise
            for volt in LOWEST_VOLTS
            if 1.0 - volt <= STEEPEST * (1.0 - start / top) + 1e-9
        ]
    return np.array(curves)


def _likely_forms(forms: _Forms, judges: Sequence[_Kernel]) -> _Forms:
    """The forms of those curves that are not far less likely than others."""
    likely = np.repeat(forms.log_prior[:, None], len(DEVIATIONS), axis=1)
    for i, kernel in enumerate(judges):
        likely = likely + _log_sum(kernel.fitted(forms).likelihoods())
        bound = UNLIKELY if i == len(judges) - 1 else 3.0 * UNLIKELY
        kept = likely.max(axis=1) >= likely.max() - bound
        forms, likely = forms.only(kept), likely[kept]
    return forms


@dataclass(frozen=True)
class _Kernel:
    """A kernel's measured log energies, NaN where there is none, and its times relative to that at
    the highest clocks, each also as predicted without its setting: float64 (M,)."""

    log_j: np.ndarray
    slower: np.ndarray
    left_out_slower: np.ndarray

    @property
    def at(self) -> np.ndarray:
        """The settings that were measured: int64 (n,)."""
        return np.flatnonzero(np.isfinite(self.log_j))

    def fitted(self, forms: _Forms) -> _FittedKernel:
        log_forms = np.log(forms.shares @ forms.parts(self.slower, self.at))
        return _FittedKernel(self, forms, self.log_j[self.at] - log_forms)


@dataclass(frozen=True)
class _FittedKernel:
    """``away``: float64 (C, B, n), how far the n measured log energies of a kernel are from every
    form. Likelihoods are computed when they are needed: those of hundreds of kernels would take
    gigabytes."""

    kernel: _Kernel
    forms: _Forms
    away: np.ndarray

    def likelihoods(self) -> np.ndarray:
        """The log likelihood of each curve, its shares and deviation: float64 (C, B, D)."""
        n = self.away.shape[2]
        return _likelihoods(n * self.away.var(axis=2), n)

    def left_out_likelihoods(self) -> np.ndarray:
        """The same without each of the measured settings: float64 (C, B, n, D)."""
        n = self.away.shape[2]
        beside = self.away - self.away.mean(axis=2, keepdims=True)
        square = np.sum(beside**2, axis=2, keepdims=True) - beside**2 * (n / (n - 1))
        return _likelihoods(np.maximum(square, 0.0), n - 1)

    def others_likely(self, settings: int) -> np.ndarray:
        """The log likelihood of each curve and deviation, whatever the shares, without each of all
        M settings: float64 (C, M, D)."""
        curves, at = len(self.away), self.kernel.at
        likely = np.zeros((curves, settings, len(DEVIATIONS)))
        likely[:] = _log_sum(self.likelihoods())[:, None]
        likely[:, at] = _log_sum(self.left_out_likelihoods()) if len(at) > 1 else 0.0
        return likely

    def predicted(self, likely: np.ndarray, judges: bool) -> np.ndarray:
        """Log energies, float64 (M,). ``likely`` (C, D): of each curve and deviation, by the
        kernels that judge them; ``judges``: whether this is one of them."""
        weights = _weights(self.likelihoods(), likely, judges)
        level = self.away.mean(axis=2)
        middle = level.mean()
        paid = (weights * np.exp(level - middle)) @ self.forms.shares  # (C, T + S)
        parts = self.forms.parts(self.kernel.slower)
        return np.asarray(np.log(np.einsum("cp,cpm->m", paid, parts)) + middle)

    def left_out(self, likely: np.ndarray, judges: bool) -> np.ndarray:
        """Each of the measured settings from the others: float64 (n,); ``likely`` (C, n, D)."""
        n = self.away.shape[2]
        weights = _weights(self.left_out_likelihoods(), likely, judges)
        level = (self.away.sum(axis=2, keepdims=True) - self.away) / (n - 1)
        middle = level.mean()
        paid = np.einsum("cbn,bp->cpn", weights * np.exp(level - middle), self.forms.shares)
        parts = self.forms.parts(self.kernel.left_out_slower, self.kernel.at)
        return np.asarray(np.log(np.sum(paid * parts, axis=(0, 1))) + middle)


def _likelihoods(square: np.ndarray, n: int) -> np.ndarray:
    """Log likelihoods by deviation, float64 (..., D), of n energies of unknown level whose squares
    about their mean sum to ``square``."""
    deviations = np.array(DEVIATIONS)
    return np.asarray(-square[..., None] / (2.0 * deviations**2) - (n - 1) * np.log(deviations))


def _weights(own: np.ndarray, likely: np.ndarray, judges: bool) -> np.ndarray:
    """How likely each curve and its shares are, float64 (C, B, ...), which sum to 1. ``own``: the
    kernel's log likelihoods (C, B, ..., D); ``likely``: those of the kernels that judge
    (C, ..., D); ``judges``: whether the kernel is one of them."""
    log = likely[:, None] + own
    if judges:
        log -= _log_sum(own)[:, None]
    weights = np.exp(log - log.max(axis=(0, 1, -1), keepdims=True)).sum(axis=-1)
    return np.asarray(weights / weights.sum(axis=(0, 1)))


def _log_sum(values: np.ndarray) -> np.ndarray:
    """The logarithm of the sum of exp(values) over the shares, the second axis."""
    largest = values.max(axis=1, keepdims=True)
    return np.asarray(np.log(np.exp(values - largest).sum(axis=1)) + largest[:, 0])
