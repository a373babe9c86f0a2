"""The covariance of what the physics model does not explain, and its hyperparameters.

A kernel's log times and log powers at S settings are ``z_k = mu + d_k``, (2S,), with

    mu  ~ N(mean, M),      M      = e^b0 common + sum_j e^bj C_j + levels
    d_k ~ N(0, Sigma),     Sigma ~ inverse Wishart(nu + 2S + 1, nu Sigma0)
                           Sigma0 = e^a0 kernel + sum_i e^ai C_i

``common`` and ``kernel`` are the population's (:mod:`analysis.predict.population`). The parts C
of times and powers are smooth over log clocks (Matern 3/2), depend on one clock alone, are
independent at each setting (rough), or are levels. A time that is longer than physics explains
lowers the power by ``slower`` times as much: the same operations take a longer time.

The hyperparameters (``sizes``) are a, b, ``nu``, ``slower`` and the reach of the smooth part. They
maximise the posterior density. The likelihood is of a completely measured block of kernels and
settings (a matrix t for the kernels' differences, a normal distribution for their mean), times the
likelihood of further cells of a few kernels, each kernel by itself and given its cells in the
block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.linalg import block_diag
from scipy.linalg.lapack import dpotri
from scipy.optimize import minimize
from scipy.special import gammaln, psi

from analysis.predict.population import DEVICE_NUMBERS, Physics, linearised

JITTER = 1e-7
"""The least variance of each cell of a kernel: 0.03 % squared."""
REAL_SHARE = np.array([0.9, 0.15])
"""Shares of the rough variances of times and of powers that count as real where no repeats show the
noise; the remainder counts as noise. They hold for single cells and for what all kernels share at a
setting. Times are measured well. With the share of powers ``P(best)`` agrees with how often picks
are the best on simulated boards, whether their settings differ or the campaign erred at each."""
MOST_NOISE = np.array([0.01, 0.05])
"""The largest standard deviations of that noise, of times and of powers: a larger part is real.
Where all kernels are 5 % faster than they should be, the clock is not what its name says."""
LEVEL = 100.0
"""Variance of the level of all times, and of all powers: in effect unknown."""
SMOOTH, CORE, MEM, ROUGH = range(4)
# In this order: physics; smooth, core, memory and rough, each for time and power; and, for kernels
# only, the levels of time and power.
OWN_SD = np.array([1.0, 0.06, 0.04, 0.003, 0.003, 0.005, 0.01, 0.004, 0.015, 2.0, 0.2])
OWN_SPREAD = np.array([0.3, *[1.5] * 6, 3.0, 2.5, 1.0, 2.0])
COMMON_SD = np.array([1.0, 0.025, 0.05, 0.005, 0.006, 0.01, 0.01, 0.002, 0.006])
COMMON_SPREAD = np.array([0.3, *[1.5] * 6, 3.0, 2.5])
"""The prior's standard deviations of the parts, and deviations of the logarithms of their
variances: about those of five kinds of processors measured everywhere (two GPUs, the Cortex-A15 of
an ODROID-XU3 with two suites, and phones)."""
SHAPE = np.array([[np.log(3.0), 1.1], [0.5, 0.35], [np.log(2.0), 0.5]])
"""The prior's mean and deviation of log nu, ``slower`` and the log reach."""
PRIOR = np.vstack(
    [
        np.column_stack([2 * np.log(OWN_SD), OWN_SPREAD]),
        np.column_stack([2 * np.log(COMMON_SD), COMMON_SPREAD]),
        SHAPE,
    ]
)
OWN, COMMON = slice(0, 11), slice(11, 20)
LOWEST = np.array([*[-25.0] * 20, np.log(0.5), 0.0, np.log(0.25)])
HIGHEST = np.array([*[6.0] * 20, np.log(300.0), 1.0, np.log(8.0)])


