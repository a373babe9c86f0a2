"""Kernels of which counts and one time are known, against machines whose scaling is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis.choice.candidates import SettingCandidates, all_candidates, profile_candidates
from analysis.choice.crossval import cross_validate
from analysis.choice.pick import pick
from analysis.measurements.observations import FitError, Observations, observations
from analysis.rooflines.roofline import fastest_setting
from tests.analysis.simulated_tk1 import simulated_columns
from tests.analysis.synthetic import grid_observations
from tests.analysis.test_few_crossval import measured, scaled

TOP = 7
"""The setting of the highest clocks."""


@pytest.fixture(scope="module")
def simulated():
    """The simulated board without noise; a class that a kernel lacks has no count."""
    return observations(simulated_columns("off"), "tk1")


NANOJOULES = {"sp": 20.0, "int": 20.0, "dp": 60.0, "dram": 30.0}


def counted(log_s: np.ndarray, counts: dict[str, np.ndarray]) -> Observations:
    """Kernels with these log times (K, 8) and counts (K,); energies are of constant power, which
    falls with the core's clock, and of the counts."""
    data = measured(log_s, np.full(len(log_s), 20.0))
    number = np.array([int(label[7:]) for label in data.labels])
    joules = sum(values[number] * NANOJOULES[name] * 1e-9 for name, values in counts.items())
    return replace(
        data,
        energy_j=data.energy_j + joules * (0.7 + 0.3 * data.core_mhz / 1000.0),
        counts={name: values[number] for name, values in counts.items()},
        domains={name: "mem" if name == "dram" else "core" for name in counts},
    )


def two_ceilings(seed: int, kernels: int, noise: float = 0.0) -> Observations:
    """A machine of 1e9 sp/s and 1e9 dram/s that overlap with an exponent of 8, but for the
    noise."""
    rng = np.random.default_rng(seed)
    busy_s = rng.dirichlet([1.0, 1.0], kernels) * np.exp(rng.normal(size=(kernels, 1)))
    log_s = scaled(np.column_stack([busy_s, np.zeros(kernels)]), 8.0)
    log_s = log_s + noise * rng.normal(size=(kernels, 8))
    return counted(log_s, {"sp": 1e9 * busy_s[:, 0], "dram": 1e9 * busy_s[:, 1]})


def misleading(kernels: int = 15, noise: float = 0.0) -> Observations:
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
    return counted(log_s, counts)


def profiled(data: Observations, label: str, setting: int = TOP) -> SettingCandidates:
    """A kernel's candidates by its counts and its time at one setting, as if nothing else of it
    were known."""
    row = np.flatnonzero((data.labels == label) & (data.setting == setting))[0]
    counts = {name: float(values[row]) for name, values in data.counts.items()}
    return profile_candidates(
        data.take(data.labels != label),
        "unseen",
        counts={name: n for name, n in counts.items() if n > 0},
        measured_s=float(data.time_s[row]),
        measured_at=data.settings[setting],
    )


def true_s(data: Observations, label: str, among: SettingCandidates) -> np.ndarray:
    """The measured time at each setting of the candidates."""
    mine = data.labels == label
    at = [data.settings.index(setting) for setting in among.settings]
    return np.array([data.time_s[mine & (data.setting == s)].mean() for s in at])


@pytest.mark.parametrize("setting", [TOP, 2])
def test_a_machine_of_ceilings_is_predicted_from_counts(setting):
    data = two_ceilings(4, 16)
    among = profiled(data, "kernel-5", setting)
    np.testing.assert_allclose(among.time_s, true_s(data, "kernel-5", among), rtol=0.05)


def test_times_of_unseen_kernels_on_a_machine_of_two_ceilings_are_predicted():
    """It does sp and int one after the other, and both beside the memory's work."""
    data = grid_observations(11, kernels=24)
    errors = []
    for label in sorted(set(data.labels)):
        among = profiled(data, label)
        errors.append(np.abs(among.time_s / true_s(data, label, among) - 1.0))
    assert np.mean(errors) < 0.03
    assert np.max(errors) < 0.35


def test_kernels_with_like_rates_are_followed_where_a_roofline_is_wrong():
    data = misleading()
    for label in ("kernel-3", "kernel-4", "kernel-5"):
        among = profiled(data, label)
        assert np.abs(np.log(among.time_s / true_s(data, label, among))).max() < 0.05


