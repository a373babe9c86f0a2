"""Predictions averaged where a kernel was not measured: weights, caution, draws."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis.choice import averaged
from analysis.choice.averaged import (
    CAUTION,
    apart,
    other_predictions,
    ratio_of_errors,
    weights_by_error,
)
from analysis.choice.candidates import Candidates, all_candidates, measured_volts
from analysis.choice.pick import pick
from analysis.energy.averaged_forms import average_forms
from analysis.energy.fit import fit
from analysis.energy.joint_process import fit_joint_process
from analysis.energy.process import fit_process
from analysis.measurements.observations import kernel_names
from analysis.time.kernel_roofline import fit_time
from dvfs.setting import Setting, clock_columns
from tests.analysis.synthetic import grid_observations

CORE_MHZ = (400.0, 500.0, 600.0, 700.0, 800.0, 1000.0)


def test_weights_are_inverse_to_mean_squares_as_far_as_settings_show_them():
    """Mean squares of 4, 1 and 2, what one lacks left out: 1 to 4 to 2, or roots of these at half
    the power."""
    nan = np.nan
    errors = [
        np.array([2.0, -2.0, nan, 9.0, 7.0]),
        np.array([1.0, 1.0, 5.0, nan, 1.0]),
        np.array([2.0, 0.0, 5.0, 3.0, nan]),
    ]
    assert weights_by_error(errors, 1.0) == pytest.approx(np.array([1, 4, 2]) / 7)
    roots = np.array([1.0, 2.0, 2.0**0.5])
    assert weights_by_error(errors, 0.5) == pytest.approx(roots / roots.sum())
    assert weights_by_error(errors[:2], 1.0) == pytest.approx([0.05, 0.95])  # 57 / 3 and 1
    assert weights_by_error(errors, 0.0) == pytest.approx([1 / 3] * 3)
    assert weights_by_error([np.full(2, nan), np.ones(2)], 1.0) == pytest.approx([0.5, 0.5])


def test_the_average_is_surer_as_far_as_its_errors_are_smaller():
    """Errors of opposite signs cancel: 0.75 * 2 - 0.25 * 2 = 1, half of the model's 2."""
    of_model, of_other = np.array([2.0, 2.0, np.nan]), np.array([-2.0, -2.0, 1.0])
    both = [of_model, of_other]

    def ratio(weight, power=1.0, errors=both):
        return ratio_of_errors(errors, np.array([1.0 - weight, weight]), power)

    assert ratio(0.25) == pytest.approx(0.5)
    assert ratio(0.125) == pytest.approx(0.75)
    assert ratio(0.5) == 0.5  # no less: errors of few are few
    assert ratio(0.125, 0.5) == pytest.approx(0.75**0.5)
    assert ratio(0.5, errors=[of_model, 3.0 * of_model]) == 1.0
    assert ratio(0.5, errors=[np.full(1, np.nan), np.ones(1)]) == 1.0
    three = [of_model, of_other, np.zeros(3)]
    assert ratio_of_errors(three, np.array([0.5, 0.2, 0.3]), 1.0) == 0.5
    assert ratio_of_errors(three, np.array([0.7, 0.1, 0.2]), 1.0) == pytest.approx(0.6)


@pytest.mark.parametrize("weight", [0.0, 0.2, 0.5, 1.0])
def test_apart_is_the_standard_deviation_of_the_predictions(weight):
    values = np.array([0.3, -0.1, 0.45])
    share = np.array([1.0 - weight, weight / 4, 3 * weight / 4])
    by_hand = np.sqrt(share @ values**2 - (share @ values) ** 2)
    away = np.stack([values[1:] - values[0], np.zeros(2)], axis=1)
    assert apart(away, share[1:]) == pytest.approx([by_hand, 0.0])


