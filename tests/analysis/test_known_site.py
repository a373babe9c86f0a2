"""Fits from few measurements and the fit of a like site, beside what is known by construction,
plain Gaussian conditioning, and brute force."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from analysis.choice.candidates import all_candidates
from analysis.choice.known_kernels import at_each_setting
from analysis.energy.fit import fit
from analysis.energy.fit_file import as_kept, fit_of
from analysis.energy.known_site import USUAL_SPREAD, _noise, _Rows, fit_like
from analysis.energy.node_differences import scatter_of_one_node
from analysis.energy.voltage import LOWEST_V
from analysis.measurements.observations import CantFit, observations, pooled
from analysis.search.like_cells import NEAR_FULL, like_cells
from tests.analysis.synthetic import COUNTED, core_volt, grid_observations
from tests.analysis.twin_data import other_board, twin_dataset

DOMAINS = {
    name: "mem" if name == "dram" else "core" for name in ("sp", "dp", "int", "shared", "l2")
}
DOMAINS["dram"] = "mem"


@pytest.fixture(scope="module")
def known_data():
    return observations(twin_dataset("default"), "tk1", DOMAINS)


@pytest.fixture(scope="module")
def known(known_data):
    return fit(known_data)


def board(spread, seed):
    name = f"board-{seed}"
    site = other_board(spread, seed, name)
    return observations(twin_dataset("default", f"{name} ", site=site), name, DOMAINS)


def error_pct(made, data):
    return float(np.mean(np.abs(made.energy_j(data) / data.energy_j - 1.0)) * 100.0)


def test_eight_points_do_better_than_the_known_fit_as_it_is_and_near_a_full_one(known_data, known):
    free, cost = np.ones(len(known_data), bool), np.ones(len(known_data))
    rows = like_cells(known, known_data, free, cost, np.inf, 8).rows
    as_it_is, with_few, full = [], [], []
    for seed in range(4):
        data = board(0.15, seed)
        rest = data.take(np.delete(np.arange(len(data)), rows))
        made = fit_like(data.take(rows), known)
        assert made.like.helps
        as_it_is.append(error_pct(known, rest))
        with_few.append(error_pct(made, rest))
        full.append(error_pct(fit(data, intervals=False), rest))
    assert np.mean(with_few) < 0.7 * np.mean(as_it_is)
    assert np.mean(with_few) < 1.5 * np.mean(full)


def test_how_far_apart_the_sites_are_is_found(known):
    found = {}
    for spread in (0.0, 0.15, 0.6):
        rows = np.random.default_rng(5).choice(576, 40, replace=False)
        made = [fit_like(board(spread, seed).take(rows), known) for seed in range(3)]
        found[spread] = np.mean([one.like.spread_pct for one in made])
        assert [one.like.helps for one in made] == [spread < 0.2] * 3
        assert all(bool(one.like.warning) == (not one.like.helps) for one in made)
    assert found[0.0] < 4.0
    assert 8.0 < found[0.15] < 24.0
    assert 35.0 < found[0.6] < 90.0


def test_the_true_coefficients_are_within_their_intervals():
    """The model of these is exact; the other machine's coefficients are all 1.2 times as large."""
    grid = grid_observations(3, kernels=12, noise=0.01)
    made = fit_like(
        replace(grid, energy_j=1.2 * grid.energy_j, site="other").take(np.arange(0, len(grid), 11)),
        fit(grid),
    )
    assert made.site == "other"
    for term, value, low, high in zip(made.terms, made.value, made.low, made.high, strict=True):
        assert low <= value <= high
        if term.of in COUNTED:
            true = 1.2 * COUNTED[term.of][0]
            assert low <= true <= high
            assert value == pytest.approx(true, rel=0.1)


def test_errors_left_out_are_those_of_gaussian_conditioning(known):
    """Each measurement is predicted from the others, one after the other."""
    data = board(0.15, 7).take(np.arange(0, 576, 60))
    rows = _Rows.of(data, known)
    spread = 0.2
    away = 1.0 - rows.columns @ rows.start
    held = rows.noise + rows.columns @ (rows.fixed + spread**2 * rows.scaled) @ rows.columns.T
    errors = []
    for i in range(len(data)):
        rest = np.delete(np.arange(len(data)), i)
        expected = held[i, rest] @ np.linalg.inv(held[np.ix_(rest, rest)]) @ away[rest]
        errors.append(abs(away[i] - expected))
    assert rows.left_out_error_pct(spread) == pytest.approx(100 * np.mean(errors), rel=1e-9)
    assert _Rows.of(data.take(np.array([0])), known).left_out_error_pct(spread) is None
    assert _Rows.of(data.take(np.array([0, 5])), known).left_out_error_pct(spread) > 0.0


