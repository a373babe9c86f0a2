"""The energy model averaged with a process, by what picks lose in the other folds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis.choice.crossval import cross_validate
from analysis.choice.objectives import objective
from analysis.choice.stacked import WEIGHTS, process_energies, stacked_energies
from analysis.energy.process import fit_process
from analysis.measurements.observations import Observations
from tests.analysis.synthetic import grid_observations

ENERGY = objective("energy")


@pytest.fixture(scope="module")
def data() -> Observations:
    """Six kernels, once at each of eight settings."""
    return grid_observations(3, kernels=6, noise=0.02)


def by_hand(data: Observations, predicted_j: np.ndarray, rows: np.ndarray) -> float:
    """What picks lose among some rows, kernel by kernel, in %."""
    lost = []
    for kernel in sorted(set(data.kernel[rows].tolist())):
        mine = np.flatnonzero(rows & (data.kernel == kernel))
        chosen = mine[np.argmin(predicted_j[mine])]
        lost.append(data.energy_j[chosen] / data.energy_j[mine].min() - 1.0)
    return float(np.mean(lost) * 100.0)


def stacked(data: Observations, model_j: np.ndarray, process_j: np.ndarray) -> np.ndarray:
    return stacked_energies(data, model_j, process_j, data.time_s, data.setting, ENERGY)


def test_each_folds_weight_is_the_one_with_which_the_others_lose_least(data) -> None:
    rng = np.random.default_rng(2)
    model_j, process_j = (data.energy_j * np.exp(rng.normal(0, 0.4, len(data))) for _ in range(2))
    found, weights = stacked(data, model_j, process_j), set()
    for setting in range(8):
        own = data.setting == setting
        means = [model_j ** (1 - weight) * process_j**weight for weight in WEIGHTS]
        lost = [by_hand(data, mean, ~own) for mean in means]
        best = int(np.flatnonzero(np.array(lost) <= min(lost) + 1e-6)[0])
        weights.add(best)
        np.testing.assert_allclose(found[own], means[best][own])
    assert len(weights) > 1, "the folds differ"


def test_a_right_prediction_gets_all_the_weight_and_of_two_the_model(data) -> None:
    wrong_j = 1.0 / data.energy_j**3
    np.testing.assert_allclose(stacked(data, data.energy_j, wrong_j), data.energy_j)
    np.testing.assert_allclose(stacked(data, wrong_j, data.energy_j), data.energy_j)
    twice_j = 2.0 * data.energy_j
    np.testing.assert_allclose(stacked(data, twice_j, data.energy_j), twice_j)


def test_a_folds_own_rows_do_not_count_for_its_weight(data) -> None:
    rng = np.random.default_rng(5)
    model_j, process_j = (data.energy_j * np.exp(rng.normal(0, 0.4, len(data))) for _ in range(2))
    own = data.setting == 3
    before = stacked(data, model_j, process_j)[own]
    measured_j = data.energy_j.copy()
    measured_j[own] *= np.exp(rng.normal(0, 2, own.sum()))
    after = stacked(replace(data, energy_j=measured_j), model_j, process_j)[own]
    np.testing.assert_array_equal(after, before)


def test_rows_that_the_model_lacks_stay_unknown_and_the_process_must_have_the_rest(data) -> None:
    model_j = data.energy_j.copy()
    model_j[data.setting == 2] = np.nan
    assert np.isnan(stacked(data, model_j, data.energy_j)[data.setting == 2]).all()
    assert np.isfinite(stacked(data, model_j, data.energy_j)[data.setting != 2]).all()
    process_j = data.energy_j.copy()
    process_j[7] = np.nan
    assert np.isnan(stacked(data, data.energy_j, process_j)).all()
    one_fold = np.zeros(len(data), int)
    alone = stacked_energies(data, data.energy_j, data.energy_j, data.time_s, one_fold, ENERGY)
    assert np.isnan(alone).all()


def test_the_process_predicts_power_and_is_given_the_time(data) -> None:
    test = data.setting == 4
    slower = replace(data, time_s=np.where(test, 3.0 * data.time_s, data.time_s))
    plain, longer = (process_energies(data.take(~test), one.take(test)) for one in (data, slower))
    np.testing.assert_allclose(longer, 3.0 * plain)
    seven = [s for s in range(8) if s != 4]
    labels = sorted(set(data.kernel.tolist()))
    log_w = np.array(
        [
            [
                np.log(data.energy_j / data.time_s)[(data.kernel == k) & (data.setting == s)].mean()
                for s in seven
            ]
            for k in labels
        ]
    )
    mhz = data.mhz
    watts = np.exp(fit_process(mhz[seven], log_w).log_j(mhz[[4]])[:, 0])
    place = [labels.index(kernel) for kernel in data.kernel[test].tolist()]
    np.testing.assert_allclose(plain, watts[place] * data.time_s[test])
    known = data.take(~test & (data.kernel != "kernel-1"))
    unknown = np.isnan(process_energies(known, data.take(test)))
    np.testing.assert_array_equal(unknown, data.kernel[test] == "kernel-1")
    assert np.isnan(process_energies(data.take(data.setting == 0), data.take(test))).all()


def test_a_cross_validation_shows_what_the_average_loses(data) -> None:
    made = cross_validate(data, "leave-one-setting-out", "choi", voltage="known")
    process_j = np.full(len(data), np.nan)
    for setting in range(8):
        test = data.setting == setting
        process_j[test] = process_energies(data.take(~test), data.take(test))
    averaged_j = stacked(data, made.predicted_j, process_j)
    shown = made.as_dict()
    error_pct = np.abs(averaged_j / data.energy_j - 1.0) * 100.0
    assert shown["stacked_mape_pct"] == pytest.approx(error_pct.mean())
    every = np.ones(len(data), bool)
    lost = by_hand(data, averaged_j, every)
    assert shown["decision"]["stacked"]["mean_lost_pct"] == pytest.approx(lost)
    for scheme in ("leave-one-kernel-out", "holdout"):
        shown = cross_validate(data, scheme, "choi", voltage="known").as_dict()
        assert shown["stacked_mape_pct"] is None
        assert "stacked" not in shown["decision"]
