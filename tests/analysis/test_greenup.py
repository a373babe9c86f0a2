"""Work against communication: Choi & Vuduc 2012, section 6 and appendix A, against time
and energy counted from W and Q."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.rooflines.greenup import (
    bounds,
    case,
    greenup,
    most_work_for_greenup,
    most_work_for_speedup,
    speedup,
)
from tests.analysis.platforms import FERMI, PLATFORMS, from_peaks

MILLION = 1_000_000
MACHINES = [FERMI, (*FERMI[:4], 40.0), PLATFORMS["GTX 580", "dp"], PLATFORMS["GTX 680", "sp"]]


def time_and_energy(line, work, moved):
    """Eqs. 3 and 4 as they stand: T = max(W tau, Q tau_mem), E = W eps + Q eps_mem + pi_0 T."""
    time_s = np.maximum(work * line.tau_op_s, moved * line.tau_mem_s)
    energy_j = work * line.eps_op_j + moved * line.eps_mem_j + line.constant_w * time_s
    return time_s, energy_j


def counted(line, intensity, f, m):
    """(speedup, greenup) of (fW, Q/m) over (W, Q), with W = I and Q = 1."""
    before = time_and_energy(line, intensity, 1.0)
    after = time_and_energy(line, f * intensity, 1.0 / m)
    return before[0] / after[0], before[1] / after[1]


def random_points(line, n, seed=0):
    """Intensities around the balance, f and m from 1 to 1000: every case is among them."""
    draw = np.random.default_rng(seed)
    intensity = line.time_balance * 10.0 ** draw.uniform(-3.0, 1.0, n)
    f, m = 10.0 ** draw.uniform(0.0, 3.0, (2, n))
    return intensity, f, m


@pytest.mark.parametrize("constant_w", [0.0, 122.0])
def test_a_million_trade_offs_lie_within_their_bounds(constant_w):
    line = replace(from_peaks(*PLATFORMS["GTX 580", "dp"]), constant_w=constant_w)
    intensity, f, m = random_points(line, MILLION)
    faster, greener = counted(line, intensity, f, m)
    bound = bounds(line, intensity, f, m)
    slack = 1e-12
    assert (bound.speedup_low <= faster * (1 + slack)).all()
    assert (faster <= bound.speedup_high * (1 + slack)).all()
    assert (bound.greenup_low <= greener * (1 + slack)).all()
    assert (greener <= bound.greenup_high * (1 + slack)).all()
    share = np.bincount(case(line, intensity, f, m), minlength=4) / MILLION
    assert share[0] == 0.0
    assert (share[1:] > 0.1).all()


log = st.floats(-3.0, 3.0)


@settings(max_examples=20)
@given(log, log, log, st.one_of(st.none(), log), st.integers(0, 1000))
def test_the_bounds_hold_on_any_machine(gflops, eps_op, eps_mem, constant, seed):
    constant_w = 0.0 if constant is None else 10.0**constant
    line = from_peaks(10.0**gflops, 1.0, 10.0**eps_op, 10.0**eps_mem, constant_w)
    points = random_points(line, 300, seed)
    faster, greener = counted(line, *points)
    assert speedup(line, *points) == pytest.approx(faster, rel=1e-9)
    assert greenup(line, *points) == pytest.approx(greener, rel=1e-9)
    bound = bounds(line, *points)
    assert (bound.speedup_low <= faster * (1 + 1e-9)).all()
    assert (faster <= bound.speedup_high * (1 + 1e-9)).all()
    assert (bound.greenup_low <= greener * (1 + 1e-9)).all()
    assert (greener <= bound.greenup_high * (1 + 1e-9)).all()


@pytest.mark.parametrize("numbers", MACHINES)
def test_speedup_and_its_three_closed_forms(numbers):
    """Section 6.4: m, B_tau / (f I), and 1 / f."""
    line = from_peaks(*numbers)
    intensity, f, m = random_points(line, 1_000)
    which = case(line, intensity, f, m)
    printed = np.choose(which - 1, [m, line.time_balance / (f * intensity), 1.0 / f])
    assert speedup(line, intensity, f, m) == pytest.approx(printed)
    assert (printed[which == 1] >= 1.0).all()
    assert (printed[which == 3] <= 1.0).all()


@pytest.mark.parametrize("numbers", MACHINES)
def test_the_bounds_as_printed(numbers):
    """Eqs. 18 to 23 and appendices A.5 to A.7 in their own letters, but the one that fails."""
    line = from_peaks(*numbers)
    i, f, m = random_points(line, 1_000)
    which = case(line, i, f, m)
    b_tau, b_eps, eta = line.time_balance, line.energy_balance, line.op_efficiency
    ratio = (b_tau * (1 - eta) + eta * (b_eps + i)) / (b_tau + eta * b_eps)
    constant = 1.0 + eta * b_eps / i
    low = [
        ratio,
        b_tau / (f * i) * ratio,
        constant / f / (1.0 + eta * b_eps / (f * i)),
    ]
    high = [m, m * ratio, constant / (1.0 + eta * b_eps / (m * i))]
    bound = bounds(line, i, f, m)
    assert bound.greenup_low == pytest.approx(np.choose(which - 1, low))
    printed = which > 1
    assert bound.greenup_high[printed] == pytest.approx(np.choose(which - 1, high)[printed])
    if line.constant_w == 0.0:
        eq_19 = (1.0 + b_eps / i) / (1.0 + b_eps / b_tau)
        eq_18 = (1.0 + i / b_eps) / (1.0 + b_tau / b_eps)
        assert bound.greenup_high[which == 1] == pytest.approx(eq_19[which == 1])
        assert bound.greenup_low[which == 1] == pytest.approx(eq_18[which == 1])
    assert (ratio[which < 3] < 1.0).all()
    # Section 6.3: the greenup of case 3 is no less than its speedup.
    faster, greener = counted(line, i, f, m)
    assert (greener[which == 3] >= faster[which == 3]).all()


def test_appendix_a5s_upper_bound_is_passed_and_ours_is_the_least():
    """With constant power, less work than A.5 says can't be enough; at f = 1 and m = B_tau / I the
    greenup reaches the bound that is stated instead."""
    line = from_peaks(*PLATFORMS["GTX 580", "dp"])
    b_tau, b_eps, eta = line.time_balance, line.energy_balance, line.op_efficiency
    i, f = np.array([b_tau / 4.0]), np.array([1.0])
    m = b_tau / i * (1.0 - 1e-9)
    extra = eta * b_eps + (1.0 - eta) * (b_tau - i)
    printed = (1.0 + extra / i) / (1.0 + extra / b_tau)
    assert case(line, i, f, m)[0] == 1
    greener = counted(line, i, f, m)[1]
    assert greener[0] > 1.3 * printed[0]
    assert greener == pytest.approx(bounds(line, i, f, m).greenup_high, rel=1e-6)
    # Where nothing is constant, both are eq. 19.
    free = replace(line, constant_w=0.0)
    assert bounds(free, i, f, m).greenup_high == pytest.approx(
        (1.0 + b_eps / i) / (1.0 + b_eps / b_tau)
    )


def test_the_posters_case_3_with_b_tau_for_b_eps_is_no_bound():
    """Choi & Vuduc 2013 (slides) has B_tau in the denominators where Choi & Vuduc 2012 has B_eps;
    then points fall outside, above where B_tau > B_eps and below where B_tau < B_eps."""
    i, f, m = np.array([20.0]), np.array([1.01]), np.array([1.02])
    energy_heavy, time_heavy = (from_peaks(*n) for n in (FERMI, (500.0, 50.0, 100.0, 10.0, 0.0)))
    for line in (energy_heavy, time_heavy):
        assert case(line, i, f, m)[0] == 3
    b_eps, b_tau = energy_heavy.energy_balance, energy_heavy.time_balance
    low = (1.0 + b_eps / i) / f / (1.0 + b_tau / (f * i))
    assert counted(energy_heavy, i, f, m)[1] < low
    b_eps, b_tau = time_heavy.energy_balance, time_heavy.time_balance
    high = (1.0 + b_eps / i) / (1.0 + b_tau / (m * i))
    assert counted(time_heavy, i, f, m)[1] > high


@pytest.mark.parametrize("numbers", MACHINES)
def test_a_greenup_is_where_the_general_condition_says(numbers):
    """Eqs. 17 and 27, necessary and sufficient; section 6.1's condition on time."""
    line = from_peaks(*numbers)
    intensity, f, m = random_points(line, 1_000)
    faster, greener = counted(line, intensity, f, m)
    most = most_work_for_greenup(line, intensity, m)
    clear = np.abs(most / f - 1.0) > 1e-9
    assert ((f < most) == (greener > 1.0))[clear].all()
    assert ((f < most_work_for_speedup(line, intensity)) == (faster > 1.0)).all()
    if line.constant_w == 0.0:
        eq_17 = 1.0 + (m - 1.0) / m * line.energy_balance / intensity
        assert most == pytest.approx(eq_17)
    # Eq. 27: f is a fixed point, greenup exactly 1.
    assert counted(line, intensity, most, m)[1] == pytest.approx(1.0)