def test_the_solution_and_its_covariance_are_the_posterior_s(known):
    """Without a bound that holds: mean and covariance by the information form."""
    data = board(0.05, 8).take(np.arange(0, 576, 12))
    rows = _Rows.of(data, replace(known, value=np.maximum(known.value, 1e-3 * known.value.max())))
    spread = 0.1
    prior, noise = np.linalg.inv(rows.prior(spread)), np.linalg.inv(rows.noise)
    information = prior + rows.columns.T @ noise @ rows.columns
    mean = np.linalg.solve(information, prior @ rows.start + rows.columns.T @ noise.sum(axis=1))
    assert (mean > 0).all(), "this test needs no bound"
    assert rows.solved(spread) == pytest.approx(mean, rel=1e-4, abs=1e-6 * mean.max())
    covariance = np.linalg.inv(information)
    assert rows.posterior(spread) == pytest.approx(
        covariance, rel=1e-3, abs=1e-6 * covariance.max()
    )


def test_repeats_of_one_cell_have_its_discrepancy_in_common(known):
    data = board(0.0, 9).take(np.array([0, 0, 1, 30]))
    without = replace(known.discrepancy, kernel=0.01, setting=0.02, own=0.04, scale={}, noise={})
    of_repeats = replace(without, noise=dict.fromkeys(data.kernel.tolist(), 0.005))
    assert data.kernel[0] == data.kernel[2] != data.kernel[3]
    assert data.setting[0] != data.setting[2]
    own = _noise(data, of_repeats)
    assert own[0, 1] == pytest.approx(0.07)
    assert own[0, 0] == pytest.approx(0.075, rel=1e-3)
    assert own[0, 2] == pytest.approx(0.01)
    assert _noise(data, without)[0, 1] == pytest.approx(0.03)
    sure = replace(data, energy_std_j=np.array([0.1, np.nan, 0.0, 0.0]) * data.energy_j)
    assert _noise(sure, of_repeats)[0, 0] == pytest.approx(0.085, rel=1e-3)
    assert _noise(sure, of_repeats)[1, 1] == pytest.approx(0.075, rel=1e-3)


def test_voltages_of_the_known_site_are_taken_where_none_is_known(known, known_data):
    data = board(0.05, 10)
    few = np.arange(0, len(data), 20)
    ones = np.ones(len(data))
    blind = replace(data, voltage="unit", core_v=ones, mem_v=ones)
    volts = {
        known_data.settings[s]: (
            known_data.core_v[known_data.setting == s][0],
            known_data.mem_v[known_data.setting == s][0],
        )
        for s in range(len(known_data.settings))
    }
    seen = fit_like(data.take(few), known)
    made = fit_like(blind.take(few), known, volts)
    assert made.energy_j(blind) == pytest.approx(seen.energy_j(data), rel=0.02)
    clocks = np.array([72.0, 396.0, 852.0])
    true = np.array([0.760, 0.770, 1.030]) / 1.030
    assert made.curves.core.at(clocks) == pytest.approx(true, abs=0.03)


def test_an_estimated_curve_moves_with_the_measurements():
    """The known machine's voltages are estimated; the other's fall half as far again."""
    grid = grid_observations(4, kernels=16, noise=0.002, known_voltage=False)
    known = fit(grid, voltage="floor")
    falls = grid_observations(4, kernels=16, noise=0.002, known_voltage=False)
    volt = core_volt(falls.core_mhz)
    farther = (1.0 - 1.5 * (1.0 - volt)) / volt
    share = known.parts_j(falls)[:, [t.domain == "core" for t in known.terms]].sum(axis=1)
    share /= known.energy_j(falls)
    other = replace(falls, energy_j=falls.energy_j * (1.0 + share * (farther**2 - 1.0)))
    made = fit_like(other.take(np.arange(0, len(other), 3)), known)
    clocks = np.array([400.0, 600.0, 800.0, 1000.0])
    assert known.curves.core.at(clocks) == pytest.approx(core_volt(clocks), abs=0.01)
    assert made.curves.core.at(clocks) == pytest.approx(1 - 1.5 * (1 - core_volt(clocks)), abs=0.01)
    assert made.curves.mem.volt == pytest.approx(known.curves.mem.volt, abs=0.01)
    assert error_pct(made, other) < 0.6 * error_pct(known, other)


