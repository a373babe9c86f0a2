"""Cross-validation against loops written out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis.choice.candidates import all_candidates
from analysis.choice.crossval import cross_validate, fitted_elsewhere, folds
from analysis.choice.losses import (
    Predicted,
    case_losses,
    losses_by_chooser,
    rank_single_settings,
)
from analysis.choice.objectives import objective
from analysis.choice.pick import pick
from analysis.energy.fit import fit
from analysis.energy.terms.registry import design_matrix, model_terms
from analysis.measurements.observations import FitError, Observations, measured_volts, observations
from analysis.predict.site import site_posterior, site_time_noise
from dvfs.setting import Setting
from tests.analysis.raced import raced
from tests.analysis.simulated_tk1 import TABLE_I, simulated_columns
from tests.analysis.synthetic import grid_observations, numbered, without_node


@pytest.fixture(scope="module")
def data():
    return observations(simulated_columns("default", per_family=4), "tk1")


def exact(data: Observations) -> Predicted:
    return Predicted(data.energy_j, data.time_s)


def test_leave_one_setting_out_by_hand(data):
    from scipy.optimize import nnls

    terms, _ = model_terms(data, "choi", estimated=False)
    matrix = design_matrix(data, terms)
    expected = np.empty(len(data))
    for pair in TABLE_I:
        test = (data.core_mhz == pair[0]) & (data.mem_mhz == pair[1])
        a = matrix[~test] / data.energy_j[~test, None]
        scale = np.abs(a).max(axis=0)
        x = nnls(a / scale, np.ones((~test).sum()))[0] / scale
        expected[test] = matrix[test] @ x
    judged = cross_validate(data, "leave-one-setting-out")
    np.testing.assert_allclose(judged.predicted_j, expected, rtol=1e-6)
    error = np.abs(expected / data.energy_j - 1) * 100
    shown = judged.as_dict()
    assert shown["mape_pct"] == pytest.approx(error.mean())
    assert shown["max_pct"] == pytest.approx(error.max())
    assert shown["n_folds"] == 16
    by_fold = [
        error[(data.core_mhz == pair[0]) & (data.mem_mhz == pair[1])].mean() for pair in TABLE_I
    ]
    assert shown["folds"] == pytest.approx(
        {
            "mean_pct": np.mean(by_fold),
            "std_pct": np.std(by_fold, ddof=1),
            "min_pct": np.min(by_fold),
            "max_pct": np.max(by_fold),
        }
    )


def test_a_fit_of_other_kernels_predicts_these(data):
    """As in Choi & Vuduc 2016, section IV-B: the application is in no fold that is fitted."""
    own = np.isin(data.labels, sorted(set(data.labels))[::3])
    training, application = data.take(~own), data.take(own)
    judged = fitted_elsewhere(training, application, "choi", objective="energy")
    expected = fit(training, "choi", intervals=False).energy_j(application)
    np.testing.assert_allclose(judged.predicted_j, expected, rtol=1e-9)
    error = np.abs(expected / application.energy_j - 1) * 100
    assert judged.as_dict()["mape_pct"] == pytest.approx(error.mean())
    assert {case.label for case in judged.cases} == set(application.labels)
    ruined = replace(application, energy_j=application.energy_j * 3.0)
    np.testing.assert_array_equal(
        fitted_elsewhere(training, ruined, "choi").predicted_j, judged.predicted_j
    )


@pytest.mark.parametrize("counted", ["in the other store", "in this store"])
def test_kernels_with_counts_in_one_store_alone_are_not_predicted(data, counted):
    """The fit has no energy of their operations, or has it twice: only the others are predicted."""
    some = np.isin(data.labels, sorted(set(data.labels))[::3])
    names = {name: np.where(some, np.nan, values) for name, values in data.counts.items()}
    without = replace(data, counts=names)
    stores = (data, without) if counted == "in the other store" else (without, data)
    judged = fitted_elsewhere(*stores, "choi")
    np.testing.assert_array_equal(np.isfinite(judged.predicted_j), ~some)
    assert judged.n == (~some).sum()
    none = replace(data, counts={name: np.full(len(data), np.nan) for name in data.counts})
    with pytest.raises(FitError, match="a kernel needs counts in both stores"):
        fitted_elsewhere(data, none, "choi")
    assert fitted_elsewhere(none, none.take(some), "choi").n == some.sum()


def test_a_new_kernels_time_cannot_be_predicted(data):
    with pytest.raises(FitError, match="use --time measured, or --time profile"):
        cross_validate(data, "leave-one-kernel-out", "choi", time="predicted")


def test_a_class_that_was_not_fitted_is_said(data):
    """Its energy is predicted as 0; a class that both count is not named."""
    own = np.isin(data.labels, sorted(set(data.labels))[::3])
    training, application = data.take(~own), data.take(own)
    (one, *_) = application.counts
    more = application.counts | {"tc_half": np.where(application.counts[one] > 0, 1e9, 0.0)}
    none = training.counts | {"tc_half": np.zeros(len(training))}
    domains = data.domains | {"tc_half": "core"}
    application = replace(application, counts=more, domains=domains)
    training = replace(training, counts=none, domains=domains)
    judged = fitted_elsewhere(training, application, "choi").as_dict()
    assert judged["not_fitted"] == {"tc_half": int((more["tc_half"] > 0).sum())}
    assert judged["not_fitted"]["tc_half"] > 0
    assert "not_fitted" not in fitted_elsewhere(training, data.take(own), "choi").as_dict()


def test_measurements_of_another_store_are_no_repeats_of_these(data):
    """All repeats are equal here, so that the fastest settings alone are equally fast."""
    twice = data.take(np.tile(np.arange(len(data)), 2))
    slow = replace(twice, time_s=1.5 * twice.time_s, energy_j=1.5 * twice.energy_j)
    apart = fitted_elsewhere(slow, twice, "choi").cases
    alone = cross_validate(twice, "leave-one-setting-out", "choi").cases
    for one, other in zip(apart, alone, strict=True):
        assert one.mean_pct("race_to_halt_best") == other.mean_pct("race_to_halt_best")


def test_a_fit_of_other_voltages_is_refused(data):
    with pytest.raises(FitError, match="different origins"):
        fitted_elsewhere(replace(data, voltage="unit"), data)


def test_no_fold_sees_what_it_predicts(data):
    """Ruin one setting's energies: its own predictions must not change."""
    pair = data.settings.index(Setting(852.0, 924.0))
    ruined = data.energy_j.copy()
    ruined[data.setting == pair] *= 7.0
    predicted_j, of_ruined_j = (
        cross_validate(d, "leave-one-setting-out").predicted_j
        for d in (data, replace(data, energy_j=ruined))
    )
    mine = data.setting == pair
    np.testing.assert_array_equal(predicted_j[mine], of_ruined_j[mine])
    assert not np.allclose(predicted_j[~mine], of_ruined_j[~mine], rtol=1e-3)


