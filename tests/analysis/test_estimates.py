"""Estimates of noise and of times, and bounds, each worked out again in plain NumPy."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy import optimize, stats

from analysis.energy.discrepancy import shrunk, widening
from analysis.energy.fit import fit
from analysis.measurements.observations import kernel_names
from analysis.quality.clocks import _dominating
from analysis.quality.noise import median_grid, noise_of_groups, repeat_noise, student_limit
from analysis.quality.rows import rows_of
from analysis.rooflines.greenup import bounds, case
from analysis.time.class_roofline import ClassRoofline
from analysis.time.kernel_roofline import FIXED_SHARES, fit_time
from campaign.store.dataset import as_dataset
from dvfs.setting import Setting
from tests.analysis.platforms import PLATFORMS, from_peaks
from tests.analysis.synthetic import grid_observations
from tests.analysis.test_quality import sweep

CORE_MHZ, MEM_MHZ = np.array([500.0, 700.0, 800.0, 1200.0]), np.array([400.0, 1000.0, 1600.0])


def rows(repeats: int):
    frame = sweep(4, core=CORE_MHZ, mem=MEM_MHZ, repeats=repeats)
    frame = frame.drop(index=[0, 1, 40])  # a few cells have fewer repeats, or none
    return rows_of(as_dataset(frame.reset_index(drop=True), "measurement"), "s")


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


def test_a_kernels_time_is_the_best_of_all_shares_that_no_clock_paces():
    """For each exponent and share by scipy's NNLS, weighted so that errors are relative."""
    data = grid_observations(3, kernels=4)
    rng = np.random.default_rng(1)
    data = replace(data, time_s=data.time_s * np.exp(rng.normal(0.0, 0.05, len(data))))
    model = fit_time(data)
    core, mem, p = 1000.0 / data.core_mhz, 900.0 / data.mem_mhz, model.exponent
    away = np.empty(len(data))
    for kernel in kernel_names(data):
        mine = data.kernel == kernel
        time_s = data.time_s[mine]
        shortest = time_s.min()
        best = (np.inf, None)
        for fixed in FIXED_SHARES * shortest:
            slope = p * (time_s - fixed) ** (p - 1.0) * time_s
            columns = np.column_stack([core[mine] ** p, mem[mine] ** p]) / slope[:, None]
            size = np.linalg.norm(columns, axis=0)
            power, _ = optimize.nnls(columns / size, (time_s - fixed) ** p / slope)
            parts = (power / size) ** (1.0 / p)
            guess = fixed + ((parts[0] * core[mine]) ** p + (parts[1] * mem[mine]) ** p) ** (1 / p)
            error = float(((guess / time_s - 1.0) ** 2).sum())
            best = min(best, (error, (*parts, fixed)), key=lambda one: one[0])
        assert model.paced_s[kernel] == pytest.approx(best[1], rel=1e-6, abs=1e-12)
        predicted = model.time_s(kernel, data.core_mhz[mine], data.mem_mhz[mine])
        assert float(((predicted / time_s - 1.0) ** 2).sum()) == pytest.approx(best[0])
        away[mine] = np.abs(predicted / time_s - 1.0)
    assert model.spread == pytest.approx(np.median(away) / 0.6745)
    assert np.isnan(model.time_s("another", data.core_mhz, data.mem_mhz)).all()


def test_without_clocks_a_time_is_the_mean():
    data = grid_observations(3, kernels=2)
    nowhere = np.full(len(data), np.nan)
    model = fit_time(replace(data, core_mhz=nowhere, mem_mhz=nowhere))
    for kernel, paced in model.paced_s.items():
        assert paced == (0.0, 0.0, pytest.approx(data.time_s[data.kernel == kernel].mean()))


@pytest.mark.parametrize("measured_s", [0.5, 3.0, 0.01])
@pytest.mark.parametrize("shares", [(1.0, 0.0, 0.0), (0.2, 0.3, 0.5)])
def test_a_roofline_of_classes_in_closed_form(measured_s, shares):
    ceilings = ClassRoofline(
        tau_s={"sp": 1e-9, "int": 2e-9, "dram": 3e-9},
        domains={"sp": "core", "int": "core", "dram": "mem"},
        exponent=3.0, shares=shares, overhead_s=0.02, top_mhz=(1000.0, 900.0), spread=0.0,
    )  # fmt: skip
    core_mhz, mem_mhz = np.array([250.0, 400.0, np.nan, 1000.0]), np.array([300, 900, 450, np.nan])
    time_s = ceilings.time_s(
        {"sp": 2e8, "dram": 1e8, "int": np.nan},
        measured_s,
        Setting(500.0, 600.0),
        core_mhz,
        mem_mhz,
    )

    def roof(core, mem):
        core, mem = np.nan_to_num(1000.0 / core, nan=1.0), np.nan_to_num(900.0 / mem, nan=1.0)
        return ((0.2 * core) ** 3 + (0.3 * mem) ** 3) ** (1 / 3), core, mem

    here, core_here, mem_here = roof(np.array(500.0), np.array(600.0))
    there, core, mem = roof(core_mhz, mem_mhz)
    fixed = min(0.02, 0.98 * measured_s)
    running = measured_s - fixed
    beyond = max(running - here, 0.0)
    scaling = shares[0] * core / core_here + shares[1] * mem / mem_here + shares[2]
    expected = fixed + there * min(1.0, running / here) + beyond * scaling
    np.testing.assert_allclose(time_s, expected)


def test_the_noise_of_a_kernel_is_what_its_repeats_differ_by():
    """Of cells with one to three repeats, each kernel's drawn towards that of all."""
    data = grid_observations(6, kernels=5, repeats=3, noise=0.03, clock_tree=False)
    rng = np.random.default_rng(2)
    noisy = np.where(data.kernel == "kernel-1", 5.0, 1.0) * rng.normal(0.0, 0.02, len(data))
    data = replace(data, energy_j=data.energy_j * np.exp(noisy))
    data = data.take(rng.random(len(data)) < 0.8)
    log_j, names = np.log(data.energy_j), kernel_names(data)
    squares, free = np.zeros(5), np.zeros(5)
    for s, (k, name) in product(range(8), enumerate(names)):
        mine = log_j[(data.setting == s) & (data.kernel == name)]
        if len(mine):
            squares[k] += len(mine) * mine.var()
            free[k] += len(mine) - 1
    expected = squares.sum() / free.sum() * shrunk(squares / free, free)
    noise = fit(data, "choi", "known").discrepancy.noise
    assert noise == pytest.approx(dict(zip(names, expected, strict=True)))
    assert expected.max() > 3 * np.median(expected)


def test_intervals_of_few_settings_are_widened_by_students_points():
    for freedom in (1.0, 2.0, 7.5, 1e6):
        assert widening(freedom) == pytest.approx(
            stats.t.ppf(0.975, freedom) / stats.norm.ppf(0.975)
        )
    assert widening(0.3) == widening(1.0)


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
