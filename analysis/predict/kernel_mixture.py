"""Kernels as a mixture: a kernel with few measurements is like one of those measured everywhere.

Kernels are not normally distributed: some are bound by the core, others by the memory. With J
kernels measured everywhere, which differ from the mean by ``d_j``, a further kernel is modelled as

    d ~ (1/J) sum_j N(a d_j, W)

and given its cells ``o``, with ``G = W_:o (W_oo + noise)^-1``,

    d | o ~ sum_j w_j N(a d_j + G (d_o - a d_j,o), W - G W_o:)
    w_j proportional to N(d_o; a d_j,o, W_oo + noise + an unknown level of times)

Candidates are ``W = h^2 Sigma, a^2 = 1 - h^2``, which has the mean and covariance of N(0, Sigma)
for every ``h`` (the smoothed bootstrap: Silverman 1986, section 6.4; ``h = 1`` is the normal
distribution); and ``a = 1`` with ``W`` the covariance of the differences between kernels and their
nearest ones in the cells ``o``, so that differences between kinds of kernels do not count as
differences within a kind. The mixture is the candidate that predicts the energies of the J kernels
best, each left out in turn and given the same cells (the largest mean log density of a setting).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from analysis.predict.conditioning import Conditioned, Pattern
from analysis.predict.covariance import LEVEL

SHARES = (1.0, 0.8, 0.6, 0.4, 0.25)
"""The candidate values of ``h``."""
FEWEST = 10
"""With fewer kernels measured everywhere, kernels count as normally distributed."""
LEAST_VARIANCE = 1e-8


@dataclass(frozen=True)
class Mixture:
    """``gain``: G; ``covariance``: W, (D, D); ``offset``: a (d_j - G d_j,o), (J, D); ``weights``:
    w_j, (kernels of the pattern, J); ``mean``: mu + G d_o, (kernels, D)."""

    gain: np.ndarray
    covariance: np.ndarray
    offset: np.ndarray
    weights: np.ndarray
    mean: np.ndarray


@dataclass(frozen=True)
class LeftOut:
    """J kernels measured everywhere, each predicted from some of its cells and the other kernels.

    ``true``: log energies and log times about the mean, (J, 2S); ``hidden``: bool (S,), the
    settings where these are predicted. ``log_weights``: (J, J), of the other kernels;
    ``expected``: (J, J, 2S), if the kernel is like each other one; ``variance``: (J, 2S), about
    these.
    """

    true: np.ndarray
    hidden: np.ndarray
    log_weights: np.ndarray
    expected: np.ndarray
    variance: np.ndarray

    @property
    def log_density_of_energies(self) -> np.ndarray:
        """The log density of each hidden energy by itself, (J, hidden settings)."""
        hidden = np.flatnonzero(self.hidden)
        variance = self.variance[:, None, hidden]
        difference = self.true[:, None, hidden] - self.expected[:, :, hidden]
        log_p = -0.5 * (difference**2 / variance + np.log(variance))
        return np.asarray(logsumexp(self.log_weights[:, :, None] + log_p, axis=1))

    @property
    def log_means(self) -> np.ndarray:
        """The logarithms of the expected energies and times, (J, 2S)."""
        mean = logsumexp(self.log_weights[:, :, None] + self.expected, axis=1)
        return np.asarray(mean + 0.5 * self.variance)


def everywhere(conditional: Conditioned) -> np.ndarray:
    """Return the numbers of the kernels that were measured at every setting."""
    return np.flatnonzero(np.isfinite(conditional.z[:, : 2 * conditional.settings]).all(axis=1))


def energies_and_times(conditional: Conditioned, z: np.ndarray) -> np.ndarray:
    """Return log energies and log times (K, 2S) of ``z`` (K, D)."""
    S = conditional.settings
    return np.hstack([z[:, :S] + z[:, S : 2 * S], z[:, :S]])


def mixture(conditional: Conditioned, pattern: Pattern) -> tuple[Mixture | None, LeftOut | None]:
    """Return the mixture for the pattern's kernels, None where a normal distribution is as good;
    and predictions by it of the kernels measured everywhere, None where these are too few."""
    o, S = pattern.columns, conditional.settings
    whole = everywhere(conditional)
    if len(whole) < FEWEST or not len(o) or pattern.both(S).all():
        return None, None
    d = conditional.z[whole] - conditional.mu
    nearest, by_nearest = _by_nearest(conditional, d, pattern)
    tried = [left_out_by_sigma(conditional, d, pattern, h) for h in SHARES] + [by_nearest]
    best = int(np.argmax([left_out.log_density_of_energies.mean() for left_out in tried]))
    if best == 0:
        return None, tried[0]
    if best < len(SHARES):
        h = SHARES[best]
        a, covariance = np.sqrt(1.0 - h**2), h**2 * conditional.sigma
    else:
        a, covariance = 1.0, nearest
    cells_covariance = covariance[np.ix_(o, o)] + np.diag(pattern.noise)
    gain = np.linalg.solve(cells_covariance, covariance[o]).T
    residual = conditional.z[np.ix_(pattern.kernels, o)] - conditional.mu[o]
    inverse = np.linalg.inv(cells_covariance + _time_level(o, S))
    difference = residual[:, None] - a * d[:, o]
    log_w = -0.5 * np.einsum("kjo,op,kjp->kj", difference, inverse, difference)
    return Mixture(
        gain=gain,
        covariance=covariance,
        offset=a * (d - d[:, o] @ gain.T),
        weights=np.exp(log_w - logsumexp(log_w, axis=1, keepdims=True)),
        mean=conditional.mu + residual @ gain.T,
    ), tried[best]


def _left_out(
    conditional: Conditioned,
    d: np.ndarray,
    pattern: Pattern,
    a: float,
    held: np.ndarray,
    cross: np.ndarray,
    before: np.ndarray,
) -> LeftOut:
    """Predict each of the J kernels, which differ from the mean by ``d`` (J, D), from the pattern's
    cells.

    From W without each kernel: ``held``: W_oo + noise (J, o, o); ``cross``: covariances of energies
    and times with the cells (J, 2S, o); ``before``: variances of energies and times (J, 2S).
    """
    o, J = pattern.columns, len(d)
    value, cells = energies_and_times(conditional, d), d[:, o]
    from_others = cells * (J / (J - 1))
    gain = cross @ np.linalg.inv(held)
    variance = before - (gain * cross).sum(axis=2)
    inverse = np.linalg.inv(held + _time_level(o, conditional.settings))
    # Differences are about the mean without the kernel, which is d_j / (J - 1) lower.
    other_cells = cells + cells[:, None] / (J - 1)
    difference = from_others[:, None] - a * other_cells
    log_w = -0.5 * np.einsum("jko,jop,jkp->jk", difference, inverse, difference, optimize=True)
    log_w[np.diag_indices(J)] = -np.inf
    follow = np.einsum("jro,jko->jkr", gain, difference, optimize=True)
    expected = follow + a * (value + value[:, None] / (J - 1))
    return LeftOut(
        true=value * (J / (J - 1)),
        hidden=~pattern.both(conditional.settings),
        log_weights=log_w - logsumexp(log_w, axis=1, keepdims=True),
        expected=expected,
        variance=np.maximum(variance, LEAST_VARIANCE),
    )


def left_out_by_sigma(
    conditional: Conditioned, d: np.ndarray, pattern: Pattern, h: float
) -> LeftOut:
    """Predict with ``W = h^2 Sigma``, where each kernel's contribution to Sigma is removed."""
    o, dof = pattern.columns, conditional.prior.nu + len(conditional.z) - 1
    shrink, sigma = dof / (dof - 1), conditional.sigma
    rows = energies_and_times(conditional, np.eye(len(sigma))).T
    row_sigma = rows @ sigma
    value, cells = energies_and_times(conditional, d), d[:, o]
    held = shrink * sigma[np.ix_(o, o)] - cells[:, :, None] * cells[:, None] / (dof - 1)
    cross = shrink * row_sigma[:, o] - value[:, :, None] * cells[:, None] / (dof - 1)
    before = shrink * np.einsum("rd,rd->r", row_sigma, rows) - value**2 / (dof - 1)
    noise = np.diag(pattern.noise)
    return _left_out(
        conditional,
        d,
        pattern,
        np.sqrt(1.0 - h**2),
        h**2 * held + noise,
        h**2 * cross,
        h**2 * before,
    )


