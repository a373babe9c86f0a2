"""The roofline, arch line and power line say what seed 000 says of its machines."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.fit import fit
from analysis.observations import CantFit, Observations
from analysis.roofline import Roofline, best_rate, fastest_setting, pair_points, roofline

# Seed 000: Table 3 (peak GFLOP/s, GB/s) and Table 4 (pJ per flop, pJ per byte, W).
PLATFORMS = {
    ("GTX 580", "sp"): (1581.06, 192.4, 99.7, 513.0, 122.0),
    ("GTX 580", "dp"): (197.63, 192.4, 212.0, 513.0, 122.0),
    ("GTX 680", "sp"): (3532.8, 192.2, 43.2, 437.5, 66.37),
    ("GTX 680", "dp"): (147.2, 192.2, 262.9, 437.5, 66.37),
    ("i7-950", "sp"): (106.56, 25.6, 371.0, 795.0, 122.0),
    ("i7-950", "dp"): (53.28, 25.6, 670.0, 795.0, 122.0),
}
# flop per byte, from the numbers above by hand: (B_tau, B_eps).
BALANCES = {
    ("GTX 580", "sp"): (8.218, 5.145),
    ("GTX 580", "dp"): (1.027, 2.420),
    ("GTX 680", "sp"): (18.381, 10.127),
    ("GTX 680", "dp"): (0.7659, 1.664),
    ("i7-950", "sp"): (4.1625, 2.143),
    ("i7-950", "dp"): (2.0813, 1.187),
}


def machine(gflops, gbs, eps_op_pj, eps_mem_pj, constant_w):
    return Roofline(
        "sp", "dram", 1e-9 / gflops, 1e-9 / gbs, eps_op_pj * 1e-12, eps_mem_pj * 1e-12, constant_w
    )


@pytest.fixture(params=PLATFORMS, ids=" ".join)
def platform(request):
    return request.param, machine(*PLATFORMS[request.param])


def test_the_papers_balance_points(platform):
    name, line = platform
    assert line.time_balance == pytest.approx(BALANCES[name][0], rel=1e-3)
    assert line.energy_balance == pytest.approx(BALANCES[name][1], rel=1e-3)


def test_section_5_2_time_efficiency_implies_energy_efficiency(platform):
    """On every platform B_tau exceeds the half-efficiency point: at I >= B_tau a kernel is within
    a factor of two of the best energy efficiency."""
    _, line = platform
    assert line.half_efficiency_intensity < line.time_balance
    assert line.efficiency_ops_j(np.array([line.time_balance]))[0] > 0.5 / line.op_energy_j


@pytest.mark.parametrize(
    ("name", "reverses"),
    [
        (("GTX 580", "dp"), True),
        (("GTX 680", "dp"), True),
        (("i7-950", "dp"), False),
        (("GTX 580", "sp"), False),
        (("GTX 680", "sp"), False),
        (("i7-950", "sp"), False),
    ],
)
def test_without_constant_power_the_gap_reverses_where_the_paper_says(name, reverses):
    """Figures 4 and 5: in double precision on the GPUs B_eps > B_tau, elsewhere not."""
    line = replace(machine(*PLATFORMS[name]), constant_w=0.0)
    assert line.half_efficiency_intensity == pytest.approx(line.energy_balance)
    assert (line.half_efficiency_intensity > line.time_balance) == reverses


def test_table_2_and_the_limits_of_figure_2b():
    """Fermi by Keckler et al., pi_0 = 0: B_tau 3.6, B_eps 14.4; power in units of pi_flop is 4.0
    as I -> 0, 1 + 4.0 at most, 1 as I -> infinity (eq. 8)."""
    line = machine(515.0, 144.0, 25.0, 360.0, 0.0)
    assert line.time_balance == pytest.approx(3.6, abs=0.05)
    assert line.energy_balance == pytest.approx(14.4, abs=0.05)
    limits = np.array(line.power_limits_w) / line.op_power_w
    assert limits == pytest.approx([4.0, 5.0, 1.0], abs=0.05)
    extremes = line.power_w(np.array([1e-9, line.time_balance, 1e9])) / line.op_power_w
    assert extremes == pytest.approx(limits, rel=1e-6)


def test_the_power_that_a_gtx_580_would_need():
    """Section 5.2: 387 W in single precision by the model, far above its rating of 244 W."""
    line = machine(*PLATFORMS["GTX 580", "sp"])
    assert line.power_limits_w[1] == pytest.approx(387.0, rel=0.03)


positive = st.floats(1e-3, 1e3)


@given(
    positive, positive, positive, positive, st.one_of(st.just(0.0), positive), st.floats(1e-4, 1e4)
)
def test_equations_3_to_8_hold_for_any_machine(gflops, gbs, eps_op, eps_mem, constant_w, at):
    line = machine(gflops, gbs, eps_op, eps_mem, constant_w)
    i = np.array([at])
    time_s = max(line.tau_op_s, line.tau_mem_s / at)
    energy_j = line.eps_op_j + line.eps_mem_j / at + line.constant_w * time_s
    assert line.op_time_s(i)[0] == pytest.approx(time_s)
    assert line.op_total_energy_j(i)[0] == pytest.approx(energy_j)
    assert line.power_w(i)[0] == pytest.approx(energy_j / time_s)
    low, most, high = line.power_limits_w
    assert min(low, high) * (1 - 1e-9) <= line.power_w(i)[0] <= most * (1 + 1e-9)
    half = np.array([line.half_efficiency_intensity])
    assert line.effective_balance(half)[0] == pytest.approx(half[0])
    assert line.efficiency_ops_j(half)[0] == pytest.approx(0.5 / line.op_energy_j)


def test_operations_that_cost_nothing_leave_the_lines_finite():
    line = machine(100.0, 10.0, 0.0, 500.0, 5.0)
    assert line.energy_balance == np.inf
    assert line.op_efficiency == 0.0
    assert np.isfinite(line.efficiency_ops_j(np.array([0.1, 1.0, 10.0, 100.0]))).all()


def test_where_nothing_costs_energy_efficiency_is_unknown():
    line = machine(100.0, 10.0, 0.0, 0.0, 0.0)
    assert np.isnan([line.op_efficiency, line.half_efficiency_intensity]).all()
    assert np.isnan(line.efficiency_ops_j(np.array([1.0]))).all()
    assert line.time_balance == pytest.approx(10.0)


EPS_PJ = {"sp": 30.0, "dram": 400.0, "int": 60.0}
RATE = {"sp": 200e9, "dram": 20e9, "int": 100e9}
"""Operations or bytes a second at the faster setting."""


def ideal(extra=()):
    """A machine that is eq. 3 and 4 exactly: V = 1 everywhere, 6 W, two core clocks."""
    words = 1e8
    kernels = {f"sp i={i:g}": {"sp": i * words, "dram": words} for i in (0.5, 2.0, 8.0, 32.0)}
    kernels |= {
        "int": {"int": words, "dram": words},
        "stream": {"dram": words},
        "mixed": {"sp": words, "int": words, "dram": words},
    } | dict(extra)
    rows = [(name, counts, mhz) for mhz in (500.0, 1000.0) for name, counts in kernels.items()]
    classes = ("dram", "int", "sp")
    counts = {c: np.array([r[1].get(c, np.nan) for r in rows]) for c in classes}
    mhz = np.array([r[2] for r in rows])
    n = {c: np.nan_to_num(v) for c, v in counts.items()}
    time_s = np.max([n[c] / RATE[c] * (1.0 if c == "dram" else 1000.0 / mhz) for c in classes], 0)
    energy_j = sum(n[c] * EPS_PJ[c] * 1e-12 for c in classes) + 6.0 * time_s
    one = np.ones(len(rows))
    return Observations(
        "ideal",
        False,
        np.array([r[0] for r in rows], object),
        mhz,
        900.0 * one,
        one,
        one,
        time_s,
        energy_j,
        counts,
        {"sp": "core", "int": "core", "dram": "mem"},
        "unit",
        (mhz > 600).astype(np.int64),
        [(500.0, 900.0), (1000.0, 900.0)],
    )


def test_a_machine_of_known_constants_comes_back():
    data = ideal()
    setting = fastest_setting(data)
    assert data.settings[setting] == (1000.0, 900.0)
    line = roofline(data, "sp", "dram", setting, fit(data))
    assert 1.0 / line.tau_op_s == pytest.approx(RATE["sp"])
    assert 1.0 / line.tau_mem_s == pytest.approx(RATE["dram"])
    assert line.eps_op_j == pytest.approx(30e-12, rel=1e-6)
    assert line.eps_mem_j == pytest.approx(400e-12, rel=1e-6)
    assert line.constant_w == pytest.approx(6.0, rel=1e-6)
    assert line.time_balance == pytest.approx(10.0)
    (points,) = pair_points(data, setting)
    assert points.operations / points.time_s == pytest.approx(line.speed_ops_s(points.intensity))
    assert points.operations / points.energy_j == pytest.approx(
        line.efficiency_ops_j(points.intensity), rel=1e-6
    )
    assert points.energy_j / points.time_s == pytest.approx(
        line.power_w(points.intensity), rel=1e-6
    )


def test_pairs_are_of_kernels_with_exactly_two_classes_and_varying_intensity():
    (points,) = pair_points(ideal(), 1)
    assert (points.operation, points.memory) == ("sp", "dram")
    assert points.intensity.tolist() == [0.5, 2.0, 8.0, 32.0]
    both = pair_points(ideal([("int i=4", {"int": 4e8, "dram": 1e8})]), 1)
    assert [(p.operation, p.memory) for p in both] == [("sp", "dram"), ("int", "dram")]


def test_the_fastest_setting_is_one_where_most_kernels_were_measured():
    data = ideal()
    fewer = data.take(~((data.setting == 1) & (data.kernel == "int")))
    assert fastest_setting(fewer) == 0


def test_without_a_fit_only_time_is_known():
    line = roofline(ideal(), "sp", "dram", 1)
    assert line.time_balance == pytest.approx(10.0)
    unknown = (
        line.energy_balance,
        line.op_energy_j,
        line.half_efficiency_intensity,
        *line.power_limits_w,
        *line.power_w(np.array([1.0])),
    )
    assert np.isnan(unknown).all()


def test_a_class_that_nobody_counts_is_refused():
    data = ideal()
    with pytest.raises(CantFit, match="counts dp"):
        best_rate(data, "dp", 0)
