"""The noise that checks judge by, beside loops that know nothing of groups and grids."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from analysis.quality.noise import (
    MAD_EFFICIENCY,
    NOISE_FLOOR,
    OWN_NOISE_FROM,
    UNKNOWN_NOISE,
    clock_lines,
    median_grid,
    noise_of_groups,
    repeat_noise,
    student_limit,
)
from analysis.quality.repeats import node_offsets, session_offsets
from analysis.quality.rows import Rows, rows_of
from tests.analysis.test_quality import sweep
from tests.frames import as_columns


def rows(frame: pd.DataFrame) -> Rows:
    return rows_of(as_columns(frame.reset_index(drop=True)), "s")


@pytest.mark.parametrize("n", [0, 1, 7, 5000])
@pytest.mark.parametrize("df", [0.3, 1.0, 2.5, 40.0, 1e7])
def test_the_limit_leaves_one_false_alarm_in_a_hundred_tables(n, df):
    """Student's distribution, both sides, by scipy.stats; degrees of freedom are 1 to a million."""
    limit = stats.t.isf(0.01 / 2 / max(n, 1), min(max(df, 1.0), 1e6))
    assert student_limit(n, df) == pytest.approx(limit, rel=1e-6)


def test_the_scale_and_the_efficiency_of_a_median_deviation_are_those_of_the_normal_distribution():
    """1 / 0.6745; and its variance is 1 / 0.37 of that of a standard deviation of as many."""
    scale = 1 / stats.norm.ppf(0.75)
    sigma, df = noise_of_groups(np.array([1.0, -2.0, 3.0]), np.zeros(3, int), 1)
    assert sigma[0] == pytest.approx(2.0 * scale, rel=1e-4)
    assert df == pytest.approx(3 * MAD_EFFICIENCY)
    rng = np.random.default_rng(0)
    drawn = rng.normal(size=(4000, 100))
    of_median = scale * np.median(np.abs(drawn), axis=1)
    assert drawn.std(axis=1).var() / of_median.var() == pytest.approx(MAD_EFFICIENCY, rel=0.1)


@pytest.mark.parametrize("size", [OWN_NOISE_FROM - 1, OWN_NOISE_FROM])
@pytest.mark.parametrize("louder", [0.3, 4.0])
def test_a_kernel_has_noise_of_its_own_from_ten_comparisons_on_and_never_less_than_all(
    size, louder
):
    quiet = 0.01 * np.array([1, -2, 3, -4, 5, -6, 7, -8, 9, 10, 11, -12, 13.0])
    own = louder * quiet[:size]
    every = np.abs(np.concatenate([quiet, own]))
    group = np.repeat([0, 2], [quiet.size, size])
    sigma, df = noise_of_groups(np.concatenate([quiet, own]), group, 4)
    overall = 1.4826 * np.median(every)
    alone = {
        0: max(overall, 1.4826 * np.median(np.abs(quiet))),
        2: max(overall, 1.4826 * np.median(np.abs(own))) if size >= 10 else overall,
    }
    assert sigma.tolist() == pytest.approx([alone[0], overall, alone[2], overall])
    assert df == pytest.approx(0.37 * every.size)


def test_without_comparisons_noise_is_assumed_and_no_meter_is_perfect():
    sigma, df = noise_of_groups(np.zeros(0), np.zeros(0, int), 2)
    assert (sigma.tolist(), df) == ([UNKNOWN_NOISE] * 2, 0.0)
    assert noise_of_groups(np.full(20, 1e-9), np.zeros(20, int), 1)[0].tolist() == [NOISE_FLOOR]


def test_noise_between_repeats_is_that_of_successive_ones_on_a_node():
    """By loops over cells and nodes; what a node always adds is no noise."""
    frame = sweep(3, noise=0.03, repeats=4)
    frame["node"] = np.where(frame["repeat"] % 2 == 0, "a", "b")
    frame.loc[frame["node"] == "b", "energy_j"] *= 1.2
    of = rows(frame)
    residual, sigma, df = repeat_noise(of)
    for name, values in of.values.items():
        away = np.empty(len(values))
        steps: dict[int, list[float]] = {}
        every = []
        for cell in np.unique(of.cell):
            mine = np.flatnonzero(of.cell == cell)
            away[mine] = values[mine] - np.median(values[mine])
            for node in np.unique(of.node[mine]):
                there = mine[of.node[mine] == node]
                there = there[np.argsort(of.start_unix_s[there])]
                for before, after in pairwise(there):
                    step = abs(values[after] - values[before]) / np.sqrt(2)
                    steps.setdefault(int(of.kernel[after]), []).append(step)
                    every.append(step)
        for node in (0, 1):
            away[of.node == node] -= np.median(away[of.node == node])
        np.testing.assert_allclose(residual[name], away, atol=1e-12)
        overall = 1.4826 * np.median(every)
        expected = [max(overall, 1.4826 * np.median(steps[k])) for k in range(len(of.kernels))]
        np.testing.assert_allclose(sigma[name], expected)
        assert df == pytest.approx(0.37 * len(every))


def test_lines_join_the_settings_that_differ_in_one_clock():
    of = rows(sweep(1, core=np.array([900.0, 500, 700]), mem=np.array([800.0, 400]), repeats=1))
    lines = [(domain, of.mhz[line].tolist()) for domain, line in clock_lines(of)]
    expected = [(0, [[core, mem] for core in (500.0, 700.0, 900.0)]) for mem in (400.0, 800.0)]
    expected += [(1, [[core, mem] for mem in (400.0, 800.0)]) for core in (500.0, 700.0, 900.0)]
    assert lines == expected
    measured = ~((of.mhz[:, 0] == 700) & (of.mhz[:, 1] == 400))
    some = [(domain, of.mhz[line].tolist()) for domain, line in clock_lines(of, measured)]
    assert some == [
        (0, [[500.0, 400.0], [900.0, 400.0]]),
        (0, [[500.0, 800.0], [700.0, 800.0], [900.0, 800.0]]),
        (1, [[500.0, 400.0], [500.0, 800.0]]),
        (1, [[900.0, 400.0], [900.0, 800.0]]),
    ]
    as_found = rows(sweep(1, mem=np.array([800.0]), repeats=1).assign(mem_mhz=np.nan))
    assert [(domain, len(line)) for domain, line in clock_lines(as_found)] == [(0, 8)]


