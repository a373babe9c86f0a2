"""Objectives by their formulas, and picks by each from all settings by brute force."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.choice.candidates import SettingCandidates
from analysis.choice.objectives import objective
from analysis.choice.pick import pick
from dvfs.kernel_instance import KernelInstance
from dvfs.setting import Setting

# Joules and seconds of five settings: each of the objectives has another one as its best.
ENERGY_J = [1.0, 1.2, 1.5, 1.9, 4.0]
TIME_S = [4.0, 2.7, 2.3, 1.9, 1.8]
BEST = {"energy": 0, "time": 4, "edp": 1, "ed2p": 3}


def by_formula(name: str, energy_j: float, time_s: float) -> float:
    if name == "energy":
        return energy_j
    if name == "time":
        return time_s
    if name == "edp":  # energy times delay
        return energy_j * time_s
    return energy_j * time_s * time_s  # ed2p: energy times delay squared


def candidates(energy_j: np.ndarray, time_s: np.ndarray) -> SettingCandidates:
    """Settings of a kernel whose costs are certain."""
    return SettingCandidates(
        **KernelInstance("k").as_dict(),
        settings=[Setting(100.0 * (i + 1), 500.0) for i in range(len(energy_j))],
        energy_j=energy_j,
        time_s=time_s,
        measured=np.ones(len(energy_j), bool),
        measured_j=energy_j,
        energy_draws_j=energy_j[:, None],
        time_draws_s=time_s[:, None],
        time_error_s=np.zeros(len(energy_j)),
    )


@pytest.mark.parametrize("name", BEST)
def test_an_objective_is_its_formula_and_its_pick_the_least(name):
    energy_j, time_s = np.array(ENERGY_J), np.array(TIME_S)
    expected = [by_formula(name, e, t) for e, t in zip(ENERGY_J, TIME_S, strict=True)]
    np.testing.assert_allclose(objective(name).score(energy_j, time_s), expected, rtol=1e-15)
    assert int(np.argmin(expected)) == BEST[name]
    among = candidates(energy_j, time_s)
    assert pick(among, name).setting == among.settings[BEST[name]]


def test_a_weighted_objective_is_relative_to_the_least_of_all_settings_under_a_limit():
    energy_j, time_s = np.array([20.0, 16.0, 10.0]), np.array([1.0, 2.0, 3.0])  # 20, 8, 3.3 W
    expected = 0.5 * time_s / 1.0 + 0.5 * energy_j / 10.0
    assert expected.tolist() == [1.5, 1.8, 2.0]
    among = candidates(energy_j, time_s)
    for limit_w, best in ((None, 0), (10.0, 1), (5.0, 2)):
        assert pick(among, "weighted:0.5", max_power_w=limit_w).setting == among.settings[best]


@pytest.mark.parametrize(("name", "unit"), [("edp", "J s"), ("ed2p", "J s^2")])
def test_the_names_and_units_belong_to_their_formulas(name, unit):
    assert objective(name).name == name
    assert objective(name).unit == unit
    slower = objective(name).score(np.array([3.0]), np.array([2.0]))[0]
    assert slower / 3.0 == {"edp": 2.0, "ed2p": 4.0}[name]