def test_holdout_predicts_the_settings_that_were_not_trained_on(data):
    judged = cross_validate(data, "holdout", train=[Setting(*pair) for pair in TABLE_I[:8]])
    known = np.isfinite(judged.predicted_j)
    trained = {(float(c), float(m)) for c, m in TABLE_I[:8]}
    for i in range(len(data)):
        assert known[i] == ((data.core_mhz[i], data.mem_mhz[i]) not in trained)


def test_every_scheme_predicts_every_row_once(data):
    for scheme, n_folds in (("kfold:5", 5), ("leave-one-kernel-out", len(set(data.labels)))):
        judged = cross_validate(data, scheme)
        assert judged.n_folds == n_folds
        assert np.isfinite(judged.predicted_j).all()


@pytest.mark.parametrize(
    ("scheme", "column"), [("leave-one-core-clock-out", 0), ("leave-one-memory-clock-out", 1)]
)
def test_a_clock_is_predicted_without_any_of_its_settings(data, scheme, column):
    mhz = data.mhz[data.setting, column]
    judged = cross_validate(data, scheme, "choi", voltage="known")
    assert judged.n_folds == len(set(mhz))
    expected = np.empty(len(data))
    for clock in set(mhz):
        left_out = mhz == clock
        fitted = fit(data.take(~left_out), "choi", "known", intervals=False)
        expected[left_out] = fitted.energy_j(data.take(left_out))
    np.testing.assert_allclose(judged.predicted_j, expected, rtol=1e-9)
    one = data.take(mhz == mhz[0])
    with pytest.raises(FitError, match="clocks or more"):
        cross_validate(one, scheme)


