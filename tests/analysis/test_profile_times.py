"""Times of a profiled kernel, against machines whose scaling is known in closed form."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis.choice.candidates import profile_candidates
from analysis.energy.fit import fit
from analysis.measurements.observations import Observations
from analysis.time.class_roofline import fit_class_roofline
from analysis.time.held_out_rooflines import ProfiledRun, fit_held_out
from analysis.time.profile_times import profile_times
from dvfs.setting import Setting, clock_columns
from tests.analysis.synthetic import grid_observations
from tests.analysis.test_few_settings import MHZ, measured, scaled

TOP = 7
"""The setting of the highest clocks."""


def counted(log_s: np.ndarray, counts: dict[str, np.ndarray]) -> Observations:
    """Kernels with these log times (K, 8) and counts (K,)."""
    data = measured(log_s, np.full(len(log_s), 60.0))
    number = np.array([int(label[7:]) for label in data.kernel])
    return replace(
        data,
        counts={name: values[number] for name, values in counts.items()},
        domains={name: "mem" if name == "dram" else "core" for name in counts},
    )


def two_ceilings(seed: int, kernels: int, noise: float = 0.0) -> tuple[Observations, np.ndarray]:
    """A machine of 1e9 sp/s and 1e9 dram/s that overlap with an exponent of 8, and log times
    (K, 8): the class roofline's own law, but for the noise."""
    rng = np.random.default_rng(seed)
    busy_s = rng.dirichlet([1.0, 1.0], kernels) * np.exp(rng.normal(size=(kernels, 1)))
    log_s = scaled(np.column_stack([busy_s, np.zeros(kernels)]), 8.0)
    log_s = log_s + noise * rng.normal(size=(kernels, 8))
    return counted(log_s, {"sp": 1e9 * busy_s[:, 0], "dram": 1e9 * busy_s[:, 1]}), log_s


def misleading(kernels: int = 15, noise: float = 0.0) -> tuple[Observations, np.ndarray]:
    """Kernels of sp that the core paces, of int that the memory paces, and of dp that no clock
    does, in turn: a roofline in which the core's clock paces all three has some of them wrong."""
    rng = np.random.default_rng(3)
    kind = np.arange(kernels) % 3
    log_s = scaled(np.array([[0.9, 0.05, 0.05], [0.05, 0.9, 0.05], [0.05, 0.05, 0.9]])[kind])
    log_s = log_s + rng.normal(size=(kernels, 1))
    many = 1e9 * rng.uniform(0.5, 1.0, kernels) * np.exp(log_s[:, TOP])
    names = ("sp", "int", "dp")
    counts = {name: np.where(kind == i, many, many / 50) for i, name in enumerate(names)}
    log_s = log_s + noise * rng.normal(size=log_s.shape)
    return counted(log_s, counts), log_s


def profiled(data: Observations, label: str, setting: int = TOP) -> ProfiledRun:
    row = np.flatnonzero((data.kernel == label) & (data.setting == setting))[0]
    counts = {name: float(values[row]) for name, values in data.counts.items()}
    return ProfiledRun(counts, float(data.time_s[row]), data.settings[setting])


def predicted(data: Observations, label: str, setting: int = TOP):
    others = data.take(data.kernel != label)
    return profile_times(others, profiled(data, label, setting), *MHZ.T)


@pytest.mark.parametrize("setting", [TOP, 2])
def test_a_machine_of_ceilings_is_predicted_from_counts(setting):
    data, log_s = two_ceilings(4, 16)
    times = predicted(data, "kernel-5", setting)
    np.testing.assert_allclose(times.time_s, np.exp(log_s[5]), rtol=0.05)
    assert times.error_pct < 3.0


def test_kernels_with_like_rates_are_followed_where_the_class_roofline_is_wrong():
    data, log_s = misleading()
    by_counts, stacked = [], []
    for label in ("kernel-3", "kernel-4", "kernel-5"):
        run, true = profiled(data, label), log_s[int(label[7:])]
        roofline = fit_class_roofline(data.take(data.kernel != label))
        by_counts.append(run.log_s(roofline, *MHZ.T) - true)
        stacked.append(np.log(predicted(data, label).time_s) - true)
    assert np.abs(by_counts).max() > 0.2
    assert np.abs(stacked).max() < 0.05


def test_the_class_roofline_stays_where_the_others_are_no_better():
    """Its law is the machine's: noise alone does not make the other predictions worth it."""
    data, _ = two_ceilings(6, 16, noise=0.02)
    others, run = data.take(data.kernel != "kernel-2"), profiled(data, "kernel-2")
    alone = np.exp(run.log_s(fit_class_roofline(others), *MHZ.T))
    np.testing.assert_allclose(profile_times(others, run, *MHZ.T).time_s, alone, rtol=1e-12)


