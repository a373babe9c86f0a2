"""What physics lacks, and how large each part is.

A kernel's log times and log powers at S settings are ``z_k = mu + d_k``, (2S,), with

    mu  ~ N(mean, M),      M      = e^b0 common + sum_j e^bj C_j + levels
    d_k ~ N(0, Sigma),     Sigma ~ inverse Wishart(nu + 2S + 1, nu Sigma0)
                           Sigma0 = e^a0 kernel + sum_i e^ai C_i

``common`` and ``kernel`` are the population's (:mod:`analysis.predict.population`). The parts C
are smooth over log clocks (Matern 3/2), depend on one clock alone, are each setting's, or are
levels; of times and of powers. A time that is longer than physics knows why lowers the power by
``slower`` times as much: the same operations in a longer time.

The sizes a and b, ``nu``, ``slower`` and the reach of what is smooth are those of the largest
posterior density. The likelihood is that of a block of kernels and settings that was measured
completely (a matrix t for the kernels' differences, a normal distribution for their mean). It is
multiplied by the likelihood of the further cells of a few kernels, each by itself and given its
cells in the block.
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
"""Variance of each cell of a kernel's own that is always there: 0.03 %."""
REAL_SHARE = np.array([0.9, 0.15])
"""Shares of the rough variances of times and of powers that are taken as real where no repeats show
the noise; the rest is taken as noise. They hold for single cells and for what all kernels share at
a setting. Times are measured well. With the share of powers ``P(best)`` agrees with how often picks
are the best on simulated boards, whether their settings differ or the campaign erred at each."""
MOST_NOISE = np.array([0.01, 0.05])
"""The largest standard deviations of that noise, of times and of powers: a larger part is real.
Where all kernels are 5 % faster than they should be, the clock is not what its name says."""
LEVEL = 100.0
"""Variance of the level of all times, and of all powers: not known."""
SMOOTH, CORE, MEM, ROUGH = range(4)
# In this order: physics; smooth, core, memory and rough, each of time and of power; and of kernels
# alone the levels of time and of power.
OWN_SD = np.array([1.0, 0.06, 0.04, 0.003, 0.003, 0.005, 0.01, 0.004, 0.015, 2.0, 0.2])
OWN_SPREAD = np.array([0.3, *[1.5] * 6, 3.0, 2.5, 1.0, 2.0])
COMMON_SD = np.array([1.0, 0.025, 0.05, 0.005, 0.006, 0.01, 0.01, 0.002, 0.006])
COMMON_SPREAD = np.array([0.3, *[1.5] * 6, 3.0, 2.5])
"""Standard deviations of the parts before anything is measured, and deviations of the logarithms of
their variances: about what was found on five kinds of processors measured everywhere (two GPUs,
the Cortex-A15 of an ODROID-XU3 with two suites, and phones)."""
SHAPE = np.array([[np.log(3.0), 1.1], [0.5, 0.35], [np.log(2.0), 0.5]])
"""Mean and deviation, before anything is measured, of log nu, ``slower`` and the log reach."""
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
    """What the parts C of S settings are made of: the ``distance`` between settings, (S, S), and
    for each clock whether it is the ``same``, (2, S, S)."""

    distance: np.ndarray
    same: np.ndarray

    @classmethod
    def of(cls, mhz: np.ndarray) -> Parts:
        """Of the clocks ``mhz`` (S, 2), whose logarithms are scaled to span 1."""
        logs = np.log(mhz)
        at = (logs - logs.min(axis=0)) / np.maximum(np.ptp(logs, axis=0), 1e-12)
        same = np.array([(clock[:, None] == clock).astype(float) for clock in mhz.T])
        # Of one clock, a part that depends on it alone is a level or rough: left out.
        if min(len(np.unique(clock)) for clock in mhz.T) == 1:
            same = np.zeros_like(same)
        return cls(np.sqrt(((at[:, None] - at) ** 2).sum(axis=2)), same)

    def take(self, settings: np.ndarray) -> Parts:
        """Those of some settings."""
        return Parts(
            self.distance[np.ix_(settings, settings)], self.same[:, settings[:, None], settings]
        )

    def matrices(self, log_reach: float) -> tuple[np.ndarray, np.ndarray]:
        """The parts C, (4, S, S): smooth, of the core clock, of the memory clock, rough; and the
        smooth one's slope by the log reach."""
        x = np.sqrt(3.0) * self.distance * np.exp(-log_reach)
        smooth = (1.0 + x) * np.exp(-x)
        return np.array([smooth, *self.same, np.eye(len(x))]), x**2 * np.exp(-x)


