"""Fits from few measurements and the fit of a like site, beside what is known by construction,
plain Gaussian conditioning, and brute force."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from analysis.choice.next_measurements import NEAR_FULL, like_cells
from analysis.energy.fit import fit
from analysis.energy.fit_file import as_kept, fit_of
from analysis.energy.fitted import costs_at
from analysis.energy.known_site import USUAL_SPREAD, _noise, _Rows, fit_like
from analysis.energy.scatter import Scatter, scatter_of_one_node
from analysis.energy.terms.term import OperatingPoint
from analysis.energy.voltage import LOWEST_V
from analysis.measurements.observations import FitError, measured_volts, observations, pooled
from analysis.predict.site import site_posterior
from campaign.results.fits import KnownSite
from dvfs.setting import clock_columns
from tests.analysis.simulated_tk1 import other_board, simulated_columns
from tests.analysis.synthetic import COUNTED, core_volt, grid_observations, without_node

DOMAINS = {
    name: "mem" if name == "dram" else "core" for name in ("sp", "dp", "int", "shared", "l2")
}
DOMAINS["dram"] = "mem"


@pytest.fixture(scope="module")
def known_data():
    return observations(simulated_columns("default"), "tk1", DOMAINS)


@pytest.fixture(scope="module")
def known(known_data):
    return fit(known_data)


@pytest.fixture(scope="module")
def scatter(known_data, known):
    return Scatter.of(known, known_data)


def board(spread, seed):
    name = f"board-{seed}"
    site = other_board(spread, seed, name)
    return observations(simulated_columns("default", f"{name} ", site=site), name, DOMAINS)


def error_pct(made, data):
    return float(np.mean(np.abs(made.energy_j(data) / data.energy_j - 1.0)) * 100.0)


def test_eight_points_do_better_than_the_known_fit_as_it_is_and_near_a_full_one(
    known_data, known, scatter
):
    free, cost = np.ones(len(known_data), bool), np.ones(len(known_data))
    rows = like_cells(known, scatter, known_data, free, cost, np.inf, 8).rows
    as_it_is, with_few, full = [], [], []
    for seed in range(4):
        data = board(0.15, seed)
        rest = data.take(np.delete(np.arange(len(data)), rows))
        made = fit_like(data.take(rows), known, known_data)
        assert made.like.helps
        as_it_is.append(error_pct(known, rest))
        with_few.append(error_pct(made, rest))
        full.append(error_pct(fit(data, intervals=False), rest))
    assert np.mean(with_few) < 0.7 * np.mean(as_it_is)
    assert np.mean(with_few) < 1.5 * np.mean(full)


def test_how_far_apart_the_sites_are_is_found(known_data, known):
    found = {}
    for spread in (0.0, 0.15, 0.6):
        rows = np.random.default_rng(5).choice(576, 40, replace=False)
        made = [fit_like(board(spread, seed).take(rows), known, known_data) for seed in range(3)]
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
        grid,
    )
    assert made.site == "other"
    for term, value, low, high in zip(made.terms, made.value, made.low, made.high, strict=True):
        assert low <= value <= high
        if term.of in COUNTED:
            true = 1.2 * COUNTED[term.of][0]
            assert low <= true <= high
            assert value == pytest.approx(true, rel=0.1)


def test_errors_left_out_are_those_of_gaussian_conditioning(known, scatter):
    """Each measurement is predicted from the others, one after the other."""
    data = board(0.15, 7).take(np.arange(0, 576, 60))
    rows = _Rows.of(data, known, scatter)
    spread = 0.2
    away = 1.0 - rows.columns @ rows.start
    held = rows.noise + rows.columns @ (rows.fixed + spread**2 * rows.scaled) @ rows.columns.T
    errors = []
    for i in range(len(data)):
        rest = np.delete(np.arange(len(data)), i)
        expected = held[i, rest] @ np.linalg.inv(held[np.ix_(rest, rest)]) @ away[rest]
        errors.append(abs(away[i] - expected))
    assert rows.left_out_error_pct(spread) == pytest.approx(100 * np.mean(errors), rel=1e-9)
    assert _Rows.of(data.take(np.array([0])), known, scatter).left_out_error_pct(spread) is None
    assert _Rows.of(data.take(np.array([0, 5])), known, scatter).left_out_error_pct(spread) > 0.0


def test_the_solution_and_its_covariance_are_the_posterior_s(known, scatter):
    """Without a bound that holds: mean and covariance by the information form."""
    data = board(0.05, 8).take(np.arange(0, 576, 12))
    positive = replace(known, value=np.maximum(known.value, 1e-3 * known.value.max()))
    rows = _Rows.of(data, positive, scatter)
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


def test_repeats_of_one_cell_have_what_is_its_own_in_common():
    data = board(0.0, 9).take(np.array([0, 0, 1, 30]))
    without = Scatter(kernel=0.01, setting=0.02, cell=0.04, scale={}, noise={})
    of_repeats = replace(without, noise=dict.fromkeys(data.labels.tolist(), 0.005))
    assert data.labels[0] == data.labels[2] != data.labels[3]
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
    volts = measured_volts(known_data)
    seen = fit_like(data.take(few), known, known_data)
    made = fit_like(blind.take(few), known, known_data, volts)
    assert made.energy_j(blind) == pytest.approx(seen.energy_j(data), rel=0.02)
    clocks = np.array([72.0, 396.0, 852.0])
    true = np.array([0.760, 0.770, 1.030]) / 1.030
    assert made.curves.core.at(clocks) == pytest.approx(true, abs=0.03)


@pytest.mark.parametrize("lacking", ["the new site", "the known site"])
def test_memory_voltages_that_one_site_lacks_are_those_of_the_known_site(
    known, known_data, lacking
):
    data = board(0.05, 10)
    few = np.arange(0, len(data), 20)
    if lacking == "the new site":
        data = replace(data, mem_v=np.ones(len(data)), mem_volts_known=False)
        alike = fit_like(board(0.05, 10).take(few), known, known_data)
        expected_j = alike.energy_j(board(0.05, 10))
    else:
        known_data = replace(known_data, mem_v=np.ones(len(known_data)), mem_volts_known=False)
        known = fit(known_data)
        without = replace(data, mem_v=np.ones(len(data)), mem_volts_known=False)
        expected_j = fit_like(without.take(few), known, known_data).energy_j(without)
    made = fit_like(data.take(few), known, known_data, measured_volts(known_data))
    assert made.energy_j(data) == pytest.approx(expected_j, rel=0.02)
    assert made.like.spread_pct < 10.0


def test_intervals_are_the_same_in_whatever_unit_the_known_voltages_are(known, known_data):
    data = board(0.05, 10)
    ones = np.ones(len(data))
    few = replace(data, voltage="unit", core_v=ones, mem_v=ones).take(np.arange(0, len(data), 20))
    higher = replace(known_data, core_v=1.3 * known_data.core_v, mem_v=1.3 * known_data.mem_v)
    made, other = (
        fit_like(few, fit_of_it, of, measured_volts(of))
        for of, fit_of_it in ((known_data, known), (higher, fit(higher)))
    )
    assert other.low == pytest.approx(made.low, rel=1e-3, abs=1e-9)
    assert other.high == pytest.approx(made.high, rel=1e-3, abs=1e-9)


def test_the_interval_of_the_constant_power_is_that_of_its_coefficients(known, known_data):
    data = board(0.05, 10)
    made = fit_like(data.take(np.arange(2)), known, known_data)
    costs = costs_at(made, data.settings[0], 1.03, 1.0)
    at = OperatingPoint(*clock_columns([data.settings[0]])[0], 1.03, 1.0)
    watts = [term.cost(at) if term.pays_for == "time" else 0.0 for term in made.terms]
    drawn = np.random.default_rng(1).multivariate_normal(made.value, made.covariance, 10**5)
    ends = np.quantile(drawn @ watts, [0.025, 0.975])
    assert costs.constant_w[1:] == pytest.approx(ends, rel=1e-3)


def test_an_estimated_curve_moves_with_the_measurements():
    """The known machine's voltages are estimated; the other's fall half as far again."""
    grid = grid_observations(4, kernels=16, noise=0.002, known_voltage=False)
    known = fit(grid, voltage="floor")
    volt = core_volt(grid.core_mhz)
    farther = (1.0 - 1.5 * (1.0 - volt)) / volt
    power = np.array([t.volt_power if t.domain == "core" else 0 for t in known.terms])
    other_j = (known.parts_j(grid) * farther[:, None] ** power).sum(axis=1)
    other = replace(grid, energy_j=grid.energy_j * other_j / known.energy_j(grid))
    made = fit_like(other.take(np.arange(0, len(other), 3)), known, grid)
    clocks = np.array([400.0, 600.0, 800.0, 1000.0])
    assert known.curves.core.at(clocks) == pytest.approx(core_volt(clocks), abs=0.01)
    assert made.curves.core.at(clocks) == pytest.approx(1 - 1.5 * (1 - core_volt(clocks)), abs=0.01)
    assert made.curves.mem.volt == pytest.approx(known.curves.mem.volt, abs=0.01)
    assert error_pct(made, other) < 0.6 * error_pct(known, other)


def test_a_curve_stays_within_its_bounds_however_far_it_moves():
    grid = grid_observations(4, kernels=16, noise=0.002, known_voltage=False)
    known = fit(grid, voltage="floor")
    rows = _Rows.of(grid.take(np.arange(0, len(grid), 9)), known, Scatter.of(known, grid))
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
    made = fit_like(with_half.take(np.arange(0, len(grid), 2)), fit(grid), grid)
    values = {term.of: value for term, value in zip(made.terms, made.value, strict=True)}
    # Half operations come with single ones alone: only what the two cost together is known.
    both = values["sp"] + 0.5 * values["half"]
    assert both == pytest.approx(COUNTED["sp"][0] + 15.0, rel=0.05)
    assert error_pct(made, with_half) < 2.0


def test_what_cannot_be_done_is_refused(known, known_data):
    with pytest.raises(FitError, match="no measurement is left to fit; measure a few points"):
        fit_like(known_data.take(np.array([], int)), known, known_data)
    at_two = known_data.take(known_data.setting < 2)
    few = fit(at_two)
    text = (
        "the fit of tk1 does not say how sure it is, for its measurements are at fewer than three"
    )
    with pytest.raises(FitError, match=text):
        fit_like(known_data, few, at_two)


def test_a_kept_fit_is_the_same_when_it_is_read(known_data, known):
    data = board(0.15, 11)
    made = fit_like(data.take(np.arange(0, len(data), 40)), known, known_data)
    read = fit_of(json.loads(json.dumps(as_kept(made))))
    assert read.like == made.like
    assert read.energy_j(data) == pytest.approx(made.energy_j(data), rel=1e-12)
    assert read.covariance == pytest.approx(made.covariance, rel=1e-12)


def mean_variance(known, own, there, rows):
    """Of log energies by the coefficients, by plain conditioning: the mean over all points."""
    parts = known.parts_j(there)
    share = parts / parts.sum(axis=1, keepdims=True)
    p = share.shape[1]
    prior = USUAL_SPREAD**2 * (np.eye(p) + np.ones((p, p)))
    labels, setting = there.labels[rows], there.setting[rows]
    noise = own.kernel * (labels[:, None] == labels) + own.setting * (setting[:, None] == setting)
    noise = noise + np.diag([own.cell * own.scale.get(label, 1.0) for label in labels])
    at = share[rows]
    left = np.linalg.inv(np.linalg.inv(prior) + at.T @ np.linalg.inv(noise) @ at)
    return float(np.mean(np.einsum("ij,jk,ik->i", share, left, share)))


def test_no_other_point_in_place_of_a_chosen_one_leaves_less_variance(known, known_data, scatter):
    """Every exchange of one point is tried by plain conditioning, and the first point against
    every other."""
    free, cost = np.ones(len(known_data), bool), np.ones(len(known_data))
    others = range(len(known_data))
    first = like_cells(known, scatter, known_data, free, cost, np.inf, 1).rows[0]
    left = [mean_variance(known, scatter, known_data, np.array([row])) for row in others]
    assert left[first] == min(left)
    chosen = like_cells(known, scatter, known_data, free, cost, np.inf, 4)
    assert len(set(chosen.rows)) == 4
    mine = mean_variance(known, scatter, known_data, np.array(chosen.rows))
    for place in range(4):
        kept = np.delete(chosen.rows, place)
        left = [
            mean_variance(known, scatter, known_data, np.append(kept, row))
            for row in others
            if row not in kept
        ]
        assert min(left) == pytest.approx(mine, rel=1e-7)
    assert (np.diff(chosen.error_ratio) < 0).all()
    least = scatter.kernel + scatter.setting + scatter.cell
    assert chosen.error_ratio[-1] == pytest.approx((1.0 + mine / least) ** 0.5, rel=0.01)


def test_an_exchange_does_better_than_one_point_after_the_other_and_costs_no_more(
    known, known_data, scatter
):
    rng = np.random.default_rng(0)
    free, cost = rng.random(len(known_data)) < 0.5, rng.uniform(1.0, 3.0, len(known_data))
    measured = np.flatnonzero(~free)[:2].tolist()
    budget, rows = 12.0, []
    while True:
        may = [r for r in np.flatnonzero(free) if r not in rows and cost[r] <= budget]
        if not may:
            break
        now = mean_variance(known, scatter, known_data, np.array([*measured, *rows]))
        fall = [
            now - mean_variance(known, scatter, known_data, np.array([*measured, *rows, r]))
            for r in may
        ]
        rows.append(may[int(np.argmax(np.array(fall) / cost[may]))])
        budget -= cost[rows[-1]]
    chosen = like_cells(known, scatter, known_data, free, cost, 12.0, 100, measured).rows
    assert free[chosen].all()
    assert cost[chosen].sum() <= 12.0
    ours, theirs = (
        mean_variance(known, scatter, known_data, np.array([*measured, *points]))
        for points in (chosen, rows)
    )
    assert ours < theirs


def test_points_end_at_the_budget_at_the_number_and_near_the_least_error(
    known, known_data, scatter
):
    free, cost = np.ones(len(known_data), bool), np.full(len(known_data), 2.0)
    assert len(like_cells(known, scatter, known_data, free, cost, 7.0).rows) == 3
    assert len(like_cells(known, scatter, known_data, free, cost, np.inf, 5).rows) == 5
    many = like_cells(known, scatter, known_data, free, cost, np.inf, 15)
    assert len(set(many.rows)) == 15
    assert (np.diff(many.error_ratio) < 0).all()
    enough = like_cells(known, scatter, known_data, free, cost, np.inf)
    assert enough.error_ratio[-1] <= NEAR_FULL < enough.error_ratio[-2]
    assert len(enough.error_ratio) == len(enough.rows) + 1
    none = like_cells(known, scatter, known_data, ~free, cost, np.inf)
    assert none.rows == []
    # What was measured there counts, and is not chosen again.
    cheap = np.where(np.isin(np.arange(len(cost)), enough.rows[:2]), 1e-9, cost)
    again = like_cells(known, scatter, known_data, free, cheap, np.inf, 3, enough.rows[:2])
    assert not set(again.rows) & set(enough.rows[:2])
    by_two = like_cells(known, scatter, known_data, free, cost, np.inf, 2)
    assert again.error_ratio[0] >= by_two.error_ratio[-1]
    assert again.error_ratio[-1] < by_two.error_ratio[-1]
    cost[enough.rows[0]] = 1e6
    assert enough.rows[0] not in like_cells(known, scatter, known_data, free, cost, 20.0).rows


@pytest.mark.parametrize(
    ("repeats", "noise", "missing"), [(1, 0.0, 0.0), (3, 0.01, 0.0), (3, 0.01, 0.2), (3, 0.03, 0.0)]
)
def test_what_kernels_settings_cells_and_repeats_scatter_by_is_found(repeats, noise, missing):
    """Means over many made sites; a third of the kernels are twice as far from the fit."""
    kernels, settings = 12, 24
    of_kernel, of_setting, own = 0.05, 0.02, 0.03
    far = np.where(np.arange(kernels) < kernels // 3, 2.0, 1.0)
    clocks = (tuple(np.linspace(400.0, 1000.0, settings // 3)), (500.0, 700.0, 900.0))
    same = grid_observations(3, kernels, repeats=repeats, core_mhz=clocks[0], mem_mhz=clocks[1])
    made = fit(same, "choi+clock", "known", intervals=False)
    k, s = np.array([int(label.split("-")[1]) for label in same.labels.tolist()]), same.setting
    found = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        away = of_kernel * rng.normal(size=kernels)[k] + of_setting * rng.normal(size=settings)[s]
        away += (own * far[:, None] * rng.normal(size=(kernels, settings)))[k, s]
        away += noise * rng.normal(size=len(same))
        kept = (rng.random((kernels, settings)) >= missing)[k, s]
        data = replace(same, energy_j=made.energy_j(same) * np.exp(away)).take(kept)
        one = Scatter.of(made, data)
        assert bool(one.noise) == (repeats > 1)
        of_repeats = np.mean(list(one.noise.values())) if one.noise else 0.0
        scale = np.array([one.scale[f"kernel-{i}"] for i in range(kernels)])
        assert scale.mean() == pytest.approx(1.0)
        split = scale[far > 1.0].mean(), scale[far == 1.0].mean()
        found.append([one.kernel, one.setting, one.cell, of_repeats, *split])
    true = [of_kernel**2, of_setting**2, own**2 * (far**2).mean(), noise**2]
    mean = np.mean(found, axis=0)
    # Factors are drawn towards 1, as far as so few cells leave room for chance.
    assert 1.5 < mean[4] <= 4.0 / (far**2).mean()
    assert 1.0 / (far**2).mean() <= mean[5] < 0.75
    assert mean[:4] == pytest.approx(true, rel=0.1)


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
        noise, setting = scatter_of_one_node(made, data)
        found.append((noise, setting))
        of_node, of_all = (
            Scatter.of(made, one) for one in (data, replace(data, node=without_node(data)))
        )
        if apart:
            assert np.mean(list(of_all.noise.values())) > 2.0 * noise
        assert set(of_node.noise.values()) == {noise}
        assert of_node.setting == of_all.setting + setting
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
    unnamed = replace(data, node=without_node(data))
    among = Scatter.of(made, unnamed)
    for none in (one, unnamed):
        assert scatter_of_one_node(made, none) is None
        assert Scatter.of(made, none) == among
    few = data.take(np.flatnonzero((data.setting < 3) & (data.labels == data.labels[0])))
    assert scatter_of_one_node(made, few) is None


def test_a_few_points_of_a_node_do_better_than_what_its_neighbours_say():
    """Where nodes are 40 % apart as well: how they differ is not taken for noise."""
    for apart, helps in ((0.15, True), (0.4, False)):
        with_few, as_it_is, found = [], [], []
        for seed in range(6):
            data, other = of_nodes(seed, apart, 0.02, 0.01)
            known_nodes = fit(data, "choi+clock", "known")
            ones = np.ones(len(other))
            of_node = Scatter.of(known_nodes, data)
            rows = like_cells(known_nodes, of_node, other, ones > 0, ones, np.inf, 8).rows
            made = fit_like(other.take(rows), known_nodes, data)
            rest = other.take(np.delete(np.arange(len(other)), rows))
            with_few.append(error_pct(made, rest))
            as_it_is.append(error_pct(known_nodes, rest))
            found.append(made.like.spread_pct)
        assert np.mean(with_few) < (0.6 if helps else 0.3) * np.mean(as_it_is)
        assert 0.5 < np.mean(found) / (100.0 * apart) < 1.6


def test_a_kernel_measured_once_is_known_elsewhere_from_the_known_site(known, known_data):
    data = board(0.05, 12)
    volts = measured_volts(data)
    few = data.take(np.flatnonzero(data.setting == 5))
    like = KnownSite(known, known_data, volts).scaled_to(fit_like(few, known, known_data))
    away = []
    for found in (site_posterior(few, volts, like), site_posterior(few, volts)):
        of = found.of_rows(data)
        pairs = (of.time_s, data.time_s), (of.energy_j, data.energy_j)
        away.append([np.abs(ours / true - 1.0).mean() for ours, true in pairs])
    beside, alone = np.array(away)
    assert (beside < 0.12).all()
    assert (beside < 0.5 * alone).all()