def _by_nearest(
    conditional: Conditioned, d: np.ndarray, pattern: Pattern
) -> tuple[np.ndarray, LeftOut]:
    """Return ``W``, (D, D), from the differences of kernels and their nearest ones and, as one more
    difference, ``Prior.lacking``; and predictions of each kernel by a W without its differences."""
    o, S, J = pattern.columns, conditional.settings, len(d)
    held = conditional.sigma[np.ix_(o, o)] + np.diag(pattern.noise) + _time_level(o, S)
    inverse = np.linalg.inv(held)
    separation = d[:, None, o] - d[:, o]
    distance = np.einsum("jko,op,jkp->jk", separation, inverse, separation, optimize=True)
    distance[np.diag_indices(J)] = np.inf
    nearest = np.argmin(distance, axis=1)
    difference = (d - d[nearest]) / np.sqrt(2.0)
    lacking = conditional.prior.lacking
    rows = energies_and_times(conditional, np.eye(len(lacking))).T
    cells, value = difference[:, o], energies_and_times(conditional, difference)
    is_other = ~(np.eye(J, dtype=bool) | (nearest == np.arange(J)[:, None]))
    n_differences = (1 + is_other.sum(axis=1))[:, None, None]
    weight = is_other.astype(float)
    row_lacking = rows @ lacking
    held = lacking[np.ix_(o, o)] + np.einsum("ji,io,ip->jop", weight, cells, cells, optimize=True)
    cross = row_lacking[:, o] + np.einsum("ji,ir,io->jro", weight, value, cells, optimize=True)
    before = np.einsum("rd,rd->r", row_lacking, rows) + weight @ value**2
    left_out = _left_out(
        conditional, d, pattern, 1.0, held / n_differences + np.diag(pattern.noise),
        cross / n_differences, before / n_differences[:, :, 0],
    )  # fmt: skip
    return (lacking + difference.T @ difference) / (1 + J), left_out


def _time_level(o: np.ndarray, S: int) -> np.ndarray:
    """Return the covariance of an unknown level of times, at the columns ``o``."""
    time = (o < S).astype(float)
    return LEVEL * np.outer(time, time)
