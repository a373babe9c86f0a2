"""Estimates of noise, and bounds, each worked out again in plain NumPy."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy import stats

from analysis.quality.clocks import _dominating
from analysis.quality.noise import median_grid, noise_of_groups, repeat_noise, student_limit
from analysis.quality.rows import rows_of
from analysis.rooflines.greenup import bounds, case
from tests.analysis.platforms import PLATFORMS, from_peaks
from tests.analysis.test_quality import sweep
from tests.frames import as_columns

CORE_MHZ, MEM_MHZ = np.array([500.0, 700.0, 800.0, 1200.0]), np.array([400.0, 1000.0, 1600.0])


def rows(repeats: int):
    frame = sweep(4, core=CORE_MHZ, mem=MEM_MHZ, repeats=repeats)
    frame = frame.drop(index=[0, 1, 40])  # a few cells have fewer repeats, or none
    return rows_of(as_columns(frame.reset_index(drop=True)), "s")


@pytest.mark.parametrize(("n", "df"), [(1, 3.0), (50, 12.0), (0, 0.5), (4, 1e9)])
def test_the_limit_of_chance_is_students(n, df):
    expected = stats.t.isf(0.005 / max(n, 1), min(max(df, 1.0), 1e6))
    assert student_limit(n, df) == pytest.approx(expected)


def test_a_group_has_noise_of_its_own_from_ten_differences_on():
    differences = np.array([0.01, -0.03, 0.02] * 3 + [0.1] * 10 + [-0.2] * 9 + [0.001] * 10)
    group = np.repeat([0, 1, 2, 3], [9, 10, 9, 10])
    overall = 1.4826 * np.median(np.abs(differences))
    sigma, df = noise_of_groups(differences, group, 5)
    np.testing.assert_allclose(sigma, [overall, 0.14826, overall, overall, overall])
    assert df == pytest.approx(0.37 * 38)
    assert noise_of_groups(np.zeros(12), np.zeros(12, int), 1)[0].tolist() == [1e-3]
    unknown, none = noise_of_groups(np.zeros(0), np.zeros(0, int), 2)
    assert (unknown.tolist(), none) == ([0.05, 0.05], 0.0)


@pytest.mark.parametrize("repeats", [1, 2, 3])
@pytest.mark.parametrize("name", ["time", "power"])
def test_medians_are_as_unsure_as_repeats_and_neighbours_say(repeats, name):
    """Neighbours: how far a cell is from the line between the two beside it, in log clocks."""
    kept = rows(repeats)
    _, sigma, df = repeat_noise(kept)
    grid = median_grid(kept, name, sigma[name], df)
    shape = (8, 12)
    y, n = np.full(shape, np.nan), np.zeros(shape)
    for k, s in product(*map(range, shape)):
        values = kept.values[name][(kept.kernel == k) & (kept.setting == s)]
        if len(values):
            y[k, s], n[k, s] = np.median(values), len(values)
    np.testing.assert_allclose(grid.y, y)
    bends, of = [], []
    x = np.log(kept.mhz)
    for k in range(8):
        for domain in (0, 1):
            for level in np.unique(kept.mhz[:, 1 - domain]):
                line = [s for s in range(12) if kept.mhz[s, 1 - domain] == level and n[k, s]]
                line.sort(key=lambda s: x[s, domain])
                for a, b, c in zip(line, line[1:], line[2:], strict=False):
                    share = (x[b, domain] - x[a, domain]) / (x[c, domain] - x[a, domain])
                    weights = np.array([1.0, share - 1.0, -share])
                    bends.append(weights @ y[k, [b, a, c]] / np.linalg.norm(weights))
                    of.append(k)
    smooth, smooth_df = noise_of_groups(np.array(bends), np.array(of), 8)
    many = np.maximum(n, 1)
    factor = np.where(many > 2, math.pi / 2, 1.0)
    repeated = sigma[name][:, None] ** 2 / many * factor if df else np.zeros(shape)
    np.testing.assert_allclose(grid.variance, np.maximum(repeated, smooth[:, None] ** 2))
    assert grid.df == pytest.approx(min(df, smooth_df) if df else smooth_df)


@pytest.mark.parametrize("known", [True, False])
def test_settings_are_compared_with_those_that_no_clock_is_below(known):
    kept = rows(1)
    mhz = kept.mhz.copy()
    if not known:  # the memory's clock was left as it was found
        mhz[::2, 1] = np.nan
    lower, higher, ratio = _dominating(replace(kept, mhz=mhz))
    expected = {}
    for low, high in product(range(12), repeat=2):
        rises = np.log(mhz[high] / mhz[low])
        alike = np.isnan(mhz[low]) == np.isnan(mhz[high])
        if low != high and alike.all() and not (rises < 0).any():
            expected[low, high] = np.nanmax(rises)
    pairs = dict(zip(zip(lower.tolist(), higher.tolist(), strict=True), ratio, strict=True))
    assert pairs == pytest.approx(expected)


@pytest.mark.parametrize("constant_w", [0.0, 122.0])
def test_bounds_of_the_greenup_are_the_printed_ones(constant_w):
    """Choi & Vuduc 2012, eqs. 18 to 23 and appendix A.5, a point at a time."""
    line = replace(from_peaks(*PLATFORMS["GTX 580", "dp"]), constant_w=constant_w)
    b_tau = line.tau_mem_s / line.tau_op_s
    per_op = line.eps_op_j + constant_w * line.tau_op_s
    b = line.eps_mem_j / per_op
    seen = set()
    for i, f, m in product([b_tau * share for share in (0.1, 0.5, 1.0, 3.0)], [1, 2, 9], [1, 2, 5]):
        bound = bounds(line, i, f, m)
        which = int(case(line, i, f, m))
        assert which == (3 if i >= b_tau else 2 if f * m * i >= b_tau else 1)
        seen.add(which)

        def energy(work, moved):
            time_s = max(work * line.tau_op_s, moved * line.tau_mem_s)
            return work * line.eps_op_j + moved * line.eps_mem_j + constant_w * time_s

        cost = energy(i, 1.0) / (i * per_op)
        ratio = i * cost / (b_tau + b)
        expected = {
            1: (1.0, b_tau / i, ratio, cost / (1.0 + b / b_tau)),
            2: (0.0, min(m, b_tau / i), b_tau / (f * i) * ratio, m * ratio),
            3: (0.0, 1.0, cost / (f + b / i), cost / (1.0 + b / (m * i))),
        }[which]
        got = (bound.speedup_low, bound.speedup_high, bound.greenup_low, bound.greenup_high)
        assert [float(value) for value in got] == pytest.approx(expected)
    assert seen == {1, 2, 3}
