"""Energy from traces of analytic shape, and totals that count nothing twice."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from campaign.measure.energy import total_energy, window_energy
from campaign.measure.sampler import MeterTrace
from campaign.measurement import Trace
from sites.meters import Channel


def power(times_s, watts) -> Trace:
    time_ns = np.round(np.asarray(times_s) * 1e9).astype(np.int64)
    return Trace("c", "node", "W", time_ns, np.asarray(watts, float))


WATTS = Channel("c", "node", "power", resolution=0.0, period_s=0.001)
JOULES = Channel("c", "package", "energy", resolution=6.1e-5, period_s=0.001)


@given(
    level=st.floats(0.1, 1000),
    slope=st.floats(-10, 10),
    end_s=st.floats(0.5, 20),
    times=st.lists(st.floats(-1, 25), min_size=0, max_size=60),
)
def test_a_ramp_integrates_exactly_at_any_sampling(level, slope, end_s, times):
    grid = np.unique(np.round([-0.5, *times, 26.0], 6))
    energy = window_energy(power(grid, level + slope * grid), WATTS, round(end_s * 1e9))
    assert energy.energy_j == pytest.approx(
        level * end_s + slope * end_s**2 / 2, rel=1e-6, abs=1e-6
    )


def test_a_sine_integrates_to_its_closed_form():
    grid = np.arange(0, 4, 1 / 1024)
    energy = window_energy(power(grid, 100 + 20 * np.sin(2 * np.pi * grid)), WATTS, 3_250_000_000)
    exact = 325.0 + 20 / (2 * np.pi) * (1 - math.cos(2 * np.pi * 3.25))
    assert abs(energy.energy_j - exact) < max(energy.std_j, 1e-3)


def test_noise_is_within_the_stated_uncertainty():
    rng = np.random.default_rng(0)
    grid = np.arange(0, 1.001, 1 / 100)
    errors, stated = [], []
    for _ in range(400):
        energy = window_energy(power(grid, 50 + rng.normal(0, 2, grid.size)), WATTS, 10**9)
        errors.append(energy.energy_j - 50)
        stated.append(energy.std_j)
    assert np.std(errors) == pytest.approx(np.mean(stated), rel=0.15)


def test_a_counter_counts_the_window_alone():
    trace = Trace(
        "c", "package", "J", np.array([-(10**8), 5 * 10**8, 11 * 10**8]), np.array([0, 60, 120.0])
    )
    energy = window_energy(trace, JOULES, 10**9)
    assert energy.energy_j == pytest.approx(100.0)
    stale_j = 100 * 0.001
    assert energy.std_j == pytest.approx(math.sqrt((6.1e-5**2 + stale_j**2) / 6))


def test_one_reading_is_no_energy():
    assert math.isnan(window_energy(power([0.0], [5.0]), WATTS, 10**9).energy_j)


def channel(meter, name, domain, joules, inside=None) -> MeterTrace:
    trace = Trace(name, domain, "J", np.array([0, 10**9]), np.array([0.0, joules]))
    return MeterTrace(meter, Channel(name, domain, "energy", 0.0, 0.001, inside), trace)


def test_nothing_is_summed_twice():
    rapl = [
        channel("powercap", "package-0", "package", 50),
        channel("powercap", "package-0/core", "core", 30, inside="package-0"),
        channel("powercap", "package-0/dram", "dram", 10),
        channel("powercap", "package-1", "package", 40),
    ]
    assert total_energy(rapl, 10**9)[0].energy_j == pytest.approx(100)
    again = [channel("perf", "pkg", "package", 51), channel("nvml", "gpu-0", "gpu", 200)]
    assert total_energy(rapl + again, 10**9)[0].energy_j == pytest.approx(300)
    board = [channel("ipmi", "board", "node", 420)]
    total, each = total_energy(rapl + again + board, 10**9)
    assert total.energy_j == pytest.approx(420)
    assert each["perf:pkg"].energy_j == pytest.approx(51)


def test_no_meter_is_no_energy():
    total, each = total_energy([], 10**9)
    assert math.isnan(total.energy_j)
    assert math.isnan(total.std_j)
    assert each == {}