@dataclass(frozen=True)
class Parts:
    """The data of the parts C at S settings: the ``distance`` between settings, (S, S), and for
    each clock whether two settings have the ``same``, (2, S, S)."""

    distance: np.ndarray
    same: np.ndarray

    @classmethod
    def of(cls, mhz: np.ndarray) -> Parts:
        """Return the parts' data for clocks ``mhz`` (S, 2), whose logarithms are scaled to span
        1."""
        logs = np.log(mhz)
        position = (logs - logs.min(axis=0)) / np.maximum(np.ptp(logs, axis=0), 1e-12)
        same = np.array([(clock[:, None] == clock).astype(float) for clock in mhz.T])
        # With one value of a clock, parts of one clock are levels or rough: left out.
        if min(len(np.unique(clock)) for clock in mhz.T) == 1:
            same = np.zeros_like(same)
        return cls(np.sqrt(((position[:, None] - position) ** 2).sum(axis=2)), same)

    def take(self, settings: np.ndarray) -> Parts:
        """Return the data of some settings."""
        return Parts(
            self.distance[np.ix_(settings, settings)], self.same[:, settings[:, None], settings]
        )

    def matrices(self, log_reach: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the parts C, (4, S, S): smooth, of the core clock, of the memory clock, rough; and
        the derivative of the smooth one by the log reach."""
        x = np.sqrt(3.0) * self.distance * np.exp(-log_reach)
        smooth = (1.0 + x) * np.exp(-x)
        return np.array([smooth, *self.same, np.eye(len(x))]), x**2 * np.exp(-x)


@dataclass(frozen=True)
class Prior:
    """The distribution of kernels at a site's settings.

    ``sizes`` (23,): the hyperparameters, in the order of :data:`PRIOR`. ``common_rough`` (2,): the
    likeliest rough variances of what all kernels have in common, of log times and log powers; None:
    the mean ones, in ``sizes``. The mean ones are much larger where few settings determine them,
    and would make noise of what all kernels agree on. ``features`` (F,): variances of further
    features of kernels, independent of times and powers a priori. ``more`` (2S, 2S): a further
    covariance of what kernels share, None for 0."""

    parts: Parts
    physics: Physics
    sizes: np.ndarray
    common_rough: np.ndarray | None = None
    features: np.ndarray = field(default_factory=lambda: np.zeros(0))
    more: np.ndarray | None = None

    def take(self, settings: np.ndarray) -> Prior:
        """Return the prior at some settings."""
        columns = np.concatenate([settings, settings + len(self.parts.distance)])
        more = None if self.more is None else self.more[np.ix_(columns, columns)]
        physics = _of(self.physics, columns)
        return replace(self, parts=self.parts.take(settings), physics=physics, more=more)

    @property
    def nu(self) -> float:
        return float(np.exp(self.sizes[20]))

    @property
    def mean(self) -> np.ndarray:
        """The mean of what kernels share, (2S + F,)."""
        return np.concatenate([self.physics.mean, np.zeros(len(self.features))])

    @property
    def rough(self) -> np.ndarray:
        """The rough variances of single cells: of a log time, and of a log power without the part
        that follows from the time, (2,)."""
        return np.asarray(np.exp(self.sizes[OWN][7:9]))

    @property
    def lacking(self) -> np.ndarray:
        """Sigma0 without the population's covariance, (2S + F, 2S + F)."""
        parts, _ = self.parts.matrices(self.sizes[22])
        return self._with_features(self._lacking(parts), np.diag(self.features))

    def _lacking(self, parts: np.ndarray) -> np.ndarray:
        sizes = np.exp(self.sizes[OWN])
        lacking = _blocks(sizes[1:9], parts, self.sizes[21], sizes[9], sizes[10])
        lacking[np.diag_indices(len(lacking))] += JITTER
        return lacking

    def _with_features(self, matrix: np.ndarray, of_features: np.ndarray) -> np.ndarray:
        return block_diag(matrix, of_features) if len(self.features) else matrix

    @property
    def noise(self) -> np.ndarray:
        """The parts of ``rough`` that count as measurement noise without repeats, (2,)."""
        return _noise(self.rough)

    @property
    def common_noise(self) -> np.ndarray:
        """The same for what all kernels have in common at a setting, (2,)."""
        rough = self.common_rough
        return _noise(np.exp(self.sizes[COMMON][7:9]) if rough is None else rough)

    def without_noise(self) -> Prior:
        """Return the prior with ``rough`` less ``noise``."""
        sizes = self.sizes.copy()
        sizes[OWN][7:9] = np.log(self.rough - self.noise)
        return replace(self, sizes=sizes)

    def covariances(self) -> tuple[np.ndarray, np.ndarray]:
        """Return Sigma0 and M, (2S + F, 2S + F)."""
        parts, _ = self.parts.matrices(self.sizes[22])
        return self.covariances_of(parts)

    def covariances_of(self, parts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the same from the parts C, (4, S, S)."""
        common = np.exp(self.sizes[COMMON])
        sigma0 = np.exp(self.sizes[0]) * self.physics.kernel + self._lacking(parts)
        m = common[0] * self.physics.common
        m += _blocks(common[1:], parts, self.sizes[21], LEVEL, LEVEL)
        if self.more is not None:
            m += self.more
        return (
            self._with_features(sigma0, np.diag(self.features)),
            self._with_features(m, LEVEL * np.eye(len(self.features))),
        )


def _noise(rough: np.ndarray) -> np.ndarray:
    return np.asarray(np.minimum((1.0 - REAL_SHARE) * rough, MOST_NOISE**2))


def _blocks(
    sizes: np.ndarray, parts: np.ndarray, slower: float, level_time: float, level_power: float
) -> np.ndarray:
    """Return the covariance of the parts C and of levels, times before powers; ``sizes`` (8,):
    time, power, time, ..."""
    S = parts.shape[1]
    time, power = (sizes.reshape(4, 2).T @ parts.reshape(4, -1)).reshape(2, S, S)
    covariance = np.empty((2 * S, 2 * S))
    covariance[:S, :S] = time + level_time
    covariance[:S, S:] = covariance[S:, :S] = -slower * time
    covariance[S:, S:] = slower**2 * time + power + level_power
    return covariance


def _gradients(
    g: np.ndarray, sizes: np.ndarray, parts: np.ndarray, slower: float, bend: np.ndarray
) -> tuple[np.ndarray, float, float]:
    """Return derivatives by log sizes (8,), ``slower`` and the log reach, from ``g``, those by the
    covariance."""
    S = parts.shape[1]
    tt, tw, ww = g[:S, :S], g[:S, S:] + g[S:, :S].T, g[S:, S:]
    time_slope = tt - slower * tw + slower**2 * ww
    slower_slope = 2.0 * slower * ww - tw
    products = parts.reshape(4, -1) @ np.column_stack(
        [time_slope.ravel(), ww.ravel(), slower_slope.ravel()]
    )
    slopes = sizes * products[:, :2].ravel()
    reach_slope = float(np.vdot(bend, sizes[0] * time_slope + sizes[1] * ww))
    return slopes, float(sizes[0::2] @ products[:, 2]), reach_slope


class Block:
    """K kernels that were measured at the same settings: ``columns`` (D,) of ``z`` (K, D), with
    ``noise`` (D,), variances of measurements. Their log density counts ``sign`` times."""

    def __init__(
        self, columns: np.ndarray, z: np.ndarray, noise: np.ndarray, sign: float = 1.0
    ) -> None:
        self.columns, self.noise, self.sign = columns, noise, sign
        self.square = np.ix_(columns, columns)
        self.k = len(z)
        self.mean = z.mean(axis=0)
        difference = z - self.mean
        self.scatter = difference.T @ difference

    def spread_of_mean(
        self, nu: float, sigma0: np.ndarray, m: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return Sigma0 with noise, ``nu`` times that plus the scatter, and the covariance of the
        mean."""
        sigma0 = sigma0[self.square] + np.diag(self.noise)
        total = nu * sigma0 + self.scatter
        return sigma0, total, m[self.square] + total / ((nu + self.k - 1) * self.k)

    def log_density(
        self, nu: float, sigma0: np.ndarray, m: np.ndarray, mean: np.ndarray
    ) -> tuple[float, np.ndarray, np.ndarray, float]:
        """Return the log density of the kernels, and its derivatives by Sigma0, M and ``nu``.

        With n = K - 1 and the scatter W about the kernels' mean y, this is the density of W's
        matrix t and N(y; mean, M + (nu Sigma0 + W) / ((nu + n) K)).
        """
        sigma0, total, big = self.spread_of_mean(nu, sigma0, m)
        n, d = self.k - 1, len(sigma0)
        difference = self.mean - mean[self.columns]
        root = np.linalg.cholesky(big)
        inverse = _inverse(root)
        alpha = inverse @ difference
        value = -0.5 * (difference @ alpha) - _half_log_det(root)
        by_m = 0.5 * (np.outer(alpha, alpha) - inverse)
        by_total = by_m / ((nu + n) * self.k)
        by_nu = float(np.vdot(by_total, sigma0 - total / (nu + n)))
        by_sigma0 = nu * by_total
        if n:
            dof = nu + d + 1.0
            before, after = np.linalg.cholesky(nu * sigma0), np.linalg.cholesky(total)
            steps = np.arange(d) / 2
            after_n, before_n = (dof + n) / 2 - steps, dof / 2 - steps
            value += float(np.sum(gammaln(after_n) - gammaln(before_n)))
            value += dof * _half_log_det(before) - (dof + n) * _half_log_det(after)
            inverse_after = _inverse(after)
            by_sigma0 = by_sigma0 + 0.5 * dof * nu * _inverse(before)
            by_sigma0 = by_sigma0 - 0.5 * (dof + n) * nu * inverse_after
            by_nu += 0.5 * float(np.sum(psi(after_n) - psi(before_n)))
            by_nu += _half_log_det(before) - _half_log_det(after) + 0.5 * dof * d / nu
            by_nu -= 0.5 * (dof + n) * float(np.vdot(inverse_after, sigma0))
        return float(value), by_sigma0, by_m, by_nu


NEWTON = 4
"""Steps, each of which leaves less than a tenth of the error."""


@dataclass(frozen=True)
class Likelihood:
    """Minus the log posterior density of the hyperparameters, given ``blocks``."""

    parts: Parts
    physics: Physics
    blocks: Sequence[Block]

    def __call__(self, sizes: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the value and its derivatives by the hyperparameters."""
        prior = Prior(self.parts, self.physics, sizes)
        parts, bend = self.parts.matrices(sizes[22])
        sigma0, m = prior.covariances_of(parts)
        by_sigma0, by_m = np.zeros_like(sigma0), np.zeros_like(m)
        value = by_nu = 0.0
        for block in self.blocks:
            density = block.log_density(prior.nu, sigma0, m, self.physics.mean)
            value += block.sign * density[0]
            by_sigma0[block.square] += block.sign * density[1]
            by_m[block.square] += block.sign * density[2]
            by_nu += block.sign * density[3]
        kernel_sizes, common_sizes = np.exp(sizes[OWN]), np.exp(sizes[COMMON])
        slopes = np.zeros(len(sizes))
        for first, g, group_sizes, physical in (
            (OWN.start, by_sigma0, kernel_sizes, self.physics.kernel),
            (COMMON.start, by_m, common_sizes, self.physics.common),
        ):
            slopes[first] = group_sizes[0] * float(np.vdot(g, physical))
            part_slopes, by_slower, by_reach = _gradients(
                g, group_sizes[1:9], parts, sizes[21], bend
            )
            slopes[first + 1 : first + 9] = part_slopes
            slopes[21] += by_slower
            slopes[22] += by_reach
        S = len(parts[0])
        slopes[9] = kernel_sizes[9] * float(by_sigma0[:S, :S].sum())
        slopes[10] = kernel_sizes[10] * float(by_sigma0[S:, S:].sum())
        slopes[20] = by_nu * prior.nu
        from_prior = (sizes - PRIOR[:, 0]) / PRIOR[:, 1]
        value -= 0.5 * float(from_prior @ from_prior)
        return -value, -(slopes - from_prior / PRIOR[:, 1])

    def device(self, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and covariance of the device's numbers, (15,) and (15, 15), by the linear
        model and the first block."""
        prior, block = Prior(self.parts, self.physics, sizes), self.blocks[0]
        _, _, big = block.spread_of_mean(prior.nu, *prior.covariances())
        slopes = np.exp(0.5 * sizes[COMMON.start]) * self.physics.slopes[block.columns]
        gain = np.linalg.solve(big, slopes).T
        mean = gain @ (block.mean - self.physics.mean[block.columns])
        spread = np.eye(DEVICE_NUMBERS) - gain @ slopes
        return mean, 0.5 * (spread + spread.T)

    def most_likely(self, start: np.ndarray, steps: int = 500) -> tuple[np.ndarray, float]:
        """Return the hyperparameters of the largest posterior density, by at most ``steps`` steps
        from ``start``, and its logarithm."""
        found = minimize(
            self, start, jac=True, method="L-BFGS-B",
            bounds=list(zip(LOWEST, HIGHEST, strict=True)),
            options={"maxiter": steps, "ftol": 1e-7},
        )  # fmt: skip
        return found.x, -float(found.fun)

    def mean_sizes(self, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and likeliest hyperparameters, searched from ``sizes``.

        The mean ones give each part its mean variance: that of a log-normal distribution with the
        width by the curvature (Laplace), at most the prior's. The search ends at a point that
        depends on the processor; Newton's steps then reach the same point on any.
        """
        width = 0.1
        sizes, _ = self.most_likely(sizes)
        moved = sizes + width * np.eye(len(sizes))
        slopes = self(sizes)[1]
        hessian = np.array([self(one)[1] - slopes for one in moved]) / width
        hessian = 0.5 * (hessian + hessian.T)
        free = np.flatnonzero((sizes > LOWEST) & (sizes < HIGHEST))
        square = hessian[np.ix_(free, free)]
        if np.linalg.eigvalsh(square)[0] > 0.0:
            for _ in range(NEWTON):
                step = np.linalg.solve(square, self(sizes)[1][free])
                sizes = sizes.copy()
                sizes[free] -= step.clip(-2.0 * width, 2.0 * width)
        parts = slice(0, COMMON.stop)
        mean = sizes.copy()
        mean[parts] += 0.5 / np.maximum(np.diag(hessian), PRIOR[:, 1] ** -2)[parts]
        return rounded(mean), rounded(sizes)


def rounded(numbers: np.ndarray, parts: int = 20) -> np.ndarray:
    """Round to multiples of 1 / ``parts``, finer than the numbers' uncertainty, so that they are
    the same on every processor, where a search ends a little differently."""
    return np.round(parts * numbers) / parts


def levels(z: np.ndarray, settings: int) -> np.ndarray:
    """Return the mean of all times, and of all powers, of z (K, 2S + F), at their columns, and 0 at
    the features. The prior of levels is about these, so that units do not matter."""
    level = np.zeros(z.shape[1])
    for first in (0, settings):
        level[first : first + settings] = np.nanmean(z[:, first : first + settings])
    return level


def _half_log_det(root: np.ndarray) -> float:
    return float(np.log(root.diagonal()).sum())


def _inverse(root: np.ndarray) -> np.ndarray:
    lower, _ = dpotri(root, lower=True)
    return np.asarray(lower + np.tril(lower, -1).T)


def complete_block(measured: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the kernels and settings of the largest complete block of ``measured``, bool (K, S),
    among blocks with one kernel's settings and blocks with the settings of many kernels."""
    often = measured.mean(axis=0)
    rows = np.unique(measured, axis=0)
    tried = [*rows[np.argsort(-rows.sum(axis=1), kind="stable")][:50]]
    tried += [often >= share for share in (1.0, 0.8, 0.5)]
    best = None
    for chosen in tried:
        if not chosen.any():
            continue
        kernels = np.flatnonzero(measured[:, chosen].all(axis=1))
        if best is None or len(kernels) * chosen.sum() > best[0]:
            best = len(kernels) * chosen.sum(), kernels, np.flatnonzero(chosen)
    if best is None:
        raise ValueError("no kernel was measured at any setting")
    return best[1], best[2]


def blocks_of(z: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, list[Block]]:
    """Return the settings of all blocks, and the blocks of ``z`` (K, 2S), with columns among these.

    First the largest block. Then two for each of the kernels with the most settings outside it: one
    with all its cells, and one with its cells in the first block, whose density divides the other.
    """
    S = z.shape[1] // 2
    measured = np.isfinite(z[:, :S]) & np.isfinite(z[:, S:])
    kernels, settings = complete_block(measured)
    inside = np.zeros_like(measured)
    inside[:, settings] = measured[:, settings]
    more = (measured & ~inside).sum(axis=1)
    rows = [k for k in np.argsort(-more, kind="stable")[:MOST_FURTHER].tolist() if more[k]]
    members = [(kernels, settings, 1.0)]
    for k in rows:
        pairs = (measured[k], 1.0), (inside[k], -1.0)
        members += [(np.array([k]), np.flatnonzero(has), sign) for has, sign in pairs if has.any()]
    used = np.unique(np.concatenate([settings for _, settings, _ in members]))
    blocks = []
    for kernels, settings, sign in members:
        cells = np.ix_(kernels, np.concatenate([settings, settings + S]))
        index = np.searchsorted(used, settings)
        columns = np.concatenate([index, index + len(used)])
        blocks.append(Block(columns, z[cells], noise[cells].mean(axis=0), sign))
    return used, blocks


MOST_FURTHER = 8
"""The most kernels whose cells outside the largest block count: more take longer."""
ROUNDS, NEAR, STEPS = 6, 0.05, 12
"""The rounds, the step that ends them, and the search steps in each: with a fixed number of steps
the result is the same on every processor."""
WIDTHS = (1.0, 0.25)
"""Widths of the linearisation: over all likely devices, or a tangent. The more likely is used."""


def fitted_prior(
    mhz: np.ndarray, volts: np.ndarray | None, z: np.ndarray, noise: np.ndarray
) -> Prior:
    """Fit the prior: the population about the likeliest device, and the hyperparameters.

    ``mhz``: (S, 2); ``volts``: (S, 2) or None; ``z``: (K, 2S), NaN where not measured; ``noise``:
    variances of these. Linearisation and hyperparameters alternate (iterated posterior
    linearisation) until no number of the device moves by ``NEAR``.
    """
    S = len(mhz)
    z = z - levels(z, S)
    settings, blocks = blocks_of(z, noise)
    columns = np.concatenate([settings, settings + S])
    parts = Parts.of(mhz)
    fits, sizes = [], PRIOR[:, 0]
    for width in WIDTHS:
        physics = linearised(mhz, volts, width=width)
        for _ in range(ROUNDS):
            about = physics
            likelihood = Likelihood(parts.take(settings), _of(about, columns), blocks)
            likeliest, log_density = likelihood.most_likely(sizes, STEPS)
            sizes = rounded(likeliest, 4)
            theta, spread = likelihood.device(sizes)
            step = theta - physics.theta
            size = float(np.abs(step).max())
            if size < NEAR:
                break
            theta = rounded(physics.theta + step * min(1.0, 1.0 / size))
            physics = linearised(mhz, volts, theta, spread, width)
        fits.append((log_density, likelihood, about, sizes))
    _, likelihood, about, sizes = max(fits, key=lambda candidate: candidate[0])
    mean, likeliest = likelihood.mean_sizes(sizes)
    return Prior(parts, about, mean, np.exp(likeliest[COMMON][7:9]))


def _of(physics: Physics, columns: np.ndarray) -> Physics:
    """Return the linearised population at some of the columns."""
    square = np.ix_(columns, columns)
    return replace(
        physics,
        mean=physics.mean[columns],
        slopes=physics.slopes[columns],
        error=physics.error[square],
        kernel=physics.kernel[square],
    )