@dataclass(frozen=True)
class Prior:
    """The distribution of kernels at a site's settings; ``sizes`` (23,): in the order of
    :data:`PRIOR`. ``common_rough`` (2,): the likeliest variances of what all kernels have in common
    at a setting, of log times and log powers; the mean ones, in ``sizes``, are much larger where
    few settings show them, and would make noise of what all kernels agree on (None: the mean ones).
    ``features`` (F,): variances of what else is known of kernels, which is thought to have nothing
    to do with times and powers until kernels show it. ``more`` (2S, 2S): a further covariance of
    what kernels share, None for 0."""

    parts: Parts
    physics: Physics
    sizes: np.ndarray
    common_rough: np.ndarray | None = None
    features: np.ndarray = field(default_factory=lambda: np.zeros(0))
    more: np.ndarray | None = None

    def take(self, settings: np.ndarray) -> Prior:
        """That of some settings."""
        columns = np.concatenate([settings, settings + len(self.parts.distance)])
        more = None if self.more is None else self.more[np.ix_(columns, columns)]
        physics = _of(self.physics, columns)
        return replace(self, parts=self.parts.take(settings), physics=physics, more=more)

    @property
    def nu(self) -> float:
        return float(np.exp(self.sizes[20]))

    @property
    def mean(self) -> np.ndarray:
        """Of what kernels share, (2S + F,)."""
        return np.concatenate([self.physics.mean, np.zeros(len(self.features))])

    @property
    def rough(self) -> np.ndarray:
        """Variances of what is each cell's own: of a log time, and of a log power without what
        follows from the time's, (2,)."""
        return np.asarray(np.exp(self.sizes[OWN][7:9]))

    @property
    def lacking(self) -> np.ndarray:
        """What Sigma0 has of what physics lacks, (2S + F, 2S + F)."""
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
        """The parts of these variances that are taken as noise of a measurement where no repeats
        show it, (2,)."""
        return _noise(self.rough)

    @property
    def common_noise(self) -> np.ndarray:
        """The same of what all kernels have in common at a setting, (2,)."""
        rough = self.common_rough
        return _noise(np.exp(self.sizes[COMMON][7:9]) if rough is None else rough)

    def without_noise(self) -> Prior:
        """With what is each cell's own less its noise."""
        sizes = self.sizes.copy()
        sizes[OWN][7:9] = np.log(self.rough - self.noise)
        return replace(self, sizes=sizes)

    def covariances(self) -> tuple[np.ndarray, np.ndarray]:
        """Sigma0 and M, (2S + F, 2S + F)."""
        parts, _ = self.parts.matrices(self.sizes[22])
        return self.covariances_of(parts)

    def covariances_of(self, parts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The same, of the parts C, (4, S, S)."""
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
    """The covariance of the parts C and of levels: times first, powers then; ``sizes`` (8,): time,
    power, time, ..."""
    S = parts.shape[1]
    time, power = (sizes.reshape(4, 2).T @ parts.reshape(4, -1)).reshape(2, S, S)
    both = np.empty((2 * S, 2 * S))
    both[:S, :S] = time + level_time
    both[:S, S:] = both[S:, :S] = -slower * time
    both[S:, S:] = slower**2 * time + power + level_power
    return both


def _gradients(
    g: np.ndarray, sizes: np.ndarray, parts: np.ndarray, slower: float, bend: np.ndarray
) -> tuple[np.ndarray, float, float]:
    """Slopes by log sizes (8,), ``slower`` and the log reach, from those by the covariance."""
    S = parts.shape[1]
    tt, tw, ww = g[:S, :S], g[:S, S:] + g[S:, :S].T, g[S:, S:]
    of_time = tt - slower * tw + slower**2 * ww
    of_slower = 2.0 * slower * ww - tw
    at = parts.reshape(4, -1) @ np.column_stack([of_time.ravel(), ww.ravel(), of_slower.ravel()])
    by = sizes * at[:, :2].ravel()
    by_reach = float(np.vdot(bend, sizes[0] * of_time + sizes[1] * ww))
    return by, float(sizes[0::2] @ at[:, 2]), by_reach


class Block:
    """K kernels that were all measured at the same settings: ``columns`` (D,) of ``z`` (K, D), with
    ``noise`` (D,), variances of measurements. Their density counts ``sign`` times."""

    def __init__(
        self, columns: np.ndarray, z: np.ndarray, noise: np.ndarray, sign: float = 1.0
    ) -> None:
        self.columns, self.noise, self.sign = columns, noise, sign
        self.square = np.ix_(columns, columns)
        self.k = len(z)
        self.mean = z.mean(axis=0)
        away = z - self.mean
        self.scatter = away.T @ away

    def spread_of_mean(
        self, nu: float, sigma0: np.ndarray, m: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Sigma0 with noise, ``nu`` times that with the scatter, and the covariance of the mean."""
        sigma0 = sigma0[self.square] + np.diag(self.noise)
        total = nu * sigma0 + self.scatter
        return sigma0, total, m[self.square] + total / ((nu + self.k - 1) * self.k)

    def log_density(
        self, nu: float, sigma0: np.ndarray, m: np.ndarray, mean: np.ndarray
    ) -> tuple[float, np.ndarray, np.ndarray, float]:
        """The log density of the kernels, and its slopes by Sigma0, M and ``nu``.

        With n = K - 1 and the scatter W about the kernels' mean y, this is the density of W's
        matrix t and N(y; mean, M + (nu Sigma0 + W) / ((nu + n) K)).
        """
        sigma0, total, big = self.spread_of_mean(nu, sigma0, m)
        n, d = self.k - 1, len(sigma0)
        away = self.mean - mean[self.columns]
        root = np.linalg.cholesky(big)
        inverse = _inverse(root)
        alpha = inverse @ away
        value = -0.5 * (away @ alpha) - _half_log_det(root)
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
    """Minus the log posterior density of the sizes, by ``blocks`` of the settings of ``parts``."""

    parts: Parts
    physics: Physics
    blocks: Sequence[Block]

    def __call__(self, sizes: np.ndarray) -> tuple[float, np.ndarray]:
        """The value and its slopes by the sizes."""
        prior = Prior(self.parts, self.physics, sizes)
        parts, bend = self.parts.matrices(sizes[22])
        sigma0, m = prior.covariances_of(parts)
        by_sigma0, by_m = np.zeros_like(sigma0), np.zeros_like(m)
        value = by_nu = 0.0
        for block in self.blocks:
            of = block.log_density(prior.nu, sigma0, m, self.physics.mean)
            value += block.sign * of[0]
            by_sigma0[block.square] += block.sign * of[1]
            by_m[block.square] += block.sign * of[2]
            by_nu += block.sign * of[3]
        of_kernel, common = np.exp(sizes[OWN]), np.exp(sizes[COMMON])
        slopes = np.zeros(len(sizes))
        for at, g, sizes_of, physical in (
            (OWN.start, by_sigma0, of_kernel, self.physics.kernel),
            (COMMON.start, by_m, common, self.physics.common),
        ):
            slopes[at] = sizes_of[0] * float(np.vdot(g, physical))
            by, by_slower, by_reach = _gradients(g, sizes_of[1:9], parts, sizes[21], bend)
            slopes[at + 1 : at + 9] = by
            slopes[21] += by_slower
            slopes[22] += by_reach
        S = len(parts[0])
        slopes[9] = of_kernel[9] * float(by_sigma0[:S, :S].sum())
        slopes[10] = of_kernel[10] * float(by_sigma0[S:, S:].sum())
        slopes[20] = by_nu * prior.nu
        from_prior = (sizes - PRIOR[:, 0]) / PRIOR[:, 1]
        value -= 0.5 * float(from_prior @ from_prior)
        return -value, -(slopes - from_prior / PRIOR[:, 1])

    def device(self, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The mean and covariance of the device's numbers by the linear model and the first
        block, (15,) and (15, 15)."""
        prior, block = Prior(self.parts, self.physics, sizes), self.blocks[0]
        _, _, big = block.spread_of_mean(prior.nu, *prior.covariances())
        slopes = np.exp(0.5 * sizes[COMMON.start]) * self.physics.slopes[block.columns]
        gain = np.linalg.solve(big, slopes).T
        mean = gain @ (block.mean - self.physics.mean[block.columns])
        spread = np.eye(DEVICE_NUMBERS) - gain @ slopes
        return mean, 0.5 * (spread + spread.T)

    def most_likely(self, start: np.ndarray, steps: int = 500) -> tuple[np.ndarray, float]:
        """The sizes of the largest posterior density, found from ``start`` in at most so many
        ``steps``; its logarithm."""
        found = minimize(
            self, start, jac=True, method="L-BFGS-B",
            bounds=list(zip(LOWEST, HIGHEST, strict=True)),
            options={"maxiter": steps, "ftol": 1e-7},
        )  # fmt: skip
        return found.x, -float(found.fun)

    def mean_sizes(self, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The likeliest sizes, near ``sizes``, moved so that each part has its mean variance: that
        of a log-normal distribution, by the curvature (Laplace), at most the prior's width. And
        the likeliest ones.

        Where the search ends depends on the processor: Newton's steps end there on any.
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
    """To a twentieth, finer than they are known, or to another part: the same on every processor,
    where a search ends a little elsewhere."""
    return np.round(parts * numbers) / parts


def levels(z: np.ndarray, settings: int) -> np.ndarray:
    """The mean of all times, and of all powers, of z (K, 2S + F), at their columns, and 0 for the
    rest. About these the levels are not known, whatever the units."""
    at = np.zeros(z.shape[1])
    for first in (0, settings):
        at[first : first + settings] = np.nanmean(z[:, first : first + settings])
    return at


def _half_log_det(root: np.ndarray) -> float:
    return float(np.log(root.diagonal()).sum())


def _inverse(root: np.ndarray) -> np.ndarray:
    lower, _ = dpotri(root, lower=True)
    return np.asarray(lower + np.tril(lower, -1).T)


def complete_block(known: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The kernels and the settings of the largest block of ``known``, bool (K, S), in which all is
    known, among those of one kernel's settings and those that many kernels have."""
    often = known.mean(axis=0)
    rows = np.unique(known, axis=0)
    tried = [*rows[np.argsort(-rows.sum(axis=1), kind="stable")][:50]]
    tried += [often >= share for share in (1.0, 0.8, 0.5)]
    best = None
    for among in tried:
        if not among.any():
            continue
        kernels = np.flatnonzero(known[:, among].all(axis=1))
        if best is None or len(kernels) * among.sum() > best[0]:
            best = len(kernels) * among.sum(), kernels, np.flatnonzero(among)
    if best is None:
        raise ValueError("no kernel was measured at any setting")
    return best[1], best[2]


def blocks_of(z: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, list[Block]]:
    """The settings of all blocks, whose columns these have, and the blocks of ``z`` (K, 2S).

    First the largest block. Then two for each of the kernels that were measured at most settings
    outside it: with all its cells, and with its cells in the first block, by which it is divided.
    """
    S = z.shape[1] // 2
    known = np.isfinite(z[:, :S]) & np.isfinite(z[:, S:])
    kernels, settings = complete_block(known)
    inside = np.zeros_like(known)
    inside[:, settings] = known[:, settings]
    more = (known & ~inside).sum(axis=1)
    rows = [k for k in np.argsort(-more, kind="stable")[:MOST_FURTHER].tolist() if more[k]]
    taken = [(kernels, settings, 1.0)]
    for k in rows:
        pairs = (known[k], 1.0), (inside[k], -1.0)
        taken += [(np.array([k]), np.flatnonzero(of), sign) for of, sign in pairs if of.any()]
    among = np.unique(np.concatenate([of for _, of, _ in taken]))
    blocks = []
    for of, at, sign in taken:
        cells = np.ix_(of, np.concatenate([at, at + S]))
        place = np.searchsorted(among, at)
        columns = np.concatenate([place, place + len(among)])
        blocks.append(Block(columns, z[cells], noise[cells].mean(axis=0), sign))
    return among, blocks


MOST_FURTHER = 8
"""The most kernels whose cells outside the largest block count: more take longer."""
ROUNDS, NEAR, STEPS = 6, 0.05, 12
"""Of the turns, and of the search in each: a fixed number ends at the same place everywhere."""
WIDTHS = (1.0, 0.25)
"""Of the linearisation: over all likely devices, or a tangent. The more likely is taken."""


def fitted_prior(
    mhz: np.ndarray, volts: np.ndarray | None, z: np.ndarray, noise: np.ndarray
) -> Prior:
    """The population about the likeliest device, and the likeliest sizes of what it lacks.

    ``mhz``: (S, 2); ``volts``: (S, 2) or None; ``z``: (K, 2S), NaN where not measured; ``noise``:
    variances of these. Linearisation and sizes take turns (iterated posterior linearisation)
    until no number of the device moves by ``NEAR``.
    """
    S = len(mhz)
    z = z - levels(z, S)
    settings, blocks = blocks_of(z, noise)
    columns = np.concatenate([settings, settings + S])
    parts = Parts.of(mhz)
    found, sizes = [], PRIOR[:, 0]
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
        found.append((log_density, likelihood, about, sizes))
    _, likelihood, about, sizes = max(found, key=lambda one: one[0])
    mean, likeliest = likelihood.mean_sizes(sizes)
    return Prior(parts, about, mean, np.exp(likeliest[COMMON][7:9]))


def _of(physics: Physics, columns: np.ndarray) -> Physics:
    """The same at some of the columns."""
    square = np.ix_(columns, columns)
    return replace(
        physics,
        mean=physics.mean[columns],
        slopes=physics.slopes[columns],
        rest=physics.rest[square],
        kernel=physics.kernel[square],
    )
