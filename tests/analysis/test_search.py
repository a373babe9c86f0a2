"""Strategies of a search: what each may propose, and that searches find what brute force finds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.choice.objectives import OBJECTIVES, objective
from analysis.search import forest, neighbours
from analysis.search.candidates import Candidates, Measured
from analysis.search.play import play, score
from analysis.search.strategies import STRATEGIES, next_batch


def grid(**values):
    """All combinations of the values of some parameters."""
    flat = [axis.ravel() for axis in np.meshgrid(*values.values(), indexing="ij")]
    return Candidates(dict(zip(values, flat, strict=True)))


TILES = grid(
    rows=np.array([1, 2, 4, 8, 16, 32, 64, 128]),
    columns=np.array([1, 2, 4, 8, 16, 32]),
    order=np.array(["ij", "ji", "blocked"]),
    core_mhz=np.array([600.0, 800.0, 1000.0]),
)


def tile_cost(candidates):
    """Least where a tile has 256 words in 32 rows, blocked, at 800 MHz: 1.0."""
    c = candidates.columns
    words = np.log2(c["rows"] * c["columns"]) - 8
    shape = np.log2(c["rows"]) - 5
    slow = np.where(c["order"] == "blocked", 1.0, 1.5)
    return (1 + words**2 / 4 + shape**2 / 20) * slow * (1 + ((c["core_mhz"] - 800) / 500) ** 2)


@st.composite
def searches(draw):
    """Some candidates, a part of which has been measured, some without success."""
    columns = {
        "a": np.array(draw(st.lists(st.integers(-3, 40), min_size=2, max_size=60))),
    }
    size = len(columns["a"])
    columns["b"] = np.array(draw(st.lists(st.sampled_from("xyz"), min_size=size, max_size=size)))
    columns["mem_mhz"] = np.full(size, np.nan)
    rows = draw(st.lists(st.integers(0, size - 1), unique=True, max_size=size))
    cost = st.one_of(st.just(float("nan")), st.floats(1e-9, 1e9))
    return Candidates(columns), {row: draw(cost) for row in rows}


@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(max_examples=12, deadline=None)
@given(searches(), st.integers(1, 9), st.integers(0, 3))
def test_a_batch_is_new_candidates_and_follows_from_its_arguments(strategy, search, count, seed):
    candidates, costs = search
    batch = next_batch(strategy, candidates, Measured.of(costs), count, seed)
    left = len(candidates) - len(costs)
    assert 1 <= len(batch) <= count or (not left and not len(batch))
    assert len(set(batch.tolist())) == len(batch)
    assert not set(batch.tolist()) & set(costs)
    assert batch.min(initial=0) >= 0
    assert batch.max(initial=0) < len(candidates)
    shuffled = Measured.of(dict(reversed(costs.items())))
    again = next_batch(strategy, candidates, shuffled, count, seed)
    assert batch.tolist() == again.tolist()


def test_neighbours_differ_from_the_best_in_one_parameter():
    cost = tile_cost(TILES)
    rows = np.random.default_rng(1).choice(len(TILES), 40, replace=False)
    measured = Measured.of(dict(zip(rows.tolist(), cost[rows].tolist(), strict=True)))
    batch = next_batch("neighbours", TILES, measured, 3, 0)
    best = rows[np.argmin(cost[rows])]
    assert len(batch) == 3
    for row in batch.tolist():
        differing = [name for name, values in TILES.columns.items() if values[row] != values[best]]
        assert len(differing) == 1, differing


def test_neighbours_leave_a_local_minimum():
    """Where all neighbours of the best have been measured, half of a batch is drawn at random: not
    all of it is beside the next best."""
    square = grid(a=np.arange(30), b=np.arange(30))
    a, b = square.columns["a"], square.columns["b"]
    costs = {row: 5.0 + row for row in np.flatnonzero((a == 7) | (b == 7)).tolist()}
    costs[int(np.flatnonzero((a == 7) & (b == 7))[0])] = 1.0
    batch = next_batch("neighbours", square, Measured.of(costs), 10, 0)
    next_best = int(Measured.of(costs).best_first[1])
    beside = (a[batch] == a[next_best]) | (b[batch] == b[next_best])
    assert len(batch) == 10
    assert 5 <= beside.sum() < 10


@pytest.mark.parametrize("strategy", ["model", "auto", "neighbours"])
def test_a_search_finds_the_least_of_a_smooth_cost_sooner_than_a_random_one(strategy):
    costs = np.column_stack([tile_cost(TILES), np.ones(len(TILES))])
    energy = OBJECTIVES["energy"]

    def mean_lost(name):
        lost = [play(TILES, costs, energy, name, budget=70, batch=5, seed=s) for s in range(3)]
        return np.mean(lost, axis=0)[-1]

    assert mean_lost(strategy) < 0.05 < 0.1 < mean_lost("random")


def test_variants_that_failed_repel_the_model():
    """Half of the candidates fail; after the start the model proposes few of these."""
    cost = np.where(TILES.columns["rows"] > 8, np.nan, tile_cost(TILES))
    rows = np.random.default_rng(2).choice(len(TILES), 60, replace=False)
    measured = Measured.of(dict(zip(rows.tolist(), cost[rows].tolist(), strict=True)))
    batch = next_batch("model", TILES, measured, 4, 0)
    assert np.isnan(cost[batch]).sum() <= 1


def test_the_model_starts_at_random_where_all_have_failed():
    measured = Measured.of(dict.fromkeys(range(30), float("nan")))
    batch = next_batch("auto", TILES, measured, 5, 0)
    assert len(set(batch.tolist()) - set(range(30))) == 5


def test_a_batch_of_more_than_the_model_looks_at_has_each_of_these_once(monkeypatch):
    monkeypatch.setattr(forest, "MOST", 12)
    cost = tile_cost(TILES)
    rows = np.arange(0, len(TILES), 11)
    measured = Measured.of(dict(zip(rows.tolist(), cost[rows].tolist(), strict=True)))
    batch = next_batch("model", TILES, measured, 60, 0)
    assert len(set(batch.tolist())) == len(batch) == 12


def test_the_model_looks_at_the_neighbours_first_in_a_large_space(monkeypatch):
    monkeypatch.setattr(forest, "MOST", 120)
    cost = tile_cost(TILES)
    rows = np.arange(0, len(TILES), 11)
    measured = Measured.of(dict(zip(rows.tolist(), cost[rows].tolist(), strict=True)))
    free = measured.free(len(TILES))
    generator = np.random.default_rng(0)
    looked_at = forest.looked_at(TILES, measured, free, generator)
    near = neighbours.neighbours_of(TILES, int(measured.best_first[0]), free, generator)
    assert len(looked_at) == 120
    assert set(near.tolist()) <= set(looked_at.tolist())
    assert free[looked_at].all()


def test_the_features_of_a_forest_are_logarithms_of_products_ratios_and_odd_parts():
    candidates = Candidates({"m": np.array([6, 8, 12]), "n": np.array([1, 4, 2])})
    features = forest.forest_features(candidates)
    expected = [
        [6, 1, np.log2(6), np.log2(6), 1, np.log2(3), 0, 0],
        [8, 4, 5, 1, 3, 0, 2, 0],
        [12, 2, np.log2(24), np.log2(6), 2, np.log2(3), 1, 0],
    ]
    assert features == pytest.approx(np.array(expected), rel=1e-6)


def test_a_played_search_loses_what_the_best_of_its_first_measurements_loses():
    cost = tile_cost(TILES)
    costs = np.column_stack([np.where(np.arange(len(cost)) < 3, np.nan, cost)] * 2)
    lost = play(TILES, costs, OBJECTIVES["time"], "all", budget=50, batch=7, seed=0)
    least = np.nanmin(costs[:, 1])
    by_hand = [np.nanmin(costs[: k + 1, 1]) / least - 1 if k >= 3 else np.inf for k in range(50)]
    assert lost.tolist() == pytest.approx(by_hand)


def test_a_weighted_objective_is_relative_to_what_is_measured():
    costs = np.array([[4.0, 1.0], [2.0, 3.0], [np.nan, 2.0], [8.0, np.nan]])
    scores = score(objective("weighted:0.25"), costs)
    assert scores[:2].tolist() == pytest.approx([0.25 + 0.75 * 2, 0.25 * 3 + 0.75])
    assert np.isnan(scores[2:]).all()
    assert score(objective("time"), costs)[2] == 2.0


def tiled_sum(noise=0.0, seed=0):
    """Candidates whose time is a sum of three numbers at prices, and these times."""
    candidates = grid(
        high=np.array([2, 4, 8, 16]), wide=np.array([2, 4, 8, 16, 32]), deep=np.arange(64, 513, 64)
    )
    high, wide, deep = (candidates.columns[name].astype(float) for name in ("high", "wide", "deep"))
    terms = {
        "words": 1e9 / high + 1e9 / deep,
        "loops": 1e9 / (wide * deep) * high,
        "launches": 1e4 / high,
    }
    time_s = 2e-9 * terms["words"] + 3e-8 * terms["loops"] + 1e-5 * terms["launches"]
    gain = np.random.default_rng(seed).normal(1.0, noise, len(time_s))
    return Candidates(candidates.columns, terms), time_s * gain


def test_where_a_kernel_states_terms_the_model_measures_those_near_the_least_and_ends():
    candidates, time_s = tiled_sum()
    costs = {}
    while len(batch := next_batch("model", candidates, Measured.of(costs), 5, 7)):
        costs |= {row: float(time_s[row]) for row in batch.tolist()}
    near = np.flatnonzero(time_s <= 1.1 * time_s.min())
    assert set(near) <= set(costs)
    assert len(costs) <= 12 + len(near)
    assert 12 + len(near) < len(candidates) / 2


def test_a_sum_is_fitted_after_twelve_measurements_one_of_which_succeeded():
    candidates, time_s = tiled_sum()
    two = {row: float(time_s[row]) for row in (0, 1)}
    assert len(next_batch("model", candidates, Measured.of(two), 20, 3)) == 10
    failed = dict.fromkeys(range(12), float("nan"))
    assert len(next_batch("model", candidates, Measured.of(failed), 20, 3)) == 1


def test_a_played_search_that_ends_loses_from_then_on_what_it_lost_at_its_end():
    candidates, time_s = tiled_sum(noise=0.02)
    costs = np.stack([np.full(len(time_s), np.nan), time_s], axis=1)
    lost = play(candidates, costs, objective("time"), "model", budget=120, batch=5, seed=1)
    assert len(lost) == 120
    assert lost[-1] == pytest.approx(0.0, abs=0.05)
    assert (np.diff(lost[np.isfinite(lost)]) <= 0).all()
