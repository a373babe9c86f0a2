"""Roofline, arch line and power line against the numbers of Choi & Vuduc 2012 on its machines."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.energy.fit import fit
from analysis.measurements.observations import FitError, Observations
from analysis.rooflines.roofline import (
    best_rate,
    fastest_setting,
    pair_points,
    roofline,
    verdict,
)
from dvfs.setting import Setting
from tests.analysis.platforms import FERMI, PLATFORMS, from_peaks
from tests.analysis.synthetic import numbered

# flop per byte, from the numbers above by hand: (B_tau, B_eps).
BALANCES = {
    ("GTX 580", "sp"): (8.218, 5.145),
    ("GTX 580", "dp"): (1.027, 2.420),
    ("GTX 680", "sp"): (18.381, 10.127),
    ("GTX 680", "dp"): (0.7659, 1.664),
    ("i7-950", "sp"): (4.1625, 2.143),
    ("i7-950", "dp"): (2.0813, 1.187),
    ("OMAP 4460", "sp"): (3.0, 48.35),
    ("OMAP 4460", "dp"): (1.125, 2.908),
    ("i3-3217U", "sp"): (2.2539, 28.376),
    ("i3-3217U", "dp"): (1.125, 17.191),
}


@pytest.fixture(params=PLATFORMS, ids=" ".join)
def platform(request):
    return request.param, from_peaks(*PLATFORMS[request.param])


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
        (("OMAP 4460", "sp"), True),
        (("i3-3217U", "dp"), True),
    ],
)
def test_without_constant_power_the_gap_reverses_where_the_paper_says(name, reverses):
    """Figures 4 and 5: in double precision on the GPUs B_eps > B_tau, elsewhere not."""
    line = replace(from_peaks(*PLATFORMS[name]), constant_w=0.0)
    assert line.half_efficiency_intensity == pytest.approx(line.energy_balance)
    assert (line.half_efficiency_intensity > line.time_balance) == reverses
    assert (line.balance_gap > 1.0) == reverses
    assert line.fast_is_efficient == (not reverses)


def test_table_2_and_the_limits_of_figure_2b():
    """Fermi by Keckler et al., pi_0 = 0: B_tau 3.6, B_eps 14.4; power in units of pi_flop is 4.0
    as I -> 0, 1 + 4.0 at most, 1 as I -> infinity (eq. 8)."""
    line = from_peaks(*FERMI)
    assert line.time_balance == pytest.approx(3.6, abs=0.05)
    assert line.energy_balance == pytest.approx(14.4, abs=0.05)
    limits = np.array(line.power_limits_w) / line.op_power_w
    assert limits == pytest.approx([4.0, 5.0, 1.0], abs=0.05)
    extremes = line.power_w(np.array([1e-9, line.time_balance, 1e9])) / line.op_power_w
    assert extremes == pytest.approx(limits, rel=1e-6)


def test_the_power_that_a_gtx_580_would_need():
    """Section 5.2 prints 387 W for single precision, far above the rating of 244 W; tables 3 and
    4 make it 122 + 99.7e-12 x 1581.06e9 + 513e-12 x 192.4e9 = 378.3 W."""
    line = from_peaks(*PLATFORMS["GTX 580", "sp"])
    assert line.power_limits_w[1] == pytest.approx(378.3, abs=0.1)
    assert line.power_limits_w[1] == pytest.approx(387.0, rel=0.03)


def test_table_2s_times_and_its_gap():
    """1.9 ps per flop, 6.9 ps per byte, and a gap of 4.0 (figure 2b)."""
    line = from_peaks(*FERMI)
    assert line.tau_op_s * 1e12 == pytest.approx(1.9, abs=0.05)
    assert line.tau_mem_s * 1e12 == pytest.approx(6.9, abs=0.05)
    assert line.eps_op_j * 1e12 == pytest.approx(25.0)
    assert line.eps_mem_j * 1e12 == pytest.approx(360.0)
    assert line.constant_w == 0.0
    assert line.balance_gap == pytest.approx(4.0, abs=0.05)
    assert line.effective_gap == pytest.approx(line.balance_gap)


def test_equation_8s_lower_limit_is_not_one_where_the_gap_exceeds_1():
    """Eq. 8 has pi_flop B_eps / B_tau = 4 pi_flop as the least power of table 2's machine; figure
    2b itself falls to pi_flop."""
    line = from_peaks(*FERMI)
    assert line.power_w(np.array([1e9]))[0] < 0.5 * line.op_power_w * line.balance_gap
    assert line.power_w(np.geomspace(1e-9, 1e9, 999)).min() >= min(
        line.power_limits_w[0], line.power_limits_w[2]
    ) * (1 - 1e-9)


@pytest.mark.parametrize("precision", ["sp", "dp"])
@pytest.mark.parametrize("name", ["GTX 580", "GTX 680", "i7-950"])
def test_the_order_of_the_balances_in_figures_4_and_5(name, precision):
    """Figure 4: on the GPUs in double precision B^_eps < B_tau < B_eps; figure 5: in single
    precision everywhere B^_eps <= B_eps < B_tau."""
    line = from_peaks(*PLATFORMS[name, precision])
    half, b_eps, b_tau = line.half_efficiency_intensity, line.energy_balance, line.time_balance
    if precision == "dp" and name.startswith("GTX"):
        assert half < b_tau < b_eps
        assert "fast would not be efficient" in verdict(line)
    else:
        assert half <= b_eps < b_tau
        assert "opposite" not in verdict(line)


@given(st.tuples(*[st.floats(1, 1e3)] * 5))
def test_constant_power_lowers_the_balance_only_where_b_tau_is_below_twice_b_eps(numbers):
    line = from_peaks(*numbers)
    lowers = line.half_efficiency_intensity < line.energy_balance
    near = abs(line.time_balance / (2.0 * line.energy_balance) - 1.0) < 1e-6
    # Little constant power moves it by less than a float can tell.
    assert (
        near
        or line.op_efficiency > 1 - 1e-9
        or lowers == (line.time_balance < 2.0 * line.energy_balance)
    )


def test_every_printed_platform_races_to_halt(platform):
    """Section 5.2 of its three platforms; it holds on those of Choi & Vuduc 2013 (slides) too."""
    _, line = platform
    assert line.fast_is_efficient is True
    assert line.effective_gap == line.half_efficiency_intensity / line.time_balance < 1.0
    said = verdict(line)
    assert said.startswith("fast is efficient")
    assert f"{line.time_balance:.3g}" in said
    assert f"{line.half_efficiency_intensity:.3g}" in said


@pytest.mark.parametrize(("eps_mem_pj", "races"), [(99.0, True), (101.0, False)])
@pytest.mark.parametrize("constant_w", [0.0, 50.0])
def test_the_verdict_turns_where_the_balances_meet(eps_mem_pj, races, constant_w):
    """eta B_eps = B_tau = 10 where a byte costs ten times an operation with its constant energy,
    pi_0 tau_op: 100 pJ without constant power, 600 pJ with 50 W of it."""
    extra_pj = constant_w / 1000e9 * 1e12
    line = from_peaks(1000.0, 100.0, 10.0, eps_mem_pj + 10.0 * extra_pj, constant_w)
    assert line.fast_is_efficient is races
    assert verdict(line).startswith("fast is efficient") is races


def test_the_verdict_where_energy_is_the_harder_one():
    line = from_peaks(*FERMI)
    assert line.fast_is_efficient is False
    said = verdict(line)
    assert said.startswith("fast is not")
    assert "3.58 to 14.4 op/B" in said
    # In between, a kernel is compute-bound in time and spends more on bytes than on operations.
    between = np.array([7.0])
    assert line.op_time_s(between)[0] == line.tau_op_s
    assert line.eps_mem_j / between[0] > line.eps_op_j


@pytest.mark.parametrize(("name", "printed_pct"), [("GTX 580", 55.0), ("GTX 680", 69.0)])
def test_the_energy_of_computing_alone_that_is_spent_on_flops(name, printed_pct):
    """Section 5.5, measured in single precision; by eta_flop it is 56.4 and 69.7 %."""
    line = from_peaks(*PLATFORMS[name, "sp"])
    assert 100.0 * line.op_efficiency == pytest.approx(printed_pct, abs=1.5)


@pytest.mark.parametrize(
    ("name", "precision", "gbs", "gbs_pct", "gflops", "gflops_pct"),
    [
        ("GTX 580", "dp", 170.0, 88.3, 196.0, 99.3),
        ("GTX 680", "dp", 147.0, 76.6, 148.0, 101.0),
        ("GTX 680", "sp", 147.0, 76.6, 3000.0, 85.6),
        ("i7-950", "sp", 18.7, 73.1, 99.4, 93.3),
        ("i7-950", "dp", 18.9, 73.8, 49.7, 93.3),
    ],
)
def test_the_fractions_of_peak_that_were_attained(
    name, precision, gbs, gbs_pct, gflops, gflops_pct
):
    """Section 4.2: within what the printed digits leave open (3 TFLOP/s is one digit)."""
    line = from_peaks(*PLATFORMS[name, precision])
    assert 100.0 * gbs * 1e9 * line.tau_mem_s == pytest.approx(gbs_pct, abs=0.2)
    assert 100.0 * gflops * 1e9 * line.tau_op_s == pytest.approx(gflops_pct, abs=0.7)


positive = st.floats(1e-3, 1e3)


@given(
    positive, positive, positive, positive, st.one_of(st.just(0.0), positive), st.floats(1e-4, 1e4)
)
def test_equations_3_to_8_hold_for_any_machine(gflops, gbs, eps_op, eps_mem, constant_w, at):
    line = from_peaks(gflops, gbs, eps_op, eps_mem, constant_w)
    i = np.array([at])
    time_s = max(line.tau_op_s, line.tau_mem_s / at)
    energy_j = line.eps_op_j + line.eps_mem_j / at + line.constant_w * time_s
    assert line.op_time_s(i)[0] == pytest.approx(time_s, rel=1e-9, abs=0.0)
    assert line.op_total_energy_j(i)[0] == pytest.approx(energy_j, rel=1e-9, abs=0.0)
    assert line.power_w(i)[0] == pytest.approx(energy_j / time_s)
    low, most, high = line.power_limits_w
    assert min(low, high) * (1 - 1e-9) <= line.power_w(i)[0] <= most * (1 + 1e-9)
    half = np.array([line.half_efficiency_intensity])
    assert line.effective_balance(half)[0] == pytest.approx(half[0])
    assert line.efficiency_ops_j(half)[0] == pytest.approx(0.5 / line.op_energy_j)


def test_operations_that_cost_nothing_leave_the_lines_finite():
    line = from_peaks(100.0, 10.0, 0.0, 500.0, 5.0)
    assert np.isnan(line.energy_balance)
    assert line.op_efficiency == 0.0
    assert np.isfinite(line.efficiency_ops_j(np.array([0.1, 1.0, 10.0, 100.0]))).all()


def test_where_nothing_costs_energy_efficiency_is_unknown():
    line = from_peaks(100.0, 10.0, 0.0, 0.0, 0.0)
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
        site="ideal",
        simulated=False,
        **numbered(r[0] for r in rows),
        core_mhz=mhz,
        mem_mhz=900.0 * one,
        core_v=one,
        mem_v=one,
        time_s=time_s,
        energy_j=energy_j,
        counts=counts,
        domains={"sp": "core", "int": "core", "dram": "mem"},
        voltage="unit",
        setting=(mhz > 600).astype(np.int64),
        settings=[Setting(500.0, 900.0), Setting(1000.0, 900.0)],
    )


def test_a_machine_of_known_constants_comes_back():
    data = ideal()
    setting = fastest_setting(data)
    assert data.settings[setting] == Setting(1000.0, 900.0)
    line = roofline(data, "sp", "dram", setting, fit(data))
    assert 1.0 / line.tau_op_s == pytest.approx(RATE["sp"])
    assert 1.0 / line.tau_mem_s == pytest.approx(RATE["dram"])
    assert line.eps_op_j * 1e12 == pytest.approx(30.0, rel=1e-6)
    assert line.eps_mem_j * 1e12 == pytest.approx(400.0, rel=1e-6)
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


def test_counts_may_be_of_one_operation():
    """As in tables whose times and energies are divided by the operations."""
    data = ideal()
    one = replace(data, counts={name: counts / 1e8 for name, counts in data.counts.items()})
    (points,) = pair_points(one, 1)
    assert points.intensity.tolist() == [0.5, 2.0, 8.0, 32.0]


def test_the_fastest_setting_is_one_where_most_kernels_were_measured():
    data = ideal()
    fewer = data.take(~((data.setting == 1) & (data.labels == "int")))
    assert fastest_setting(fewer) == 0


def test_the_fastest_setting_does_not_depend_on_how_often_a_kernel_was_repeated():
    """Of all kernels int alone is 10 % faster at the lower clock, where it was repeated."""
    data = ideal()
    time_s = data.time_s.copy()
    time_s[data.of_kernel("int")] = np.where(data.setting == 0, 1.0, 1.1)[data.of_kernel("int")]
    often = np.where(data.of_kernel("int") & (data.setting == 0), 500, 1)
    repeated = replace(data, time_s=time_s).take(np.repeat(np.arange(len(data)), often))
    assert fastest_setting(repeated) == fastest_setting(data) == 1


def test_without_a_fit_only_time_is_known():
    line = roofline(ideal(), "sp", "dram", 1)
    assert line.time_balance == pytest.approx(10.0)
    unknown = (
        line.energy_balance,
        line.op_energy_j,
        line.half_efficiency_intensity,
        *line.power_limits_w,
        *line.power_w(np.array([1.0])),
        line.balance_gap,
        line.effective_gap,
    )
    assert np.isnan(unknown).all()
    assert line.fast_is_efficient is None
    assert verdict(line).startswith("unknown")


def test_a_class_that_nobody_counts_is_refused():
    data = ideal()
    with pytest.raises(FitError, match="counts dp"):
        best_rate(data, "dp", 0)