@pytest.mark.parametrize("scheme", ["kfold:1", "kfold:x", "kfold:", "nothing"])
def test_unknown_schemes_are_refused(data, scheme):
    with pytest.raises(FitError):
        cross_validate(data, scheme)


def test_a_scheme_that_leaves_nothing_to_fit_or_to_predict_is_refused(data):
    every = sorted(set(data.settings))
    one = data.take(data.setting == data.setting[0])
    unnamed = replace(data, node=np.array(["a", ""], object)[np.arange(len(data)) % 2])
    for rows, scheme, train, said in (
        (data, "holdout", every, "no setting to predict"),
        (data, "holdout", [Setting(1.0, 2.0)], "trains on 1/2 MHz, which was not measured"),
        (one, "leave-one-setting-out", None, "two settings or more"),
        (unnamed, "leave-one-node-out", None, "two named nodes or more"),
        (
            replace(data, node=without_node(data)),
            "leave-one-node-out",
            None,
            "two named nodes or more",
        ),
        (data, "leave-one-site-out", None, "two sites or more"),
    ):
        with pytest.raises(FitError, match=said):
            cross_validate(rows, scheme, "choi", train=train)
    with pytest.raises(FitError, match="time"):
        cross_validate(data, "kfold:5", time="never")


def test_leave_one_kernel_out_needs_counts(data):
    with pytest.raises(FitError, match="operation counts"):
        cross_validate(replace(data, counts={}), "leave-one-kernel-out")


def test_decisions_by_brute_force(data):
    rng = np.random.default_rng(0)
    guess = data.energy_j * rng.uniform(0.7, 1.3, len(data))
    cases = case_losses(data, Predicted(guess, data.time_s))
    choosers = losses_by_chooser(cases)
    picks, race, random, best_picks = [], [], [], 0
    for kernel in sorted(set(data.labels)):
        rows = [i for i in range(len(data)) if data.labels[i] == kernel]
        best = min(data.energy_j[i] for i in rows)
        chosen = min(rows, key=lambda i: guess[i])
        fastest = min(rows, key=lambda i: data.time_s[i])
        picks.append(data.energy_j[chosen] / best - 1)
        race.append(data.energy_j[fastest] / best - 1)
        random.append(np.mean([data.energy_j[i] / best - 1 for i in rows]))
        best_picks += data.energy_j[chosen] == best
    assert len(cases) == len(picks)
    assert choosers["picks"].mean_lost_pct == pytest.approx(np.mean(picks) * 100)
    assert choosers["picks"].exact == best_picks
    assert choosers["race_to_halt"].max_lost_pct == pytest.approx(np.max(race) * 100)
    assert choosers["random"].mean_lost_pct == pytest.approx(np.mean(random) * 100)


@pytest.mark.parametrize("name", ["time", "edp", "weighted:0.4"])
def test_losses_by_any_objective_by_brute_force(data, name):
    rng = np.random.default_rng(1)
    guess_j = data.energy_j * rng.uniform(0.7, 1.3, len(data))
    guess_s = data.time_s * rng.uniform(0.8, 1.2, len(data))
    noise = site_time_noise(data, measured_volts(data))

    def score(energy_j: dict, time_s: dict) -> dict:
        if name == "time":
            return dict(time_s)
        if name == "edp":
            return {at: energy_j[at] * time_s[at] for at in time_s}
        least_j, least_s = min(energy_j.values()), min(time_s.values())
        return {at: 0.4 * time_s[at] / least_s + 0.6 * energy_j[at] / least_j for at in time_s}

    cases = {
        case.label: case
        for case in case_losses(
            data, Predicted(guess_j, guess_s), exact(data), objective=objective(name), noise=noise
        )
    }
    for kernel in sorted(set(data.labels)):
        rows = np.flatnonzero(data.labels == kernel)
        at = [data.setting[i] for i in rows]
        measured = score(
            dict(zip(at, data.energy_j[rows], strict=True)),
            dict(zip(at, data.time_s[rows], strict=True)),
        )
        guessed = score(
            dict(zip(at, guess_j[rows], strict=True)), dict(zip(at, guess_s[rows], strict=True))
        )
        least = min(measured.values())
        chosen = min(guessed, key=guessed.get)
        times = {data.settings[s]: data.time_s[i] for s, i in zip(at, rows, strict=True)}
        fastest = data.settings.index(raced(times, noise[kernel]))
        lost = (measured[chosen] / least - 1) * 100
        assert cases[kernel].mean_pct("picks") == pytest.approx(lost, abs=1e-9)
        assert cases[kernel].mean_pct("physics") == 0.0
        assert cases[kernel].mean_pct("race_to_halt") == pytest.approx(
            (measured[fastest] / least - 1) * 100, abs=1e-9
        )