def test_the_stated_error_is_that_of_the_noise():
    """Both the profiled time and the one predicted have normal errors of 0.03: their difference
    is off by 0.03 sqrt(2) sqrt(2 / pi) on average."""
    data, _ = two_ceilings(8, 40, noise=0.03)
    expected = 100 * 0.03 * np.sqrt(2) * np.sqrt(2 / np.pi)
    assert predicted(data, "kernel-0").error_pct == pytest.approx(expected, rel=0.25)


@pytest.mark.parametrize("made", [two_ceilings(0, 24, noise=0.05), misleading(24, noise=0.03)])
def test_predicted_times_are_as_sure_as_they_say(made):
    data, log_s = made
    inside = []
    for i in range(0, 24, 4):
        times = predicted(data, f"kernel-{i}")
        std = np.sqrt((times.root**2).sum(axis=0))
        assert std[TOP] == 0.0
        away = np.abs(np.log(times.time_s) - log_s[i])[:TOP]
        inside += (away < 1.96 * std[:TOP]).tolist()
    assert 0.85 <= np.mean(inside) <= 1.0
    assert std[:TOP].max() < 0.2


@pytest.mark.parametrize(("kernels", "setting"), [(5, TOP), (6, TOP), (12, None)])
def test_too_few_kernels_to_try_leave_the_class_roofline_alone(kernels, setting):
    """Of 5 or 6 kernels none can be left out, and none was measured at 700/700 MHz."""
    data, _ = two_ceilings(1, kernels)
    run = profiled(data, "kernel-0")
    if setting is None:
        run = replace(run, setting=Setting(700.0, 700.0))
    times = profile_times(data, run, *MHZ.T)
    roofline = fit_class_roofline(data)
    np.testing.assert_allclose(times.time_s, np.exp(run.log_s(roofline, *MHZ.T)))
    spread = np.where((np.array(run.setting.clocks) == MHZ).all(axis=1), 0.0, roofline.spread)
    np.testing.assert_allclose(np.sqrt((times.root**2).sum(axis=0)), spread)
    assert np.isnan(times.error_pct)


def test_a_kernel_is_left_out_of_the_roofline_that_predicts_it():
    """Ruin a kernel's times: the roofline that it is predicted by stays."""
    data, _ = two_ceilings(2, 12, noise=0.02)
    mine = data.kernel == "kernel-3"
    ruined = replace(data, time_s=np.where(mine, data.time_s[::-1], data.time_s))
    one, other = (fit_held_out(d, fit_class_roofline(d)).without for d in (data, ruined))
    assert set(one) == set(data.kernel)
    assert one["kernel-3"] == other["kernel-3"]
    assert sum(one[label] != other[label] for label in one) >= 6


def test_kernels_without_counts_are_not_learned_from():
    data, _ = two_ceilings(5, 14, noise=0.02)
    bare = data.kernel == "kernel-1"
    counts = {name: np.where(bare, np.nan, values) for name, values in data.counts.items()}
    rest = data.take(~bare)
    run = profiled(data, "kernel-0")
    one = profile_times(replace(data, counts=counts), run, *MHZ.T)
    np.testing.assert_allclose(one.time_s, profile_times(rest, run, *MHZ.T).time_s)


def test_the_draws_of_a_profiles_times_are_as_unsure_as_the_others_errors():
    data = grid_observations(7, kernels=14, noise=0.02)
    others = data.take(data.kernel != "kernel-6")
    run = profiled(data, "kernel-6", 6)
    among = profile_candidates(
        fit(others, "choi", "known"),
        others,
        "new",
        counts=run.counts,
        measured_s=run.time_s,
        measured_at=run.setting,
    )
    times = profile_times(others, run, *clock_columns(among.settings).T)
    stated = np.sqrt((times.root**2).sum(axis=0))
    assert stated.max() > 0.0
    np.testing.assert_allclose(among.time_s, times.time_s)
    np.testing.assert_allclose(np.log(among.time_draws_s).std(axis=1), stated, rtol=0.15, atol=1e-6)
    assert among.time_error_pct == times.error_pct


def test_a_profile_at_a_setting_that_few_others_were_measured_at_is_left_to_the_class_roofline():
    """Of 14 kernels four were measured where it was profiled, and one more would do."""
    data, _ = two_ceilings(5, 14, noise=0.02)
    run = profiled(data, "kernel-0", 2)

    def times(others: int):
        there = [f"kernel-{i}" for i in range(1, 1 + others)]
        known = data.take((data.setting != 2) | np.isin(data.kernel, there))
        return profile_times(known, run, *MHZ.T), fit_class_roofline(known)

    few, roofline = times(4)
    np.testing.assert_allclose(few.time_s, np.exp(run.log_s(roofline, *MHZ.T)))
    assert np.isnan(few.error_pct)
    assert np.isfinite(times(5)[0].error_pct)
