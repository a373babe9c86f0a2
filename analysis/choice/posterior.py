"""What energies and times of kernels at settings may be: one posterior for every cell.

A cell is a kernel at a setting. Before its own measurement is looked at, the logarithm of its
energy is the model's, plus

- what the joint refits differ by (coefficients, voltage curve and predicted time of one refit
  together; a draw is a sum of their jackknife deviations);
- a kernel effect, the same at all settings;
- the discrepancy, of the variance that was found out of fold
  (:mod:`analysis.energy.discrepancy`): a part that neighbouring settings have in common, and a
  rough part of variance D that is each setting's own.

Then the kernel's measured cells are conditioned on (Kennedy & O'Hagan 2001, as Gaussian
conditioning in log energy), each with the noise of its mean: s^2 / n of n repeats. So a cell that
was measured often has its measured energy, and one that never was has the model's.

Without repeats, s^2 is not known: what one measurement differs from the model by may be real or
noise. Of a measured cell, 40 % of D then count as real and the rest as noise. Were it one half,
the error would be half the difference, and its stated standard deviation sqrt(D) / 2, whichever of
the two it really is. But a pick looks for the least of many cells, and the least is low by chance
more often than not: at 40 % the picks of boards whose settings differ, and of boards that only
seem to, are about as often the best as said (``benchmarks/interval_coverage.py``). A cell that
was not measured has all of D.

Beyond the measured clocks, where no voltage is known, unmeasured cells have in addition what that
voltage may be (:func:`~analysis.energy.discrepancy.beyond_measured`).

Unmeasured cells are also predicted without physics, and have the average
(:mod:`analysis.choice.averaged`). Amid the measured clocks they are surer as far as its errors are
smaller out of fold, but no surer than the predictions are apart.

A kernel with few settings beside many with all has in each draw the errors of one of these, as they
were when it was tried, at all settings together (:mod:`analysis.choice.few_trial`).

All is relative: units of energy and time do not matter, and no energy is below 0. Draws are the
same for the same fit and measurements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from analysis.choice.averaged import OtherPredictions, apart
from analysis.choice.few_trial import FewErrors
from analysis.energy.curves import at_voltage
from analysis.energy.discrepancy import LEAST_SHARE, Discrepancy, beyond_measured
from analysis.energy.fitted import Fit
from analysis.energy.refits import jackknife_deviations
from analysis.energy.surface import clock_distance, matern
from analysis.energy.terms.registry import sparse_design_matrix
from analysis.measurements.observations import Observations

DRAWS = 1000
SEED = 20250101
REAL_SHARE = 0.4
"""Of what a single measurement differs from the model by: the share that is taken as real."""
RIDGE, TINY = 1e-12, 1e-20


@dataclass(frozen=True, kw_only=True)
class Cells:
    """Kernels at settings, all kernels at the same M settings.

    ``there``: K M rows, a kernel's M rows together, with the times that are taken; ``kernels``:
    the K labels. ``repeats``: int64 (K, M); ``mean_log_j``: float64 (K, M), of the measured
    energies, NaN where there is none. ``time_deviation``: kernel -> (S, M), the jackknife's
    deviations of log times, 0 where they are measured; None where all are.
    ``time_of_few``: (M, M), the same of kernels with few settings, whose times no refit of the
    energies goes with.
    ``time_std``: float64 (K, M), what log times may be off by beside these. ``fitted_at``: bool
    (M,), the settings at which any kernel was measured. ``others``: other predictions of the
    energies, None where there are none. ``errors_of_few``: of kernels with few settings, what
    other kernels were off by at the M settings when they were tried.
    """

    there: Observations
    kernels: list[str]
    repeats: np.ndarray
    mean_log_j: np.ndarray
    time_std: np.ndarray
    fitted_at: np.ndarray
    time_deviation: Mapping[str, np.ndarray] | None = None
    time_of_few: Mapping[str, np.ndarray] | None = None
    others: OtherPredictions | None = None
    errors_of_few: Mapping[str, FewErrors] | None = None


@dataclass(frozen=True)
class Posterior:
    """Of one kernel at M settings: ``energy_j`` (M,), of the mean log energy; draws float64
    (M, draws) of energy (J) and of time (s). ``apart``: float64 (M,), the standard deviation of log
    energy among the predictions, 0 where the cell was measured and where picks need no caution."""

    energy_j: np.ndarray
    energy_draws_j: np.ndarray
    time_draws_s: np.ndarray
    apart: np.ndarray


def has_posterior(fitted: Fit) -> bool:
    """Whether the fit says how sure it is: it has three settings or more."""
    return fitted.refits is not None or bool(np.isfinite(fitted.deviations).all())


def posteriors(fitted: Fit, cells: Cells, predicted_j: np.ndarray) -> list[Posterior]:
    """The posterior of every kernel of ``cells``; ``predicted_j`` (K, M): the fit's joules.

    A fit that started from that of another site has no refits: its posterior has what its
    coefficients' covariance gives. One that an earlier version kept has no discrepancy either, and
    measured cells are not conditioned on.
    """
    n_settings = predicted_j.shape[1]
    parts = fitted.sparse_parts_j(cells.there)
    by_time = np.array([term.pays_for == "time" for term in fitted.terms])
    elasticity = _share(parts, by_time).reshape(predicted_j.shape)
    beyond = _beyond(fitted, cells, parts)
    of_energy = _refit_deviations(fitted, cells, predicted_j)
    of_time = np.zeros((0, *predicted_j.shape))
    if cells.time_deviation is not None:
        of_time = np.stack([cells.time_deviation[kernel] for kernel in cells.kernels], axis=1)
    # A refit has its coefficients and its times; after new settings the fit has fewer than these.
    joint = fitted.refits is not None and len(of_time) == len(of_energy)
    first = 0 if joint else len(of_energy)
    if cells.time_of_few:
        none = np.zeros((n_settings, n_settings))
        more = [cells.time_of_few.get(kernel, none) for kernel in cells.kernels]
        of_time = np.concatenate([of_time, np.stack(more, axis=1)])
    deviations = np.zeros((max(len(of_energy), first + len(of_time)), *predicted_j.shape))
    deviations[: len(of_energy)] += of_energy
    deviations[first : first + len(of_time)] += elasticity * of_time
    rng = np.random.default_rng(SEED)
    smooth = _root(cells, fitted.discrepancy)
    normal = _standard_normal(rng, len(deviations) + 1 + n_settings)
    own, noise, time = (_standard_normal(rng, n_settings) for _ in range(3))
    slope = _standard_normal(rng, len(beyond))
    results = []
    for i, kernel in enumerate(cells.kernels):
        prior = _prior(fitted.discrepancy, kernel, deviations[:, i], cells.repeats[i], smooth)
        there = cells.fitted_at
        prior.real[there] += (beyond[:, i, there] ** 2).sum(axis=0)
        away = cells.mean_log_j[i] - np.log(predicted_j[i])
        mean, drawn = prior.conditioned(away, normal, own, noise)
        between = np.zeros(n_settings)
        if cells.others is not None:
            unmeasured = cells.repeats[i] == 0
            weights = cells.others.weights[:, i]
            away = cells.others.log_j[:, i] - np.log(predicted_j[i]) - mean
            away = np.where(unmeasured & np.isfinite(away), away, 0.0)
            between = apart(away, weights)
            surer = unmeasured & ~beyond[:, i].any(axis=0)
            least = np.where(surer, float(cells.others.error_ratio[i]), 1.0)
            drawn *= np.maximum(least, between / np.maximum(drawn.std(axis=1), TINY))[:, None]
            mean = mean + (weights * away).sum(axis=0)
            if (np.ptp(weights, axis=1) > 0).any():  # each counts little where it is unsure
                between = np.zeros(n_settings)
        if beyond.any():
            drawn += np.where(there, 0.0, beyond[:, i]).T @ slope
        slower = cells.time_std[i][:, None] * time
        drawn += ((cells.repeats[i] == 0) * elasticity[i])[:, None] * slower
        slower += of_time[:, i].T @ normal[first : first + len(of_time)]
        if cells.errors_of_few and kernel in cells.errors_of_few:
            _take_errors(drawn, slower, cells.errors_of_few[kernel], own)
        energy_j = predicted_j[i] * np.exp(mean)
        time_s = cells.there.time_s[i * n_settings : (i + 1) * n_settings]
        results.append(
            Posterior(
                energy_j,
                energy_j[:, None] * np.exp(drawn),
                time_s[:, None] * np.exp(slower),
                between,
            )
        )
    return results


def _take_errors(drawn: np.ndarray, slower: np.ndarray, errors: FewErrors, own: np.ndarray) -> None:
    """Put the errors of other kernels, one after the other, in the place of draws of log energy and
    of log time (M, draws), where they are known. ``own``: standard normal (M, draws)."""
    known = np.isfinite(errors.log_j).all(axis=1)
    log_j = errors.log_j[known]
    kernel = np.arange(drawn.shape[1]) % log_j.shape[1]
    deviation = np.sqrt(np.mean(log_j**2, axis=1, keepdims=True))
    share = errors.own_share
    drawn[known] = np.sqrt(1.0 - share**2) * log_j[:, kernel] + share * deviation * own[known]
    slower[known] = errors.log_s[known][:, kernel]


def _standard_normal(rng: np.random.Generator, n: int) -> np.ndarray:
    """float64 (n, DRAWS); of each draw the opposite is there too, so that means are exact."""
    half = rng.normal(size=(n, DRAWS // 2))
    return np.concatenate([half, -half], axis=1)


@dataclass(frozen=True, kw_only=True)
class _Prior:
    """One kernel's log energies about the model before its measurements are looked at.

    ``measured``: the cells to condition on; ``deviation``: float64 (rows, M), whose products sum to
    a covariance; ``real``, ``noise``: float64 (M,), variances.
    """

    measured: np.ndarray
    deviation: np.ndarray
    real: np.ndarray
    noise: np.ndarray

    def conditioned(
        self, away: np.ndarray, normal: np.ndarray, own: np.ndarray, noise: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The mean (M,) and draws about it (M, draws), given how far measured cells are ``away``.

        A draw from the prior becomes one from the posterior by what its own simulated
        measurements leave (Matheron's rule).
        """
        drawn = self.deviation.T @ normal[: len(self.deviation)]
        drawn += np.sqrt(self.real)[:, None] * own
        at = self.measured
        if not len(at):
            return np.zeros(len(away)), drawn
        covariance = self.deviation.T @ self.deviation[:, at]
        covariance[at, np.arange(len(at))] += self.real[at]
        seen = covariance[at].copy()
        seen[np.diag_indices(len(at))] += self.noise[at] + RIDGE * max(float(seen.max()), TINY)
        gain = np.linalg.solve(seen, covariance.T).T
        simulated = drawn[at] + np.sqrt(self.noise[at])[:, None] * noise[at]
        return gain @ away[at], drawn - gain @ simulated