@pytest.mark.parametrize("repeats", [1, 2, 3])
def test_a_median_is_as_sure_as_its_repeats_or_its_neighbours(repeats):
    """Its variance is pi/2 times a mean's from three on, and no less than neighbours show: a
    cell's distance from the straight line between the two beside it, in units of one cell."""
    of = rows(sweep(4, noise=0.03, repeats=repeats))
    _, sigma, df = repeat_noise(of)
    grid = median_grid(of, "time", sigma["time"], df)
    shape = (len(of.kernels), len(of.mhz))
    y = np.array(
        [[np.median(of.values["time"][of.cell == k * shape[1] + s]) for s in range(shape[1])]
         for k in range(shape[0])]
    )  # fmt: skip
    np.testing.assert_allclose(grid.y, y)
    x = np.log(of.mhz)
    bends: list[tuple[int, float]] = []
    for k in range(shape[0]):
        for domain, line in clock_lines(of):
            for a, b, c in zip(line, line[1:], line[2:], strict=False):
                w = (x[b, domain] - x[a, domain]) / (x[c, domain] - x[a, domain])
                bend = y[k, b] - (1 - w) * y[k, a] - w * y[k, c]
                bends.append((k, bend / np.sqrt(1 + (1 - w) ** 2 + w**2)))
    smooth, smooth_df = noise_of_groups(
        np.array([bend for _, bend in bends]), np.array([k for k, _ in bends]), shape[0]
    )
    of_repeats = sigma["time"] ** 2 / repeats * (np.pi / 2 if repeats > 2 else 1.0)
    if repeats == 1:
        of_repeats = np.zeros(shape[0])
    expected = np.maximum(of_repeats, smooth**2)
    np.testing.assert_allclose(grid.variance, np.repeat(expected[:, None], shape[1], axis=1))
    assert grid.df == pytest.approx(min(df or np.inf, smooth_df))


def test_without_neighbours_a_median_is_as_sure_as_its_repeats_alone():
    of = rows(sweep(5, core=np.array([500.0, 900.0]), mem=np.array([400.0])))
    _, sigma, df = repeat_noise(of)
    grid = median_grid(of, "power", sigma["power"], df)
    np.testing.assert_allclose(grid.variance[:, 0], sigma["power"] ** 2 / 3 * np.pi / 2)
    assert grid.df == df


def test_neither_repeats_nor_neighbours_say_nothing():
    of = rows(sweep(5, core=np.array([500.0]), mem=np.array([400.0]), repeats=1))
    _, sigma, df = repeat_noise(of)
    grid = median_grid(of, "power", sigma["power"], df)
    assert df == 0.0
    assert grid.df == np.inf
    np.testing.assert_allclose(grid.variance, UNKNOWN_NOISE**2)


@pytest.mark.parametrize(("cells", "seen"), [(4, False), (5, True)])
def test_nodes_are_compared_in_five_points_or_more(cells, seen):
    frame = sweep(6, noise=0.001, mem=np.array([400.0]), repeats=2)
    frame = frame[frame["kernel"] == "k0"].iloc[: 2 * cells]
    frame["node"] = np.where(frame["repeat"] == 0, "a", "b")
    frame.loc[frame["node"] == "b", "energy_j"] *= 1.3
    assert bool(list(node_offsets(rows(frame)))) is seen


@pytest.mark.parametrize(
    ("drift", "noise", "anchors", "seen"),
    [(0.03, 0.001, 4, True), (0.03, 0.001, 2, False), (0.0, 0.01, 20, False),
     (0.005, 0.0, 4, False), (0.03, 0.05, 4, False)],
)  # fmt: skip
@pytest.mark.parametrize("quantity", ["power", "time"])
def test_a_drift_shows_in_the_points_that_a_later_session_measures_again(
    quantity, drift, noise, anchors, seen
):
    """Settings are measured once, in two sessions a day apart; the second one again measures some
    of the first's."""
    frame = sweep(8, noise=0.0, repeats=2)
    rng = np.random.default_rng(3)
    for name in ("time_s", "energy_j"):
        frame[name] *= np.exp(noise * rng.normal(size=len(frame)))
    first = frame[frame["repeat"] == 0]
    later = frame[frame["repeat"] == 1].iloc[:anchors].copy()
    first = first.assign(start_unix_s=1.7e9 + 2.0 * np.arange(len(first)))
    later["start_unix_s"] = 1.7e9 + 86400.0 + 2.0 * np.arange(len(later))
    later["energy_j"] *= 1.0 + drift
    if quantity == "time":
        later["time_s"] *= 1.0 + drift
    findings = list(session_offsets(rows(pd.concat([first, later], ignore_index=True))))
    if not seen:
        assert not findings
        return
    (finding,) = findings
    said_pct = float(finding.text.split()[2])
    assert finding.text.startswith(f"{quantity} is +")
    assert said_pct == pytest.approx(3.0, abs=0.3)
    assert "that began on 2023-11-15 at 22:13 UTC, in the 4 points" in finding.text
    assert finding.rows.tolist() == list(range(len(first), len(first) + anchors))
