"""The one model against dense matrices, refits and truths that are drawn from it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis.predict import conditioning, kernel_mixture
from analysis.predict.conditioning import condition
from analysis.predict.covariance import (
    OWN,
    PRIOR,
    Likelihood,
    Parts,
    Prior,
    blocks_of,
    complete_block,
    levels,
)
from analysis.predict.population import (
    DEVICE_KERNELS,
    DEVICE_NUMBERS,
    DEVICES,
    KERNEL_NUMBERS,
    even_normals,
    linearised,
    simulate,
    sobol_points,
    voltage_curve,
)
from analysis.predict.posterior import Posterior
from analysis.predict.site import CellLogs

MHZ = np.array([[core, mem] for mem in (400.0, 900.0) for core in (200.0, 350.0, 500.0, 800.0)])
S = len(MHZ)
JITTER = 1e-7


def prior(log_nu: float = np.log(8.0)) -> Prior:
    """The population with the sizes that are likeliest before anything is measured."""
    sizes = PRIOR[:, 0].copy()
    sizes[20] = log_nu
    return Prior(Parts.of(MHZ), linearised(MHZ, None, width=0.25), sizes)


def drawn(of: Prior, kernels: int, rng: np.random.Generator) -> np.ndarray:
    """Kernels (K, 2S) of a device of the prior, its Sigma drawn from the inverse Wishart."""
    from scipy.stats import invwishart

    sigma0, m = of.covariances()
    d = len(sigma0)
    sigma = invwishart.rvs(of.nu + d + 1, of.nu * sigma0, random_state=rng)
    mu = rng.multivariate_normal(of.physics.mean, m, method="cholesky")
    return rng.multivariate_normal(mu, sigma, kernels, method="cholesky")


def measured(kernels: int = 12, seed: int = 0) -> np.ndarray:
    """Simulated kernels of one device outside the linearisation, with rough errors of 1 %."""
    rng = np.random.default_rng(seed)
    theta = 0.7 * rng.standard_normal(DEVICE_NUMBERS)
    z = simulate(MHZ, None, theta, rng.standard_normal((kernels, KERNEL_NUMBERS)))
    return z + 0.01 * rng.standard_normal(z.shape)


def only(z: np.ndarray, known: np.ndarray) -> np.ndarray:
    """The cells ``known``, bool (K, S), of z (K, 2S)."""
    return np.where(np.hstack([known, known]), z, np.nan)


def test_slopes_of_the_marginal_likelihood_are_finite_differences() -> None:
    """Of kernels with settings of their own too."""
    z, rng = measured(), np.random.default_rng(6)
    known = rng.random((12, S)) < 0.3
    known[:8, [1, 6]] = True
    noise = np.tile(np.linspace(1e-5, 1e-4, 2 * S), (12, 1))
    settings, blocks = blocks_of(only(z, known), noise)
    assert len(blocks) > 3
    likelihood = Likelihood(Parts.of(MHZ).take(settings), linearised(MHZ[settings], None), blocks)
    at = PRIOR[:, 0] + 0.2 * np.random.default_rng(1).standard_normal(len(PRIOR))
    _, slopes = likelihood(at)
    for i in range(len(at)):
        step = np.zeros(len(at))
        step[i] = 1e-5
        numeric = (likelihood(at + step)[0] - likelihood(at - step)[0]) / 2e-5
        assert slopes[i] == pytest.approx(numeric, rel=1e-3, abs=1e-3)


def test_the_likelihood_of_kernels_by_themselves_is_by_dense_matrices() -> None:
    """Three kernels know settings 0 and 5; one of them two more, and a fourth one 2, 3 and 5."""
    from scipy.stats import multivariate_normal

    z, of = measured(4), prior()
    known = np.zeros((4, S), bool)
    known[:3, [0, 5]] = True
    known[1, [1, 7]] = True
    known[3, [2, 3, 5]] = True
    settings, blocks = blocks_of(only(z, known), np.full(z.shape, 1e-4))
    sigma0, m = of.covariances()
    dense = m + sigma0 + 1e-4 * np.eye(2 * S)

    def log_p(kernel: int, at: list[int]) -> float:
        columns = np.concatenate([at, np.add(at, S)])
        square = dense[np.ix_(columns, columns)]
        away = z[kernel, columns] - of.physics.mean[columns]
        # without the constant of the normal distribution
        return multivariate_normal.logpdf(away, cov=square) + len(columns) / 2 * np.log(2 * np.pi)

    expected = log_p(1, [0, 1, 5, 7]) - log_p(1, [0, 5]) + log_p(3, [2, 3, 5]) - log_p(3, [5])
    assert settings.tolist() == [0, 1, 2, 3, 5, 7]
    some = of.take(settings)
    values = (
        Likelihood(some.parts, some.physics, blocks)(of.sizes)[0],
        Likelihood(some.parts, some.physics, blocks[:1])(of.sizes)[0],
    )
    assert values[1] - values[0] == pytest.approx(expected, rel=1e-6)


def test_conditioning_is_that_of_one_dense_matrix(monkeypatch) -> None:
    monkeypatch.setattr(conditioning, "scales", _no_scales)
    rng = np.random.default_rng(2)
    z = measured(4)
    known = rng.random((4, S)) < 0.5
    known[0] = True
    noise = np.full(z.shape, 1e-4)
    given = condition(prior(), only(z, known), noise)
    # the same with all kernels in one vector, Sigma as it was found
    _, m = given.prior.covariances()
    d = 2 * S
    cov = np.kron(np.ones((4, 4)), m + JITTER * np.eye(d)) + np.kron(np.eye(4), given.sigma)
    mean = np.tile(given.prior.physics.mean + levels(only(z, known), S), 4)
    seen = np.flatnonzero(np.hstack([known, known]).ravel())
    held = cov[np.ix_(seen, seen)] + (1e-4 + JITTER) * np.eye(len(seen))
    gain = np.linalg.solve(held, cov[seen]).T
    expected = mean + gain @ (z.ravel()[seen] - mean[seen])
    left = cov - gain @ cov[seen]
    np.testing.assert_allclose(given.mean.ravel(), expected, atol=1e-5)
    for i, pattern in enumerate(given.patterns):
        for k in pattern.kernels:
            block = left[k * d : (k + 1) * d, k * d : (k + 1) * d]
            np.testing.assert_allclose(sum(given.covariances(i)), block, atol=2e-6)


def _no_scales(nu, sigma0, sigma, away, cov_mu, found):
    """No kernel is more unusual than another."""
    return [np.ones(len(pattern.kernels)) for pattern in found], [100.0] * len(found)


def test_sigma_of_complete_kernels_is_its_posterior_mean() -> None:
    z = measured(30)
    given = condition(prior(), z, np.zeros_like(z))
    sigma0, _ = given.prior.covariances()
    away = z - z.mean(axis=0)
    expected = (given.prior.nu * sigma0 + away.T @ away) / (given.prior.nu + 29)
    np.testing.assert_allclose(given.sigma, expected, atol=5e-3 * np.abs(expected).max())


def test_a_setting_left_out_is_that_of_the_block_formulas_of_an_inverse_wishart() -> None:
    """Where all kernels were measured at all settings but one, with Q = Sigma0^-1: the kernels'
    cells there follow the others by B = -Q_ss^-1 Q_so, and the mean by its own prior."""
    z = measured(20)
    posterior = Posterior.conditioned(prior(), z, np.zeros_like(z))
    sigma0, m = posterior.conditional.prior.covariances()
    q = np.linalg.inv(sigma0)
    mean0 = prior().physics.mean + levels(z, S)
    for s in (0, 3, 6):
        at = np.array([s, s + S])
        o = np.setdiff1d(np.arange(2 * S), at)
        b = -np.linalg.solve(q[np.ix_(at, at)], q[np.ix_(at, o)])
        away = z[:, o] - z[:, o].mean(axis=0)
        scatter = away.T @ away
        sigma_oo = (8.0 * sigma0[np.ix_(o, o)] + scatter) / (8.0 + 19)
        towards = m[:, o] @ np.linalg.inv(m[np.ix_(o, o)] + sigma_oo / 20)
        mu = mean0 + towards @ (z[:, o].mean(axis=0) - mean0[o])
        expected = mu[at] + (z[:, o] - mu[o]) @ b.T
        left_out = np.zeros(z.shape, bool)
        left_out[:, at] = True
        without = posterior.without(left_out)
        np.testing.assert_allclose(without.log_s[:, s], expected[:, 0], atol=2e-3)
        np.testing.assert_allclose(without.log_j[:, s], expected.sum(axis=1), atol=2e-3)


def test_order_of_kernels_and_settings_does_not_matter() -> None:
    z, rng = measured(10), np.random.default_rng(3)
    known = np.zeros((10, S), bool)
    known[:, [0, 3, 5, 7]] = True
    known[:3] = True
    kernels, settings = rng.permutation(10), rng.permutation(S)
    both = np.concatenate([settings, settings + S])
    one = Posterior.of(MHZ, only(z, known))
    other = Posterior.of(MHZ[settings], only(z, known)[kernels][:, both])
    for a, b in ((one.log_j, other.log_j), (one.energy_variances(), other.energy_variances())):
        np.testing.assert_allclose(a[kernels][:, settings], b, atol=1e-3)


def test_cells_known_with_certainty_say_the_same_as_complete_ones(monkeypatch) -> None:
    """A kernel whose last setting is measured with boundless noise is one without it."""
    monkeypatch.setattr(conditioning, "NEAR", 1e-6)
    monkeypatch.setattr(conditioning, "ROUNDS", 500)
    z = measured(8)
    known = np.ones((8, S), bool)
    known[2:, 4] = False
    noise = np.where(np.hstack([known, known]), 0.0, 1e6)
    ragged = condition(prior(), only(z, known), np.zeros_like(z))
    complete = condition(prior(), z, noise)
    np.testing.assert_allclose(ragged.mean, complete.mean, atol=2e-3)
    assert complete_block(known)[0].tolist() == list(range(8))


def test_intervals_hold_truths_drawn_from_the_prior() -> None:
    """500 devices of 10 kernels, half of the settings measured; sizes known, Sigma not."""
    rng, of = np.random.default_rng(4), prior()
    held = []
    for _ in range(500):
        z = drawn(of, 10, rng)
        known = np.zeros((10, S), bool)
        known[:, rng.choice(S, 4, replace=False)] = True
        posterior = Posterior.conditioned(of, only(z, known), None)
        truth = z[:, :S] + z[:, S:]
        held.append((np.abs(truth - posterior.log_j) <= posterior.energy_reach())[~known].mean())
    assert np.mean(held) == pytest.approx(0.95, abs=0.02)


def test_draws_have_the_moments_of_the_posterior() -> None:
    z = measured(6)
    known = np.zeros((6, S), bool)
    known[:, [1, 4, 7]] = True
    posterior = Posterior.conditioned(prior(), only(z, known), np.full(z.shape, 1e-8))
    deviation = np.sqrt(posterior.energy_variances())
    for k, log_j, log_s in posterior.draws():
        np.testing.assert_allclose(log_j.mean(axis=1), posterior.log_j[k], atol=0.02)
        np.testing.assert_allclose(log_s.mean(axis=1), posterior.log_s[k], atol=0.02)
        np.testing.assert_allclose(log_j.std(axis=1), deviation[k], rtol=0.15, atol=2e-3)
        np.testing.assert_allclose(log_j[known[k]].std(axis=1), 0.0, atol=2e-3)


def test_mixture_of_kernels_knows_two_kinds() -> None:
    """Kernels of two kinds, told from the power at one setting: a normal distribution cannot."""
    rng = np.random.default_rng(7)
    phi = np.array([[3.0, 0, 1, 2, 0], [-3.0, 0, 1, -2, 0]])
    kinds = simulate(MHZ, None, np.zeros(DEVICE_NUMBERS), phi)
    kind = np.arange(40) % 2
    z = kinds[kind] + 0.01 * rng.standard_normal((40, 2 * S))
    known = np.ones((40, S), bool)
    known[:4, 1:] = False
    given = condition(prior(), only(z, known), np.zeros_like(z))
    pattern = next(p for p in given.patterns if 0 in p.kernels)
    mixed, left_out = kernel_mixture.mixture(given, pattern)
    assert left_out is not None
    np.testing.assert_allclose(left_out.log_means[:, :S], left_out.true[:, :S], atol=0.1)
    assert mixed is not None
    same_kind = kind[4:] == kind[:4, None]
    assert ((mixed.weights * same_kind).sum(axis=1) > 0.99).all()


def test_a_kernel_left_out_is_predicted_as_if_it_were_not_there() -> None:
    """By the normal distribution: the regression of Sigma without the kernel, by brute force."""
    z = measured(60)
    known = np.ones((61, S), bool)
    known[60, 2:] = False
    given = condition(prior(), only(np.vstack([z, z[:1]]), known), np.zeros((61, 2 * S)))
    pattern = next(p for p in given.patterns if 60 in p.kernels)
    d = z - given.mu
    found = kernel_mixture.left_out_by_sigma(given, d, pattern, 1.0)
    o = pattern.columns
    for j in (0, 17, 40):
        others = np.delete(z, j, axis=0)
        away = others - others.mean(axis=0)
        sigma0, _ = given.prior.covariances()
        sigma = (given.prior.nu * sigma0 + away.T @ away) / (given.prior.nu + 58)
        gain = np.linalg.solve(sigma[np.ix_(o, o)], sigma[o]).T
        expected = others.mean(axis=0) + gain @ (z[j] - others.mean(axis=0))[o]
        energy = expected[:S] + expected[S:] - (given.mu[:S] + given.mu[S:])
        np.testing.assert_allclose(found.expected[j, j, :S], energy, atol=0.02)


def test_what_was_measured_once_is_as_sure_as_said() -> None:
    """Truths whose rough part is real by 90 and 15 % (times, powers), the rest is noise: their
    intervals hold them."""
    rng, of = np.random.default_rng(9), prior()
    sizes = of.sizes.copy()
    sizes[OWN][7:9] = 2.0 * np.log([0.01, 0.03])
    of = replace(of, sizes=sizes)
    noise = np.sqrt(np.repeat([0.1, 0.85], S) * np.repeat(of.rough, S))
    real = of.sizes.copy()
    real[OWN][7:9] += np.log([0.9, 0.15])
    held, nearer = [], []
    for _ in range(200):
        truth = drawn(replace(of, sizes=real), 10, rng)
        seen = truth + noise * rng.standard_normal(truth.shape)
        posterior = Posterior.conditioned(of, seen, None)
        true, measured_j = (z[:, :S] + z[:, S:] for z in (truth, seen))
        held.append((np.abs(true - posterior.log_j) <= posterior.energy_reach()).mean())
        nearer.append(np.std(true - posterior.log_j) / np.std(true - measured_j))
    assert np.mean(held) == pytest.approx(0.95, abs=0.02)
    assert np.mean(nearer) < 0.9


def test_repeats_are_means_and_their_variance() -> None:
    kernel, setting = np.array([0, 0, 0, 1, 1]), np.array([0, 0, 1, 0, 0])
    log_s, log_w = np.array([1.0, 1.2, 3.0, 0.5, 0.5]), np.array([2.0, 2.0, 2.0, 1.0, 1.4])
    cells = CellLogs(2 * kernel + setting, (2, 2), log_s, log_w)
    (mean_s, mean_w), n = cells.sums.means(), cells.sums.repeats
    assert mean_s[0, 0] == pytest.approx(1.1)
    assert mean_w[1, 0] == pytest.approx(1.2)
    assert n.tolist() == [[2, 1], [2, 0]]
    assert np.isnan(mean_s[1, 1])
    # Two repeats apart by d add d^2 / 2 in one of two degrees of freedom.
    assert cells.noise() == pytest.approx((0.04 / 4, 0.16 / 4, (0.04 + 0.16) / 4))


def test_noise_draws_a_measured_energy_towards_the_model() -> None:
    z = measured(10)
    z[0, S + 2] += 0.3
    quiet = condition(prior(), z, np.zeros_like(z))
    noisy = condition(prior(), z, np.full_like(z, 0.05**2))
    assert quiet.mean[0, S + 2] == pytest.approx(z[0, S + 2], abs=1e-3)
    assert noisy.mean[0, S + 2] < z[0, S + 2] - 0.05


@pytest.mark.parametrize("dimensions", [DEVICE_NUMBERS, KERNEL_NUMBERS])
@pytest.mark.parametrize("n", [1, 16, 32])
def test_points_of_sobols_sequence_are_those_of_scipy(n, dimensions) -> None:
    from scipy.stats.qmc import Sobol

    own = Sobol(dimensions, scramble=False).random(n)
    np.testing.assert_array_equal(sobol_points(n, dimensions), own)


@pytest.mark.parametrize(
    ("n", "dimensions"), [(DEVICES, DEVICE_NUMBERS), (DEVICE_KERNELS, KERNEL_NUMBERS), (64, 7)]
)
def test_evenly_spread_numbers_are_standard_normal(n, dimensions) -> None:
    unit = even_normals(n, dimensions)
    np.testing.assert_allclose(unit.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(unit.T @ unit / n, np.eye(dimensions), atol=1e-12)


def test_sizes_of_the_parts_are_found_again() -> None:
    """A rough power of 5 % in many kernels is found to be one."""
    of = prior(np.log(100.0))
    sizes = of.sizes.copy()
    sizes[OWN][8] = 2 * np.log(0.05)
    of = replace(of, sizes=sizes)
    z = drawn(of, 200, np.random.default_rng(8))
    _, blocks = blocks_of(z, np.zeros_like(z))
    found, _ = Likelihood(of.parts, of.physics, blocks).most_likely(PRIOR[:, 0])
    assert np.exp(found[OWN][8] / 2) == pytest.approx(0.05, rel=0.1)


ONE_CLOCK = np.column_stack([np.linspace(600.0, 3000.0, 17), np.full(17, 1.0)])


def phone(volts: np.ndarray) -> np.ndarray:
    """Log times and log powers, (1, 34), of one kernel bound by the core at one clock domain, as on
    a phone: 5 % of the power is constant, 10 % leaks."""
    f = ONE_CLOCK[:, 0] / 3000.0
    power = 0.05 + 0.1 * volts + 0.85 * volts**2 * f
    return np.concatenate([-np.log(f), np.log(power)])[None]


def test_a_voltage_that_rises_smoothly_leaves_no_dip_between_measured_clocks() -> None:
    """With V = 0.5 + 0.5 f^2 the energy rises with the clock: no clock between two measured ones is
    expected to take less than the lower one, by more than the truth does by 3 %."""
    f = ONE_CLOCK[:, 0] / 3000.0
    z = phone(0.5 + 0.5 * f**2)
    true = z[0, :17] + z[0, 17:]
    known = np.tile(np.isin(np.arange(17), [4, 11, 14, 15, 16]), 2)
    found = Posterior.of(ONE_CLOCK, np.where(known, z, np.nan)).log_j[0]
    np.testing.assert_allclose(found[4:], true[4:], atol=0.05)
    assert found[5:12].min() > found[4] - 0.03


def test_a_power_that_jumps_is_not_taken_for_noise() -> None:
    """Of a kernel measured once everywhere, whose powers jump by 20 %, the clock of the least
    measured energy is the pick."""
    z = phone(np.full(17, 1.0))
    z[0, 17:] += 0.2 * np.random.default_rng(4).standard_normal(17)
    measured_j = z[0, :17] + z[0, 17:]
    found = Posterior.of(ONE_CLOCK, z)
    (_, log_j, _) = next(found.draws())
    loss = np.exp(log_j - log_j.min(axis=0)).mean(axis=1)
    assert np.argmin(loss) == np.argmin(measured_j)
    np.testing.assert_allclose(found.log_j[0], measured_j, atol=0.05)


def test_times_that_all_kernels_share_at_a_setting_are_not_taken_for_noise() -> None:
    """Of 20 kernels that all run 15 % faster or slower at each clock than its name says, measured
    once at most clocks, the measured energies stand."""
    rng, S = np.random.default_rng(1), 10
    mhz = np.column_stack([np.linspace(400.0, 1400.0, S), np.ones(S)])
    device = 0.3 * rng.standard_normal(DEVICE_NUMBERS)
    z = simulate(mhz, None, device, 0.5 * rng.standard_normal((20, KERNEL_NUMBERS)))
    z[:, :S] -= 0.15 * rng.standard_normal(S)
    known = np.ones((20, S), bool)
    known[:, [1, 2, 8]] = rng.random((20, 3)) < 0.4
    found = Posterior.of(mhz, only(z, known)).log_j
    measured_j = z[:, :S] + z[:, S:]
    np.testing.assert_allclose(found[known], measured_j[known], atol=0.005)


def test_a_voltage_curve_is_flat_below_a_sharp_knee_and_bends_without_one() -> None:
    mhz, start, fall = np.linspace(500.0, 1000.0, 101), np.array(0.0), np.array(0.5)
    sharp = voltage_curve(mhz, start, fall, np.array(9.0))
    smooth = voltage_curve(mhz, start, fall, np.array(-9.0))
    # knee: 0.5 + 0.3 * 0.5 = 0.65; it falls by Phi(0.5) (1 - 0.65) to there
    straight = 1.0 - 0.69146 * np.minimum((1.0 - mhz / 1000.0), 0.35)
    np.testing.assert_allclose(sharp, straight, atol=0.005)
    x = (1.0 - mhz / 1000.0) / 0.35
    np.testing.assert_allclose(smooth, 1.0 - 0.69146 * 0.35 * x / (1.0 + x), atol=1e-4)
