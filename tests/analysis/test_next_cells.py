"""Which cells to measure next: what a choice is worth, by closed forms and by brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from analysis.choice import next_measurements as module
from analysis.choice.next_measurements import Belief, expected_loss, next_cells, spread_settings

DRAWS = 40_000


def normal_draws(mean, covariance, seed=1):
    """Draws whose mean and covariance are exactly these: (M, DRAWS)."""
    rng = np.random.default_rng(seed)
    white = rng.normal(size=(len(mean), DRAWS))
    white -= white.mean(axis=1, keepdims=True)
    white = np.linalg.solve(np.linalg.cholesky(np.cov(white)), white)
    return np.array(mean)[:, None] + np.linalg.cholesky(np.array(covariance)) @ white


def belief(mean, covariance, **options):
    m = len(mean)
    options = {"noise": np.zeros(m), "free": np.ones(m, bool), "cost": np.ones(m)} | options
    return Belief(draws=normal_draws(mean, covariance), **options)


def test_expected_loss_of_two_settings_is_that_of_the_closed_form():
    """The least of two normal scores, E max(a - b, 0), for scores near 1 (Clark 1961)."""
    middle, sigma = 0.004, 0.01
    draws = normal_draws([0.0, middle], np.diag([sigma**2 / 2, sigma**2 / 2]))
    z = middle / sigma
    exact = sigma * (stats.norm.pdf(z) - z * stats.norm.sf(z))
    assert expected_loss(draws) == pytest.approx(exact, rel=0.03)


@pytest.mark.parametrize("noise", [0.0, 4e-5])
def test_gain_of_one_measurement_is_the_knowledge_gradient(monkeypatch, noise):
    """Of two settings with a correlation, by the closed form of Frazier, Powell & Dayanik 2009."""
    monkeypatch.setattr(module, "HIDDEN_SHARE", 0.0)
    middle = 0.003
    covariance = np.array([[1e-4, 2e-5], [2e-5, 5e-5]])
    one = belief([0.0, middle], covariance, noise=np.full(2, noise))
    rate = module._Kernel(one).rate()
    # The score's expectation has half its variance in it.
    gap = middle + (covariance[1, 1] - covariance[0, 0]) / 2
    for s in range(2):
        slope = covariance[:, s] / np.sqrt(covariance[s, s] + noise)
        spread = abs(slope[0] - slope[1])
        z = abs(gap) / spread
        exact = spread * (stats.norm.pdf(z) - z * stats.norm.sf(z))
        assert rate[s] == pytest.approx(exact, rel=0.07)


def test_loss_after_measurements_is_that_of_brute_force():
    """Conditioning done for each draw with numpy's own solver."""
    rng = np.random.default_rng(3)
    root = rng.normal(size=(5, 5)) * 0.03
    covariance = root @ root.T + np.diag([1e-5] * 5)
    mean, noise = rng.normal(size=5) * 0.02, np.full(5, 2e-4)
    kernel = module._Kernel(belief(mean, covariance, noise=noise))
    for s in (3, 1):
        kernel.take(s)
    at = [3, 1]
    gain = covariance[:, at] @ np.linalg.inv(covariance[np.ix_(at, at)] + np.diag(noise[at]))
    after = covariance - gain @ covariance[at]
    truth = rng.multivariate_normal(mean, covariance, 40_000).T
    seen = truth[at] + np.sqrt(noise[at])[:, None] * rng.normal(size=(2, 40_000))
    expected = np.array(mean)[:, None] + gain @ (seen - mean[at, None])
    chosen = (expected + np.diag(after)[:, None] / 2).argmin(axis=0)
    score = np.exp(truth)
    lost = score[chosen, np.arange(40_000)] / score.min(axis=0) - 1.0
    # 400 draws of the one, 40,000 of the other.
    assert kernel.then_lost() == pytest.approx(lost.mean(), abs=4 * lost.std() / np.sqrt(400))


def test_all_measured_without_noise_loses_nothing():
    kernel = module._Kernel(belief([0.0, 0.01, 0.02], np.diag([1e-3, 2e-3, 3e-3])))
    for s in range(3):
        kernel.take(s)
    assert kernel.lost > 0.005
    assert kernel.then_lost() == pytest.approx(0.0, abs=1e-6)


