"""A cap in watts: time stretches until the average power is the cap, and no further."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.rooflines.power_cap import CappedRoofline
from tests.analysis.platforms import FERMI, PLATFORMS, from_peaks


def least_time_s(numbers, intensity, cap_w):
    """The least time per operation at which eq. 4's energy over the time is within the cap, by
    bisection, from the time of eq. 3 on."""
    gflops, gbs, eps_op_pj, eps_mem_pj, constant_w = numbers
    low = max(1e-9 / gflops, 1e-9 / gbs / intensity)
    active_j = (eps_op_pj + eps_mem_pj / intensity) * 1e-12

    def power_w(time_s):
        return active_j / time_s + constant_w

    if power_w(low) <= cap_w:
        return low
    high = low
    while power_w(high) > cap_w:
        high *= 2.0
    for _ in range(80):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if power_w(middle) > cap_w else (low, middle)
    return high


@pytest.mark.parametrize("cap_w", [130.0, 190.0, 244.0, 300.0, 400.0])
@pytest.mark.parametrize("precision", ["sp", "dp"])
def test_the_least_time_within_the_cap(precision, cap_w):
    numbers = PLATFORMS["GTX 580", precision]
    line = from_peaks(*numbers)
    capped = CappedRoofline(line, cap_w)
    intensity = np.geomspace(0.01, 1000.0, 41)
    expected_s = np.array([least_time_s(numbers, i, cap_w) for i in intensity])
    active_j = (numbers[2] + numbers[3] / intensity) * 1e-12
    energy_j = active_j + numbers[4] * expected_s
    np.testing.assert_allclose(capped.op_time_s(intensity), expected_s, rtol=1e-9)
    assert capped.speed_ops_s(intensity) == pytest.approx(1.0 / expected_s)
    np.testing.assert_allclose(capped.op_total_energy_j(intensity), energy_j, rtol=1e-9)
    assert capped.efficiency_ops_j(intensity) == pytest.approx(1.0 / energy_j)
    assert capped.power_w(intensity) == pytest.approx(energy_j / expected_s)
    assert capped.slowdown(intensity) == pytest.approx(expected_s / line.op_time_s(intensity))


positive = st.floats(1e-2, 1e2)


@given(positive, positive, positive, positive, st.one_of(st.just(0.0), positive), positive)
def test_for_any_machine_and_cap(gflops, gbs, eps_op, eps_mem, constant_w, spare_w):
    line = from_peaks(gflops, gbs, eps_op, eps_mem, constant_w)
    capped = CappedRoofline(line, constant_w + 1e-3 * spare_w)
    intensity = line.time_balance * np.geomspace(1e-3, 1e3, 61)
    free_w, held_w = line.power_w(intensity), capped.power_w(intensity)
    binds = free_w > capped.cap_w * (1 + 1e-9)
    assert held_w == pytest.approx(np.minimum(free_w, capped.cap_w))
    # Where it binds: slower, less efficient as pi_0 is paid for longer, at the cap exactly.
    assert (capped.speed_ops_s(intensity)[binds] < line.speed_ops_s(intensity)[binds]).all()
    assert (
        capped.op_total_energy_j(intensity) >= line.op_total_energy_j(intensity) * (1 - 1e-12)
    ).all()
    below = free_w < capped.cap_w * (1 - 1e-9)
    assert (capped.op_time_s(intensity)[below] == line.op_time_s(intensity)[below]).all()
    reach = capped.capped_intensities
    low, high = reach or (np.inf, np.inf)
    within = (intensity > low) & (intensity < high)
    sure = np.abs(free_w / capped.cap_w - 1.0) > 1e-6
    assert (within[sure] == binds[sure]).all()
    crossings = np.array([i for i in (low, high) if 0.0 < i < np.inf])
    assert line.power_w(crossings) == pytest.approx(np.full(crossings.shape, capped.cap_w))


def test_the_gtx_580_at_its_rating():
    """Section 5.2: in single precision its 244 W fall short of what the power line asks for.

    At the balance 256.3 W have to fit into 122 W: 2.1 times the time. At high intensities the
    attained 1.4 TFLOP/s already takes more than the rating.
    """
    line = from_peaks(*PLATFORMS["GTX 580", "sp"])
    capped = CappedRoofline(line, 244.0)
    assert capped.slowdown(np.array([line.time_balance]))[0] == pytest.approx(2.101, abs=0.001)
    low, high = capped.capped_intensities
    assert low < line.time_balance
    assert high == np.inf
    far = capped.speed_ops_s(np.array([1e9]))[0]
    assert far == pytest.approx(122.0 / 99.7e-12)
    assert 122.0 + 99.7e-12 * 1400e9 > 244.0
    assert far < 1400e9 < line.speed_ops_s(np.array([1e9]))[0]


@pytest.mark.parametrize(("precision", "binds"), [("sp", True), ("dp", False)])
def test_the_gtx_680_reaches_its_rating_in_single_precision_alone(precision, binds):
    """Table 3's 190 W: the most power is 303 W in single, 189.2 W in double precision."""
    capped = CappedRoofline(from_peaks(*PLATFORMS["GTX 680", precision]), 190.0)
    assert (capped.capped_intensities is not None) == binds


def test_a_cap_makes_a_kernel_slower_and_less_efficient_but_not_without_constant_power():
    capped = CappedRoofline(from_peaks(*FERMI), 20.0)
    intensity = np.array([1.0, 3.6, 14.4])
    assert (capped.slowdown(intensity) > 1.0).all()
    assert capped.efficiency_ops_j(intensity) == pytest.approx(
        capped.line.efficiency_ops_j(intensity)
    )


@pytest.mark.parametrize("cap_w", [122.0, 100.0, 0.0, -1.0, float("nan")])
def test_a_cap_that_constant_power_fills_is_refused(cap_w):
    with pytest.raises(ValueError, match="constant power alone is 122 W"):
        CappedRoofline(from_peaks(*PLATFORMS["GTX 580", "sp"]), cap_w)


def test_a_cap_needs_energies():
    nan = float("nan")
    line = from_peaks(100.0, 10.0, 1.0, 1.0, 1.0)
    unknown = replace(line, eps_op_j=nan, eps_mem_j=nan, constant_w=nan)
    with pytest.raises(ValueError, match="none are known"):
        CappedRoofline(unknown, 100.0)
