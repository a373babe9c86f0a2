"""The arrow system's solution against dense solvers that know nothing of its shape."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from analysis.energy.fit import PreparedRows, fit
from analysis.energy.normal_equations import normal_equations, solve
from analysis.energy.terms.registry import design_matrix, model_terms
from analysis.measurements.observations import Observations
from tests.analysis.synthetic import grid_observations, numbered


def dense(data: Observations, terms: list) -> tuple[np.ndarray, float]:
    """scipy's NNLS of the whole matrix: the values and the sum of squares."""
    matrix = design_matrix(data, terms) / data.energy_j[:, None]
    scale = np.linalg.norm(matrix, axis=0)
    scale[scale == 0] = 1.0
    scaled_value, residual = optimize.nnls(
        matrix / scale, np.ones(len(data)), maxiter=100 * len(scale)
    )
    return scaled_value / scale, residual**2


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    counted=st.sampled_from([0.0, 0.5, 1.0]),
    terms=st.sampled_from(["choi", "choi+clock"]),
    repeats=st.integers(1, 3),
)
def test_it_is_scipys_solution(seed, counted, terms, repeats):
    data = grid_observations(seed, counted=counted, repeats=repeats, noise=0.2)
    equations = normal_equations(data, model_terms(data, terms, estimated=False)[0])
    solution = solve(equations)
    _, least = dense(data, equations.terms)
    assert solution.cost == pytest.approx(least, rel=1e-7, abs=1e-9)
    assert (solution.value >= 0).all()
    matrix = design_matrix(data, equations.terms) / data.energy_j[:, None]
    reached = float(np.sum((matrix @ solution.value - 1) ** 2))
    assert reached == pytest.approx(least, rel=1e-6, abs=1e-8)


def test_it_is_the_best_of_all_subsets():
    """Brute force: of the least-squares solutions of every subset of columns that are >= 0."""
    for seed in range(5):
        data = grid_observations(seed, counted=1.0, noise=0.5)
        terms, _ = model_terms(data, "choi+clock", estimated=False)
        equations = normal_equations(data, terms)
        matrix = design_matrix(data, equations.terms) / data.energy_j[:, None]
        best = float(len(data))
        for used in product([False, True], repeat=matrix.shape[1]):
            if any(used):
                columns = matrix[:, used]
                part = np.linalg.lstsq(columns, np.ones(len(data)), rcond=None)[0]
                if (part >= 0).all():
                    best = min(best, float(np.sum((columns @ part - 1) ** 2)))
        assert solve(equations).cost == pytest.approx(best, rel=1e-8)


def test_a_weight_of_zero_is_a_setting_left_out_and_of_two_one_measured_twice():
    data = grid_observations(3, counted=0.5, noise=0.1)
    terms, _ = model_terms(data, "choi+clock", estimated=False)
    equations = normal_equations(data, terms)
    weight = np.ones(len(equations.settings))
    weight[2], weight[4] = 0.0, 2.0
    without = data.take(data.setting != equations.settings[2])
    again = data.take(data.setting == equations.settings[4])
    both = np.concatenate([np.arange(len(without)), np.arange(len(again))])
    rows = replace(without, **numbered([*without.labels, *again.labels]))
    for name in ("core_mhz", "mem_mhz", "core_v", "mem_v", "time_s", "energy_j", "setting"):
        joined = np.concatenate([getattr(without, name), getattr(again, name)])
        rows = replace(rows, **{name: joined})
    counts = {k: np.concatenate([without.counts[k], again.counts[k]]) for k in data.counts}
    rows = replace(rows, counts=counts)
    assert len(both) == len(rows)
    assert solve(equations, weight).cost == pytest.approx(
        solve(normal_equations(rows, terms)).cost, rel=1e-9
    )


def test_the_slopes_are_those_of_the_cost():
    """Against central differences, in every setting and both domains."""
    data = grid_observations(5, counted=0.4, noise=0.1)
    terms, _ = model_terms(data, "choi+clock", estimated=True)
    equations = normal_equations(data, terms)
    rng = np.random.default_rng(0)
    n = len(equations.settings)
    volts = 1 + 0.2 * rng.random((2, n))
    solution = solve(equations, None, *volts)
    step = 1e-5
    for domain, slope in enumerate((solution.core_slope, solution.mem_slope)):
        for s in range(n):
            costs = []
            for sign in (1, -1):
                moved = volts.copy()
                moved[domain, s] += sign * step
                costs.append(solve(equations, None, *moved).cost)
            assert slope[s] == pytest.approx((costs[0] - costs[1]) / (2 * step), rel=1e-4, abs=1e-6)


def test_rows_with_a_smaller_weight_count_less():
    data = grid_observations(7, counted=1.0, noise=0.1)
    terms, _ = model_terms(data, "choi", estimated=False)
    weight = np.random.default_rng(1).uniform(0.1, 1.0, len(data))
    equations = normal_equations(data, terms, weight)
    matrix = design_matrix(data, equations.terms) / data.energy_j[:, None]
    root = np.sqrt(weight)
    scale = np.linalg.norm(matrix * root[:, None], axis=0)
    expected, left = optimize.nnls(matrix * root[:, None] / scale, root)
    np.testing.assert_allclose(solve(equations).value, expected / scale, rtol=1e-5, atol=1e-12)
    assert solve(equations).cost == pytest.approx(left**2, rel=1e-7)


@pytest.mark.parametrize("counted", [0.0, 0.5, 1.0])
def test_a_part_of_prepared_rows_is_fitted_as_these_rows_alone(counted):
    data = grid_observations(4, counted=counted, repeats=3, noise=0.1)
    prepared = PreparedRows(data)
    settings = np.unique(data.setting)
    some_rows = np.arange(len(data)) % 7 > 0  # no part: its settings have other rows too
    masks = [data.setting != setting for setting in settings]
    for rows in [*masks, data.setting < settings[4], some_rows]:
        for model, voltage in (("choi", "known"), ("auto", "auto"), ("choi+clock", "floor")):
            alone = fit(data.take(rows), model, voltage, intervals=False)
            part = fit(data.take(rows), model, voltage, intervals=False, part_of=prepared)
            assert [term.name for term in part.terms] == [term.name for term in alone.terms]
            np.testing.assert_array_equal(part.value, alone.value)
            assert (part.model, part.voltage, part.tried) == (
                alone.model,
                alone.voltage,
                alone.tried,
            )
