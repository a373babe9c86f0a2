"""What a model lacks, against boards that were made to lack it, and refits made by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis.choice.candidates import all_candidates
from analysis.energy.discrepancy import beyond_measured, share_beside, shrunk
from analysis.energy.fit import fit
from analysis.energy.out_of_fold import kept_settings
from analysis.energy.refits import jackknife_deviations
from analysis.measurements.observations import Observations, kernel_names
from analysis.time.kernel_roofline import fit_time
from analysis.time.refits import refit_times
from dvfs.setting import Setting
from tests.analysis.synthetic import grid_observations

CORE_MHZ = tuple(np.linspace(400.0, 1000.0, 9))
MEM_MHZ = (500.0, 600.0, 700.0, 800.0, 900.0)


def board(
    seed: int, kernel: float, setting: float, own: float, noise: float, repeats: int = 2
) -> Observations:
    """45 settings, 24 kernels: each effect normal, of the standard deviation given."""
    rng = np.random.default_rng(seed)
    data = grid_observations(
        seed, kernels=24, repeats=repeats, core_mhz=CORE_MHZ, mem_mhz=MEM_MHZ, clock_tree=False
    )
    names = kernel_names(data)
    k = np.array([names.index(name) for name in data.kernel])
    size = (len(data.settings), len(names))
    away = rng.normal(0, kernel, size[1])[k] + rng.normal(0, setting, size[0])[data.setting]
    away += rng.normal(0, own, size)[data.setting, k] + rng.normal(0, noise, len(data))
    return replace(data, energy_j=data.energy_j * np.exp(away))


def test_the_four_variances_come_back():
    made = {"kernel": 0.05, "setting": 0.02, "own": 0.04}
    fitted = [
        fit(board(seed, **made, noise=0.03), "choi", "known").discrepancy for seed in range(3)
    ]
    for name, std in made.items():
        variance = np.mean([getattr(one, name) for one in fitted])
        expected = std**2 + (0.03**2 / 2 if name == "own" else 0.0)
        # Of a kernel's own effect the coefficients take up a part: they are shared by 24.
        assert variance == pytest.approx(expected, rel=0.45 if name == "kernel" else 0.2)
    noise = np.mean([list(one.noise.values()) for one in fitted])
    assert noise == pytest.approx(0.03**2, rel=0.1)


def test_what_neighbouring_settings_have_in_common_is_not_taken_for_what_is_each_ones_own():
    rough = {}
    for common in (False, True):
        data = board(3, 0.0, 0.0, 0.002, 0.0, repeats=1)
        logs = np.log(data.mhz)
        unit = (logs - logs.min(axis=0)) / np.ptp(logs, axis=0)
        apart = np.linalg.norm(unit[:, None] - unit[None], axis=2)
        smooth = (1.0 + np.sqrt(3) * apart) * np.exp(-np.sqrt(3) * apart)
        covariance = smooth if common else np.eye(len(unit))
        effect = 0.03 * np.linalg.cholesky(covariance) @ np.random.default_rng(1).normal(size=45)
        shaped = replace(data, energy_j=data.energy_j * np.exp(effect)[data.setting])
        rough[common] = fit(shaped, "choi", "known").discrepancy.rough
    assert rough[True] <= 0.1
    assert rough[False] >= 0.6


def test_every_setting_is_left_out_in_half_of_the_refits():
    for n in (8, 9, 31):
        kept = kept_settings(n)
        assert (kept.sum(axis=0) * 2 == len(kept)).all()
        assert set(kept.sum(axis=1)) <= {n // 2, n - n // 2}
    np.testing.assert_array_equal(kept_settings(3), ~np.eye(3, dtype=bool))


@pytest.mark.parametrize("counted", [1.0, 0.5])
def test_a_board_that_is_the_model_lacks_nothing(counted):
    """Also where half of the kernels have no counts, and coefficients of their own instead."""
    exact = board(0, 0.0, 0.0, 0.0, 0.0)
    if counted < 1:
        exact = grid_observations(4, counted=counted, repeats=2, clock_tree=False)
    lacks = fit(exact, "choi", "known").discrepancy
    assert max(lacks.kernel, lacks.setting, lacks.own, *lacks.noise.values()) < 1e-10


def test_without_repeats_there_is_no_noise_to_know():
    lacks = fit(board(0, 0.0, 0.02, 0.02, 0.02, repeats=1), "choi", "known").discrepancy
    assert lacks.noise == {}


def test_a_kernel_that_the_model_fits_worse_has_a_larger_variance():
    data = board(1, 0.0, 0.0, 0.02, 0.0, repeats=1)
    rng = np.random.default_rng(5)
    worse = data.kernel == "kernel-3"
    energy_j = data.energy_j * np.where(worse, np.exp(rng.normal(0, 0.1, len(data))), 1.0)
    scale = fit(replace(data, energy_j=energy_j), "choi", "known").discrepancy.scale
    assert max(scale, key=scale.get) == "kernel-3"
    others = [value for name, value in scale.items() if name != "kernel-3"]
    assert scale["kernel-3"] > 8 * np.median(others)


@pytest.mark.parametrize("voltage", ["known", "free"])
def test_a_refit_is_the_fit_without_a_setting(voltage):
    """Coefficients and curve together, against fits made anew; where the curve is estimated, the
    searches end within its tolerance."""
    data = grid_observations(
        4, kernels=10, noise=0.02, known_voltage=voltage == "known", clock_tree=False
    )
    fitted = fit(data, "choi", voltage)
    joules = fitted.refits.energy_j(data, fitted.voltage, fitted.terms)
    for s in range(len(data.settings)):
        alone = fit(data.take(data.setting != s), "choi", voltage, intervals=False)
        np.testing.assert_allclose(
            joules[s], alone.energy_j(data), rtol=1e-6 if s and voltage == "known" else 5e-3
        )
    deviation = jackknife_deviations(np.log(joules))
    logs = np.log(joules)
    n = len(logs)
    by_hand = (n - 1) / n * sum(np.outer(x, x) for x in logs - logs.mean(axis=0))
    np.testing.assert_allclose(deviation.T @ deviation, by_hand, atol=1e-15)


def test_mean_squares_of_equal_variances_are_drawn_to_their_mean():
    rng = np.random.default_rng(0)
    n = np.full(200, 10)
    alike = (rng.normal(size=(200, 10)) ** 2).mean(axis=1)
    assert np.std(shrunk(alike, n)) < 0.3 * np.std(alike)
    different = alike * np.where(np.arange(200) % 2, 4.0, 0.25)
    factor = shrunk(different, n)
    assert np.median(factor[1::2]) > 5 * np.median(factor[::2])
    assert shrunk(np.array([3.0]), np.array([5])).tolist() == [1.0]


def test_the_share_beside_a_known_variance_is_what_is_missing():
    rng = np.random.default_rng(1)
    known = rng.uniform(0.1, 2.0, 4000)
    square = rng.normal(0, np.sqrt(known + 0.5)) ** 2
    assert share_beside(square, known, np.full(4000, 1.0)) == pytest.approx(0.5, abs=0.08)


def test_predicted_times_are_as_unsure_as_they_are_off():
    """Times of an exponent of 4 with noise of 2 %: what the refits miss them by, out of fold."""
    data = grid_observations(7, kernels=12, core_mhz=CORE_MHZ, mem_mhz=MEM_MHZ)
    rng = np.random.default_rng(2)
    names = kernel_names(data)
    a, b = (
        dict(zip(names, rng.uniform(0.3, 1.0, len(names)), strict=True)) for _domain in range(2)
    )
    core = np.array([a[name] for name in data.kernel]) * 1000.0 / data.core_mhz
    mem = np.array([b[name] for name in data.kernel]) * 900.0 / data.mem_mhz
    exact = replace(data, time_s=(core**4 + mem**4) ** 0.25)
    noisy = replace(exact, time_s=exact.time_s * np.exp(rng.normal(0, 0.02, len(data))))
    wanted = np.array([450.0, 950.0]), np.array([550.0, 850.0])
    refits = refit_times(noisy, fit_time(noisy), names, *wanted)
    assert np.mean(list(refits.variance.values())) == pytest.approx(0.02**2, rel=0.25)
    refits = refit_times(exact, fit_time(exact), names, *wanted)
    assert max(refits.variance.values()) < 1e-10
    assert max(np.abs(deviation).max() for deviation in refits.deviation.values()) < 1e-5
    assert all(deviation.shape == (45, 2) for deviation in refits.deviation.values())


def test_how_far_settings_lie_beyond_the_other_measured_ones():
    mhz = np.array(
        [[250.0, 800.0], [500.0, 800.0], [1000.0, 800.0], [1000.0, 400.0], [4000.0, 1.0]]
    )
    measured = np.array([False, True, True, True, False])
    core_below, core_above, mem_below, mem_above = np.exp(beyond_measured(mhz, measured, "floor"))
    np.testing.assert_allclose(core_below, [2, 2, 1, 1, 1])
    np.testing.assert_allclose(core_above, [1, 1, 1, 1, 4])  # two are measured at 1,000 MHz
    np.testing.assert_allclose(mem_below, [1, 1, 1, 2, 400])
    np.testing.assert_allclose(mem_above, 1)
    for known in ("known", "measured", "table"):
        assert not beyond_measured(mhz, measured, known).any()
    mhz[:, 1] = np.nan
    assert not beyond_measured(mhz, measured, "unit")[2:].any()


def without_voltages() -> Observations:
    """A board whose energies are exactly those of V = 1, with core and memory joules alone."""
    data = grid_observations(3, kernels=6, known_voltage=False, clock_tree=False)
    core_j, mem_j = (sum(data.counts[name] * pj for name, pj in of) for of in CLASSES)
    return replace(data, energy_j=(core_j + mem_j) * 1e-12)


CLASSES = [("sp", 20.0), ("int", 45.0)], [("dram", 300.0)]


def test_beyond_the_measured_clocks_an_unknown_voltage_makes_energy_less_sure():
    """In closed form for the model: the core's share of the joules, times the distance in log
    clock. Other predictions, which differ from the model's, make it no surer."""
    data = without_voltages()
    fitted = fit(data, "choi", "unit")
    beyond = dict.fromkeys([Setting(2000.0, 900.0), Setting(4000.0, 900.0)], (1.0, 1.0))
    averaged = all_candidates(fitted, data, volts=beyond)
    for kernel, among in all_candidates(fitted, data, volts=beyond, averaged=False).items():
        mine = np.flatnonzero(data.kernel == kernel)[0]
        core_j, mem_j = (sum(data.counts[n][mine] * pj for n, pj in of) for of in CLASSES)
        logs = np.log(among.energy_draws_j)
        std = logs.std(axis=1)
        for setting, far in zip(beyond, (np.log(2), np.log(4)), strict=True):
            expected = far * core_j / (core_j + mem_j)
            assert std[among.settings.index(setting)] == pytest.approx(expected, rel=0.08)
        std_of_average = np.log(averaged[kernel].energy_draws_j).std(axis=1)
        assert (std_of_average > 0.99 * std)[~among.measured].all()  # elsewhere it is rounding
        assert max(std[among.measured].max(), std_of_average[among.measured].max()) < 1e-3
        stated = replace(data, voltage="table")
        known = all_candidates(fit(stated, "choi", "known"), stated, [kernel], beyond)[kernel]
        assert np.log(known.energy_draws_j).std(axis=1).max() < 1e-3
        for one in (among, averaged[kernel]):
            np.testing.assert_allclose(one.energy_j, (core_j + mem_j) * 1e-12, rtol=1e-3)


def test_errors_at_the_ends_are_not_taken_for_those_between():
    """Ends 15 % off, as of an unknown voltage, and 1 % between: between is not all the same."""
    data = grid_observations(
        2, kernels=1, counted=0.0, core_mhz=tuple(np.geomspace(300, 1500, 9)), mem_mhz=(800.0,)
    )
    rng = np.random.default_rng(0)
    energy_j = 5.0 * np.exp(rng.normal(0, 0.01, 9)) * np.where(np.arange(9) % 8, 1.0, 1.15)
    flat = replace(data, energy_j=energy_j, core_v=np.ones(9), mem_v=np.ones(9), voltage="unit")
    unknown = fit(flat, "choi", "unit").discrepancy
    stated = fit(replace(flat, voltage="table"), "choi", "known").discrepancy
    assert unknown.setting < 0.3 * stated.setting
    # So the ends are held to their own measurements, and are no less sure than the others.
    (among,) = all_candidates(fit(flat, "choi", "unit"), flat).values()
    np.testing.assert_allclose(among.energy_j[[0, -1]], energy_j[[0, -1]], rtol=0.01)
    assert np.log(among.energy_draws_j).std(axis=1).max() < 0.03