def test_nvmls_perf_per_watt_is_the_measured_setting_nearest_to_its_clock(data):
    """Of several memory clocks the highest; without a record there is no such row."""
    assert "perf_per_watt" not in losses_by_chooser(case_losses(data, exact(data)))
    wanted_mhz = 700.0
    with_record = replace(data, perf_per_watt_mhz=wanted_mhz)
    cases = case_losses(with_record, exact(data))
    for case in cases:
        rows = [i for i in range(len(data)) if data.labels[i] == case.label]
        least = min(data.energy_j[i] for i in rows)
        near = min(rows, key=lambda i: (abs(data.core_mhz[i] - wanted_mhz), -data.mem_mhz[i]))
        assert case.mean_pct("perf_per_watt") == pytest.approx(
            (data.energy_j[near] / least - 1) * 100
        )
    lost = [case.mean_pct("perf_per_watt") for case in cases]
    assert len(set(lost)) > 1
    assert losses_by_chooser(cases)["perf_per_watt"].mean_lost_pct == pytest.approx(np.mean(lost))
    judged = cross_validate(with_record, "kfold:4", "choi", voltage="known").as_dict()
    assert judged["decision"]["perf_per_watt"]["max_lost_pct"] == pytest.approx(max(lost))
    assert judged["against_perf_per_watt"]["mean_gain_pct"] == pytest.approx(
        np.mean(lost) - judged["decision"]["picks"]["mean_lost_pct"]
    )


def best_single_by_hand(data, rows) -> int:
    """The setting with the least mean of energy above each kernel's best, over some rows."""
    lost = {}
    for kernel in sorted(set(data.labels[rows])):
        mine = [i for i in rows if data.labels[i] == kernel]
        least = min(data.energy_j[i] for i in mine)
        for i in mine:
            lost.setdefault(data.setting[i], []).append(data.energy_j[i] / least - 1)
    return min(lost, key=lambda s: (np.mean(lost[s]), s))


def test_the_best_single_setting_is_that_of_the_other_kernels(data):
    judged = cross_validate(data, "leave-one-kernel-out", "choi", voltage="known")
    lost = []
    for kernel in sorted(set(data.labels)):
        rest = np.flatnonzero(data.labels != kernel)
        mine = np.flatnonzero(data.labels == kernel)
        single = best_single_by_hand(data, rest)
        at = next(i for i in mine if data.setting[i] == single)
        lost.append((data.energy_j[at] / data.energy_j[mine].min() - 1) * 100)
    chooser = judged.choosers["best_single"]
    assert chooser.mean_lost_pct == pytest.approx(np.mean(lost))
    assert chooser.max_lost_pct == pytest.approx(np.max(lost))
    assert chooser.exact == sum(loss == 0 for loss in lost)