def _prior(
    discrepancy: Discrepancy | None,
    kernel: str,
    refits: np.ndarray,
    repeats: np.ndarray,
    smooth: np.ndarray,
) -> _Prior:
    """The prior of a kernel; ``refits``: float64 (S, M), their deviations.

    Variances that few settings were left out for are widened to have Student's 95 % points.
    """
    if discrepancy is None:
        none = np.zeros(len(repeats))
        return _Prior(measured=np.flatnonzero(none), deviation=refits, real=none, noise=none)
    wider = discrepancy.widening
    whole = _whole_variance(discrepancy, kernel)
    rough = discrepancy.rough * whole
    there = repeats > 0
    known = discrepancy.noise.get(kernel)
    if known is None:
        real = np.where(there, REAL_SHARE * rough, rough)
        noise = np.full(len(repeats), (1.0 - REAL_SHARE) * rough)
    else:
        noise = known / np.maximum(repeats, 1)
        beyond = rough - (float(noise[there].mean()) if there.any() else 0.0)
        real = np.full(len(repeats), max(beyond, LEAST_SHARE * rough))
    of_kernel = np.full(len(repeats), np.sqrt(discrepancy.kernel))
    return _Prior(
        measured=np.flatnonzero(there),
        deviation=np.vstack([refits * wider, of_kernel, np.sqrt(whole - rough) * smooth]),
        real=real,
        noise=noise,
    )


