"""The fit finds the constants that the measurements were made with."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import optimize

from analysis.energy.fit import fit
from analysis.energy.fit_file import as_kept, fit_of
from analysis.energy.fitted import costs_at
from analysis.energy.terms.registry import design_matrix
from analysis.measurements.observations import FitError, observations, setting_text
from dvfs.dataset import Columns
from dvfs.setting import Setting
from tests.analysis.simulated_tk1 import TABLE_I, simulated_columns
from tests.analysis.synthetic import grid_observations, without_node

# Choi & Vuduc 2016, Table I: pJ/V^2 (its pJ over V^2), and constant power in W by setting.
CONSTANTS = {"sp": 27.3, "dp": 131.1, "int": 56.5, "shared": 33.3, "l2": 85.0, "dram": 369.5}
CONSTANT_W = dict(
    zip(
        TABLE_I,
        [
            6.8,
            6.1,
            6.3,
            5.9,
            5.6,
            6.0,
            5.6,
            5.2,
            6.6,
            5.5,
            5.8,
            5.4,
            5.8,
            5.2,
            5.8,
            6.0,
        ],
        strict=True,
    )
)


@pytest.fixture(scope="module")
def quiet():
    return observations(simulated_columns("off"), "tk1")


@pytest.fixture(scope="module")
def noisy():
    return observations(simulated_columns("default"), "tk1")


def volts(data, pair):
    mine = data.setting == data.settings.index(Setting(*pair))
    return data.core_v[mine][0], data.mem_v[mine][0]


def test_without_noise_the_tables_constants_come_back(quiet):
    fitted = fit(quiet)
    values = {term.name: v for term, v in zip(fitted.terms, fitted.value, strict=True)}
    for name, constant in CONSTANTS.items():
        assert values[f"c0_{name}"] == pytest.approx(constant, rel=0.005)
    for pair, power_w in CONSTANT_W.items():
        costs = costs_at(fitted, Setting(*pair), *volts(quiet, pair))
        assert costs.constant_w[0] == pytest.approx(power_w, abs=0.06)


def test_a_memory_voltage_that_some_rows_lack_is_that_of_the_others_at_their_clock():
    dataset = simulated_columns("off", per_family=2)
    known = observations(dataset, "tk1").mem_v
    of_first = dataset["kernel"] == dataset["kernel"][0]
    lacking = dataset.replaced({"mem_v": np.where(of_first, np.nan, dataset["mem_v"])})
    np.testing.assert_allclose(observations(lacking, "tk1").mem_v, known, rtol=1e-12)
    mem_v = np.where(dataset["mem_mhz"] == 924.0, dataset["mem_v"], np.nan)
    at_one_clock = dataset.replaced({"mem_v": mem_v})
    assert (observations(at_one_clock, "tk1").mem_v == 1.0).all()


def test_a_count_that_some_rows_lack_is_that_of_the_kernels_others():
    dataset = simulated_columns("off", per_family=2)
    counts = observations(dataset, "tk1").counts["dp"]
    row = int(np.flatnonzero(np.isfinite(counts))[0])
    n_dp = dataset["n_dp"].copy()
    n_dp[row] = np.nan
    lacking = observations(dataset.replaced({"n_dp": n_dp}), "tk1").counts["dp"]
    np.testing.assert_allclose(lacking, counts, rtol=1e-12)
    assert np.isnan(lacking).any()  # a class that a kernel never counts stays unknown


def test_a_count_that_varies_with_the_setting_is_that_of_the_same_setting():
    once = simulated_columns("off", per_family=2)
    n_dp = once["n_dp"] * np.where(once["core_mhz"] == 852.0, 2.0, 1.0)
    row = int(np.flatnonzero(np.isfinite(n_dp) & (once["core_mhz"] == 852.0))[0])
    lacking = n_dp.copy()
    lacking[row] = np.nan
    twice = {name: np.concatenate([values, values]) for name, values in once.items()}
    all_known, one_unknown = (
        Columns(twice | {"n_dp": np.concatenate([n_dp, second])}) for second in (n_dp, lacking)
    )
    counts = observations(one_unknown, "tk1").counts["dp"]
    np.testing.assert_allclose(counts, observations(all_known, "tk1").counts["dp"], rtol=1e-12)


def test_a_core_voltage_that_one_row_lacks_is_that_of_the_others_at_its_clock():
    dataset = simulated_columns("off")
    core_v = dataset["core_v"].copy()
    core_v[0] = np.nan
    data = observations(dataset.replaced({"core_v": core_v}), "tk1")
    assert data.core_v[0] == pytest.approx(float(dataset["core_v"][0]), rel=1e-12)
    fitted = fit(data)
    values = {term.name: v for term, v in zip(fitted.terms, fitted.value, strict=True)}
    assert values["c0_dp"] == pytest.approx(CONSTANTS["dp"], rel=0.005)
    core_v = np.where(dataset["core_mhz"] == 852.0, dataset["core_v"], np.nan)
    at_one_clock = dataset.replaced({"core_v": core_v})
    assert observations(at_one_clock, "tk1").voltage == "unit"


def test_with_noise_they_lie_in_the_intervals(noisy):
    fitted = fit(noisy)
    assert fitted.simulated
    for term, low, high in zip(fitted.terms, fitted.low, fitted.high, strict=True):
        if term.kind == "class":
            assert low <= CONSTANTS[term.of] <= high
            assert high - low < 0.25 * CONSTANTS[term.of]
    for pair, power_w in CONSTANT_W.items():
        _, low, high = costs_at(fitted, Setting(*pair), *volts(noisy, pair)).constant_w
        assert low <= power_w <= high


def test_where_no_bound_holds_it_is_weighted_least_squares(noisy):
    """Against statsmodels: WLS of energy with weights 1/E^2, where its solution is positive."""
    fitted = fit(noisy, intervals=False)
    terms = [t for t in fitted.terms if fitted.value[fitted.terms.index(t)] > 0]
    matrix = design_matrix(noisy, terms)
    wls = sm.WLS(noisy.energy_j, matrix, weights=noisy.energy_j**-2.0).fit()
    assert (wls.params > 0).all()
    kept = [fitted.value[fitted.terms.index(t)] for t in terms]
    np.testing.assert_allclose(kept, wls.params, rtol=1e-6)


def test_intervals_cover_what_they_should(quiet):
    """Of 60 campaigns with noise of settings and of runs, 95 % intervals hold 90 to 99 %."""
    truth = fit(quiet, "choi", "known", intervals=False)
    constants = {t.name: v for t, v in zip(truth.terms, truth.value, strict=True)}
    held = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        gain = 1 + rng.normal(0, 0.015, len(quiet.settings))[quiet.setting]
        gain += rng.normal(0, 0.025, len(quiet))
        slower = 1 + rng.normal(0, 0.003, len(quiet))
        noisy = replace(quiet, energy_j=quiet.energy_j * gain, time_s=quiet.time_s * slower)
        fitted = fit(noisy, "choi", "known")
        held += [
            low <= constants[t.name] <= high
            for t, low, high in zip(fitted.terms, fitted.low, fitted.high, strict=True)
            if t.kind == "class"
        ]
    assert len(held) == 60 * len(CONSTANTS)
    assert 0.90 <= np.mean(held) <= 0.99


def test_lumped_kernels_share_the_constant_power(quiet):
    """Without counts every kernel has two terms of its own, and the energies still come out."""
    lumped = replace(quiet, counts={})
    fitted = fit(lumped, intervals=False)
    assert {t.kind for t in fitted.terms} == {"lumped", "leak", "misc"}
    np.testing.assert_allclose(fitted.energy_j(lumped), quiet.energy_j, rtol=1e-6)


def test_the_clock_term_is_found_where_there_is_one(quiet):
    """Energy with a known g_core V^2 f T added: the fit that has the term returns it."""
    g_core = 2e-3
    extra_j = g_core * quiet.core_v**2 * quiet.core_mhz * quiet.time_s
    data = replace(quiet, energy_j=quiet.energy_j + extra_j)
    fitted = fit(data, "choi+clock")
    values = {t.name: v for t, v in zip(fitted.terms, fitted.value, strict=True)}
    assert values["g_core"] == pytest.approx(g_core, rel=0.02)


def test_terms_that_cannot_be_separated_are_merged_and_reported(quiet):
    flat = replace(quiet, mem_v=np.ones(len(quiet)), core_v=np.ones(len(quiet)), voltage="unit")
    fitted = fit(flat, "choi", "unit")
    assert [d["name"] for d in fitted.dropped] == ["c1_core", "c1_mem"]
    assert all("merged into p_misc" in d["why"] for d in fitted.dropped)


def test_one_setting_gives_no_interval_and_too_few_rows_no_fit(quiet):
    one = quiet.take(quiet.setting == 0)
    assert np.isnan(fit(one).low).all()
    assert fit(one).as_dict()["coefficients"][0]["low"] is None
    with pytest.raises(FitError, match="measure more"):
        fit(quiet.take(np.arange(3)))


def test_a_kernel_with_different_ranks_is_not_fitted_as_one():
    data = simulated_columns("off", per_family=1)
    same = data.replaced({"ranks": np.full(len(data["site"]), 4)})
    assert len(observations(same, "tk1")) == len(data["site"])
    ranks = np.where(data["core_mhz"] > 600.0, 4, 8)
    with pytest.raises(FitError, match=r"was measured with [48] and with [48] ranks"):
        observations(data.replaced({"ranks": ranks}), "tk1")


def test_scipys_own_nnls_agrees(noisy):
    fitted = fit(noisy, intervals=False)
    matrix = design_matrix(noisy, fitted.terms) / noisy.energy_j[:, None]
    scale = np.linalg.norm(matrix, axis=0)
    direct = optimize.nnls(matrix / scale, np.ones(len(noisy)))[0] / scale
    np.testing.assert_allclose(fitted.value, direct, rtol=1e-6, atol=1e-9)


@pytest.fixture(scope="module")
def known():
    """Rows that the model says exactly, but for 1 % of noise."""
    return grid_observations(4, kernels=10, noise=0.01, clock_tree=False)


def test_a_robust_fit_names_the_outliers_that_were_planted_and_ignores_them(known):
    planted = [3, 17, 40, 66]
    factor = np.ones(len(known))
    factor[planted] = [3.0, 0.3, 5.0, 2.0]
    spoiled = replace(known, energy_j=known.energy_j * factor)
    clean = fit(known, "choi", "known", intervals=False)
    robust = fit(spoiled, "choi", "known", robust=True)
    expected = {
        (spoiled.labels[i], setting_text(spoiled.settings[spoiled.setting[i]])) for i in planted
    }
    assert {(o["kernel"], o["setting"]) for o in robust.outliers} == expected
    assert len(robust.outliers) == len(planted)
    deviations = [o["deviations"] for o in robust.outliers]
    assert deviations == sorted(deviations, reverse=True)
    plain = fit(spoiled, "choi", "known", intervals=False)
    error = {
        name: np.abs(fitted.energy_j(known) / clean.energy_j(known) - 1).max()
        for name, fitted in (("robust", robust), ("plain", plain))
    }
    assert error["robust"] < 0.02
    assert error["robust"] < 0.2 * error["plain"]


def test_rows_without_outliers_have_none_and_robust_changes_little(known):
    robust = fit(known, "choi", "known", robust=True)
    assert not robust.outliers
    plain = fit(known, "choi", "known", intervals=False)
    np.testing.assert_allclose(robust.energy_j(known), plain.energy_j(known), rtol=0.005)


def test_known_uncertainties_make_the_constants_surer():
    """Half of the rows are 20 times noisier, and say so: over 30 seeds the constants' mean
    squared error must fall below half of that without weights."""
    exact = grid_observations(6, kernels=12, clock_tree=False)
    truth = fit(exact, "choi", "known", intervals=False).value
    weighted, plain = [], []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        relative = np.where(rng.random(len(exact)) < 0.5, 0.005, 0.1)
        energy_j = exact.energy_j * (1 + relative * rng.normal(size=len(exact)))
        data = replace(exact, energy_j=energy_j)
        said = replace(data, energy_std_j=relative * energy_j)
        for rows, errors in ((said, weighted), (data, plain)):
            value = fit(rows, "choi", "known", intervals=False).value
            errors.append(((value[:3] / truth[:3] - 1) ** 2).mean())
    assert np.mean(weighted) < 0.5 * np.mean(plain)


def test_a_row_without_an_uncertainty_counts_like_the_median_one():
    exact = grid_observations(6, kernels=6, clock_tree=False, noise=0.02)
    relative = np.full(len(exact), 0.02)
    said = replace(exact, energy_std_j=relative * exact.energy_j)
    some = replace(
        said, energy_std_j=np.where(np.arange(len(exact)) % 3, said.energy_std_j, np.nan)
    )
    one, other = (fit(rows, "choi", "known", intervals=False).value for rows in (said, some))
    np.testing.assert_allclose(one, other, rtol=1e-9)
    none = replace(exact, energy_std_j=np.full(len(exact), np.nan))
    np.testing.assert_array_equal(
        fit(none, "choi", "known", intervals=False).value,
        fit(exact, "choi", "known", intervals=False).value,
    )


def test_classes_in_a_constant_ratio_are_named_as_confounded(known):
    """The settings confound other terms too, none of which is a class of operations."""
    tied = replace(known, counts=known.counts | {"int": 3.0 * known.counts["sp"]})
    before, after = (fit(data, "choi", "known").confounded for data in (known, tied))
    assert not any(term.startswith("c0_") for group in before for term in group["terms"])
    groups = [group for group in after if "c0_sp" in group["terms"]]
    assert [sorted(group["terms"]) for group in groups] == [["c0_int", "c0_sp"]]
    assert "sp to int" in groups[0]["remedy"] or "int to sp" in groups[0]["remedy"]


def with_nodes(quiet, seed: int, node_std: float):
    """Rows of four nodes, each with a gain of its own: (with node names, without)."""
    rng = np.random.default_rng(seed)
    node = rng.choice(np.array(list("abcd"), object), len(quiet))
    gain = dict(zip("abcd", 1 + rng.normal(0, node_std, 4), strict=True))
    energy_j = quiet.energy_j * np.array([gain[n] for n in node])
    energy_j *= rng.normal(1, 0.025, len(quiet))
    energy_j *= (1 + rng.normal(0, 0.015, len(quiet.settings)))[quiet.setting]
    noisy = replace(quiet, energy_j=energy_j)
    return replace(noisy, node=node), replace(noisy, node=without_node(noisy))


def test_what_nodes_have_in_common_widens_intervals_on_the_whole(quiet):
    """By a fifth at the median at least; fewer than three nodes change nothing, nor do rows that
    name none in addition to those of two nodes."""
    named, unnamed = with_nodes(quiet, 1, 0.08)
    two = replace(named, node=np.where(named.node < "c", "a", "c").astype(object))
    and_nameless = replace(two, node=np.where(named.node == "b", "", two.node).astype(object))
    fits = [fit(data, "choi", "known") for data in (named, unnamed, two, and_nameless)]
    np.testing.assert_array_equal(fits[0].value, fits[1].value)
    for few in fits[2:]:
        np.testing.assert_array_equal(few.covariance, fits[1].covariance)
        np.testing.assert_array_equal(few.high, fits[1].high)
    width = [fitted.high - fitted.value for fitted in fits]
    assert np.median(width[0] / width[1]) > 1.2


def test_intervals_count_the_choice_of_the_form(quiet):
    """Where the data hardly separate two forms, the other one widens the intervals."""
    rng = np.random.default_rng(10)
    gain = 1 + rng.normal(0, 0.015, len(quiet.settings))[quiet.setting]
    gain += rng.normal(0, 0.025, len(quiet))
    data = replace(quiet, energy_j=quiet.energy_j * gain)
    named, chosen = fit(data, "choi", "known"), fit(data, "auto", "known")
    np.testing.assert_array_equal(named.covariance_with_choice, named.covariance)
    assert chosen.model == "choi"
    np.testing.assert_array_equal(chosen.covariance, named.covariance)
    place = [term.name for term in chosen.terms].index("c1_core")
    without = [
        fit(data.take(data.setting != s), "auto", "known", intervals=False)
        for s in range(len(data.settings))
    ]
    value = [
        fitted.value[[term.name for term in fitted.terms].index("c1_core")] for fitted in without
    ]
    assert {fitted.model for fitted in without} == {"choi", "choi+clock"}
    wider = chosen.covariance_with_choice[place, place]
    assert wider == pytest.approx(np.var(value) * (len(value) - 1), rel=1e-6)
    assert wider > 2 * chosen.covariance[place, place]


def test_at_zero_volts_the_constant_power_and_its_interval_are_those_of_p_misc(quiet):
    """Also of a kept fit, and where nodes are fewer than settings."""
    made = fit(with_nodes(quiet, 1, 0.08)[0], "choi", "known")
    at = [term.name for term in made.terms].index("p_misc")
    for one in (made, fit_of(json.loads(json.dumps(as_kept(made))))):
        costs = costs_at(one, quiet.settings[0], 0.0, 0.0)
        expected = one.value[at], one.low[at], one.high[at]
        assert costs.constant_w == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("node_std", [0.0, 0.05])
def test_nodes_never_make_a_constant_surer(quiet, node_std):
    """What is not known of nodes comes on top of what is not known of settings."""
    for seed in range(8):
        named, unnamed = (fit(data, "choi", "known") for data in with_nodes(quiet, seed, node_std))
        more, less = np.diag(named.covariance), np.diag(unnamed.covariance)
        assert (more >= less * (1 - 1e-6)).all(), (more / less).min()


def test_one_node_for_each_setting_adds_nothing(quiet):
    """Nodes that are the settings, each of its own: by nodes and by settings is the same."""
    node = np.array([f"node-{s}" for s in quiet.setting], object)
    rng = np.random.default_rng(2)
    energy_j = quiet.energy_j * rng.normal(1, 0.02, len(quiet))
    without, with_nodes = (
        fit(replace(quiet, energy_j=energy_j, node=names), "choi", "known")
        for names in (without_node(node), node)
    )
    np.testing.assert_allclose(
        with_nodes.covariance, without.covariance, rtol=1e-3, atol=1e-6 * without.covariance.max()
    )


def test_the_parts_of_a_prediction_are_the_prediction(known):
    fitted = fit(known, "choi", "known", intervals=False)
    parts = fitted.parts_j(known)
    np.testing.assert_allclose(parts.sum(axis=1), fitted.energy_j(known), rtol=1e-12)
    sp = [term.name for term in fitted.terms].index("c0_sp")
    by_hand = fitted.value[sp] * 1e-12 * known.counts["sp"] * known.core_v**2
    np.testing.assert_allclose(parts[:, sp], by_hand, rtol=1e-12)