def test_the_best_single_setting_never_comes_from_the_fold_that_is_predicted(data):
    """Without a setting the best of the others is taken, so its loss is a mean over the folds."""
    judged = cross_validate(data, "leave-one-setting-out", "choi", voltage="known")
    singles = [
        best_single_by_hand(data, np.flatnonzero(data.setting != left_out))
        for left_out in range(len(data.settings))
    ]
    for case in judged.cases:
        mine = np.flatnonzero(data.labels == case.label)
        over = {data.setting[i]: data.energy_j[i] / data.energy_j[mine].min() - 1 for i in mine}
        np.testing.assert_allclose(
            case.lost_pct["best_single"], [over[s] * 100 for s in singles], atol=1e-9
        )
    # Of a holdout no fitted setting is among those judged.
    assert "best_single" not in cross_validate(data, "holdout", "choi", voltage="known").choosers


def test_a_kernel_left_out_does_not_rank_the_settings(data):
    """By a weighted objective too, which divides by each kernel's least time and energy."""
    for name in ("energy", "weighted:0.5"):
        rest = data.labels != sorted(set(data.labels))[0]
        some = rank_single_settings(data.take(rest), objective(name))
        alone = replace(data.take(rest), **numbered(data.labels[rest]))
        np.testing.assert_array_equal(some, rank_single_settings(alone, objective(name)))
        assert sorted(some) == list(range(len(data.settings)))


def test_crossval_picks_by_the_objective_that_it_is_given(data):
    by_time = cross_validate(data, "kfold:3", "choi", voltage="known", objective="time")
    assert by_time.objective == by_time.as_dict()["decision"]["objective"] == "time"
    assert by_time.choosers["picks"].max_lost_pct == 0
    with pytest.raises(FitError, match="weighted:ALPHA"):
        cross_validate(data, "kfold:3", objective="power")


def test_a_perfect_prediction_loses_nothing(data):
    cases = case_losses(data, exact(data))
    choosers = losses_by_chooser(cases)
    assert choosers["picks"].mean_lost_pct == 0
    assert choosers["picks"].exact == len(cases)


def test_without_noise_energies_and_times_of_settings_left_out_are_found():
    quiet = observations(simulated_columns("off", per_family=4), "tk1")
    given, found = (
        cross_validate(quiet, "leave-one-setting-out", time=time).as_dict()
        for time in ("measured", "predicted")
    )
    assert (given["mape_pct"], given["time_mape_pct"]) == (pytest.approx(0.0, abs=0.01), 0.0)
    assert max(found["mape_pct"], found["picks_mape_pct"]) < 3.0
    assert found["time_mape_pct"] < 2.0


@pytest.mark.parametrize("scheme", ["holdout", "leave-one-memory-clock-out"])
def test_no_pick_sees_the_energies_that_it_predicts(data, scheme):
    """Where all that a fold predicts costs a hundred times as much, predictions are the same: an
    error of 1 - x/100 in place of |x - 1|."""
    test = next(folds(data, scheme, None))
    ruined = replace(data, energy_j=np.where(test, 100.0, 1.0) * data.energy_j)
    error, of_ruined = np.full((2, len(data)), np.nan)
    for rows, into in ((data, error), (ruined, of_ruined)):
        judged = cross_validate(rows, scheme, "choi", voltage="known")
        into[np.isfinite(judged.predicted_j)] = judged.picks_error_pct / 100.0
    x = 100.0 * (1.0 - of_ruined[test])
    np.testing.assert_allclose(np.abs(x - 1.0), error[test], atol=1e-6)


def test_what_picks_lose_without_the_measured_times_is_that_of_predicted_times(data):
    given, found = (
        cross_validate(data, "kfold:3", "choi", voltage="known", time=time).as_dict()["decision"]
        for time in ("measured", "predicted")
    )
    assert given["picks_predicted_time"]["mean_lost_pct"] == found["picks"]["mean_lost_pct"]
    assert "picks_predicted_time" not in found