def candidates(unmeasured_j: float, between: float) -> Candidates:
    """One setting that was measured at 1 J, and one that was not, with two predictions of equal
    weight that are ``between`` from their mean."""
    energy_j = np.array([1.0, unmeasured_j])
    draws = energy_j[:, None] * np.exp(np.outer([0.0, between], [-1.0, 1.0, -1.0, 1.0]))
    return Candidates(
        kernel="k",
        params={},
        label="k",
        settings=[Setting(1.0), Setting(2.0)],
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
    others = other_predictions(fitted, training, fit_time(training), labels, measured_volts(data))
    assert others is not None
    assert others.log_j.shape == (2, 10, 12)
    assert (others.weights[0] < 0.3).all()
    assert (others.weights[:2].sum(axis=0) < 0.6).all()


def test_where_the_form_is_wrong_the_process_counts_more():
    """Energies that no term describes: as of a fit without voltages, far from 1 here."""
    data = grid_observations(3, kernels=10, core_mhz=CORE_MHZ)
    bent = 1.0 + 0.5 * np.sin(data.core_mhz / 100.0)
    data = replace(data, energy_j=data.energy_j * bent, core_v=np.ones(len(data)), voltage="unit")
    fitted = fit(data, "choi", "unit")
    others = other_predictions(
        fitted, data, fit_time(data), kernel_names(data), measured_volts(data)
    )
    assert others is not None
    assert (others.weights[0] > 0.5).all()


def test_without_refits_there_are_no_other_predictions():
    data = grid_observations(3, kernels=6)
    fitted = fit(data, "choi", "known", intervals=False)
    times = fit_time(data)
    assert other_predictions(fitted, data, times, kernel_names(data), measured_volts(data)) is None


def test_unmeasured_cells_are_the_average_and_as_unsure_as_the_predictions_differ():
    data = grid_observations(5, kernels=10, noise=0.02, core_mhz=CORE_MHZ)
    training = seen_at(data, [0, 3, 4, 7, 10])
    fitted = fit(training, "choi", "known")
    labels = kernel_names(data)
    among = all_candidates(fitted, training, volts=measured_volts(data))
    settings = among[labels[0]].settings
    others = other_predictions(
        fitted, training, fit_time(training), labels, {s: measured_volts(data)[s] for s in settings}
    )
    assert others is not None
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
        # lies between them, or beyond the model by no more than that.
        weight = others.weights[:, i]
        average = (weight * others.log_j[:, i]).sum(axis=0)
        average += (1 - weight.sum(axis=0)) * np.log(by_model)
        moved = np.log(one.energy_j) - average
        assert np.abs(moved[hidden]).max() < 0.05
        # What the three are apart by, the model's being what makes this average of them.
        own_weight = 1 - weight.sum(axis=0)
        log_j = np.log(one.energy_j)
        moved_model = (log_j - (weight * others.log_j[:, i]).sum(axis=0)) / own_weight
        square = own_weight * (moved_model - log_j) ** 2
        square += (weight * (others.log_j[:, i] - log_j) ** 2).sum(axis=0)
        np.testing.assert_allclose(one.apart[hidden], np.sqrt(square[hidden]), rtol=1e-9)
        assert (one.apart[hidden] > 1e-4).all()
        spread = np.log(one.energy_draws_j).std(axis=1)
        assert (spread[hidden] >= 0.95 * one.apart[hidden]).all()


@pytest.mark.parametrize("voltage", ["unit", "table"])
def test_over_one_clock_the_average_of_all_forms_is_in_the_models_place(voltage):
    """Four of six clocks: the average over curves, or by known voltages, and the process, whose
    reach is in units of the whole range."""
    data = grid_observations(3, kernels=4, noise=0.02, core_mhz=CORE_MHZ)
    data = data.take(data.mem_mhz == data.mem_mhz.max())
    if voltage == "unit":
        data = replace(data, core_v=np.ones(len(data)), mem_v=np.ones(len(data)), voltage="unit")
    settings = sorted(measured_volts(data))
    hidden = (500.0, 1000.0)
    training = data.take(~np.isin(data.core_mhz, hidden))
    fitted = fit(training, "choi", "unit" if voltage == "unit" else "known")
    labels, times = kernel_names(data), fit_time(training)
    among = all_candidates(fitted, training, volts=measured_volts(data))
    volts = {setting: measured_volts(data)[setting] for setting in settings}
    others = other_predictions(fitted, training, times, labels, volts)
    assert others is not None
    assert others.weights.sum(axis=0) == pytest.approx(np.ones((4, 6)))
    mhz = clock_columns(settings)
    seen = [i for i, setting in enumerate(settings) if setting.core_mhz not in hidden]
    log_j = np.stack([np.log(among[label].measured_j) for label in labels])
    process = fit_process(mhz[seen], log_j[:, seen], range_mhz=mhz).log_j(mhz)
    np.testing.assert_allclose(others.log_j[0], process, rtol=1e-12)
    volt = np.full((6, 1), np.nan) if voltage == "unit" else np.array(list(volts.values()))[:, :1]
    time_s = np.stack([among[label].time_s for label in labels])
    curves = average_forms(mhz[:, :1], volt, log_j, time_s, time_s).log_j
    np.testing.assert_allclose(others.log_j[1], curves, rtol=1e-12)
    average = others.weights * others.log_j
    for i, label in enumerate(labels):
        at = ~among[label].measured
        assert at.sum() == 2
        expected = average.sum(axis=0)[i, at]
        np.testing.assert_allclose(np.log(among[label].energy_j[at]), expected, rtol=1e-9)


@pytest.mark.parametrize("few", [[0, 3, 4, 7, 8, 10], [0, 3, 4, 6, 7, 8, 10]])
def test_over_two_clocks_the_forms_are_corrected_by_a_process(few, monkeypatch):
    """And the process alone counts half where there are six settings or fewer."""
    data = grid_observations(5, kernels=10, noise=0.02, core_mhz=CORE_MHZ)
    data = replace(data, core_v=np.ones(len(data)), mem_v=np.ones(len(data)), voltage="unit")
    training = seen_at(data, few)
    fitted, times, labels = fit(training, "choi", "unit"), fit_time(training), kernel_names(data)
    volts = {setting: measured_volts(data)[setting] for setting in sorted(measured_volts(data))}
    others = other_predictions(fitted, training, times, labels, volts)
    assert others is not None
    mhz = clock_columns(volts)
    measured = all_candidates(fitted, training, volts=volts)
    log_j = np.stack([np.log(measured[label].measured_j) for label in labels])
    time_s = np.stack([measured[label].time_s for label in labels])
    forms = average_forms(mhz, np.full(mhz.shape, np.nan), log_j, time_s, time_s).log_j
    seen = np.flatnonzero(np.isfinite(log_j[0]))
    assert len(seen) == len(few)
    unexplained = fit_process(mhz[seen], (log_j - forms)[:, seen])
    np.testing.assert_allclose(others.log_j[1], forms + unexplained.log_j(mhz), rtol=1e-12)

    def odds(weights):
        return weights[0] / (1.0 - weights[0])

    assert 0.0 < others.weights[0, 0, 0] < 1.0
    monkeypatch.setattr(averaged, "FEW_WEIGHT", 1.0)
    equal = other_predictions(fitted, training, times, labels, volts)
    assert equal is not None
    half = 0.5 if len(few) == 6 else 1.0
    np.testing.assert_allclose(odds(others.weights), half * odds(equal.weights), rtol=1e-9)


def test_with_settings_of_their_own_cells_weigh_by_the_errors_expected_there(monkeypatch):
    """Of the model one mean square for all; of the processes the variance that each states at a
    cell, by how many times too small it was where cells were left out."""
    data = grid_observations(5, kernels=10, noise=0.02, core_mhz=CORE_MHZ)
    data = replace(data, core_v=np.ones(len(data)), mem_v=np.ones(len(data)), voltage="unit")
    labels = kernel_names(data)
    number = np.array([labels.index(kernel) for kernel in data.kernel])
    monkeypatch.setattr(averaged, "LEAST_RATIO", 0.1)
    # All at the ends of the clocks, six kernels each at three settings between them as well.
    ends, between = [0, 5, 6, 11], [1, 2, 3, 4, 7, 8, 9, 10]
    seen = np.isin(data.setting, ends)
    for kernel in range(6):
        seen |= (number == kernel) & np.isin(data.setting, np.roll(between, kernel)[:3])
    training = data.take(seen)
    fitted, times = fit(training, "choi", "unit"), fit_time(training)
    volts = {setting: measured_volts(data)[setting] for setting in sorted(measured_volts(data))}
    others = other_predictions(fitted, training, times, labels, volts)
    assert others is not None
    mhz = clock_columns(volts)
    among = all_candidates(fitted, training, volts=volts, averaged=False)
    log_j = np.stack([np.log(among[label].measured_j) for label in labels])
    time_s = np.stack([among[label].time_s for label in labels])
    assert np.isnan(log_j).any(axis=1).all()
    assert np.isfinite(log_j).any(axis=0).all()
    process = fit_joint_process(mhz, log_j)
    of_process, left_out = process.at(mhz), process.left_out()
    np.testing.assert_allclose(others.log_j[0], of_process.log_j, rtol=1e-12)
    forms = average_forms(mhz, np.full(mhz.shape, np.nan), log_j, time_s, time_s)
    unexplained = fit_joint_process(mhz, log_j - forms.log_j)
    of_both = unexplained.at(mhz)
    np.testing.assert_allclose(others.log_j[1], forms.log_j + of_both.log_j, rtol=1e-12)

    # The odds of the process against the model: the model's mean square is the same at all cells.
    model = 1.0 - others.weights.sum(axis=0)
    power = 12 / 20
    odds = (others.weights[0] / model) ** (1 / power) * of_process.variance
    np.testing.assert_allclose(odds, odds[0, 0], rtol=1e-9)
    assert np.ptp(others.weights[0]) > 0.1
    # Errors of all three are compared at the same cells, those at which each has one.
    assert fitted.refits is not None
    every = np.arange(12)
    left_out_s = averaged._times_left_out(training, times, labels, every)
    by_model = averaged._model_left_out(fitted, training, left_out_s, labels, every)
    by_forms = average_forms(mhz, np.full(mhz.shape, np.nan), log_j, time_s, left_out_s)
    known = np.isfinite(by_model + by_forms.left_out_log_j + left_out.log_j)
    assert 30 < known.sum() <= np.isfinite(log_j).sum()
    errors = [
        by_model - log_j,
        left_out.log_j - log_j,
        by_forms.left_out_log_j + unexplained.left_out().log_j - log_j,
    ]
    stated = [left_out.variance, unexplained.left_out().variance]
    squares = [np.full(log_j.shape, np.mean(errors[0][known] ** 2))]
    squares += [
        v * np.mean(e[known] ** 2 / v[known]) for e, v in zip(errors[1:], stated, strict=True)
    ]
    too_small = np.mean(errors[1][known] ** 2 / left_out.variance[known])
    assert odds[0, 0] == pytest.approx(squares[0][0, 0] / too_small, rel=1e-9)
    # How good the average is, by its weights where each cell was left out.
    weights = np.array(squares) ** -power
    average = (weights * errors).sum(axis=0) / weights.sum(axis=0)
    ratio = np.sqrt(np.mean(average[known] ** 2) / np.mean(errors[0][known] ** 2))
    assert 0.1 < ratio < 1.0
    assert others.error_ratio == pytest.approx(np.full(10, ratio**power), rel=1e-9)


def test_over_one_clock_too_weights_differ_from_cell_to_cell():
    """The average of all forms has one mean square for all cells, the process one of each."""
    data = grid_observations(3, kernels=4, noise=0.02, core_mhz=CORE_MHZ)
    data = data.take(data.mem_mhz == data.mem_mhz.max())
    labels = kernel_names(data)
    number = np.array([labels.index(kernel) for kernel in data.kernel])
    place = np.searchsorted(np.unique(data.core_mhz), data.core_mhz)
    training = data.take((place != 1 + number) | (number == 3))
    fitted = fit(training, "choi", "known")
    volts = {setting: measured_volts(data)[setting] for setting in sorted(measured_volts(data))}
    others = other_predictions(fitted, training, fit_time(training), labels, volts)
    assert others is not None
    assert others.weights.sum(axis=0) == pytest.approx(np.ones((4, 6)))
    among = all_candidates(fitted, training, volts=volts)
    log_j = np.stack([np.log(among[label].measured_j) for label in labels])
    assert np.isnan(log_j).sum() == 3
    # The mean alone decides: what the predictions differ by is in the weights.
    assert not any(among[label].apart.any() for label in labels)
    for one in among.values():
        assert pick(one, "energy").energy_j == one.energy_j.min()
    variance = fit_joint_process(clock_columns(volts), log_j).at(clock_columns(volts)).variance
    odds = (others.weights[0] / others.weights[1]) ** (14 / 6) * variance
    np.testing.assert_allclose(odds, odds[0, 0], rtol=1e-9)


def own_settings(rows):
    return [rows.settings[s] for s in rows.setting]
