"""What the posterior says: draws of energies and times of all kernels at all settings."""

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

    ``mean`` (D,), and what n is about it: ``follow`` times what mu is about its mean, and
    ``root`` times standard normal numbers, (D, D) both; 0 where nothing was measured.
    """

    mean: np.ndarray
    follow: np.ndarray
    root: np.ndarray


@dataclass(frozen=True)
class Posterior:
    """The distribution of times and powers of K kernels at S settings.

    ``z``: log times, then log powers and what else is known of kernels, (K, 2S + F), NaN where not
    measured; ``noise``: the variances of these, None where no repeats show them: then a share of
    the rough variances of ``prior`` is taken as noise (``Prior.noise``).
    """

    z: np.ndarray
    noise: np.ndarray | None
    prior: Prior
    given: Conditioned

    @classmethod
    def of(
        cls,
        mhz: np.ndarray,
        z: np.ndarray,
        *,
        volts: np.ndarray | None = None,
        noise: np.ndarray | None = None,
    ) -> Posterior:
        """From log times and log powers ``z`` (K, 2S).

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
        """With a prior that is known: of other cells, or of further kernels."""
        if noise is not None:
            return cls(z, noise, prior, condition(prior, z, noise))
        once = np.zeros(z.shape[1])
        of_cells = np.repeat(prior.noise, len(prior.parts.distance))
        once[: len(of_cells)] = of_cells
        noise_once = np.tile(once, (len(z), 1))
        return cls(z, None, prior, condition(prior.without_noise(), z, noise_once))

    def without(self, left_out: np.ndarray) -> Posterior:
        """Without the values ``left_out``, bool (K, 2S); the prior's sizes are held."""
        z = np.where(left_out, np.nan, self.z)
        return self.conditioned(self.prior, z, self.noise)

    @property
    def settings(self) -> int:
        """S."""
        return self.given.settings

    @cached_property
    def mean(self) -> np.ndarray:
        """Of log times and powers, (K, 2S)."""
        mean = self.given.mean.copy()
        for pattern, (mixed, _) in zip(self.given.patterns, self.mixtures, strict=True):
            if mixed is not None:
                mean[pattern.kernels] = mixed.mean + mixed.weights @ mixed.away
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
        """Log energies and log times, (S, n), of columns of times and powers, (2S, n)."""
        S = self.settings
        return z[:S] + z[S : 2 * S], z[:S]

    def energy_variances(self) -> np.ndarray:
        """Variances of log energies, (K, S), of Student's t, where kernels are normally
        distributed."""
        S, given = self.settings, self.given
        variance = np.empty((len(self.z), S))
        at = np.arange(S)
        whole = np.zeros((S, self.z.shape[1]))
        whole[at, at] = whole[at, S + at] = 1.0
        before = (whole @ given.sigma * whole).sum(axis=1)
        noise = self.setting_noise
        once = (whole @ noise.root) ** 2
        for i, pattern in enumerate(given.patterns):
            o, gain = pattern.columns, whole @ given.gain[i]
            of_kernel = given.scale[i] * (before - (gain * (whole @ given.sigma[:, o])).sum(axis=1))
            follow = whole - whole @ noise.follow
            follow[:, o] -= gain
            shared = (follow @ given.cov_mu * follow).sum(axis=1) + once.sum(axis=1)
            hidden = self._noise_of_hidden.copy()
            hidden[o] = 0.0
            variance[pattern.kernels] = of_kernel.clip(0.0) + shared + whole @ hidden
        return variance

    def energy_reach(self) -> np.ndarray:
        """Half the width of 95 % intervals of log energies, (K, S), of kernels that are normally
        distributed."""
        reach: np.ndarray = np.sqrt(self.energy_variances())
        for i, pattern in enumerate(self.given.patterns):
            freedom = self.given.freedom[i]
            reach[pattern.kernels] *= stdtrit(freedom, 0.975) * np.sqrt(1.0 - 2.0 / freedom)
        return reach

    @cached_property
    def mixtures(self) -> list[tuple[Mixture | None, LeftOut | None]]:
        """Of each pattern (:func:`analysis.predict.kernel_mixture.mixture`)."""
        return [mixture(self.given, pattern) for pattern in self.given.patterns]

    def draws(self) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Each kernel's number, and draws of its log energies and log times, (S, DRAWS) each, by
        pattern.

        Student's t with the freedom of Sigma. Draws from the distribution before a kernel's
        cells were measured become draws after that by what their own simulated measurements leave
        (Matheron's rule). The same on every processor: symmetric roots, and of each draw the
        opposite is there too.
        """
        given, d = self.given, self.z.shape[1]
        rng = np.random.default_rng(SEED)
        normal, shared, error, once = (_normal(rng, d) for _ in range(4))
        spread, kind = rng.random((2, DRAWS))
        wide_of: dict[float, np.ndarray] = {}
        of_kernel = symmetric_root(given.sigma) @ normal
        shared = symmetric_root(given.cov_mu) @ shared
        noise = self.setting_noise
        once *= np.sqrt(self._noise_of_hidden)[:, None]
        of_all = shared + noise.root @ _normal(rng, d) - noise.follow @ shared
        for i, pattern in enumerate(given.patterns):
            mixed, _ = self.mixtures[i]
            o, gain = pattern.columns, mixed.gain if mixed else given.gain[i]
            half = given.freedom[i] / 2.0
            if half not in wide_of:
                wide_of[half] = np.sqrt((half - 1.0) / gammaincinv(half, spread))
            scale = 1.0 if mixed else given.scale[i]
            before = symmetric_root(mixed.covariance) @ normal if mixed else of_kernel
            seen = before[o] + np.sqrt((pattern.noise + JITTER) / scale)[:, None] * error[o]
            # in place: arrays of this size cost more to make than to compute
            alone, common = gain @ seen, gain @ shared[o]
            np.subtract(before, alone, out=alone)
            alone *= wide_of[half] * np.sqrt(scale)
            alone += once
            alone[o] -= once[o]
            np.subtract(of_all, common, out=common)
            for n, k in enumerate(pattern.kernels.tolist()):
                # kernels differ from what they share independently
                drawn = alone[:, rng.permutation(DRAWS)]
                drawn += common
                if mixed:
                    upto = np.cumsum(mixed.weights[n])
                    like = np.minimum(np.searchsorted(upto, kind), len(upto) - 1)
                    drawn += mixed.away[like].T + mixed.mean[n][:, None] - noise.mean[:, None]
                else:
                    drawn += self.mean[k][:, None]
                yield k, *self._energies_and_times(drawn)

    @cached_property
    def setting_noise(self) -> SettingNoise:
        """What all measurements at a setting have in common by noise (:class:`SettingNoise`)."""
        d, S = self.z.shape[1], self.settings
        variance = np.zeros(d)
        if self.noise is None:
            variance[: 2 * S] = np.repeat(self.prior.common_noise, S)
            variance[~np.isfinite(self.z).any(axis=0)] = 0.0
        _, m = self.prior.covariances()
        follow = variance[:, None] * np.linalg.inv(m + JITTER * np.eye(d))
        mean = follow @ (self.given.mu - self.prior.mean - levels(self.z, S))
        return SettingNoise(mean, follow, symmetric_root(np.diag(variance) - follow * variance))

    @cached_property
    def _noise_of_hidden(self) -> np.ndarray:
        """The noise of one measurement of each value, (D,), where no repeats show it: what would be
        measured is predicted, for it may be real."""
        noise = np.zeros(self.z.shape[1])
        if self.noise is None:
            noise[: 2 * self.settings] = np.repeat(self.prior.noise, self.settings)
        return noise

    @property
    def noise_once(self) -> float:
        """The variance of one further log energy about its cell's, where no repeats show it."""
        return float(self.prior.noise.sum())


def _normal(rng: np.random.Generator, n: int) -> np.ndarray:
    half = rng.normal(size=(n, DRAWS // 2))
    return np.concatenate([half, -half], axis=1)