@pytest.mark.parametrize(
    ("data", "noise"), [(two_ceilings(0, 24, noise=0.05), 0.05), (misleading(24, noise=0.03), 0.03)]
)
def test_draws_of_times_are_as_unsure_as_they_are_off(data, noise):
    inside = []
    for i in range(0, 24, 4):
        among = profiled(data, f"kernel-{i}")
        true = true_s(data, f"kernel-{i}", among)
        low, high = np.percentile(among.time_draws_s, [2.5, 97.5], axis=1)
        inside += ((low <= true) & (true <= high))[~among.measured].tolist()
        unsure = np.log(among.time_draws_s).std(axis=1)
        assert unsure[among.measured] <= noise
    assert 0.85 <= np.mean(inside) <= 1.0
    assert unsure.max() < 0.2


def test_the_measured_time_itself_comes_back(simulated):
    base = fastest_setting(simulated)
    for data, setting in (
        (simulated, base),
        (simulated, 3),
        (two_ceilings(0, 24, noise=0.05), TOP),
    ):
        label = data.labels[0]
        among = profiled(data, label, setting)
        (at,) = np.flatnonzero(among.measured)
        assert among.settings[at] == data.settings[setting]
        assert among.time_s[at] == pytest.approx(true_s(data, label, among)[at], rel=1e-9)


def test_a_profile_is_picked_for_as_the_kernel_itself_would_be(simulated):
    """Each kernel is predicted without itself: its times are near, and the pick costs little more
    than the best of the true energies."""
    base = fastest_setting(simulated)
    lost, errors = [], []
    for label in sorted(set(simulated.labels))[::4]:
        among = profiled(simulated, label, base)
        errors.append(np.abs(among.time_s / true_s(simulated, label, among) - 1.0).mean())
        chosen = pick(among)
        mine = simulated.labels == label
        own_j = simulated.energy_j[
            mine & (simulated.setting == simulated.settings.index(chosen.setting))
        ][0]
        lost.append(own_j / simulated.energy_j[mine].min() - 1.0)
        assert 0.0 <= chosen.best_probability <= 1.0
    assert np.mean(errors) < 0.06
    assert np.mean(lost) < 0.02


def test_a_class_that_was_not_counted_is_one_without_operations(simulated):
    base = fastest_setting(simulated)
    zeros = {name: np.nan_to_num(values) for name, values in simulated.counts.items()}
    label = sorted(set(simulated.labels))[4]
    one, other = (
        profiled(data, label, base) for data in (simulated, replace(simulated, counts=zeros))
    )
    np.testing.assert_allclose(one.time_s, other.time_s)
    np.testing.assert_allclose(one.energy_j, other.energy_j)
    assert pick(one).setting == pick(other).setting


def test_counts_that_no_kernel_has_are_refused(simulated):
    profile = {"measured_s": 1.0, "measured_at": simulated.settings[-1]}
    with pytest.raises(FitError, match="count no 'tensor'"):
        profile_candidates(simulated, "k", counts={"tensor": 1.0}, **profile)
    with pytest.raises(FitError, match="have no counts"):
        profile_candidates(replace(simulated, counts={}), "k", counts={"sp": 1.0}, **profile)


def test_crossval_by_profile_takes_nothing_else_of_the_kernel(simulated):
    """Ruin a kernel's times everywhere but at the fastest setting: its predictions stay."""
    base = fastest_setting(simulated)
    kernel = sorted(set(simulated.labels))[0]
    mine = simulated.labels == kernel
    ruined = np.where(mine & (simulated.setting != base), simulated.time_s * 3.0, simulated.time_s)
    few = np.isin(simulated.labels.astype(str), sorted(set(simulated.labels))[:8])
    judged, other = (
        cross_validate(d.take(few), "leave-one-kernel-out", "choi", time="profile", voltage="known")
        for d in (simulated, replace(simulated, time_s=ruined))
    )
    np.testing.assert_allclose(judged.predicted_j[mine[few]], other.predicted_j[mine[few]])


def test_voltages_of_several_origins_are_known_as_those_of_one_are():
    data = grid_observations(5, 9, noise=0.01)
    mixed = replace(data, voltage="measured+table")
    one, other = (profiled(rows, "kernel-3", 7) for rows in (data, mixed))
    np.testing.assert_allclose(other.energy_draws_j, one.energy_draws_j)
    one, other = (all_candidates(rows, ["kernel-3"])["kernel-3"] for rows in (data, mixed))
    np.testing.assert_allclose(other.energy_draws_j, one.energy_draws_j)