def test_a_cell_is_taken_where_it_matters_most_for_its_cost():
    """Kernel 0 is sure, kernel 1 is not, kernel 2 is as unsure and ten times as dear."""
    sure = belief([0.0, 1.0], np.diag([1e-6, 1e-6]))
    unsure = belief([0.0, 0.001], np.diag([1e-3, 1e-3]))
    dear = belief([0.0, 0.001], np.diag([1e-3, 1e-3]), cost=np.full(2, 10.0))
    chosen = next_cells([sure, unsure, dear], 2.0, enough=0.0)
    assert {kernel for kernel, _ in chosen.cells} == {1}
    assert chosen.cost == 2.0
    assert chosen.ended == "budget"
    assert chosen.then_lost_pct[1] < chosen.lost_pct[1]
    assert chosen.then_lost_pct[2] == chosen.lost_pct[2]


def test_weights_say_whose_losses_count():
    one, other = (belief([0.0, 0.001], np.diag([1e-3, 1e-3]), weight=w) for w in (1.0, 50.0))
    chosen = next_cells([one, other], 1.0, enough=0.0)
    assert chosen.cells[0][0] == 1


def test_it_ends_when_the_loss_is_small_or_nothing_can_change_a_pick():
    sure = belief([0.0, 1.0], np.diag([1e-6, 1e-6]))
    assert next_cells([sure], 9.0).ended == "enough"
    unsure = belief([0.0, 0.001], np.diag([1e-3, 1e-3]), free=np.zeros(2, bool))
    chosen = next_cells([unsure], 9.0)
    assert (chosen.ended, chosen.cells) == ("settled", [])


def test_what_a_further_budget_buys_is_that_of_a_larger_one():
    rng = np.random.default_rng(5)
    kernels = [belief(rng.normal(size=6) * 0.02, np.eye(6) * 1e-3) for _ in range(3)]
    small = next_cells(kernels, 4.0, enough=0.0, more=3.0)
    large = next_cells(kernels, 7.0, enough=0.0)
    assert large.cells[:4] == small.cells
    assert small.more_lost_pct == pytest.approx(large.then_lost_pct)


@given(
    st.integers(0, 10_000),
    st.floats(0.5, 12.0),
    st.one_of(st.none(), st.integers(1, 9)),
)
def test_cells_are_free_ones_within_the_budget_and_never_twice(seed, budget, most):
    rng = np.random.default_rng(seed)
    kernels = [
        Belief(
            draws=rng.normal(size=(7, 100)) * 0.05,
            noise=rng.uniform(0, 1e-3, 7),
            free=rng.uniform(size=7) < 0.6,
            cost=rng.uniform(0.1, 3.0, 7),
        )
        for _ in range(3)
    ]
    chosen = next_cells(kernels, budget, most=most, enough=0.0)
    assert len(set(chosen.cells)) == len(chosen.cells) <= (most or 99)
    assert all(kernels[k].free[s] for k, s in chosen.cells)
    cost = sum(kernels[k].cost[s] for k, s in chosen.cells)
    assert chosen.cost == pytest.approx(cost)
    assert cost <= budget * (1 + 1e-6)
    assert (chosen.then_lost_pct >= 0).all()


def test_spread_settings_are_each_the_farthest_from_all_before():
    core, mem = np.geomspace(200, 1600, 7), np.geomspace(400, 1600, 4)
    mhz = np.array(list(itertools.product(core, mem)))
    none = np.zeros(len(mhz), bool)
    chosen = spread_settings(mhz, none, len(mhz) - 1, 6)
    assert chosen[0] == len(mhz) - 1
    place = np.log(mhz) / np.ptp(np.log(mhz), axis=0)
    for i in range(1, 6):
        apart = np.sqrt(((place[:, None] - place[chosen[:i]]) ** 2).sum(axis=2)).min(axis=1)
        assert apart[chosen[i]] == pytest.approx(apart.max())
    # Of the corners, all four come first.
    corners = {(c, m) for c in (core[0], core[-1]) for m in (mem[0], mem[-1])}
    assert {tuple(mhz[s]) for s in chosen[:4]} == corners


def test_spread_settings_keep_away_from_measured_ones_and_know_one_clock():
    mhz = np.column_stack([np.geomspace(100, 1600, 5), np.full(5, np.nan)])
    measured = np.array([True, False, False, False, True])
    assert spread_settings(mhz, measured, 4, 1) == [2]
    assert spread_settings(mhz, measured, 4, 9) == [2, 1, 3]