def test_a_curve_stays_within_its_bounds_however_far_it_moves():
    grid = grid_observations(4, kernels=16, noise=0.002, known_voltage=False)
    rows = _Rows.of(grid.take(np.arange(0, len(grid), 9)), fit(grid, voltage="floor"))
    numbers = rows.start.copy()
    numbers[-2:] = -1.5, 20.0
    moved = rows.curves(numbers)
    assert moved.core.volt == pytest.approx(np.ones(len(moved.core.mhz)))
    assert moved.mem.volt == pytest.approx([LOWEST_V, 1.0])


def test_a_class_that_the_known_site_did_not_have_is_found_from_the_measurements():
    grid = grid_observations(6, kernels=12, noise=0.002)
    more = grid.counts["sp"] * 0.5
    with_half = replace(
        grid,
        counts=grid.counts | {"half": more},
        domains=grid.domains | {"half": "core"},
        energy_j=grid.energy_j + more * 30e-12 * grid.core_v**2,
    )
    made = fit_like(with_half.take(np.arange(0, len(grid), 2)), fit(grid))
    values = {term.of: value for term, value in zip(made.terms, made.value, strict=True)}
    # Half operations come with single ones alone: only what the two cost together is known.
    both = values["sp"] + 0.5 * values["half"]
    assert both == pytest.approx(COUNTED["sp"][0] + 15.0, rel=0.05)
    assert error_pct(made, with_half) < 2.0


def test_what_cannot_be_done_is_refused(known, known_data):
    with pytest.raises(CantFit, match="no measurement is left to fit; measure a few points"):
        fit_like(known_data.take(np.array([], int)), known)
    few = fit(known_data.take(known_data.setting < 2))
    text = (
        "the fit of tk1 does not say how sure it is, for its measurements are at fewer than three"
    )
    with pytest.raises(CantFit, match=text):
        fit_like(known_data, few)
    free, cost = np.ones(len(known_data), bool), np.ones(len(known_data))
    with pytest.raises(CantFit, match=text):
        like_cells(few, known_data, free, cost, 1.0)


def test_a_kept_fit_is_the_same_when_it_is_read(known):
    data = board(0.15, 11)
    made = fit_like(data.take(np.arange(0, len(data), 40)), known)
    read = fit_of(json.loads(json.dumps(as_kept(made))))
    assert read.like == made.like
    assert read.refits is None
    assert read.discrepancy == made.discrepancy
    assert read.energy_j(data) == pytest.approx(made.energy_j(data), rel=1e-12)
    few = data.take(np.arange(0, len(data), 40))
    label = few.kernel[0]
    ours, theirs = (all_candidates(one, few, [label])[label] for one in (made, read))
    assert ours.energy_draws_j == pytest.approx(theirs.energy_draws_j, rel=1e-9)
    assert np.std(np.log(ours.energy_draws_j[0])) > 0.005


def mean_variance(known, there, rows):
    """Of log energies by the coefficients, by plain conditioning: the mean over all points."""
    parts = known.parts_j(there)
    share = parts / parts.sum(axis=1, keepdims=True)
    p = share.shape[1]
    prior = USUAL_SPREAD**2 * (np.eye(p) + np.ones((p, p)))
    own = known.discrepancy
    labels, setting = there.kernel[rows], there.setting[rows]
    noise = own.kernel * (labels[:, None] == labels) + own.setting * (setting[:, None] == setting)
    noise = noise + np.diag([own.own * own.scale.get(label, 1.0) for label in labels])
    at = share[rows]
    left = np.linalg.inv(np.linalg.inv(prior) + at.T @ np.linalg.inv(noise) @ at)
    return float(np.mean(np.einsum("ij,jk,ik->i", share, left, share)))


def test_no_other_point_in_place_of_a_chosen_one_leaves_less_variance(known, known_data):
    """Every exchange of one point is tried by plain conditioning, and the first point against
    every other."""
    free, cost = np.ones(len(known_data), bool), np.ones(len(known_data))
    others = range(len(known_data))
    first = like_cells(known, known_data, free, cost, np.inf, 1).rows[0]
    left = [mean_variance(known, known_data, np.array([row])) for row in others]
    assert left[first] == min(left)
    chosen = like_cells(known, known_data, free, cost, np.inf, 4)
    assert len(set(chosen.rows)) == 4
    mine = mean_variance(known, known_data, np.array(chosen.rows))
    for place in range(4):
        kept = np.delete(chosen.rows, place)
        left = [
            mean_variance(known, known_data, np.append(kept, row))
            for row in others
            if row not in kept
        ]
        assert min(left) == pytest.approx(mine, rel=1e-7)
    assert (np.diff(chosen.error_ratio) < 0).all()
    least = known.discrepancy.kernel + known.discrepancy.setting + known.discrepancy.own
    assert chosen.error_ratio[-1] == pytest.approx((1.0 + mine / least) ** 0.5, rel=0.01)