def _whole_variance(discrepancy: Discrepancy, kernel: str) -> float:
    """Of the discrepancy, without the kernel effect, widened to have Student's 95 % points."""
    whole = discrepancy.setting + discrepancy.own * discrepancy.scale.get(kernel, 1.0)
    return whole * discrepancy.widening**2


def measurement_variance(discrepancy: Discrepancy | None, kernel: str) -> float:
    """The variance of the log of one further measurement about its setting's own energy.

    That of the kernel's repeats, or without them the share of the rough part that counts as noise.
    """
    if discrepancy is None:
        return 0.0
    known = discrepancy.noise.get(kernel)
    if known is not None:
        return known
    return (1.0 - REAL_SHARE) * discrepancy.rough * _whole_variance(discrepancy, kernel)


def _refit_deviations(fitted: Fit, cells: Cells, predicted_j: np.ndarray) -> np.ndarray:
    """What the refits differ by in log energy: float64 (S, K, M), the jackknife's deviations.

    Beside a surface they are 0: each refit would have a surface of its own, and what these differ
    by is part of the discrepancy.
    """
    shape, terms = predicted_j.shape, fitted.terms
    if fitted.refits is None:
        seen = at_voltage(cells.there, fitted.voltage, fitted.curves)
        by_deviation = (sparse_design_matrix(seen, terms) @ fitted.deviations.T).T
        return np.asarray(by_deviation.reshape(-1, *shape) / predicted_j)
    n = len(fitted.refits.value)
    if fitted.surface is not None:
        return np.zeros((n, *shape))
    joules = fitted.refits.energy_j(cells.there, fitted.voltage, terms).reshape(n, *shape)
    log_j = np.log(np.where(joules > 0, joules, predicted_j))
    return jackknife_deviations(log_j.reshape(n, -1)).reshape(n, *shape)