def test_picks_against_brute_force(data):
    """Each candidate's cost above the best one, averaged over the draws."""
    noise = site_time_noise(data, measured_volts(data))
    for kernel, among in all_candidates(data, sorted(set(data.labels))[:6]).items():
        rows = [i for i in range(len(data)) if data.labels[i] == kernel]
        time = {data.settings[data.setting[i]]: data.time_s[i] for i in rows}
        energy = dict(zip(among.settings, among.energy_j, strict=True))
        fastest = raced(time, noise[kernel])

        def cheapest(power, legal, among=among):
            score = among.energy_draws_j * among.time_draws_s**power
            above = {s: score[i] for i, s in enumerate(among.settings) if s in legal}
            least = np.min(list(above.values()), axis=0)
            return min(above, key=lambda s: np.mean(above[s] / least))

        for name, power in (("energy", 0), ("edp", 1), ("ed2p", 2)):
            best = cheapest(power, time)
            chosen = pick(among, name)
            assert chosen.setting == best
            assert chosen.saving_pct == pytest.approx((1 - energy[best] / energy[fastest]) * 100)
            assert chosen.slowdown_pct == pytest.approx((time[best] / time[fastest] - 1) * 100)
        legal = [s for s in time if time[s] <= 1.05 * min(time.values())]
        chosen = pick(among, "energy", max_slowdown=0.05)
        assert chosen.setting == cheapest(0, legal)
        # The least time, against equally fast settings' highest clocks.
        above = min(time.values()) / time[fastest] - 1
        assert pick(among, "time").slowdown_pct == pytest.approx(above * 100)


def test_a_kernel_without_counts_that_a_fold_never_saw_is_not_predicted(data):
    """It was measured at one setting alone: without that, nothing of it is known."""
    lumped = replace(data, counts={})
    kernel = sorted(set(data.labels))[0]
    keep = (data.labels != kernel) | (data.setting == 3)
    judged = cross_validate(lumped.take(keep), "leave-one-setting-out", "choi")
    mine = lumped.take(keep).labels == kernel
    assert np.isnan(judged.predicted_j[mine]).all()
    assert np.isfinite(judged.predicted_j[~mine]).all()
    assert judged.as_dict()["max_pct"] < 50


def test_a_fold_of_which_nothing_is_predicted_has_no_error(data):
    """The fourth setting is that of one kernel alone, which no other setting has."""
    lumped = replace(data, counts={})
    only_there = lumped.labels == sorted(set(data.labels))[0]
    fourth = lumped.setting == np.unique(lumped.setting)[3]
    judged = cross_validate(lumped.take(only_there == fourth), "leave-one-setting-out", "choi")
    settings = len(np.unique(lumped.setting))
    assert judged.n_folds == settings
    assert judged.fold_error_pct.shape == (settings - 1,)
    assert np.isfinite(judged.fold_error_pct).all()


@pytest.mark.parametrize("third", ["b", ""])
def test_each_named_node_is_left_out_once(data, third):
    """Rows of no named node are fitted in both folds, and not predicted."""
    node = np.array(["a", "b", third], object)[np.arange(len(data)) % 3]
    of_nodes = replace(data, node=node)
    judged = cross_validate(of_nodes, "leave-one-node-out", "choi", voltage="known")
    assert judged.n_folds == 2
    np.testing.assert_array_equal(np.isfinite(judged.predicted_j), node != "")
    for name in ("a", "b"):
        mine = node == name
        others = fit(of_nodes.take(~mine), "choi", "known", intervals=False)
        expected = others.energy_j(of_nodes.take(mine))
        np.testing.assert_allclose(judged.predicted_j[mine], expected, rtol=1e-9)


@pytest.mark.parametrize("repeats", [1, 3])
def test_folds_are_judged_by_the_posterior_that_picks_are_made_from(repeats):
    """With nothing left out it is the same one, also where no repeat shows the noise."""
    data = grid_observations(3, counted=0.0, repeats=repeats, noise=0.05)
    found = site_posterior(data, measured_volts(data))
    whole = found.from_cells(found.cells(data))
    np.testing.assert_allclose(whole.energy_j, found.energy_j, rtol=1e-9)
    np.testing.assert_allclose(whole.time_s, found.time_s, rtol=1e-9)
    n, s = len(found.settings), 2
    hidden = np.zeros((len(found.labels), 2 * n), bool)
    hidden[:, [s, n + s]] = True
    place = np.array([found.settings.index(setting) for setting in data.settings])
    left_out = found.cells(data.take(place[data.setting] == s))
    judged = found.from_cells(found.cells(data) - left_out)
    expected = np.exp(found.posterior.without(hidden).log_j)
    np.testing.assert_allclose(judged.energy_j, expected, rtol=1e-9)