def test_an_exchange_does_better_than_one_point_after_the_other_and_costs_no_more(
    known, known_data
):
    rng = np.random.default_rng(0)
    free, cost = rng.random(len(known_data)) < 0.5, rng.uniform(1.0, 3.0, len(known_data))
    measured = np.flatnonzero(~free)[:2].tolist()
    budget, rows = 12.0, []
    while True:
        may = [r for r in np.flatnonzero(free) if r not in rows and cost[r] <= budget]
        if not may:
            break
        now = mean_variance(known, known_data, np.array([*measured, *rows]))
        fall = [
            now - mean_variance(known, known_data, np.array([*measured, *rows, r])) for r in may
        ]
        rows.append(may[int(np.argmax(np.array(fall) / cost[may]))])
        budget -= cost[rows[-1]]
    chosen = like_cells(known, known_data, free, cost, 12.0, 100, measured).rows
    assert free[chosen].all()
    assert cost[chosen].sum() <= 12.0
    ours, theirs = (
        mean_variance(known, known_data, np.array([*measured, *points]))
        for points in (chosen, rows)
    )
    assert ours < theirs


def test_points_end_at_the_budget_at_the_number_and_near_the_least_error(known, known_data):
    free, cost = np.ones(len(known_data), bool), np.full(len(known_data), 2.0)
    assert len(like_cells(known, known_data, free, cost, 7.0).rows) == 3
    assert len(like_cells(known, known_data, free, cost, np.inf, 5).rows) == 5
    many = like_cells(known, known_data, free, cost, np.inf, 15)
    assert len(set(many.rows)) == 15
    assert (np.diff(many.error_ratio) < 0).all()
    enough = like_cells(known, known_data, free, cost, np.inf)
    assert enough.error_ratio[-1] <= NEAR_FULL < enough.error_ratio[-2]
    assert len(enough.error_ratio) == len(enough.rows) + 1
    none = like_cells(known, known_data, ~free, cost, np.inf)
    assert none.rows == []
    # What was measured there counts, and is not chosen again.
    cheap = np.where(np.isin(np.arange(len(cost)), enough.rows[:2]), 1e-9, cost)
    again = like_cells(known, known_data, free, cheap, np.inf, 3, enough.rows[:2])
    assert not set(again.rows) & set(enough.rows[:2])
    by_two = like_cells(known, known_data, free, cost, np.inf, 2)
    assert again.error_ratio[0] >= by_two.error_ratio[-1]
    assert again.error_ratio[-1] < by_two.error_ratio[-1]
    cost[enough.rows[0]] = 1e6
    assert enough.rows[0] not in like_cells(known, known_data, free, cost, 20.0).rows


def of_nodes(seed, apart, noise, setting_noise, nodes=5, counted=1.0, repeats=1):
    """A site of several nodes: each coefficient of a node is exp of so much away from the others'.

    One more node is made too, and returned apart.
    """
    rng = np.random.default_rng(seed)
    grid = {
        "core_mhz": (400.0, 500.0, 640.0, 760.0, 880.0, 1000.0),
        "mem_mhz": (500.0, 700.0, 900.0),
    }
    same = grid_observations(3, kernels=24, counted=counted, repeats=repeats, **grid)
    truth = fit(same, "choi+clock", "known", intervals=False)
    made = []
    for _i in range(nodes + 1):
        gain = np.exp(apart * rng.normal(size=len(truth.terms)))
        odd = setting_noise * rng.normal(size=len(same.settings))[same.setting]
        energy_j = truth.parts_j(same) @ gain * np.exp(noise * rng.normal(size=len(same)) + odd)
        made.append(replace(same, energy_j=energy_j))
    together, place = pooled(made[:-1])
    named = np.array([f"node-{i}" for i in range(nodes)], object)
    return replace(together, node=named[place]), made[-1]


@pytest.mark.parametrize("apart", [0.0, 0.15, 0.4])
def test_the_scatter_of_one_node_is_found_among_nodes_that_differ(apart):
    found = []
    for seed in range(6):
        data, _ = of_nodes(seed, apart, 0.02, 0.01)
        made = fit(data, "choi+clock", "known")
        discrepancy = made.discrepancy
        found.append((discrepancy.node_noise, discrepancy.node_setting))
        if apart:
            among = np.mean(list(discrepancy.noise.values()))
            assert among > 2.0 * discrepancy.node_noise
        other = discrepancy.on_another_node()
        assert other.setting == discrepancy.setting + discrepancy.node_setting
        assert set(other.noise.values()) == {discrepancy.node_noise}
        assert other.on_another_node() == other
    noise, setting = np.mean(found, axis=0)
    assert noise == pytest.approx(0.02**2, rel=0.1)
    assert setting == pytest.approx(0.01**2, rel=0.35)


