"""Cross-validation against loops written out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis.choice.crossval import case_losses, cross_validate, decide
from analysis.choice.pick import candidates, pick
from analysis.energy.fit import fit
from analysis.energy.terms.registry import design_matrix, model_terms
from analysis.measurements.observations import CantFit, observations
from analysis.time.kernel_roofline import fit_time
from tests.analysis.twin_data import TABLE_I, twin_dataset


@pytest.fixture(scope="module")
def data():
    return observations(twin_dataset("default", per_family=4), "tk1")


def test_leave_one_setting_out_by_hand(data):
    from scipy.optimize import nnls

    terms, _ = model_terms(data, "choi")
    matrix = design_matrix(data, terms)
    expected = np.empty(len(data))
    for pair in TABLE_I:
        test = (data.core_mhz == pair[0]) & (data.mem_mhz == pair[1])
        a = matrix[~test] / data.energy_j[~test, None]
        scale = np.abs(a).max(axis=0)
        x = nnls(a / scale, np.ones((~test).sum()))[0] / scale
        expected[test] = matrix[test] @ x
    found = cross_validate(data, "leave-one-setting-out")
    np.testing.assert_allclose(found.predicted_j, expected, rtol=1e-6)
    error = np.abs(expected / data.energy_j - 1) * 100
    shown = found.as_dict()
    assert shown["mape_pct"] == pytest.approx(error.mean())
    assert shown["max_pct"] == pytest.approx(error.max())
    assert shown["n_folds"] == 16


def test_no_fold_sees_what_it_predicts(data):
    """Ruin one setting's energies: its own predictions must not change."""
    pair = data.settings.index((852.0, 924.0))
    ruined = data.energy_j.copy()
    ruined[data.setting == pair] *= 7.0
    found, other = (
        cross_validate(d, "leave-one-setting-out").predicted_j
        for d in (data, replace(data, energy_j=ruined))
    )
    mine = data.setting == pair
    np.testing.assert_array_equal(found[mine], other[mine])
    assert not np.allclose(found[~mine], other[~mine], rtol=1e-3)


def test_holdout_predicts_the_settings_that_were_not_trained_on(data):
    found = cross_validate(data, "holdout", train=[(float(c), float(m)) for c, m in TABLE_I[:8]])
    known = np.isfinite(found.predicted_j)
    trained = {(float(c), float(m)) for c, m in TABLE_I[:8]}
    for i in range(len(data)):
        assert known[i] == ((data.core_mhz[i], data.mem_mhz[i]) not in trained)


def test_every_scheme_predicts_every_row_once(data):
    for scheme, folds in (("kfold:5", 5), ("leave-one-kernel-out", len(set(data.kernel)))):
        found = cross_validate(data, scheme)
        assert found.n_folds == folds
        assert np.isfinite(found.predicted_j).all()


@pytest.mark.parametrize("scheme", ["kfold:1", "kfold:x", "kfold:", "nothing"])
def test_unknown_schemes_are_refused(data, scheme):
    with pytest.raises(CantFit):
        cross_validate(data, scheme)


def test_leave_one_kernel_out_needs_counts(data):
    with pytest.raises(CantFit, match="operation counts"):
        cross_validate(replace(data, counts={}), "leave-one-kernel-out")


def test_decisions_by_brute_force(data):
    rng = np.random.default_rng(0)
    guess = data.energy_j * rng.uniform(0.7, 1.3, len(data))
    cases = case_losses(data, guess)
    choosers = decide(cases)
    model, race, random, exact = [], [], [], 0
    for kernel in sorted(set(data.kernel)):
        rows = [i for i in range(len(data)) if data.kernel[i] == kernel]
        best = min(data.energy_j[i] for i in rows)
        chosen = min(rows, key=lambda i: guess[i])
        fastest = min(rows, key=lambda i: data.time_s[i])
        model.append(data.energy_j[chosen] / best - 1)
        race.append(data.energy_j[fastest] / best - 1)
        random.append(np.mean([data.energy_j[i] / best - 1 for i in rows]))
        exact += data.energy_j[chosen] == best
    assert len(cases) == len(model)
    assert choosers["model"].mean_lost_pct == pytest.approx(np.mean(model) * 100)
    assert choosers["model"].exact == exact
    assert choosers["race_to_halt"].max_lost_pct == pytest.approx(np.max(race) * 100)
    assert choosers["random"].mean_lost_pct == pytest.approx(np.mean(random) * 100)


def test_a_perfect_prediction_loses_nothing(data):
    cases = case_losses(data, data.energy_j)
    choosers = decide(cases)
    assert choosers["model"].mean_lost_pct == 0
    assert choosers["model"].exact == len(cases)


def test_the_time_model_finds_the_twins_roofline():
    quiet = observations(twin_dataset("off", per_family=4), "tk1")
    for time in ("measured", "predicted"):
        found = cross_validate(quiet, "leave-one-setting-out", time=time)
        assert found.as_dict()["mape_pct"] < {"measured": 0.01, "predicted": 3.0}[time]
    model = fit_time(quiet)
    for kernel in set(quiet.kernel):
        mine = quiet.kernel == kernel
        predicted = model.time_s(kernel, quiet.core_mhz[mine], quiet.mem_mhz[mine])
        np.testing.assert_allclose(predicted, quiet.time_s[mine], rtol=0.02)


def test_picks_against_brute_force(data):
    found = fit(data, intervals=False)
    for kernel in sorted(set(data.kernel))[:6]:
        among = candidates(found, data, kernel)
        rows = [i for i in range(len(data)) if data.kernel[i] == kernel]
        energy = {(data.core_mhz[i], data.mem_mhz[i]): found.energy_j(data)[i] for i in rows}
        time = {(data.core_mhz[i], data.mem_mhz[i]): data.time_s[i] for i in rows}
        fastest = min(time, key=time.get)
        for objective, power in (("energy", 0), ("edp", 1), ("ed2p", 2)):
            best = min(energy, key=lambda s: energy[s] * time[s] ** power)
            chosen = pick(among, objective)
            assert (chosen.core_mhz, chosen.mem_mhz) == best
            assert chosen.saving_pct == pytest.approx((1 - energy[best] / energy[fastest]) * 100)
            assert chosen.slowdown_pct == pytest.approx((time[best] / time[fastest] - 1) * 100)
        legal = [s for s in energy if time[s] <= 1.05 * time[fastest]]
        chosen = pick(among, "energy", max_slowdown=0.05)
        assert (chosen.core_mhz, chosen.mem_mhz) == min(legal, key=energy.get)
        assert pick(among, "time").slowdown_pct == 0


def test_a_kernel_without_counts_that_a_fold_never_saw_is_not_predicted(data):
    """It was measured at one setting alone: without that, nothing of it is known."""
    lumped = replace(data, counts={})
    kernel = sorted(set(data.kernel))[0]
    keep = (data.kernel != kernel) | (data.setting == 3)
    found = cross_validate(lumped.take(keep), "leave-one-setting-out", "choi")
    mine = lumped.take(keep).kernel == kernel
    assert np.isnan(found.predicted_j[mine]).all()
    assert np.isfinite(found.predicted_j[~mine]).all()
    assert found.as_dict()["max_pct"] < 50
