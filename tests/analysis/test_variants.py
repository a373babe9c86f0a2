"""The study of variants against other programs and brute force, and worked out by hand."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import astuple
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import linprog
from scipy.spatial import ConvexHull

from analysis.choice.fronts import convex_hull, least_across, least_of_weighted_sums
from analysis.choice.variants import Correlation, correlation, study
from analysis.measurements.observations import FitError
from analysis.measurements.variants import kernel_variants, measured_variants, studied_variants
from campaign.variants.replaying import replay
from dvfs.setting import Setting
from tests.analysis.variant_data import variant_columns

NAN = math.nan


def studied(time_s, energy_j):
    rows = [({"tile": i}, t, e) for i, (t, e) in enumerate(zip(time_s, energy_j, strict=True))]
    return study(kernel_variants(variant_columns(rows), "s", "dgemm"))


# -- hull and fronts -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_the_hull_is_that_of_qhull(seed):
    rng = np.random.default_rng(seed)
    x, y = rng.lognormal(0, 1.5, (2, 3 + 7 * seed)) * [[1e12], [1e-3]]
    corners, uppers = convex_hull(x, y)
    theirs = ConvexHull(np.column_stack([x / 1e12, y / 1e-3])).vertices  # counter-clockwise
    first = int(np.flatnonzero(theirs == np.argmax(x))[0])
    assert corners.tolist() == np.roll(theirs, -first).tolist()
    assert corners[uppers] == np.argmin(x)


def in_hull_of(point, others) -> bool:
    """Whether a point of integers lies in a triangle, or a segment, of others."""

    def side(a, b):
        return (b[0] - a[0]) * (point[1] - a[1]) - (b[1] - a[1]) * (point[0] - a[0])

    def between(a, b):
        return side(a, b) == 0 and all(
            min(u, v) <= w <= max(u, v) for u, v, w in zip(a, b, point, strict=True)
        )

    for a, b, c in itertools.product(others, repeat=3):
        turns = [side(a, b), side(b, c), side(c, a)]
        if between(a, b) or (all(t > 0 for t in turns) or all(t < 0 for t in turns)):
            return True
    return False


GRID = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=1, max_size=9)


@settings(max_examples=60, deadline=None)
@given(GRID)
def test_corners_are_what_no_others_enclose(points):
    """On a grid, with equal points and points in a line, against integers."""
    x, y = np.array(points, float).T
    corners, uppers = convex_hull(x, y)
    taken = [points[k] for k in corners]
    distinct = sorted(set(points))
    expected = {p for p in distinct if not in_hull_of(p, [q for q in distinct if q != p])}
    assert set(taken) == expected
    assert len(taken) == len(expected)
    assert taken[0] == max(points)
    assert 1 <= uppers <= len(taken)
    area = sum(
        a[0] * b[1] - b[0] * a[1] for a, b in zip(taken, [*taken[1:], taken[0]], strict=True)
    )
    assert area > 0 or len(taken) < 3
    assert [points.index(p) for p in taken] == corners.tolist()  # the first of equal ones


@settings(max_examples=60, deadline=None)
@given(GRID)
def test_some_weight_makes_each_the_best_and_no_other_variant_is_needed(points):
    """Against every alpha of a grid: the intervals hold, in s and J and relative."""
    time_s, energy_j = np.array(points, float).T
    shown = studied(time_s, energy_j)
    best = least_of_weighted_sums(time_s, energy_j)
    assert [entry.variant.time_s for entry in shown.s_j] == time_s[best].tolist()
    for entries, t, e in (
        (shown.s_j, time_s, energy_j),
        (shown.relative, time_s / time_s.min(), energy_j / energy_j.min()),
    ):
        assert (entries[0].low, entries[-1].high) == (0.0, 1.0)
        for entry, after in itertools.pairwise(entries):
            assert entry.low < entry.high == after.low
        for alpha in np.linspace(0.0, 1.0, 101):
            score = alpha * t + (1 - alpha) * e
            mine = [k for k, own in zip(best, entries, strict=True) if own.low <= alpha <= own.high]
            assert score[mine] == pytest.approx(score.min(), rel=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_the_least_across_a_hull_is_that_of_a_linear_programme(seed):
    rng = np.random.default_rng(seed)
    x, y = rng.random((2, 30))
    corners, _ = convex_hull(x, y)
    at = float(rng.choice(y))
    ones = linprog(x, A_eq=[y, np.ones(30)], b_eq=[at, 1.0])
    assert least_across(x[corners], y[corners], at) == pytest.approx(ones.fun, rel=1e-9)
    assert math.isnan(least_across(x[corners], y[corners], 2.0))


@pytest.mark.parametrize(
    ("time_s", "energy_j", "hull", "pareto", "weighted", "spreads"),
    [
        ([2], [3], [0], [0], [0], (0, 1)),
        ([2, 1], [3, 4], [1, 0], [1, 0], [0, 1], (0, 1)),
        ([2, 2, 2], [3, 3, 3], [0], [0], [0], (0, 1)),
        # Rate and efficiency in a line, rate = 2 efficiency.
        ([4, 2, 1], [8, 4, 2], [2, 0], [2], [2], (0, 1)),
        # The same time: one is best in all. As slow as the best one there is twice its energy.
        ([2, 2, 2], [3, 6, 4], [0, 1], [0], [0], (0, 2)),
        # The same energy: up to four times as long, which is 300 % longer.
        ([1, 2, 4], [3, 3, 3], [0, 2], [0], [0], (300, 1)),
    ],
    ids=["one", "two", "equal", "line", "same time", "same energy"],
)
def test_few_and_degenerate_variants(time_s, energy_j, hull, pareto, weighted, spreads):
    shown = studied(time_s, energy_j)
    assert [corner.instance.params["tile"] for _, corner in shown.hull] == hull
    assert [variant.instance.params["tile"] for variant in shown.pareto] == pareto
    assert [entry.variant.instance.params["tile"] for entry in shown.relative] == weighted
    found = shown.same_energy_slower_pct, shown.same_time_more_energy_factor
    assert found == pytest.approx(spreads)
    json.dumps(shown.as_dict())


# -- correlations --------------------------------------------------------------------------------


def test_correlations_are_numpys_and_their_intervals_fishers_for_normal_data():
    rng = np.random.default_rng(3)
    x, noise = rng.standard_normal((2, 20_000))
    y = 0.6 * x + 0.8 * noise
    one = correlation(x, y)
    assert one.r == pytest.approx(np.corrcoef(x, y)[0, 1], rel=1e-12)
    theirs = stats.pearsonr(x, y).confidence_interval(0.95)
    assert (one.low, one.high) == pytest.approx((theirs.low, theirs.high), abs=6e-4)
    for few in range(0, 9 * 30, 9):  # of few, the fourth moments are often too small by chance
        rows = slice(few, few + 9)
        one = correlation(x[rows], y[rows])
        theirs = stats.pearsonr(x[rows], y[rows]).confidence_interval(0.95)
        assert one.low <= theirs.low < theirs.high <= one.high


def test_correlations_without_an_interval():
    line = np.arange(5.0)
    assert correlation(line, -2 * line) == Correlation(-1.0, -1.0, -1.0)
    assert math.isnan(correlation(line, np.ones(5)).r)
    assert math.isnan(correlation(np.ones(1), np.ones(1)).r)
    three = correlation(line[:3], np.array([1.0, 3.0, 2.0]))
    assert three.r == pytest.approx(0.5)
    assert math.isnan(three.low)


def test_intervals_cover_where_the_noise_grows_with_the_metric():
    """A parameter in powers of two whose large values make the time uncertain: Fisher's own
    interval covers the truth in three cases of four."""
    rng = np.random.default_rng(5)

    def draw(n):
        x = 2.0 ** rng.integers(0, 6, n)
        return x, -0.02 * x + 0.03 * x * rng.standard_normal(n) + 0.1 * rng.standard_normal(n)

    truth = np.corrcoef(*draw(2_000_000))[0, 1]
    samples = [draw(100) for _ in range(400)]
    ours = [correlation(x, y) for x, y in samples]
    half = stats.norm.ppf(0.975) / math.sqrt(97)
    fishers = [abs(math.atanh(one.r) - math.atanh(truth)) <= half for one in ours]
    assert np.mean(fishers) < 0.85
    assert np.mean([one.low <= truth <= one.high for one in ours]) > 0.9


# -- what is studied -----------------------------------------------------------------------------

PROBLEM = {"n": 960, "threads": 1}
ROWS = [
    ({**PROBLEM, "mr": 8, "order": "ij"}, 1.0, 30.0, {"n_dp": 1e9, "n_dram": 1e6}),
    ({**PROBLEM, "mr": 8, "order": "ij"}, 3.0, 34.0, {"n_dp": 1e9, "n_dram": 1e6, "repeat": 1}),
    ({**PROBLEM, "mr": 16, "order": "ij"}, 4.0, 20.0, {"n_dp": 2e9, "n_dram": 1e6}),
    ({**PROBLEM, "mr": 32, "order": "ji"}, 5.0, 40.0, {"n_dp": 1e9, "n_dram": 4e6}),
    ({**PROBLEM, "mr": 64, "order": "ji"}, NAN, NAN, {"status": "kernel failed"}),
    ({**PROBLEM, "mr": 64, "order": "ij"}, 1.0, NAN, {"n_dp": 1e9}),
    ({**PROBLEM, "mr": 4, "order": "ij"}, 0.1, 1.0, {"status": "clock unproven", "n_dp": 1e9}),
    ({**PROBLEM, "mr": 4, "order": "ij"}, 0.1, 1.0, {"kernel": "fma", "n_dp": 1e9}),
    ({**PROBLEM, "mr": 4, "order": "ij"}, 0.1, 1.0, {"site": "t", "n_dp": 1e9}),
    ({**PROBLEM, "mr": 4, "order": "ij"}, 0.2, 2.0, {"core_mhz": 1500.0, "n_dp": 1e9}),
    ({"n": 1920, "threads": 1, "mr": 4, "order": "ij"}, 9.0, 9.0, {"n_dp": 8e9}),
]
TUNED = ("mr", "order")


def test_repeats_are_averaged_and_what_is_left_out_is_counted():
    of = kernel_variants(variant_columns(ROWS), "s", "dgemm", tuned=TUNED, problem={"n": "960.0"})
    assert [one.params["mr"] for one in of.instances] == [16, 32, 8]  # by label
    assert of.time_s.tolist() == [4.0, 5.0, 2.0]
    assert of.energy_j.tolist() == [20.0, 40.0, 32.0]
    assert of.repeats.tolist() == [1, 1, 2]
    assert of.problem == PROBLEM
    assert (of.setting, of.settings) == (Setting(1000.0, 500.0), 2)
    assert of.left_out == {"kernel failed": 1, "without energy": 1, "clock unproven": 1}
    # One work for all, the fewest flops: a variant that counts more is not faster for it.
    assert (of.work, of.most_work, of.work_unit) == (1e9, 2e9, "flop")
    shown = study(of)
    assert shown.fastest.rate_per_s == 0.5e9
    assert shown.least_energy.efficiency_per_j == 0.05e9
    assert (shown.faster, shown.more_efficient) == (1, 1)


def test_a_variant_that_counts_nothing_says_nothing_of_the_work():
    rows = [({"tile": i}, 1.0, 2.0, {"n_dp": 1e9 if i else 0.0}) for i in range(3)]
    of = kernel_variants(variant_columns(rows), "s", "dgemm")
    assert (of.work, of.most_work, of.work_unit) == (1e9, 1e9, "flop")


def test_metrics_are_of_parameters_counts_counters_and_labels():
    labels = [
        {"occupancy": "0.25", "registers": "64", "arc": "upper"},
        {"occupancy": "0.5", "registers": "64", "arc": "lower"},
        {"registers": "64", "arc": "3"},
        {"occupancy": "0.75"},
    ]
    events = [{"cycles": 4e9, "instructions": 2e9}, {"cycles": 2e9, "instructions": 3e9}, {}, {}]
    rows = []
    for i, row in enumerate((ROWS[0], ROWS[2], ROWS[3], ROWS[3])):
        found = {"labels": labels[i], "counters": {"events": events[i]}, "metrics": {"waves": i}}
        rows.append((*row[:3], {**row[3], "provenance": json.dumps(found)}))
    data = variant_columns(rows)
    of = kernel_variants(data, "s", "dgemm", tuned=TUNED)
    metrics = {metric.name: metric for metric in of.metrics}
    order = [8, 16, 32]  # of the variants
    at = [[one.params["mr"] for one in of.instances].index(mr) for mr in order]
    expected = {
        "mr": [8, 16, 32],
        "dp_per_s": [1e9, 0.5e9, 0.2e9],
        "dram_per_s": [1e6, 0.25e6, 0.8e6],
        "intensity_dram": [1e3, 2e3, 0.25e3],
        "waves": [0, 1, 2.5],
        "instructions_per_cycle": [0.5, 1.5, NAN],
        "cycles_per_s": [4e9, 0.5e9, NAN],
        "instructions_per_s": [2e9, 0.75e9, NAN],
        "occupancy": [0.25, 0.5, 0.75],
    }
    assert list(metrics) == list(expected)  # no arc, no registers, which are one number for all
    for name, values in expected.items():
        assert metrics[name].values[at].tolist() == pytest.approx(values, nan_ok=True), name
    shown = {entry.metric.name: entry for entry in study(of).metrics}
    mr = shown["mr"]  # of 1 s, 4 s and 5 s, and 30 J, 20 J and 40 J
    assert mr.rate.r == pytest.approx(np.corrcoef([8, 16, 32], [1, 1 / 4, 1 / 5])[0, 1])
    efficiency = [1 / 30, 1 / 20, 1 / 40]
    assert mr.efficiency.r == pytest.approx(np.corrcoef([8, 16, 32], efficiency)[0, 1])
    product = [1 / 30, 1 / 80, 1 / 200]
    assert mr.product.r == pytest.approx(np.corrcoef([8, 16, 32], product)[0, 1])
    assert (mr.n, mr.mean) == (3, pytest.approx(56 / 3))
    assert astuple(mr.above) == pytest.approx((1, 0.2e9, 1e9 / 40))
    assert astuple(mr.below) == pytest.approx((2, 0.625e9, 1e9 * (1 / 30 + 1 / 20) / 2))
    assert shown["cycles_per_s"].n == 2


def test_no_power_limit_is_the_highest_and_the_limit_is_part_of_the_setting():
    """Three variants, at 100 W, 200 W and without a limit."""
    rows = [
        ({"tile": i}, 1.0 + 10 / (limit_w or 300), 2.0, {"power_limit_w": limit_w or NAN})
        for limit_w in (None, 100.0, 200.0)
        for i in range(3)
    ]
    of_most = kernel_variants(variant_columns(rows), "s", "dgemm")
    assert of_most.setting == Setting(1000.0, 500.0) and of_most.settings == 3
    limited = Setting(1000.0, 500.0, None, 100.0)
    at = kernel_variants(variant_columns(rows), "s", "dgemm", setting=limited)
    shown = study(at).as_dict()["fastest"]
    assert (shown["core_mhz"], shown["mem_mhz"], shown["power_limit_w"]) == (1000, 500, 100)


def test_the_setting_is_that_of_most_variants_and_then_of_the_highest_clocks():
    rows = [({"tile": i}, 1.0, 1.0, {"core_mhz": mhz}) for i in (1, 2) for mhz in (800.0, 900.0)]
    rows += [({"tile": 3}, 1.0, 1.0, {"core_mhz": 700.0})]
    assert kernel_variants(variant_columns(rows), "s", "dgemm").setting == Setting(900.0, 500.0)
    here = kernel_variants(variant_columns(rows), "s", "dgemm", setting=Setting(700.0, 500.0))
    assert (here.setting, len(here)) == (Setting(700.0, 500.0), 1)
    found = [({"tile": i}, 1.0, 1.0, {"core_mhz": NAN, "mem_mhz": NAN}) for i in (1, 2)]
    assert len(kernel_variants(variant_columns(found), "s", "dgemm")) == 2


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"site": "x"}, "--site: unknown site 'x'; known: s, t"),
        ({"kernel": "dgem"}, "--kernel: unknown kernel 'dgem'; did you mean 'dgemm'?"),
        ({"problem": {"m": "1"}}, "--problem: unknown parameter 'm'; did you mean 'mr'?"),
        ({"problem": {"n": "961"}}, "--problem: found n=961; n is one of 960, 1920"),
        ({"problem": {"order": "IJ"}}, "--problem: found order=IJ; order is one of ij, ji"),
        ({"tuned": TUNED}, "2 problems; name one: --problem n=960 or --problem n=1920"),
        ({}, "count 1e+09 to 8e+09 operations: they are of several problems; name the parameters"),
        (
            {"problem": {"n": "960"}, "setting": Setting(1000.0)},
            "--setting: no variant was measured at 1000 MHz; there are 1000,500 1500,500",
        ),
        ({"problem": {"mr": "64"}}, "at known clocks: it has 1 kernel failed, 1 without energy"),
    ],
)
def test_what_cannot_be_studied_is_said(asked, said):
    asked = {"site": "s", "kernel": "dgemm", **asked}
    with pytest.raises(FitError) as refused:
        kernel_variants(variant_columns(ROWS), **asked)
    assert said in str(refused.value)


def replayed(data, site, kernel, **asked):
    usual = {"tuned": {}, "objective": "energy", "budget": 200, "trials": 1}
    return replay(data, site, kernel=kernel, **usual | asked)


def test_runs_with_other_ranks_are_no_repeats():
    rows = [({"tile": i}, 4.0 / ranks, 2.0, {"ranks": ranks}) for i in (1, 2) for ranks in (1, 4)]
    counted = partial(measured_variants, terms=lambda instances: {"runs": np.ones(len(instances))})
    for look_at in (kernel_variants, counted, replayed):
        with pytest.raises(FitError, match="tile=1 was measured with 1 and with 4 ranks"):
            look_at(variant_columns(rows), "s", "dgemm")
    assert len(kernel_variants(variant_columns(rows[::2]), "s", "dgemm")) == 2


@pytest.mark.parametrize("strategy", ["neighbours", "model", "all"])
def test_variants_under_profiles_are_searched(strategy):
    """The least energy is that of the second profile, which a search of all candidates finds."""
    rows = [
        ({"tile": i}, 1.0, 10.0 + i - 5.0 * (profile == "saver"), {"profile": profile})
        for i in range(8)
        for profile in ("turbo", "saver", "")
    ]
    made = variant_columns(rows)
    played = replayed(made, "s", "dgemm", strategies=[strategy], budget=24)
    assert (played.candidates, played.failed) == (24, 0)
    assert played.mean_lost_pct[strategy][-1] == 0.0
    if strategy == "all":  # the first in order, of tile 0, has profile "": 10 J
        once = replayed(made, "s", "dgemm", strategies=[strategy], budget=1)
        assert once.mean_lost_pct["all"] == (100.0,)


def test_a_repeat_without_counts_leaves_the_work_as_the_others_count_it():
    """Of two classes of flops, one is missing in the first repeat of the first variant."""
    rows = [
        (
            {"tile": i},
            1.0,
            1.0,
            {"n_dp": 100.0, "n_sp": math.nan if (i, repeat) == (1, 0) else 50.0},
        )
        for i in (1, 2)
        for repeat in (0, 1)
    ]
    of = kernel_variants(variant_columns(rows), "s", "dgemm")
    assert (of.work, of.most_work) == (150.0, 150.0)


def test_different_work_names_the_parameter_that_decides_it():
    rows = [({"mr": mr, "n": n}, 1.0, 1.0, {"n_dp": 2.0 * n**3}) for mr in (1, 2) for n in (8, 9)]
    with pytest.raises(FitError, match=r"such as --problem n=8$"):
        kernel_variants(variant_columns(rows), "s", "dgemm")
    assert len(kernel_variants(variant_columns(rows), "s", "dgemm", problem={"n": "9"})) == 2


def test_different_work_names_the_parameters_that_decide_it_together():
    """Of n, m and two tiles, n times m decides the work; a replay says so as well."""
    rows = [
        ({"mr": mr, "n": n, "nr": nr, "m": m}, 1.0, 1.0, {"n_dp": 2.0 * n * m})
        for mr, nr in itertools.product((1, 2), (1, 2, 4))
        for n, m in itertools.product((8, 16), (32, 64, 256))
    ]
    for look_at in (kernel_variants, replayed):
        with pytest.raises(FitError, match=r"such as --problem m=\d+,n=\d+$"):
            look_at(variant_columns(rows), "s", "dgemm")
    problem = {"n": "8", "m": "32"}
    assert len(kernel_variants(variant_columns(rows), "s", "dgemm", problem=problem)) == 6
    one = {"problem": problem, "objective": "time", "strategies": ["random"]}
    assert replayed(variant_columns(rows), "s", "dgemm", **one).candidates == 6


def test_a_report_studies_spaces_and_imported_tables():
    """Each problem of a space; imported parameter sets that count the same; nothing else."""
    sizes = (960, 1920)
    rows = [({"n": n, "mr": mr}, 1.0, 1.0, {"n_dp": 1.0 * n}) for n in sizes for mr in range(3)]
    for kernel, imported in (("swept", False), ("table", True)):
        rows += [({"mr": mr}, 1.0, 1.0, {"kernel": kernel, "imported": imported}) for mr in "abc"]
    rows += [({"mr": mr}, 1.0, 1.0, {"kernel": "two", "imported": True}) for mr in (1, 2)]
    rows += [
        ({"n": n}, 1.0, 1.0, {"kernel": "sizes", "imported": True, "n_int": n}) for n in range(1, 5)
    ]
    shown = studied_variants(variant_columns(rows), "s", {"dgemm": ("mr",)})
    assert [(one.kernel, one.problem, len(one)) for one in shown] == [
        ("dgemm", {"n": 960}, 3),
        ("dgemm", {"n": 1920}, 3),
        ("table", {}, 3),
    ]
