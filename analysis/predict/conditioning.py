"""Exact conditioning on measured cells.

Kernels that were measured at the same cells, with the same noise, form a pattern. With the measured
cells ``o`` of a pattern, ``S_o = Sigma_oo + noise`` and ``G = Sigma_:o S_o^-1``

    mu | z:    precision M^-1 + sum_k P_o' S_o^-1 P_o
    d_k | z:   G (z_ko - mu_o), covariance Sigma - G Sigma_o: + A Cov(mu) A',   A = I - G P_o

and ``Sigma`` is its posterior mode by expectation and maximisation (Schwaighofer, Tresp & Yu 2005):

    Sigma = (nu Sigma0 + sum_k E[d_k d_k' | z]) / (nu + K)

where E is over ``mu`` too: for kernels measured completely, the scatter about their mean counts
with K - 1 degrees of freedom. It starts from the pattern with the most measurements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from analysis.predict.covariance import JITTER, Prior, levels


@dataclass(frozen=True)
class Pattern:
    """Kernels (numbers) measured at the same ``columns``, with the same ``noise`` (variances)."""

    kernels: np.ndarray
    columns: np.ndarray
    noise: np.ndarray

    def both(self, settings: int) -> np.ndarray:
        """Return bool (S,): whether time and power are known at each setting."""
        time, power = (
            np.isin(np.arange(settings) + first, self.columns) for first in (0, settings)
        )
        return np.asarray(time & power)

    def gain(self, sigma: np.ndarray) -> np.ndarray:
        """Return G, (D, o)."""
        covariance = sigma[np.ix_(self.columns, self.columns)] + np.diag(self.noise + JITTER)
        return np.asarray(cho_solve(cho_factor(covariance, lower=True), sigma[self.columns]).T)


def patterns(z: np.ndarray, noise: np.ndarray) -> list[Pattern]:
    """Return the patterns of ``z`` (K, 2S), NaN where not measured, by their first kernels."""
    by_row: dict[bytes, list[int]] = {}
    measured = np.isfinite(z)
    for k, row in enumerate(np.where(measured, noise, np.nan)):
        by_row.setdefault(row.tobytes(), []).append(k)
    result = []
    for kernels in by_row.values():
        columns = np.flatnonzero(measured[kernels[0]])
        result.append(Pattern(np.array(kernels), columns, noise[kernels[0], columns]))
    return result


@dataclass(frozen=True, kw_only=True)
class Conditioned:
    """The posterior of K kernels at S settings, given ``sigma``.

    ``mean``: (K, 2S); ``mu`` (2S,) and ``cov_mu``: what kernels share. For each of ``patterns``:
    ``scale``, the factor of Sigma for its kernels; ``gain``, G with that Sigma; ``freedom``,
    degrees of freedom of Student's t (:func:`scales`).
    """

    prior: Prior
    z: np.ndarray
    sigma: np.ndarray
    mu: np.ndarray
    cov_mu: np.ndarray
    mean: np.ndarray
    patterns: list[Pattern]
    scale: list[float]
    gain: list[np.ndarray]
    freedom: list[float]

    @property
    def settings(self) -> int:
        """S."""
        return len(self.prior.parts.distance)

    def covariances(self, pattern: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the covariances of a kernel of the pattern: given mu, Sigma - G Sigma_o:, and by
        the uncertainty of mu, A Cov(mu) A'."""
        gain, columns = self.gain[pattern], self.patterns[pattern].columns
        follow = np.eye(len(self.sigma))
        follow[:, columns] -= gain
        of_kernel = self.scale[pattern] * (self.sigma - gain @ self.sigma[columns])
        return of_kernel, follow @ self.cov_mu @ follow.T


STEPS = 4
"""Scales are rounded to so many steps for each factor of 2."""
ROUNDS, NEAR = 15, 1e-3
"""More rounds predict unmeasured cells a little worse."""


