"""The posterior: means and draws of energies and times of all kernels at all settings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import gammaincinv, stdtrit

from analysis.predict.conditioning import Conditioned, condition
from analysis.predict.covariance import JITTER, Prior, fitted_prior, levels
from analysis.predict.kernel_mixture import LeftOut, Mixture, mixture
from analysis.predict.population import symmetric_root

DRAWS = 512
SEED = 20250101


@dataclass(frozen=True)
class SettingNoise:
    """The noise n that all measurements at a setting share, where no repeats show it, given mu.

    ``mean`` (D,). The deviation of n is ``follow`` times the deviation of mu, plus ``root`` times
    standard normal numbers, (D, D) both; 0 where nothing was measured.
    """

    mean: np.ndarray
    follow: np.ndarray
    root: np.ndarray


@dataclass(frozen=True)
class Posterior:
    """The distribution of times and powers of K kernels at S settings.

    ``z``: log times, then log powers and features of kernels, (K, 2S + F), NaN where not measured;
    ``noise``: the variances of their errors, None without repeats: then a share of the rough
    variances of ``prior`` counts as noise (``Prior.noise``).
    """

    z: np.ndarray
    noise: np.ndarray | None
    prior: Prior
    conditional: Conditioned

    @classmethod
    def of(
        cls,
        mhz: np.ndarray,
        z: np.ndarray,
        *,
        volts: np.ndarray | None = None,
        noise: np.ndarray | None = None,
    ) -> Posterior:
        """Return the posterior from log times and log powers ``z`` (K, 2S).

        ``mhz``: (S, 2), core and memory, NaN for a clock that a site lacks; ``volts``: (S, 2) or
        None.

        Raises:
            ValueError: nothing was measured.
        """
        clocks = np.where(np.isnan(mhz), 1.0, mhz)
        prior = fitted_prior(clocks, volts, z, np.zeros_like(z) if noise is None else noise)
        return cls.conditioned(prior, z, noise)

    @classmethod
    def conditioned(cls, prior: Prior, z: np.ndarray, noise: np.ndarray | None) -> Posterior:
        """Return the posterior by a given prior, fitted to other cells or kernels."""
        if noise is not None:
            return cls(z, noise, prior, condition(prior, z, noise))
        once = np.zeros(z.shape[1])
        cell_noise = np.repeat(prior.noise, len(prior.parts.distance))
        once[: len(cell_noise)] = cell_noise
        noise_once = np.tile(once, (len(z), 1))
        return cls(z, None, prior, condition(prior.without_noise(), z, noise_once))

    def without(self, left_out: np.ndarray) -> Posterior:
        """Return the posterior without the values ``left_out``, bool (K, 2S), by the same prior."""
        z = np.where(left_out, np.nan, self.z)
        return self.conditioned(self.prior, z, self.noise)

    @property
    def settings(self) -> int:
        """S."""
        return self.conditional.settings

    @cached_property
    def mean(self) -> np.ndarray:
        """Means of log times and log powers, (K, 2S)."""
        mean = self.conditional.mean.copy()
        for pattern, (mixed, _) in zip(self.conditional.patterns, self.mixtures, strict=True):
            if mixed is not None:
                mean[pattern.kernels] = mixed.mean + mixed.weights @ mixed.offset
        return np.asarray(mean - self.setting_noise.mean)

    @property
    def log_j(self) -> np.ndarray:
        """Means of log energies, (K, S)."""
        return self._energies_and_times(self.mean.T)[0].T

    @property
    def log_s(self) -> np.ndarray:
        """Means of log times, (K, S)."""
        return self.mean[:, : self.settings]

    def _energies_and_times(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return log energies and log times, (S, n), from log times and log powers, (2S, n)."""
        S = self.settings
        return z[:S] + z[S : 2 * S], z[:S]

    def energy_variances(self) -> np.ndarray:
        """Return variances of log energies, (K, S), by Student's t, for normally distributed
        kernels."""
        S, conditional = self.settings, self.conditional
        variance = np.empty((len(self.z), S))
        index = np.arange(S)
        whole = np.zeros((S, self.z.shape[1]))
        whole[index, index] = whole[index, S + index] = 1.0
        before = (whole @ conditional.sigma * whole).sum(axis=1)
        noise = self.setting_noise
        once = (whole @ noise.root) ** 2
        for i, pattern in enumerate(conditional.patterns):
            o, gain = pattern.columns, whole @ conditional.gain[i]
            kernel_variance = conditional.scale[i] * (
                before - (gain * (whole @ conditional.sigma[:, o])).sum(axis=1)
            )
            follow = whole - whole @ noise.follow
            follow[:, o] -= gain
            shared = (follow @ conditional.cov_mu * follow).sum(axis=1) + once.sum(axis=1)
            hidden = self._noise_of_hidden.copy()
            hidden[o] = 0.0
            variance[pattern.kernels] = kernel_variance.clip(0.0) + shared + whole @ hidden
        return variance

    def energy_reach(self) -> np.ndarray:
        """Return half the width of 95 % intervals of log energies, (K, S), for normally distributed
        kernels."""
        reach: np.ndarray = np.sqrt(self.energy_variances())
        for i, pattern in enumerate(self.conditional.patterns):
            freedom = self.conditional.freedom[i]
            reach[pattern.kernels] *= stdtrit(freedom, 0.975) * np.sqrt(1.0 - 2.0 / freedom)
        return reach

    @cached_property
    def mixtures(self) -> list[tuple[Mixture | None, LeftOut | None]]:
        """:func:`analysis.predict.kernel_mixture.mixture` of each pattern."""
        return [mixture(self.conditional, pattern) for pattern in self.conditional.patterns]

    def draws(self) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Yield each kernel's number with draws of its log energies and log times, (S, DRAWS) each,
        by pattern.

        Student's t with the freedom of Sigma. Prior draws become posterior draws by subtracting
        what their simulated measurements explain (Matheron's rule). They are the same on every
        processor: roots are symmetric, and draws come in opposite pairs.
        """
        conditional, d = self.conditional, self.z.shape[1]
        rng = np.random.default_rng(SEED)
        normal, shared, error, once = (_normal(rng, d) for _ in range(4))
        spread, kind = rng.random((2, DRAWS))
        wide_of: dict[float, np.ndarray] = {}
        kernel_draws = symmetric_root(conditional.sigma) @ normal
        shared = symmetric_root(conditional.cov_mu) @ shared
        noise = self.setting_noise
        once *= np.sqrt(self._noise_of_hidden)[:, None]
        shared_draws = shared + noise.root @ _normal(rng, d) - noise.follow @ shared
        for i, pattern in enumerate(conditional.patterns):
            mixed, _ = self.mixtures[i]
            o, gain = pattern.columns, mixed.gain if mixed else conditional.gain[i]
            half = conditional.freedom[i] / 2.0
            if half not in wide_of:
                wide_of[half] = np.sqrt((half - 1.0) / gammaincinv(half, spread))
            scale = 1.0 if mixed else conditional.scale[i]
            before = symmetric_root(mixed.covariance) @ normal if mixed else kernel_draws
            simulated = before[o] + np.sqrt((pattern.noise + JITTER) / scale)[:, None] * error[o]
            # in place: allocating arrays of this size takes longer than computing them
            alone, common = gain @ simulated, gain @ shared[o]
            np.subtract(before, alone, out=alone)
            alone *= wide_of[half] * np.sqrt(scale)
            alone += once
            alone[o] -= once[o]
            np.subtract(shared_draws, common, out=common)
            for n, k in enumerate(pattern.kernels.tolist()):
                # deviations of kernels are independent of each other
                drawn = alone[:, rng.permutation(DRAWS)]
                drawn += common
                if mixed:
                    upto = np.cumsum(mixed.weights[n])
                    chosen = np.minimum(np.searchsorted(upto, kind), len(upto) - 1)
                    drawn += mixed.offset[chosen].T + mixed.mean[n][:, None] - noise.mean[:, None]
                else:
                    drawn += self.mean[k][:, None]
                yield k, *self._energies_and_times(drawn)

    @cached_property
    def setting_noise(self) -> SettingNoise:
        """The noise that all measurements at a setting share (:class:`SettingNoise`)."""
        d, S = self.z.shape[1], self.settings
        variance = np.zeros(d)
        if self.noise is None:
            variance[: 2 * S] = np.repeat(self.prior.common_noise, S)
            variance[~np.isfinite(self.z).any(axis=0)] = 0.0
        _, m = self.prior.covariances()
        follow = variance[:, None] * np.linalg.inv(m + JITTER * np.eye(d))
        mean = follow @ (self.conditional.mu - self.prior.mean - levels(self.z, S))
        return SettingNoise(mean, follow, symmetric_root(np.diag(variance) - follow * variance))

    @cached_property
    def _noise_of_hidden(self) -> np.ndarray:
        """The noise of one measurement of each value, (D,), 0 with repeats: without repeats the
        prediction is of a measurement, as this noise may be real."""
        noise = np.zeros(self.z.shape[1])
        if self.noise is None:
            noise[: 2 * self.settings] = np.repeat(self.prior.noise, self.settings)
        return noise

    @property
    def noise_once(self) -> float:
        """The variance of one further log energy about its cell's mean, without repeats."""
        return float(self.prior.noise.sum())


def _normal(rng: np.random.Generator, n: int) -> np.ndarray:
    half = rng.normal(size=(n, DRAWS // 2))
    return np.concatenate([half, -half], axis=1)
