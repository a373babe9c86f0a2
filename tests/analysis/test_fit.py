"""The fit finds the constants that the measurements were made with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import optimize

from analysis.energy_model import design_matrix
from analysis.fit import Fit, costs_at, fit
from analysis.observations import CantFit, observations
from tests.analysis.twin_data import TABLE_I, twin_dataset

# Seed 003, Table I: pJ/V^2 (its pJ over V^2), and constant power in W by setting.
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
    return observations(twin_dataset("off"), "tk1")


@pytest.fixture(scope="module")
def noisy():
    return observations(twin_dataset("default"), "tk1")


def volts(data, pair):
    mine = data.setting == data.settings.index(pair)
    return data.core_v[mine][0], data.mem_v[mine][0]


def test_without_noise_the_tables_constants_come_back(quiet):
    found = fit(quiet)
    values = {term.name: v for term, v in zip(found.terms, found.value, strict=True)}
    for name, constant in CONSTANTS.items():
        assert values[f"c0_{name}"] == pytest.approx(constant, rel=0.005)
    for pair, power_w in CONSTANT_W.items():
        costs = costs_at(found, *pair, *volts(quiet, pair))
        assert costs.constant_w[0] == pytest.approx(power_w, abs=0.06)


def test_with_noise_they_lie_in_the_intervals(noisy):
    found = fit(noisy)
    assert found.simulated
    for term, low, high in zip(found.terms, found.low, found.high, strict=True):
        if term.kind == "class":
            assert low <= CONSTANTS[term.of] <= high
            assert high - low < 0.25 * CONSTANTS[term.of]
    for pair, power_w in CONSTANT_W.items():
        _, low, high = costs_at(found, *pair, *volts(noisy, pair)).constant_w
        assert low <= power_w <= high


def test_where_no_bound_holds_it_is_weighted_least_squares(noisy):
    """Against statsmodels: WLS of energy with weights 1/E^2, where its solution is positive."""
    found = fit(noisy, intervals=False)
    terms = [t for t in found.terms if found.value[found.terms.index(t)] > 0]
    matrix = design_matrix(noisy, terms)
    wls = sm.WLS(noisy.energy_j, matrix, weights=noisy.energy_j**-2.0).fit()
    assert (wls.params > 0).all()
    kept = [found.value[found.terms.index(t)] for t in terms]
    np.testing.assert_allclose(kept, wls.params, rtol=1e-6)


def test_intervals_cover_what_they_should():
    """Of 40 noisy campaigns, the 95 % intervals hold the truth in at least 85 % of cases."""
    held = []
    for salt in range(40):
        data = observations(twin_dataset("default", f"{salt}/", per_family=4), "tk1")
        # A setting's own error is drawn from its name: shift the names to draw it anew.
        shift = np.random.default_rng(salt).normal(1.0, 0.01, len(data.settings))
        found = fit(replace(data, energy_j=data.energy_j * shift[data.setting]))
        held += [
            low <= CONSTANTS[t.of] <= high
            for t, low, high in zip(found.terms, found.low, found.high, strict=True)
            if t.kind == "class"
        ]
    assert np.mean(held) >= 0.85


def test_lumped_kernels_share_the_constant_power(quiet):
    """Without counts every kernel has two terms of its own, and the energies still come out."""
    lumped = replace(quiet, counts={})
    found = fit(lumped, intervals=False)
    assert {t.kind for t in found.terms} == {"lumped", "leak", "misc"}
    np.testing.assert_allclose(found.energy_j(lumped), quiet.energy_j, rtol=1e-6)


def test_the_clock_term_is_found_where_there_is_one(quiet):
    """Energy with a known g_core V^2 f T added: the fit that has the term returns it."""
    g_core = 2e-3
    extra_j = g_core * quiet.core_v**2 * quiet.core_mhz * quiet.time_s
    data = replace(quiet, energy_j=quiet.energy_j + extra_j)
    found = fit(data, "choi+clock")
    values = {t.name: v for t, v in zip(found.terms, found.value, strict=True)}
    assert values["g_core"] == pytest.approx(g_core, rel=0.02)


def test_terms_that_cannot_be_told_apart_are_merged_and_told(quiet):
    flat = replace(quiet, mem_v=np.ones(len(quiet)), core_v=np.ones(len(quiet)), voltage="unit")
    found = fit(flat, "choi", "unit")
    assert [d["name"] for d in found.dropped] == ["c1_core", "c1_mem"]
    assert all("merged into p_misc" in d["why"] for d in found.dropped)


def test_one_setting_gives_no_interval_and_too_few_rows_no_fit(quiet):
    one = quiet.take(quiet.setting == 0)
    assert np.isnan(fit(one).low).all()
    assert fit(one).as_dict()["coefficients"][0]["low"] is None
    with pytest.raises(CantFit, match="measure more"):
        fit(quiet.take(np.arange(3)))


def test_a_fit_comes_back_from_the_store(noisy):
    import json

    found = fit(noisy)
    again = Fit.from_store(json.loads(json.dumps(found.to_store())))
    np.testing.assert_array_equal(again.value, found.value)
    np.testing.assert_array_equal(again.covariance, found.covariance)
    np.testing.assert_array_equal(again.energy_j(noisy), found.energy_j(noisy))


def test_scipys_own_nnls_agrees(noisy):
    found = fit(noisy, intervals=False)
    matrix = design_matrix(noisy, found.terms) / noisy.energy_j[:, None]
    scale = np.linalg.norm(matrix, axis=0)
    direct = optimize.nnls(matrix / scale, np.ones(len(noisy)))[0] / scale
    np.testing.assert_allclose(found.value, direct, rtol=1e-6, atol=1e-9)