@dataclass(frozen=True)
class _Sums:
    """Sums over the kernels of G patterns with o cells each: ``columns``, (G, o), and ``noise``;
    ``kernels``: the number of kernels, (G,); ``sum``, (G, o), and ``square``, (G, o, o): the sums
    of the kernels' values and of their products."""

    columns: np.ndarray
    noise: np.ndarray
    kernels: np.ndarray
    sum: np.ndarray
    square: np.ndarray

    @classmethod
    def of(cls, group: Sequence[Pattern], z: np.ndarray, mean: np.ndarray) -> _Sums:
        """Return the sums of ``z`` about ``mean`` (D,)."""
        columns = np.array([pattern.columns for pattern in group])
        blocks = [
            z[np.ix_(pattern.kernels, pattern.columns)] - mean[pattern.columns] for pattern in group
        ]
        return cls(
            columns,
            np.array([pattern.noise for pattern in group]),
            np.array([len(block) for block in blocks]),
            np.array([block.sum(axis=0) for block in blocks]),
            np.array([block.T @ block for block in blocks]),
        )

    @property
    def at(self) -> tuple[np.ndarray, np.ndarray]:
        """The indices of the cells' covariances."""
        return self.columns[:, :, None], self.columns[:, None]

    def whitening(self, sigma: np.ndarray) -> np.ndarray:
        """Return S_o^-1/2, (G, o, o): the inverse of the triangular root."""
        covariance = sigma[self.at]
        o = np.arange(covariance.shape[1])
        covariance[:, o, o] += self.noise + JITTER
        return np.linalg.inv(np.linalg.cholesky(covariance))

    def square_about(self, mu: np.ndarray) -> np.ndarray:
        """Return the sums of products about ``mu`` (D,), relative to the mean as the sums are."""
        mean = mu[self.columns]
        cross = self.sum[:, :, None] * mean[:, None]
        n = self.kernels[:, None, None]
        return np.asarray(
            self.square - cross - cross.transpose(0, 2, 1) + n * mean[:, :, None] * mean[:, None]
        )


def condition(prior: Prior, z: np.ndarray, noise: np.ndarray) -> Conditioned:
    """Return the posterior given the measured cells of ``z`` (K, 2S), NaN where not measured;
    ``noise``: variances of measurements."""
    sigma0, m = prior.covariances()
    mean0 = prior.mean + levels(z, len(prior.parts.distance))
    size, d = z.shape
    all_patterns = patterns(z, noise)
    by_size: dict[int, list[Pattern]] = {}
    for pattern in all_patterns:
        by_size.setdefault(len(pattern.columns), []).append(pattern)
    groups = [_Sums.of(group, z, mean0) for group in by_size.values()]
    root_m = np.linalg.cholesky(m + JITTER * np.eye(d))
    sigma = _start(prior, sigma0, z, all_patterns)
    for last in range(ROUNDS, 0, -1):
        precision, right = np.zeros((d, d)), np.zeros(d)
        root = np.linalg.cholesky(sigma)
        whitened = [group.whitening(sigma) for group in groups]
        for group, white in zip(groups, whitened, strict=True):
            inverse = white.transpose(0, 2, 1) @ white
            np.add.at(precision, group.at, group.kernels[:, None, None] * inverse)
            np.add.at(right, group.columns, np.einsum("gop,gp->go", inverse, group.sum))
        # of mu = mean + R x, with R R' = M and x standard normal
        of_x = np.eye(d) + root_m.T @ precision @ root_m
        half = np.linalg.inv(np.linalg.cholesky(of_x)) @ root_m.T
        cov_mu = half.T @ half
        shift = cov_mu @ right
        if size == 1 or last == 1:
            break
        # sum_k E[d_k d_k'] = L (K + L' X L) L', with L L' = Sigma, V = S_o^-1/2 and
        # X = sum_o P_o' V' (W - n) V P_o: differences of numbers of the size of K, however unlike
        # the variances are.
        scatter = np.zeros((d, d))
        for group, white in zip(groups, whitened, strict=True):
            n = group.kernels[:, None, None]
            back = white.transpose(0, 2, 1)
            w = white @ (group.square_about(shift) + n * cov_mu[group.at]) @ back
            w -= n * np.eye(w.shape[1])
            np.add.at(scatter, group.at, back @ w @ white)
        scatter = size * np.eye(d) + root.T @ scatter @ root
        new = (prior.nu * sigma0 + root @ scatter @ root.T) / (prior.nu + size)
        if np.abs(np.diag(new) / np.diag(sigma) - 1.0).max() < NEAR:
            break
        sigma = 0.5 * (new + new.T)
    mu = mean0 + shift
    mean = np.empty((size, d))
    sizes = scales(prior.nu, sigma0, sigma, z - mu, cov_mu, all_patterns)
    divided, gains = _alike(all_patterns, *sizes), []
    for pattern, scale, _ in divided:
        columns = pattern.columns
        gain = pattern.gain(scale * sigma)
        mean[pattern.kernels] = mu + (z[np.ix_(pattern.kernels, columns)] - mu[columns]) @ gain.T
        gains.append(gain)
    all_patterns, scale_of, freedom = (list(column) for column in zip(*divided, strict=True))
    return Conditioned(
        prior=prior,
        z=z,
        sigma=sigma,
        mu=mu,
        cov_mu=cov_mu,
        mean=mean,
        patterns=all_patterns,
        scale=scale_of,
        gain=gains,
        freedom=freedom,
    )