def _share(parts_j: sparse.csr_array, terms: np.ndarray) -> np.ndarray:
    """The share of each row's joules that some of the terms pay for: float64 (rows,)."""
    total = np.maximum(parts_j.sum(axis=1), 1e-300)
    return np.asarray(parts_j @ terms.astype(float) / total)


def _beyond(fitted: Fit, cells: Cells, parts_j: sparse.csr_array) -> np.ndarray:
    """Standard deviations of log energy, float64 (4, K, M), by how far a setting lies beyond the
    others: :func:`~analysis.energy.discrepancy.beyond_measured`, times its domain's share."""
    shape = cells.repeats.shape
    if fitted.discrepancy is None:
        return np.zeros((4, *shape))
    far = beyond_measured(cells.there.mhz, cells.fitted_at, fitted.voltage)
    domains = np.array([term.domain for term in fitted.terms])
    shares = [_share(parts_j, own).reshape(shape) for own in (domains != "mem", domains == "mem")]
    return np.asarray(far[:, None, :] * np.repeat(shares, 2, axis=0))


def _root(cells: Cells, discrepancy: Discrepancy | None) -> np.ndarray:
    """The symmetric root of the correlation of the settings: float64 (M, M). Other roots change
    with the processor, as axes have either sign."""
    mhz = cells.there.mhz
    if discrepancy is None:
        return np.zeros((len(mhz), len(mhz)))
    far = clock_distance(mhz, mhz, mhz[cells.fitted_at] if cells.fitted_at.any() else mhz)
    near = matern(far, discrepancy.reach)
    spread, axes = np.linalg.eigh(near)
    return np.asarray((axes * np.sqrt(np.maximum(spread, 0.0))) @ axes.T)
