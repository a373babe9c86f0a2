"""Two predictions averaged where a kernel was not measured: weights, caution, draws."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis.choice.averaged import (
    CAUTION,
    apart,
    ratio_of_errors,
    second_prediction,
    weight_by_error,
)
from analysis.choice.candidates import Candidates, all_candidates, measured_volts
from analysis.choice.pick import pick
from analysis.energy.fit import fit
from analysis.measurements.observations import kernel_names
from analysis.time.kernel_roofline import fit_time
from tests.analysis.synthetic import grid_observations

CORE_MHZ = (400.0, 500.0, 600.0, 700.0, 800.0, 1000.0)


def test_weights_are_inverse_to_mean_squares_as_far_as_settings_show_them():
    """Mean squares of 4 and 1, the NaN left out: 4 to 1, or 2 to 1 at half the power."""
    of_model = np.array([2.0, -2.0, np.nan, 9.0])
    of_process = np.array([1.0, 1.0, 5.0, np.nan])
    assert weight_by_error(of_model, of_process, 1.0) == pytest.approx(0.8)
    assert weight_by_error(of_model, of_process, 0.5) == pytest.approx(2 / 3)
    assert weight_by_error(of_process, of_model, 1.0) == pytest.approx(0.2)
    assert weight_by_error(of_model, of_process, 0.0) == pytest.approx(0.5)
    assert weight_by_error(np.full(2, np.nan), np.ones(2), 1.0) == 0.5


def test_the_average_is_surer_as_far_as_its_errors_are_smaller():
    """Errors of opposite signs cancel: 0.75 * 2 - 0.25 * 2 = 1, half of the model's 2."""
    of_model, of_process = np.array([2.0, 2.0, np.nan]), np.array([-2.0, -2.0, 1.0])
    assert ratio_of_errors(of_model, of_process, 0.25, 1.0) == pytest.approx(0.5)
    assert ratio_of_errors(of_model, of_process, 0.125, 1.0) == pytest.approx(0.75)
    assert ratio_of_errors(of_model, of_process, 0.5, 1.0) == 0.5  # no less: errors of few are few
    assert ratio_of_errors(of_model, of_process, 0.125, 0.5) == pytest.approx(0.75**0.5)
    assert ratio_of_errors(of_model, 3.0 * of_model, 0.5, 1.0) == 1.0
    assert ratio_of_errors(np.full(1, np.nan), np.ones(1), 0.5, 1.0) == 1.0


@pytest.mark.parametrize("weight", [0.0, 0.2, 0.5, 1.0])
def test_apart_is_the_standard_deviation_of_the_two(weight):
    values, share = np.array([0.3, -0.1]), np.array([1.0 - weight, weight])
    by_hand = np.sqrt(share @ values**2 - (share @ values) ** 2)
    assert apart(np.array([values[1] - values[0]]), weight)[0] == pytest.approx(by_hand)


def candidates(unmeasured_j: float, between: float) -> Candidates:
    """One setting that was measured at 1 J, and one that was not, with two predictions of equal
    weight that are ``between`` from their mean."""
    energy_j = np.array([1.0, unmeasured_j])
    draws = energy_j[:, None] * np.exp(np.outer([0.0, between], [-1.0, 1.0, -1.0, 1.0]))
    return Candidates(
        kernel="k",
        params={},
        label="k",
        settings=[(1.0, np.nan), (2.0, np.nan)],
        energy_j=energy_j,
        time_s=np.ones(2),
        measured=np.array([True, False]),
        measured_j=np.array([1.0, np.nan]),
        energy_draws_j=draws,
        time_draws_s=np.ones((2, 4)),
        apart=np.array([0.0, between]),
    )


def test_a_measured_setting_is_left_for_a_clear_gain_alone():
    """A gain of 1 % is worth it where the two predictions are less than 2 % apart."""
    assert pick(candidates(0.99, 0.0)).core_mhz == 2.0
    assert pick(candidates(0.99, 0.019)).core_mhz == 2.0
    assert pick(candidates(0.99, 0.021)).core_mhz == 1.0
    assert pick(candidates(0.97, 0.021)).core_mhz == 2.0
    # Time does not depend on what energies may be.
    slow = replace(candidates(0.5, 0.0), time_s=np.array([1.0, 2.0]))
    assert pick(slow, "time").core_mhz == 1.0
    assert CAUTION == 0.5


def seen_at(data, settings):
    return data.take(np.isin(data.setting, settings))


def test_where_the_model_is_the_truth_it_counts_more():
    """Its times too are the truth; the weights are the squares of the errors out of fold, to the
    power of 10 / 18 for ten settings."""
    data = grid_observations(3, kernels=10, core_mhz=CORE_MHZ)
    training = seen_at(data, np.delete(np.arange(12), [5, 8]))
    fitted = fit(training, "choi+clock", "known")
    labels = kernel_names(training)
    second = second_prediction(fitted, training, fit_time(training), labels, training.settings)
    assert second is not None
    assert second.log_j.shape == (10, 12)
    assert (second.weight < 0.3).all()


def test_where_the_form_is_wrong_the_process_counts_more():
    """Energies that no term describes: as of a fit without voltages, far from 1 here."""
    data = grid_observations(3, kernels=10, core_mhz=CORE_MHZ)
    bent = 1.0 + 0.5 * np.sin(data.core_mhz / 100.0)
    data = replace(data, energy_j=data.energy_j * bent, core_v=np.ones(len(data)), voltage="unit")
    fitted = fit(data, "choi", "unit")
    second = second_prediction(fitted, data, fit_time(data), kernel_names(data), data.settings)
    assert second is not None
    assert (second.weight > 0.5).all()


def test_without_refits_there_is_no_second_prediction():
    data = grid_observations(3, kernels=6)
    fitted = fit(data, "choi", "known", intervals=False)
    times = fit_time(data)
    assert second_prediction(fitted, data, times, kernel_names(data), data.settings) is None


def test_unmeasured_cells_are_the_average_and_as_unsure_as_the_two_differ():
    data = grid_observations(5, kernels=10, noise=0.02, core_mhz=CORE_MHZ)
    training = seen_at(data, [0, 3, 4, 7, 10])
    fitted = fit(training, "choi", "known")
    labels = kernel_names(data)
    among = all_candidates(fitted, training, volts=measured_volts(data))
    settings = among[labels[0]].settings
    second = second_prediction(fitted, training, fit_time(training), labels, settings)
    assert second is not None
    there = data.take(np.concatenate([np.flatnonzero(data.kernel == k) for k in labels]))
    for i, label in enumerate(labels):
        one = among[label]
        own = there.take(there.kernel == label)
        own = replace(own, time_s=one.time_s[[settings.index(s) for s in own_settings(own)]])
        by_model = np.empty(len(settings))
        by_model[[settings.index(s) for s in own_settings(own)]] = fitted.energy_j(own)
        hidden = ~one.measured
        assert hidden.sum() == 7
        assert (one.apart[one.measured] == 0.0).all()
        # Measurements move the model too, by the same factor for its kernel, so that the average
        # lies between the two, or beyond the model by no more than that.
        weight = second.weight[i]
        moved = np.log(one.energy_j) - weight * second.log_j[i] - (1 - weight) * np.log(by_model)
        assert np.abs(moved[hidden]).max() < 0.05
        spread = np.log(one.energy_draws_j).std(axis=1)
        assert (spread[hidden] >= 0.95 * one.apart[hidden]).all()


def own_settings(rows):
    return [rows.settings[s] for s in rows.setting]
