"""Prices fitted to costs: against numbers made from known prices, and brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.costs.linear_cost import (
    LEAST_ABSOLUTE,
    LEAST_SQUARES,
    at_clocks,
    equally_good,
    fit_linear_cost,
)
from analysis.costs.stencil_time import PredictionError


def numbers(n=60, seed=0):
    """Four terms with no dependence between them, and their prices."""
    generator = np.random.default_rng(seed)
    columns = {
        "words": generator.uniform(1e6, 1e9, n),
        "loops": generator.uniform(1e3, 1e6, n),
        "launches": generator.integers(1, 500, n).astype(float),
        "unused": np.zeros(n),
    }
    return columns, np.array([3e-10, 2e-8, 7e-6])


@pytest.mark.parametrize("way", [LEAST_SQUARES, LEAST_ABSOLUTE])
def test_prices_are_found_again_from_exact_costs(way):
    columns, true = numbers()
    costs = columns["words"] * true[0] + columns["loops"] * true[1] + columns["launches"] * true[2]
    fitted = fit_linear_cost(columns, costs, way)
    assert fitted.terms == ("words", "loops", "launches")
    assert fitted.value == pytest.approx(true, rel=1e-6)
    assert fitted.inseparable == ()
    assert fitted.error == pytest.approx(0.0, abs=1e-8)
    assert fitted.of(columns) == pytest.approx(costs, rel=1e-8)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000))
def test_no_other_prices_have_a_smaller_relative_error(seed):
    generator = np.random.default_rng(seed)
    columns = {name: generator.uniform(0, 1, 9) ** 3 for name in "abc"}
    costs = generator.uniform(0.1, 3, 9)
    rows = np.stack(list(columns.values()), axis=1)

    def squares(value):
        return ((rows @ value / costs - 1.0) ** 2).sum()

    value = fit_linear_cost(columns, costs, intervals=False).value
    assert (value >= 0).all()
    for place, step in itertools.product(range(3), (-1e-3, 1e-3)):
        other = value.copy()
        other[place] = max(0.0, other[place] + step)
        assert squares(value) <= squares(other) + 1e-12


def test_least_absolute_is_not_moved_by_a_few_rows_that_are_far_off():
    columns, true = numbers()
    costs = columns["words"] * true[0] + columns["loops"] * true[1] + columns["launches"] * true[2]
    costs[:6] /= 3.0
    absolute = fit_linear_cost(columns, costs, LEAST_ABSOLUTE, intervals=False)
    assert absolute.value == pytest.approx(true, rel=1e-6)
    assert fit_linear_cost(columns, costs, intervals=False).value[0] < 0.9 * true[0]


def test_terms_that_depend_on_each_other_are_named_and_their_intervals_hold_every_share():
    """As in Prajapati 2019, Table B.2, where additions and maxima are always as many."""
    columns, true = numbers()
    columns = {"words": columns["words"], "add": columns["loops"], "max": columns["loops"]}
    costs = columns["words"] * true[0] + columns["add"] * (2e-8 + 5e-8)
    fitted = fit_linear_cost(columns, costs)
    assert fitted.inseparable == (("add", "max"),)
    for term in (1, 2):
        assert fitted.low[term] == pytest.approx(0.0, abs=1e-15)
        assert fitted.high[term] == pytest.approx(7e-8, rel=1e-6)
    assert fitted.low[0] <= true[0] <= fitted.high[0]


@pytest.mark.parametrize("terms", [4, 5, 6])
def test_the_prices_that_explain_every_row_as_well_by_brute_force(terms):
    """The least and the largest price of a term are at a corner: prices of three terms alone that
    give the three sums on which every row depends. All choices of three are tried."""
    generator = np.random.default_rng(terms)
    sums = generator.uniform(0.0, 1.0, (3, terms))
    value = generator.uniform(0.1, 2.0, terms)
    corners = []
    for chosen in itertools.combinations(range(terms), 3):
        prices = np.linalg.solve(sums[:, chosen], sums @ value)
        if (prices >= 0).all():
            corners.append(np.zeros(terms))
            corners[-1][list(chosen)] = prices
    low, high = equally_good(value, generator.uniform(0.0, 1.0, (20, 3)) @ sums)
    assert low == pytest.approx(np.min(corners, axis=0), abs=1e-6)
    assert high == pytest.approx(np.max(corners, axis=0), rel=1e-6)


def test_intervals_hold_the_price_about_as_often_as_they_say():
    columns, true = numbers(n=40)
    held = 0
    for seed in range(60):
        gain = np.random.default_rng(seed).normal(1.0, 0.05, 40)
        exact = columns["words"] * true[0] + columns["loops"] * true[1]
        counts = {name: columns[name] for name in ("words", "loops")}
        fitted = fit_linear_cost(counts, exact * gain)
        held += int(((fitted.low <= true[:2]) & (true[:2] <= fitted.high)).sum())
    assert 0.9 <= held / 120 <= 0.99


def test_at_clocks_a_price_is_that_at_the_highest_clock():
    columns = {"loops": np.array([10.0, 10.0, 20.0])}
    core_mhz = np.array([500.0, 1000.0, 1000.0])
    made = at_clocks(columns, {"core_mhz": core_mhz, "mem_mhz": np.full(3, np.nan)}, (-1, 2))
    assert set(made) == {"loops", "loops / core_mhz", "loops * core_mhz^2"}
    assert made["loops / core_mhz"] == pytest.approx([20.0, 10.0, 20.0])
    assert made["loops * core_mhz^2"] == pytest.approx([2.5, 10.0, 20.0])


def test_what_cannot_be_fitted_is_refused():
    with pytest.raises(PredictionError, match="no variant with counts"):
        fit_linear_cost({"words": np.zeros(3)}, np.ones(3))