@pytest.mark.parametrize("numbers", MACHINES)
def test_the_limits_without_any_communication(numbers):
    """Eqs. 28 and 29."""
    line = from_peaks(*numbers)
    b_tau, b_eps, eta = line.time_balance, line.energy_balance, line.op_efficiency
    i = b_tau * np.array([0.01, 0.5, 1.0, 3.0])
    eq_28 = 1.0 + eta * b_eps / i
    eq_29 = eta + (eta * b_eps + (1.0 - eta) * b_tau) / i
    assert most_work_for_greenup(line, i) == pytest.approx(np.where(i < b_tau, eq_29, eq_28))


def test_no_more_than_five_times_the_flops_on_table_2s_machine():
    """Section 6.2: for a compute-bound baseline, 1 + B_eps / B_tau, about five."""
    line = from_peaks(*FERMI)
    assert most_work_for_greenup(line, line.time_balance) == pytest.approx(5.0, abs=0.05)


def test_figure_8_speed_seldom_costs_energy_but_energy_often_costs_speed():
    line = from_peaks(*FERMI)
    draw = np.random.default_rng(1)
    intensity = draw.uniform(line.time_balance / 4.0, line.energy_balance, 100_000)
    f, m = draw.uniform(1.0, 5.0, 100_000), draw.uniform(1.0, 10.0, 100_000)
    faster, greener = speedup(line, intensity, f, m), greenup(line, intensity, f, m)
    which = case(line, intensity, f, m)
    assert ((faster > 1.0) & (greener < 1.0)).mean() < 0.001
    converse = (faster < 1.0) & (greener > 1.0)
    assert converse.mean() > 0.3
    assert set(which[converse].tolist()) == {2, 3}