def _alike(
    all_patterns: list[Pattern], scale: list[np.ndarray], freedom: list[float]
) -> list[tuple[Pattern, float, float]]:
    """Return the patterns, divided by their kernels' rounded scales, with these scales and the
    degrees of freedom."""
    divided = []
    for pattern, scales_of, nu in zip(all_patterns, scale, freedom, strict=True):
        steps = np.round(np.log2(scales_of) * STEPS).astype(int)
        for step in np.unique(steps).tolist():
            kernels = pattern.kernels[steps == step]
            divided.append((replace(pattern, kernels=kernels), 2.0 ** (step / STEPS), nu))
    return divided


def scales(
    nu: float,
    sigma0: np.ndarray,
    sigma: np.ndarray,
    difference: np.ndarray,
    cov_mu: np.ndarray,
    all_patterns: list[Pattern],
) -> tuple[list[np.ndarray], list[float]]:
    """Return by pattern each kernel's factor of Sigma for its unknown cells, and the degrees of
    freedom of Student's t, a whole number.

    A kernel that is unusual in its measured cells ``o`` is unusual elsewhere: with Sigma ~ inverse
    Wishart, its unknown cells have a t distribution of ``freedom`` nu' + |o| + 2 and the covariance

        nu' / (nu' + |o|) (1 + E[d_o' (nu' Sigma'_oo)^-1 d_o]) Sigma_u.o

    with nu' = nu + n, where n kernels show the relation of the unknown cells to those of ``o``, and
    Sigma' = (nu Sigma0 + n Sigma) / nu'. With several patterns, n is the mean over the unknown
    cells of the number of kernels measured there, each weighted by its share of ``o``.
    """
    is_known = np.zeros((sum(len(pattern.kernels) for pattern in all_patterns), len(sigma)))
    for pattern in all_patterns:
        is_known[np.ix_(pattern.kernels, pattern.columns)] = 1.0
    scale, freedom = [], []
    for pattern in all_patterns:
        o = pattern.columns
        unknown = np.setdiff1d(np.arange(len(sigma)), o)
        overlap = is_known[:, o].mean(axis=1) if len(o) else np.zeros(len(is_known))
        n = float((overlap @ is_known[:, unknown]).mean()) if len(unknown) else overlap.sum() - 1.0
        total = nu + n
        square = np.ix_(o, o)
        about = (nu * sigma0[square] + n * sigma[square]) / total
        inverse = np.linalg.inv(about + np.diag(pattern.noise + JITTER))
        d = difference[np.ix_(pattern.kernels, o)]
        squared = np.einsum("ko,op,kp->k", d, inverse, d) + float(np.sum(inverse * cov_mu[square]))
        scale.append(total / (total + len(o)) * (1.0 + squared / total))
        freedom.append(float(round(total + len(o) + 2.0)))
    return scale, freedom


def _start(
    prior: Prior, sigma0: np.ndarray, z: np.ndarray, all_patterns: list[Pattern]
) -> np.ndarray:
    """Return Sigma given the kernels of one pattern alone: its cells by their scatter W,
    ``(nu Sigma0_oo + W) / (nu + n)``, other cells by Sigma0's regression on these."""
    most = max(all_patterns, key=lambda pattern: len(pattern.kernels) * len(pattern.columns))
    columns = most.columns
    block = z[np.ix_(most.kernels, columns)]
    difference = block - block.mean(axis=0)
    before = sigma0[np.ix_(columns, columns)]
    after = (prior.nu * before + difference.T @ difference) / (prior.nu + len(block) - 1)
    regression = np.linalg.solve(before, sigma0[columns]).T
    return np.asarray(sigma0 + regression @ (after - before) @ regression.T)
