"""Choi & Vuduc 2012, eqs. 9 to 12: known coefficients come back, as by numpy's least squares."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from analysis.measurements.observations import FitError, Observations, observations
from analysis.rooflines.regression import cache_energies, modelled_energy_j, regress
from dvfs.setting import Setting
from tests.analysis.platforms import PLATFORMS, from_peaks
from tests.analysis.simulated_tk1 import TABLE_I, simulated_columns, simulated_tk1
from tests.analysis.synthetic import numbered

# Choi & Vuduc 2012, Table 5, pJ per byte: L1 (on the GTX 680, shared memory) and L2.
CACHES = {"GTX 580": {"l1": 149.0, "l2": 257.0}, "GTX 680": {"shared": 51.0, "l2": 195.0}}
CACHE_RATE = {"l2": 4.0, "l1": 10.0, "shared": 10.0}
"""Bandwidth over that of memory: the times of the made-up cache kernels, nothing more."""
INTENSITIES = np.geomspace(0.125, 64.0, 10)


def pj(estimate):
    """An estimate's value in pJ."""
    return estimate.value * 1e12


def rows(name, kernels, noise=0.0):
    """Kernel -> counts on a printed platform, by eqs. 3 and 10 with tables 3 to 5."""
    sp, dp = (PLATFORMS[name, precision] for precision in ("sp", "dp"))
    caches = CACHES.get(name, {})
    eps_pj = {"sp": sp[2], "dp": dp[2], "dram": sp[3]} | caches
    rate = {"sp": sp[0] * 1e9, "dp": dp[0] * 1e9, "dram": sp[1] * 1e9}
    rate |= {level: CACHE_RATE[level] * sp[1] * 1e9 for level in caches}
    classes = sorted({c for counts in kernels.values() for c in counts} | {"dram"})
    # Intensity benchmarks reach a share of peak that depends on the kernel, so that times are
    # not exactly those of the roofline.
    reached = np.random.default_rng(3).uniform(0.7, 1.0, len(kernels))
    counts = {
        c: np.array([of_kernel.get(c, np.nan) for of_kernel in kernels.values()], float)
        for c in classes
    }
    n = {c: np.nan_to_num(values) for c, values in counts.items()}
    time_s = np.max([n[c] / rate.get(c, np.inf) for c in classes], axis=0) / reached
    energy_j = sp[4] * time_s + 1e-12 * sum(n[c] * eps_pj.get(c, 0.0) for c in classes)
    energy_j = energy_j * (1.0 + noise * np.random.default_rng(4).standard_normal(len(kernels)))
    one = np.ones(len(kernels))
    return Observations(
        site=name,
        simulated=False,
        **numbered(kernels),
        core_mhz=1000.0 * one,
        mem_mhz=np.nan * one,
        core_v=one,
        mem_v=one,
        time_s=time_s,
        energy_j=energy_j,
        counts=counts,
        domains={c: "mem" if c == "dram" else "core" for c in classes},
        voltage="unit",
        setting=np.zeros(len(kernels), np.int64),
        settings=[Setting(1000.0)],
    )


def intensity_kernels(precisions=("sp", "dp"), intensities=INTENSITIES):
    return {f"{p} {i:g}": {p: 1e9 * i, "dram": 1e9} for p in precisions for i in intensities}


@pytest.mark.parametrize("name", ["GTX 580", "GTX 680", "i7-950", "OMAP 4460", "i3-3217U"])
def test_table_4_and_the_posters_coefficients_come_back(name):
    sp, dp = (PLATFORMS[name, precision] for precision in ("sp", "dp"))
    regression = regress(rows(name, intensity_kernels()), 0)
    assert pj(regression.eps_sp_j) == pytest.approx(sp[2], rel=1e-6)
    assert pj(regression.eps_dp_j) == pytest.approx(dp[2], rel=1e-6)
    assert pj(regression.delta_dp_j) == pytest.approx(dp[2] - sp[2], rel=1e-6)
    assert pj(regression.eps_mem_j) == pytest.approx(sp[3], rel=1e-6)
    assert regression.constant_w.value == pytest.approx(sp[4], rel=1e-6)
    # Footnote 9: R^2 near unity at p-values below 1e-14.
    assert regression.r_squared == pytest.approx(1.0)
    assert (
        max(e.p_value for e in (regression.eps_sp_j, regression.eps_mem_j, regression.constant_w))
        < 1e-14
    )
    assert (regression.n, regression.memory) == (20, "dram")


