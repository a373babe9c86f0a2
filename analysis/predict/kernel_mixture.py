"""Kernels as a mixture: a kernel with few measurements is like one of those measured everywhere.

Kernels are not normally distributed: some are bound by the core, others by the memory. With J
kernels measured everywhere, which differ from the mean by ``d_j``, a further kernel is taken as

    d ~ (1/J) sum_j N(a d_j, W)

and given its cells ``o``, with ``G = W_:o (W_oo + noise)^-1``,

    d | o ~ sum_j w_j N(a d_j + G (d_o - a d_j,o), W - G W_o:)
    w_j proportional to N(d_o; a d_j,o, W_oo + noise + a level of times that is not known)

Tried are ``W = h^2 Sigma, a^2 = 1 - h^2``, which has the mean and covariance of N(0, Sigma) for
every ``h`` (the smoothed bootstrap: Silverman 1986, section 6.4; ``h = 1`` is the normal
distribution); and ``a = 1`` with ``W`` the covariance by which kernels differ from the one that is
nearest to them in the cells ``o``, so that what kinds of kernels differ by does not tell how those
of a kind do. Taken is what predicts the energies of the J kernels best, each left out in turn and
given the same cells (the largest mean log density of a setting).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from analysis.predict.conditioning import Conditioned, Pattern
from analysis.predict.covariance import LEVEL

SHARES = (1.0, 0.8, 0.6, 0.4, 0.25)
"""Values of ``h`` that are compared."""
FEWEST = 10
"""Kernels measured everywhere, without which kernels are normally distributed."""
LEAST_VARIANCE = 1e-8


@dataclass(frozen=True)
class Mixture:
    """``gain``: G; ``covariance``: W, (D, D); ``away``: a (d_j - G d_j,o), (J, D); ``weights``:
    w_j, (kernels of the pattern, J); ``mean``: mu + G d_o, (kernels, D)."""

    gain: np.ndarray
    covariance: np.ndarray
    away: np.ndarray
    weights: np.ndarray
    mean: np.ndarray


@dataclass(frozen=True)
class LeftOut:
    """J kernels measured everywhere, each predicted from some of its cells and the others.

    ``true``: log energies and log times about the mean, (J, 2S); ``hidden``: bool (S,), the
    settings where these are predicted. ``log_weights``: (J, J), of the others; ``expected``:
    (J, J, 2S), if the kernel is like another one; ``variance``: (J, 2S), about these.
    """

    true: np.ndarray
    hidden: np.ndarray
    log_weights: np.ndarray
    expected: np.ndarray
    variance: np.ndarray

    @property
    def log_density_of_energies(self) -> np.ndarray:
        """Of each hidden energy by itself, (J, hidden settings)."""
        at = np.flatnonzero(self.hidden)
        variance = self.variance[:, None, at]
        away = self.true[:, None, at] - self.expected[:, :, at]
        log_p = -0.5 * (away**2 / variance + np.log(variance))
        return np.asarray(logsumexp(self.log_weights[:, :, None] + log_p, axis=1))

    @property
    def log_means(self) -> np.ndarray:
        """The logarithms of the expected energies and times, (J, 2S)."""
        mean = logsumexp(self.log_weights[:, :, None] + self.expected, axis=1)
        return np.asarray(mean + 0.5 * self.variance)


def everywhere(given: Conditioned) -> np.ndarray:
    """The numbers of the kernels that were measured at every setting."""
    return np.flatnonzero(np.isfinite(given.z[:, : 2 * given.settings]).all(axis=1))


def energies_and_times(given: Conditioned, z: np.ndarray) -> np.ndarray:
    """Log energies and log times (K, 2S) of ``z`` (K, D)."""
    S = given.settings
    return np.hstack([z[:, :S] + z[:, S : 2 * S], z[:, :S]])


def mixture(given: Conditioned, pattern: Pattern) -> tuple[Mixture | None, LeftOut | None]:
    """The mixture of the pattern's kernels, None where a normal distribution is as good; and how
    the kernels measured everywhere are predicted with it, None where there are too few."""
    o, S = pattern.columns, given.settings
    whole = everywhere(given)
    if len(whole) < FEWEST or not len(o) or pattern.both(S).all():
        return None, None
    d = given.z[whole] - given.mu
    nearest, by_nearest = _by_nearest(given, d, pattern)
    tried = [left_out_by_sigma(given, d, pattern, h) for h in SHARES] + [by_nearest]
    best = int(np.argmax([one.log_density_of_energies.mean() for one in tried]))
    if best == 0:
        return None, tried[0]
    if best < len(SHARES):
        h = SHARES[best]
        a, covariance = np.sqrt(1.0 - h**2), h**2 * given.sigma
    else:
        a, covariance = 1.0, nearest
    held = covariance[np.ix_(o, o)] + np.diag(pattern.noise)
    gain = np.linalg.solve(held, covariance[o]).T
    residual = given.z[np.ix_(pattern.kernels, o)] - given.mu[o]
    inverse = np.linalg.inv(held + _time_level(o, S))
    away = residual[:, None] - a * d[:, o]
    log_w = -0.5 * np.einsum("kjo,op,kjp->kj", away, inverse, away)
    return Mixture(
        gain=gain,
        covariance=covariance,
        away=a * (d - d[:, o] @ gain.T),
        weights=np.exp(log_w - logsumexp(log_w, axis=1, keepdims=True)),
        mean=given.mu + residual @ gain.T,
    ), tried[best]


def _left_out(
    given: Conditioned,
    d: np.ndarray,
    pattern: Pattern,
    a: float,
    held: np.ndarray,
    cross: np.ndarray,
    before: np.ndarray,
) -> LeftOut:
    """The J kernels that differ from the mean by ``d`` (J, D), each given the pattern's cells.

    Of W without each kernel, J times: W_oo + noise (J, o, o), the covariances of energies and times
    with the cells (J, 2S, o), and their variances (J, 2S).
    """
    o, J = pattern.columns, len(d)
    value, seen = energies_and_times(given, d), d[:, o]
    from_others = seen * (J / (J - 1))
    gain = cross @ np.linalg.inv(held)
    left = before - (gain * cross).sum(axis=2)
    inverse = np.linalg.inv(held + _time_level(o, given.settings))
    # The mean without the kernel, about which all are, is d_j / (J - 1) lower.
    others = seen + seen[:, None] / (J - 1)
    away = from_others[:, None] - a * others
    log_w = -0.5 * np.einsum("jko,jop,jkp->jk", away, inverse, away, optimize=True)
    log_w[np.diag_indices(J)] = -np.inf
    follow = np.einsum("jro,jko->jkr", gain, away, optimize=True)
    expected = follow + a * (value + value[:, None] / (J - 1))
    return LeftOut(
        true=value * (J / (J - 1)),
        hidden=~pattern.both(given.settings),
        log_weights=log_w - logsumexp(log_w, axis=1, keepdims=True),
        expected=expected,
        variance=np.maximum(left, LEAST_VARIANCE),
    )


def left_out_by_sigma(given: Conditioned, d: np.ndarray, pattern: Pattern, h: float) -> LeftOut:
    """With ``W = h^2 Sigma``. What a kernel has itself given to Sigma is taken off."""
    o, dof = pattern.columns, given.prior.nu + len(given.z) - 1
    shrink, sigma = dof / (dof - 1), given.sigma
    rows = energies_and_times(given, np.eye(len(sigma))).T
    of_rows = rows @ sigma
    value, seen = energies_and_times(given, d), d[:, o]
    held = shrink * sigma[np.ix_(o, o)] - seen[:, :, None] * seen[:, None] / (dof - 1)
    cross = shrink * of_rows[:, o] - value[:, :, None] * seen[:, None] / (dof - 1)
    before = shrink * np.einsum("rd,rd->r", of_rows, rows) - value**2 / (dof - 1)
    noise = np.diag(pattern.noise)
    return _left_out(
        given, d, pattern, np.sqrt(1.0 - h**2), h**2 * held + noise, h**2 * cross, h**2 * before
    )


def _by_nearest(given: Conditioned, d: np.ndarray, pattern: Pattern) -> tuple[np.ndarray, LeftOut]:
    """``W``, (D, D), by what kernels and their nearest ones differ, with what physics lacks counted
    as one more; and the kernels left out with it, each with no difference of its own."""
    o, S, J = pattern.columns, given.settings, len(d)
    held = given.sigma[np.ix_(o, o)] + np.diag(pattern.noise) + _time_level(o, S)
    inverse = np.linalg.inv(held)
    away = d[:, None, o] - d[:, o]
    far = np.einsum("jko,op,jkp->jk", away, inverse, away, optimize=True)
    far[np.diag_indices(J)] = np.inf
    nearest = np.argmin(far, axis=1)
    difference = (d - d[nearest]) / np.sqrt(2.0)
    lacking = given.prior.lacking
    rows = energies_and_times(given, np.eye(len(lacking))).T
    seen, value = difference[:, o], energies_and_times(given, difference)
    others = ~(np.eye(J, dtype=bool) | (nearest == np.arange(J)[:, None]))
    many = (1 + others.sum(axis=1))[:, None, None]
    weight = others.astype(float)
    of_rows = rows @ lacking
    held = lacking[np.ix_(o, o)] + np.einsum("ji,io,ip->jop", weight, seen, seen, optimize=True)
    cross = of_rows[:, o] + np.einsum("ji,ir,io->jro", weight, value, seen, optimize=True)
    before = np.einsum("rd,rd->r", of_rows, rows) + weight @ value**2
    tried = _left_out(
        given, d, pattern, 1.0, held / many + np.diag(pattern.noise), cross / many,
        before / many[:, :, 0],
    )  # fmt: skip
    return (lacking + difference.T @ difference) / (1 + J), tried


def _time_level(o: np.ndarray, S: int) -> np.ndarray:
    """A level of times that is not known, at the columns ``o``."""
    time = (o < S).astype(float)
    return LEVEL * np.outer(time, time)
