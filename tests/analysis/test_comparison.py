"""What campaign compare calls a change: against textbook tests, least squares and simulation."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from analysis.comparison.changes import (
    ALPHA,
    benjamini_hochberg,
    compare_site,
    with_adjusted,
)
from analysis.comparison.noise_model import moderated
from dvfs.dataset import Columns
from tests.analysis.compared_data import SITE, Campaigns, changes_of, pair

SMALL = Campaigns(kernels=6, settings=4)


def values(measured: Columns, name: str, **where: object) -> np.ndarray:
    chosen = np.ones(len(measured[name]), bool)
    for column, value in where.items():
        chosen &= measured[column] == value
    return np.asarray(measured[name][chosen])


def test_one_point_on_one_node_is_students_test_of_the_logarithms():
    campaigns = Campaigns(kernels=1, settings=1, repeats=7, nodes=((0,), (0,)))
    before, after = pair(campaigns, 3)
    for change in compare_site(before, after, SITE)[1]:
        name = {"time": "time_s", "energy": "energy_j"}[change.quantity]
        first, second = np.log(values(before, name)), np.log(values(after, name))
        test = stats.ttest_ind(second, first)
        interval = test.confidence_interval(0.95)
        assert change.p == pytest.approx(test.pvalue, rel=1e-9)
        assert np.log([change.low, change.high]) == pytest.approx([interval.low, interval.high])
        assert np.log(change.ratio) == pytest.approx(second.mean() - first.mean())


def test_offsets_of_nodes_are_taken_out_as_least_squares_does():
    campaigns = Campaigns(
        kernels=1, settings=5, repeats=4, nodes=((0, 1, 2), (1, 2, 3)), drift=(0.0, 0.0)
    )
    datasets = pair(campaigns, 5)
    sides = [pd.DataFrame(dict(dataset)).assign(side=i) for i, dataset in enumerate(datasets)]
    columns, target = [], []
    nodes = sorted({node for side in sides for node in side["node"]})
    for side in sides:
        for row in side.itertuples():
            cell = np.zeros((2, campaigns.settings))
            cell[row.side, int(row.core_mhz - 1000.0)] = 1.0
            columns.append([*cell.ravel(), *(float(row.node == node) for node in nodes)])
            target.append(np.log(row.energy_j))
    solved = np.linalg.lstsq(np.array(columns), np.array(target), rcond=None)[0]
    expected = solved[campaigns.settings : 2 * campaigns.settings] - solved[: campaigns.settings]
    changes = [
        change
        for change in compare_site(*datasets, SITE)[1]
        if change.level == "point" and change.quantity == "energy"
    ]
    assert np.log([c.ratio for c in changes]) == pytest.approx(
        [expected[int(c.core_mhz - 1000.0)] for c in changes], abs=1e-9
    )


def test_variances_are_moderated_as_far_as_they_are_alike():
    random = np.random.default_rng(0)
    groups, df, prior_df, prior = 4000, 5.0, 8.0, 2.0
    truth = prior * prior_df / random.chisquare(prior_df, groups)
    squares = truth * random.chisquare(df, groups)
    var, total = moderated(squares, np.full(groups, df))
    assert total[0] == pytest.approx(prior_df + df, rel=0.1)
    assert var.mean() == pytest.approx(
        ((prior_df * prior + squares) / (prior_df + df)).mean(), 0.02
    )
    assert ((var - truth) ** 2).mean() < 0.6 * ((squares / df - truth) ** 2).mean()
    alike, _ = moderated(2.0 * random.chisquare(df, groups), np.full(groups, df))
    assert alike.std() < 0.1


def test_the_correction_is_that_of_benjamini_and_hochberg():
    p = np.random.default_rng(1).uniform(size=200) ** 3
    np.testing.assert_allclose(benjamini_hochberg(p), stats.false_discovery_control(p))
    changes = with_adjusted(compare_site(*pair(SMALL, 1), SITE)[1])
    for level in ("site", "kernel", "point"):
        own = [change for change in changes if change.level == level]
        expected = 3.0 * stats.false_discovery_control([change.p for change in own])
        assert [c.adjusted_p for c in own] == pytest.approx(np.minimum(expected, 1.0))


def test_equal_campaigns_differ_in_few_comparisons_and_two_percent_are_found():
    """benchmarks/compare_power.py in small. Of 30 equal pairs at most as many have an alarm as, at
    5 % each, in all but one of a thousand cases; and intervals hold as often as they say."""
    pairs, changed = 30, 8
    alarms, inside = 0, []
    for seed in range(pairs):
        changes = changes_of(SMALL, seed)
        alarms += any(change.significant for change in changes)
        inside += [change.low <= 1.0 <= change.high for change in changes]
    assert alarms <= stats.binom.ppf(0.999, pairs, ALPHA)
    assert np.mean(inside) == pytest.approx(0.95, abs=0.02)
    slower = np.ones(SMALL.kernels)
    slower[2] = 1.02
    reported = 0
    for seed in range(changed):
        of_kernel = [
            change
            for change in changes_of(SMALL, 100 + seed, slower)
            if change.level == "kernel" and change.significant
        ]
        assert {c.kernel for c in of_kernel if c.quantity == "time"} == {"k2"}
        reported += any(c.kernel == "k2" and c.quantity == "energy" for c in of_kernel)
    assert reported >= 6


def test_other_nodes_cannot_be_separated_from_a_change():
    before, after = pair(Campaigns(kernels=3, settings=3, nodes=((0,), (1,))), 1, 1.5)
    summary, changes = compare_site(before, after, SITE)
    assert all(np.isnan(change.p) for change in changes)
    assert not any(change.significant for change in with_adjusted(changes))
    assert any("n0" in note and "n1" in note and "--alike-nodes" in note for note in summary.notes)
    _, taken = compare_site(before, after, SITE, alike_nodes=True)
    assert all(change.significant for change in with_adjusted(taken) if change.level == "site")


def test_what_is_missing_is_left_out():
    before, after = pair(Campaigns(kernels=2, settings=2, nodes=((0,), (0,))), 1)
    before["energy_j"][before["kernel"] == "k0"] = np.nan
    after["status"][after["core_mhz"] == 1001.0] = "timed out"
    summary, changes = compare_site(before, after, SITE)
    assert (summary.common, summary.only_before, summary.only_after) == (2, 2, 0)
    points = {(c.quantity, c.kernel, c.core_mhz) for c in changes if c.level == "point"}
    assert points == {("time", "k0", 1000.0), ("time", "k1", 1000.0), ("energy", "k1", 1000.0)}


def test_without_repeats_kernels_are_compared_by_the_scatter_of_their_points():
    campaigns = Campaigns(kernels=4, settings=12, repeats=1, nodes=((0,), (0,)), drift=(0.0, 0.0))
    summary, changes = compare_site(*pair(campaigns, 2, 1.02), SITE)
    of_site = [c for c in with_adjusted(changes) if c.level == "site"]
    assert all(change.significant for change in of_site)
    assert any("drift" in note for note in summary.notes)


def test_runs_with_other_numbers_of_ranks_are_other_points():
    """Of 1 and 8 ranks before, and 8 and 64 after, those of 8 alone are compared."""
    sides = []
    for of_eight, ranks in zip(pair(SMALL, 1), ((1, 8), (8, 64)), strict=True):
        measured = [
            of_eight.replaced(
                {"ranks": n * of_eight["ranks"]}
                | {name: of_eight[name] * 8.0 / n for name in ("time_s", "energy_j")}
            )
            for n in ranks
        ]
        joined = {name: np.concatenate([part[name] for part in measured]) for name in of_eight}
        sides.append(Columns(joined))
    summary, changes = compare_site(*sides, SITE)
    assert [summary.common, summary.only_before, summary.only_after] == [24, 24, 24]
    assert all(abs(change.ratio - 1.0) < 0.1 for change in changes)


def test_where_no_repeat_differs_nothing_is_known_of_the_noise():
    """A single kernel with noise gives its own variance to those that have none."""
    var, df = moderated(np.zeros(3), np.array([2.0, 4.0, 0.0]))
    assert (var.tolist(), df.tolist()) == ([0.0] * 3, [2.0, 4.0, 0.0])
    var, df = moderated(np.array([2.0, 0.0]), np.array([4.0, 0.0]))
    assert var == pytest.approx([0.5, 0.5])
    assert df == pytest.approx([4.0, 4.0])


def test_one_measurement_of_each_kernel_leaves_the_noise_unknown():
    campaigns = Campaigns(kernels=3, settings=1, repeats=1, nodes=((0,), (0,)))
    summary, changes = compare_site(*pair(campaigns, 2, 1.5), SITE)
    assert all(np.isnan(own) for own in (*summary.noise_pct.values(), *summary.drift_pct.values()))
    assert not any(change.significant for change in with_adjusted(changes))
    assert summary.notes == tuple(
        f"the noise of the {quantity} is not known: measure with repeats = 2 or more"
        for quantity in ("time", "energy")
    )