def test_repeats_on_a_node_and_kernels_without_counts_show_its_scatter_too():
    for counted, repeats in ((1.0, 3), (0.0, 3)):
        data, _ = of_nodes(7, 0.2, 0.02, 0.0, counted=counted, repeats=repeats)
        noise, setting = scatter_of_one_node(fit(data, "choi+clock", "known"), data)
        assert noise == pytest.approx(0.02**2, rel=0.1)
        assert setting < 0.004**2


def test_without_several_named_nodes_there_is_no_scatter_of_one():
    data, _ = of_nodes(0, 0.1, 0.02, 0.0)
    made = fit(data, "choi+clock", "known", intervals=False)
    one = replace(data, node=np.array(["node-1"] * len(data), object))
    unnamed = replace(data, node=np.array([""] * len(data), object))
    for none in (one, unnamed, replace(data, node=None)):
        assert scatter_of_one_node(made, none) is None
        discrepancy = fit(none, "choi+clock", "known").discrepancy
        assert (discrepancy.node_noise, discrepancy.node_setting) == (None, 0.0)
        assert discrepancy.on_another_node() == discrepancy
    few = data.take(np.flatnonzero((data.setting < 3) & (data.kernel == data.kernel[0])))
    assert scatter_of_one_node(made, few) is None


def test_a_few_points_of_a_node_do_better_than_what_its_neighbours_say():
    """Where nodes are 40 % apart as well: how they differ is not taken for noise."""
    for apart, helps in ((0.15, True), (0.4, False)):
        with_few, as_it_is, found = [], [], []
        for seed in range(6):
            data, other = of_nodes(seed, apart, 0.02, 0.01)
            known_nodes = fit(data, "choi+clock", "known")
            ones = np.ones(len(other))
            rows = like_cells(known_nodes, other, ones > 0, ones, np.inf, 8).rows
            made = fit_like(other.take(rows), known_nodes)
            rest = other.take(np.delete(np.arange(len(other)), rows))
            with_few.append(error_pct(made, rest))
            as_it_is.append(error_pct(known_nodes, rest))
            found.append(made.like.spread_pct)
        assert np.mean(with_few) < (0.6 if helps else 0.3) * np.mean(as_it_is)
        assert 0.5 < np.mean(found) / (100.0 * apart) < 1.6


def test_times_of_a_kernel_measured_once_are_learned_from_the_known_site(known, known_data):
    data = board(0.05, 12)
    once = np.array(
        [
            np.flatnonzero((data.kernel == label) & (data.setting == 5))[0]
            for label in dict.fromkeys(data.kernel.tolist())
        ]
    )
    few = data.take(once)
    made = fit_like(few, known)
    volts = dict.fromkeys(data.settings, (1.0, 1.0))
    beside_s, alone_s = [], []
    there = at_each_setting(known, known_data, volts)
    with_known = all_candidates(made, few, volts=volts, known_site=there)
    without = all_candidates(made, few, volts=volts)
    for label, one in with_known.items():
        true = {
            data.settings[s]: data.time_s[(data.kernel == label) & (data.setting == s)].mean()
            for s in range(len(data.settings))
        }
        true_s = np.array([true[pair] for pair in one.settings])
        beside_s.append(np.abs(one.time_s / true_s - 1.0).mean())
        alone_s.append(np.abs(without[label].time_s / true_s - 1.0).mean())
    assert np.mean(beside_s) < 0.12
    assert np.mean(beside_s) < 0.5 * np.mean(alone_s)


def test_kernels_at_each_setting_have_what_was_measured(known, known_data):
    whole = at_each_setting(known, known_data, {})
    assert len(whole) == len(set(known_data.kernel.tolist())) * 16
    label = known_data.kernel[0]
    mine = whole.kernel == label
    for s, pair in enumerate(known_data.settings):
        rows = (known_data.kernel == label) & (known_data.setting == s)
        at = mine & (whole.core_mhz == pair.core_mhz) & (whole.mem_mhz == pair.mem_mhz)
        assert whole.energy_j[at] == pytest.approx([known_data.energy_j[rows].mean()])
        assert whole.time_s[at] == pytest.approx([known_data.time_s[rows].mean()])