def test_operations_that_cost_nothing_and_no_communication_at_all():
    constant = from_peaks(100.0, 10.0, 0.0, 500.0, 5.0)
    i = np.array([1.0, 100.0])
    f, m = np.array([1.5, 1.5]), np.array([np.inf, np.inf])
    bound = bounds(constant, i, f, m)
    _, greener = counted(constant, i, f, m)
    assert greenup(constant, i, f, m) == pytest.approx(greener)
    assert (bound.greenup_low <= greener).all()
    assert (greener <= bound.greenup_high).all()
    assert most_work_for_greenup(constant, 1.0, 1.0) == 1.0


def test_scalars_and_shapes_broadcast():
    line = from_peaks(*FERMI)
    grid = np.array([[1.0], [2.0]]), np.array([1.0, 2.0, 3.0]), 4.0
    assert speedup(line, *grid).shape == greenup(line, *grid).shape == (2, 3)
    assert case(line, *grid).shape == bounds(line, *grid).greenup_low.shape == (2, 3)
    assert float(speedup(line, 1.0, 1.0, 1.0)) == 1.0
    assert bounds(line, 1.0, 1.0, 2.0).speedup_low == 1.0


@pytest.mark.parametrize(("f", "m"), [(0.5, 2.0), (2.0, 0.5), (float("nan"), 2.0)])
def test_a_trade_off_the_other_way_round_has_no_case(f, m):
    line = from_peaks(*FERMI)
    for function in (case, bounds):
        with pytest.raises(ValueError, match="1 or more"):
            function(line, 1.0, f, m)
    with pytest.raises(ValueError, match="1 or more"):
        most_work_for_greenup(line, 1.0, 0.5)
