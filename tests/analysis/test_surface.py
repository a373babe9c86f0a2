"""The surface against Gaussian processes written out densely, and on residuals that are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import special
from scipy.stats import multivariate_normal

from analysis.energy.fit import fit
from analysis.energy.surface import (
    NOISES,
    REACHES,
    Surface,
    clock_distance,
    fit_surface,
    matern,
)
from analysis.measurements.observations import Observations
from tests.analysis.synthetic import grid_observations

CORE_MHZ = (400.0, 520.0, 640.0, 760.0, 880.0, 1000.0)
MEM_MHZ = (500.0, 700.0, 900.0)
GRID = np.array([(c, m) for c in CORE_MHZ for m in MEM_MHZ])
BETWEEN = np.array([(580.0, 600.0), (400.0, 500.0), (950.0, 850.0)])


def scaled(mhz: np.ndarray) -> np.ndarray:
    """Log clocks, 0 at the grid's lowest and 1 at its highest."""
    low, high = np.log([400.0, 500.0]), np.log([1000.0, 900.0])
    return (np.log(mhz) - low) / (high - low)


def kernel_matrix(one: np.ndarray, other: np.ndarray, reach: float) -> np.ndarray:
    """The Gaussian covariance of unit size, entry by entry."""
    matrix = np.empty((len(one), len(other)))
    for i, a in enumerate(scaled(one)):
        for j, b in enumerate(scaled(other)):
            matrix[i, j] = np.exp(-((a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2) / (2 * reach**2))
    return matrix


def posterior(
    at: np.ndarray, seen: np.ndarray, wanted: np.ndarray, shape: tuple[float, float]
) -> tuple[np.ndarray, np.ndarray]:
    """Rasmussen and Williams, eq. 2.23 and 2.24, with the inverse: mean and unit covariance."""
    reach, noise = shape
    inverse = np.linalg.inv(kernel_matrix(at, at, reach) + noise * np.eye(len(at)))
    towards = kernel_matrix(wanted, at, reach)
    covariance = kernel_matrix(wanted, wanted, reach) - towards @ inverse @ towards.T
    return towards @ inverse @ seen, covariance


def made(seed: int = 0, kernels: int = 4) -> Surface:
    rng = np.random.default_rng(seed)
    residual = rng.normal(0, 0.05, (len(GRID), kernels))
    names = [f"kernel-{i}" for i in range(kernels)]
    return Surface(GRID, names, residual, (0.6, 0.03), (0.3, 0.1))


def test_the_surface_is_the_posterior_mean_of_two_gaussian_processes():
    surface = made()
    shared, own = surface.at_settings(BETWEEN)
    mean = surface.residual.mean(axis=1)
    expected, _ = posterior(GRID, mean, BETWEEN, surface.shape)
    np.testing.assert_allclose(shared, expected, rtol=1e-8)
    for k in range(4):
        expected, _ = posterior(GRID, surface.residual[:, k] - mean, BETWEEN, surface.own_shape)
        np.testing.assert_allclose(own[:, k], expected, rtol=1e-8, atol=1e-12)


def test_neighbouring_settings_have_the_more_in_common_the_nearer_their_log_clocks():
    """The distance by hand, a domain's measured range being one; Matérn's correlation of any order
    is written with a Bessel function."""
    mhz = np.array([[400.0, 500.0], [800.0, 500.0], [1600.0, 2000.0]])
    logs = np.log(mhz)
    by_hand = [[np.hypot(*(one - other)) / np.log(4) for other in logs] for one in logs]
    far = clock_distance(mhz, mhz, mhz)
    np.testing.assert_allclose(far, by_hand)
    for reach in (0.5, 2.0):
        x = np.maximum(np.sqrt(2 * 1.5) * far / reach, 1e-8)  # K has no value at 0
        by_bessel = 2**-0.5 / special.gamma(1.5) * x**1.5 * special.kv(1.5, x)
        np.testing.assert_allclose(matern(far, reach), by_bessel, rtol=1e-10)


def test_a_clock_that_was_measured_at_one_value_has_its_logarithm_for_a_unit():
    measured = np.array([[400.0, 900.0], [800.0, 900.0]])
    wanted = np.array([[400.0, 450.0], [800.0, 900.0 * np.e]])
    far = clock_distance(measured, wanted, measured)
    np.testing.assert_allclose(far[0], [np.log(2.0), np.hypot(1.0, 1.0)])


def test_the_shapes_are_the_likeliest_of_all_that_are_tried():
    """Against scipy's density of the normal distribution, its size at the best for each pair."""
    rng = np.random.default_rng(4)
    smooth = np.linalg.cholesky(kernel_matrix(GRID, GRID, 0.6) + 1e-9 * np.eye(len(GRID)))
    residual = 0.05 * smooth @ rng.normal(size=(len(GRID), 5)) + rng.normal(0, 0.01, (18, 5))
    data = observations_of(residual)
    surface = fit_surface(data, np.ones(len(data)))
    shapes = (surface.shape, surface.own_shape)
    mean = residual.mean(axis=1)
    for shape, values in zip(shapes, (mean[:, None], residual - mean[:, None]), strict=True):
        density = {}
        for reach in REACHES:
            for noise in NOISES:
                held = kernel_matrix(GRID, GRID, reach) + noise * np.eye(len(GRID))
                size = np.mean([v @ np.linalg.solve(held, v) / len(v) for v in values.T])
                normal = multivariate_normal(np.zeros(len(GRID)), size * held)
                density[reach, noise] = sum(normal.logpdf(v) for v in values.T)
        assert shape == max(density, key=density.get)


def observations_of(residual: np.ndarray) -> Observations:
    """Rows whose energy is 1 J but for a residual (settings, kernels); kernels are numbers."""
    size = residual.shape
    data = grid_observations(0, kernels=size[1], core_mhz=CORE_MHZ, mem_mhz=MEM_MHZ)
    kernel = np.array([name.removeprefix("kernel-") for name in data.kernel], object)
    energy_j = 1 + residual[data.setting, kernel.astype(int)]
    return replace(data, kernel=kernel, energy_j=energy_j)


def test_far_from_every_measured_setting_nothing_is_added():
    surface = made(2)
    far = np.array([(4e5, 500.0), (400.0, 9e5)])
    shared, own = surface.at_settings(far)
    assert np.abs(shared).max() < 1e-12
    assert np.abs(own).max() < 1e-12


def test_kernels_measured_at_different_settings_have_processes_of_their_own():
    surface = made(3, kernels=5)
    residual = surface.residual.copy()
    residual[:5, 0] = np.nan
    residual[9:, 1] = np.nan
    residual[::2, 2] = np.nan
    surface = replace(surface, residual=residual)
    shared, own = surface.at_settings(BETWEEN)
    mean = np.array([np.mean([v for v in row if v == v]) for row in residual])
    expected, _ = posterior(GRID, mean, BETWEEN, surface.shape)
    np.testing.assert_allclose(shared, expected, rtol=1e-8)
    for k in range(5):
        there = np.flatnonzero(~np.isnan(residual[:, k]))
        seen = residual[there, k] - mean[there]
        expected, _ = posterior(GRID[there], seen, BETWEEN, surface.own_shape)
        np.testing.assert_allclose(own[:, k], expected, rtol=1e-8, atol=1e-12)


def test_a_kernel_that_was_never_measured_has_the_shared_surface_alone():
    surface = replace(made(5), kernels=["kernel-0", "kernel-1", "elsewhere", "nowhere"])
    data = grid_observations(0, kernels=3, core_mhz=CORE_MHZ, mem_mhz=MEM_MHZ)
    shared, own = surface.at_settings(GRID)
    log_factor = surface.at(data)
    for i in range(len(data)):
        expected = shared[data.setting[i]]
        if data.kernel[i] != "kernel-2":
            expected += own[data.setting[i], surface.kernels.index(data.kernel[i])]
        assert log_factor[i] == pytest.approx(expected, abs=1e-12)


def bent(data: Observations) -> Observations:
    """With a smooth 8 % that no term of the model has: a hump in the middle of the core clocks."""
    hump = np.exp(-(((np.log(data.core_mhz / 640.0)) / 0.25) ** 2))
    return replace(data, energy_j=data.energy_j * (1 + 0.08 * hump))


def test_a_smooth_discrepancy_is_predicted_at_settings_left_out():
    data = bent(grid_observations(1, kernels=12, core_mhz=CORE_MHZ, mem_mhz=MEM_MHZ, noise=0.005))
    error_pct = {"choi+clock": [], "choi+clock+surface": []}
    for core_mhz in CORE_MHZ[1:-1]:
        out = (data.core_mhz == core_mhz) & (data.mem_mhz == 700.0)
        held_out = data.take(out)
        for model, errors in error_pct.items():
            fitted = fit(data.take(~out), model, "known", intervals=False)
            errors += list(np.abs(fitted.energy_j(held_out) / held_out.energy_j - 1) * 100)
    plain, surface = (float(np.mean(errors)) for errors in error_pct.values())
    assert surface < 1.0
    assert surface < 0.4 * plain


def test_white_noise_leaves_next_to_no_surface():
    """At settings left out it adds less than a third of the noise, over several seeds."""
    ratio, shapes = [], []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        residual = rng.normal(0, 0.02, (len(GRID), 10))
        data = observations_of(residual)
        surface = fit_surface(data, np.ones(len(data)))
        shared, own = surface.at_settings(BETWEEN)
        ratio.append(np.sqrt(np.mean((shared[:, None] + own) ** 2)) / 0.02)
        shapes.append(surface.own_shape[1])
    assert np.median(ratio) < 1 / 3
    assert np.median(shapes) >= 1.0


def test_too_few_settings_have_no_surface():
    data = grid_observations(0, core_mhz=(400.0, 1000.0))
    assert fit_surface(data, data.energy_j) is None


def test_repeats_are_averaged_before_anything_is_smoothed():
    data = grid_observations(2, kernels=3, core_mhz=CORE_MHZ, repeats=2, noise=0.05)
    surface = fit_surface(data, np.ones(len(data)))
    for s, setting in enumerate(data.settings):
        assert tuple(surface.mhz[s]) == setting.clocks
        for k, kernel in enumerate(surface.kernels):
            mine = (data.setting == s) & (data.kernel == kernel)
            assert surface.residual[s, k] == pytest.approx(data.energy_j[mine].mean() - 1)