def test_with_noise_it_is_numpys_least_squares_and_the_textbooks_intervals():
    data = rows("GTX 680", intensity_kernels(), noise=0.02)
    regression = regress(data, 0)
    sp, dp, dram = (np.nan_to_num(data.counts[c]) for c in ("sp", "dp", "dram"))
    work = sp + dp
    # In pJ and ps, of which W is the quotient.
    matrix = np.column_stack([np.ones(20), dram / work, 1e12 * data.time_s / work, dp > 0])
    target = 1e12 * data.energy_j / work
    value, residual, _, _ = np.linalg.lstsq(matrix, target)
    variance = residual[0] / (20 - 4)
    inverse = np.linalg.inv(matrix.T @ matrix)
    error = np.sqrt(variance * np.diag(inverse))
    reach = stats.t.ppf(0.975, 16) * error
    p_value = 2.0 * stats.t.sf(np.abs(value / error), 16)
    estimates = [
        regression.eps_sp_j,
        regression.eps_mem_j,
        regression.constant_w,
        regression.delta_dp_j,
    ]
    units = np.array([1e12, 1e12, 1.0, 1e12])
    assert [e.value for e in estimates] * units == pytest.approx(value, rel=1e-6)
    assert [e.low for e in estimates] * units == pytest.approx(value - reach, rel=1e-6)
    assert [e.high for e in estimates] * units == pytest.approx(value + reach, rel=1e-6)
    assert [e.p_value for e in estimates] == pytest.approx(p_value, rel=1e-4, abs=0.0)
    assert regression.r_squared == pytest.approx(
        1.0 - residual[0] / np.sum((target - target.mean()) ** 2)
    )
    # eps_dp = eps_sp + delta, its variance with their covariance.
    both = np.array([1.0, 0.0, 0.0, 1.0])
    half = stats.t.ppf(0.975, 16) * np.sqrt(variance * both @ inverse @ both)
    assert pj(regression.eps_dp_j) == pytest.approx(value[0] + value[3], rel=1e-6)
    assert regression.eps_dp_j.high * 1e12 - pj(regression.eps_dp_j) == pytest.approx(
        half, rel=1e-6
    )


def test_the_intervals_cover_the_truth_about_as_often_as_they_say():
    kernels = intensity_kernels()
    exact = rows("i7-950", kernels)
    covered = []
    for seed in range(60):
        draw = np.random.default_rng(seed)
        work = sum(np.nan_to_num(exact.counts[c]) for c in ("sp", "dp"))
        # Noise of one size in E / W, which is what least squares assumes.
        energy_j = exact.energy_j + work * 50e-12 * draw.standard_normal(len(exact))
        regression = regress(replace(exact, energy_j=energy_j), 0)
        covered.append(regression.constant_w.low <= 122.0 <= regression.constant_w.high)
    assert 52 <= sum(covered) <= 60


@pytest.mark.parametrize(("precision", "other"), [("sp", "dp"), ("dp", "sp")])
def test_one_precision_alone(precision, other):
    regression = regress(rows("GTX 580", intensity_kernels([precision])), 0)
    eps = {"sp": regression.eps_sp_j, "dp": regression.eps_dp_j}
    assert pj(eps[precision]) == pytest.approx(PLATFORMS["GTX 580", precision][2], rel=1e-6)
    assert eps[other] is None
    assert regression.delta_dp_j is None
    assert set(regression.eps_op_j) == {precision}


def test_its_energies_on_a_roofline():
    regression = regress(rows("GTX 580", intensity_kernels()), 0)
    line = from_peaks(*PLATFORMS["GTX 580", "dp"][:2], 0.0, 0.0, 0.0, operation="dp")
    placed = regression.on(line)
    assert placed.energy_balance == pytest.approx(2.420, rel=1e-3)
    assert placed.time_balance == line.time_balance
    with pytest.raises(FitError, match="int and dram"):
        regression.on(replace(line, operation="int"))


@pytest.mark.parametrize("name", CACHES)
def test_table_5_comes_back(name):
    """The pointer chase touches L2 alone, then L2 and the level inside it (eqs. 11 and 12)."""
    inner = next(level for level in CACHES[name] if level != "l2")
    kernels = intensity_kernels() | {
        "chase l2": {"sp": 1e7, "dram": 1e6, "l2": 1e9},
        "chase inner": {"sp": 1e7, "dram": 1e6, "l2": 1e7, inner: 1e9},
        "other": {"int": 1e9, "l2": 1e9},
    }
    data = rows(name, kernels)
    regression = regress(data, 0)
    caches = cache_energies(data, 0, regression)
    assert [cache.level for cache in caches] == ["l2", inner]
    for cache in caches:
        assert pj(cache.eps_j) == pytest.approx(CACHES[name][cache.level], rel=1e-6)
        assert np.isnan(cache.eps_j.p_value)
        assert cache.median_residual < 1e-9
    known = data.take(data.labels != "other")
    assert modelled_energy_j(known, regression, caches) == pytest.approx(known.energy_j)


def test_several_cache_kernels_and_how_well_they_agree():
    """With 2 % of noise: within section 4.3's median residual of 4 % on the GTX 580."""
    kernels = intensity_kernels() | {
        f"l2 {i:g}": {"sp": i * 1e9, "l2": 1e9} for i in (0.01, 0.1, 0.5, 1.0, 2.0)
    }
    data = rows("GTX 580", kernels, noise=0.02)
    regression = regress(rows("GTX 580", intensity_kernels()), 0)
    (l2,) = cache_energies(data, 0, regression)
    assert l2.eps_j.low < 257e-12 < l2.eps_j.high
    assert l2.median_residual < 0.04
    mine = data.take(np.array([k.startswith("l2") for k in data.labels]))
    left_j = mine.energy_j - modelled_energy_j(mine, regression)
    x, y = mine.counts["l2"] / mine.energy_j, left_j / mine.energy_j
    assert pj(l2.eps_j) == pytest.approx(1e12 * (x @ y) / (x @ x))


@pytest.fixture(scope="module")
def measured():
    """The simulated Jetson TK1 without noise, all settings."""
    return observations(simulated_columns("none", per_family=4), "tk1")


def test_the_constants_of_the_simulated_machine_at_a_setting(measured):
    """Its pJ/V^2 and V, Choi & Vuduc 2016, Table I; 6.8 W at 852/924 MHz."""
    assert TABLE_I[0] == (852, 924)
    setting = measured.settings.index(Setting(852.0, 924.0))
    here = measured.setting == setting
    core_v, mem_v = measured.core_v[here][0], measured.mem_v[here][0]
    truth = simulated_tk1("none").simulated.energy_pj_per_v2
    regression = regress(measured, setting)
    assert pj(regression.eps_sp_j) == pytest.approx(truth["sp"] * core_v**2, rel=1e-4)
    assert pj(regression.eps_dp_j) == pytest.approx(truth["dp"] * core_v**2, rel=1e-4)
    assert pj(regression.eps_mem_j) == pytest.approx(truth["dram"] * mem_v**2, rel=1e-4)
    assert regression.constant_w.value == pytest.approx(6.8, abs=0.05)
    caches = cache_energies(measured, setting, regression)
    assert {c.level: pj(c.eps_j) for c in caches} == pytest.approx(
        {level: truth[level] * core_v**2 for level in ("l2", "shared")}, rel=1e-3
    )


def test_rows_that_cant_carry_it_are_refused_with_a_remedy(measured):
    setting = measured.settings.index(Setting(852.0, 924.0))
    dram = np.nan_to_num(measured.counts["dram"])
    flops = np.nan_to_num(measured.counts["sp"])
    with pytest.raises(FitError, match=r"fitted to 0 measurements; .*kernels of sp or dp"):
        regress(measured, setting, "l3")
    few = measured.take(
        np.flatnonzero((flops > 0) & (dram > 0) & (measured.setting == setting))[:2]
    )
    with pytest.raises(FitError, match=r"the 3 coefficients .* fitted to 2 measurements"):
        regress(few, setting)


def test_memory_bound_kernels_alone_cannot_separate_bytes_from_time():
    data = rows("GTX 580", intensity_kernels(["sp"], np.geomspace(0.01, 1.0, 9)))
    exact = replace(data, time_s=np.nan_to_num(data.counts["dram"]) / 192.4e9)
    with pytest.raises(FitError, match="below and well above the time balance"):
        regress(exact, 0)


def test_a_site_that_counts_nothing_has_no_caches_either():
    regression = regress(rows("i7-950", intensity_kernels()), 0)
    bare = replace(rows("i7-950", {"k": {}}), counts={})
    assert cache_energies(bare, 0, regression) == []
    with pytest.raises(FitError, match="0 measurements"):
        regress(bare, 0)
