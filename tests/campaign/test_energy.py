"""Energy from traces of analytic shape, and totals that count nothing twice."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from campaign.measure.energy import mean_of, node_energy
from campaign.measure.sampler import MeterTrace
from campaign.store.channel_energy import Energy, channel_energy
from campaign.store.measurement import Trace
from sites.meters import Channel


def power(times_s, watts) -> Trace:
    time_ns = np.round(np.asarray(times_s) * 1e9).astype(np.int64)
    return Trace("c", "node", "W", time_ns, np.asarray(watts, float))


WATTS = Channel(name="c", domain="node", kind="power", resolution=0.0, period_s=0.001, stamped=True)
JOULES = Channel(name="c", domain="package", kind="energy", resolution=6.1e-5, period_s=0.001)
SPREAD = 3.0
"""The stated interval of two standard uncertainties is at most this many true deviations."""
WINDOWS = 1000


@given(
    level=st.floats(0.1, 1000),
    slope=st.floats(-10, 10),
    end_s=st.floats(0.5, 20),
    times=st.lists(st.floats(-1, 25), min_size=0, max_size=60),
)
def test_a_ramp_integrates_exactly_at_any_sampling(level, slope, end_s, times):
    grid = np.unique(np.round([-0.5, *times, 26.0], 6))
    energy = channel_energy(power(grid, level + slope * grid), WATTS, 0, round(end_s * 1e9))
    assert energy.energy_j == pytest.approx(
        level * end_s + slope * end_s**2 / 2, rel=1e-6, abs=1e-6
    )


def test_a_sine_integrates_to_its_closed_form():
    grid = np.arange(0, 4, 1 / 1024)
    energy = channel_energy(
        power(grid, 100 + 20 * np.sin(2 * np.pi * grid)), WATTS, 0, 3_250_000_000
    )
    exact = 325.0 + 20 / (2 * np.pi) * (1 - math.cos(2 * np.pi * 3.25))
    assert abs(energy.energy_j - exact) < max(energy.std_j, 1e-3)


def test_noise_is_within_the_stated_uncertainty():
    rng = np.random.default_rng(0)
    grid = np.arange(0, 1.001, 1 / 100)
    errors, stated = [], []
    for _ in range(400):
        energy = channel_energy(power(grid, 50 + rng.normal(0, 2, grid.size)), WATTS, 0, 10**9)
        errors.append(energy.energy_j - 50)
        stated.append(energy.std_j)
    assert np.std(errors) == pytest.approx(np.mean(stated), rel=0.15)


def test_a_counter_counts_the_window_alone():
    trace = Trace(
        "c", "package", "J", np.array([-(10**8), 5 * 10**8, 11 * 10**8]), np.array([0, 60, 120.0])
    )
    energy = channel_energy(trace, JOULES, 0, 10**9)
    assert energy.energy_j == pytest.approx(100.0)
    # Two roundings, two updates of a thousandth of a second, and a fifth of the power unseen
    # between readings that are half a second apart.
    late, hidden = (100 * 0.001) ** 2 / 18, (0.2 * 100) ** 2 * (0.6**2 + 0.6**2) / 90
    assert energy.std_j == pytest.approx(math.sqrt(6.1e-5**2 / 6 + 2 * late + hidden), rel=0.05)


def test_one_reading_is_no_energy():
    assert math.isnan(channel_energy(power([0.0], [5.0]), WATTS, 0, 10**9).energy_j)


def channel(meter, name, domain, joules, use="energy", **more) -> MeterTrace:
    trace = Trace(name, domain, "J", np.array([0, 10**9]), np.array([0.0, joules]))
    return MeterTrace(
        meter,
        Channel(name=name, domain=domain, kind="energy", resolution=0.0, period_s=0.001, **more),
        use,
        trace=trace,
    )


def test_nothing_is_summed_twice():
    rapl = [
        channel("powercap", "package-0", "package", 50),
        channel("powercap", "package-0/core", "core", 30, inside="package-0"),
        channel("powercap", "package-0/dram", "dram", 10),
        channel("powercap", "package-1", "package", 40),
    ]
    assert node_energy(rapl, 0, 10**9).total.energy_j == pytest.approx(100)
    again = [
        channel("perf", "pkg", "package", 91),
        channel("nvml", "gpu-0", "gpu", 200),
        channel("nvml", "gpu-0/power", "gpu", 201, same_as="gpu-0"),
    ]
    assert node_energy(rapl + again, 0, 10**9).total.energy_j == pytest.approx(300)
    board = [channel("ipmi", "board", "node", 420)]
    energies = node_energy(rapl + again + board, 0, 10**9)
    assert energies.total.energy_j == pytest.approx(420)
    assert energies.by_channel["perf:pkg"].energy_j == pytest.approx(91)
    check = [channel("ipmi", "board", "node", 420, use="check")]
    assert node_energy(rapl + again + check, 0, 10**9).total.energy_j == pytest.approx(300)


def test_a_domain_that_is_part_of_another_is_not_added():
    module = [
        channel("hwmon", "module-0", "module", 500),
        channel("nvml", "gpu-0", "gpu", 350),
        channel("powercap", "package-0", "package", 90),
    ]
    energies = node_energy(module, 0, 10**9)
    assert energies.counted == ("hwmon:module-0",)
    assert energies.total.energy_j == pytest.approx(500)


def test_meters_that_disagree_are_named():
    one, other = channel("powercap", "package-0", "package", 187), None
    other = channel("perf", "package-0", "package", 327)
    disagreements = node_energy([one, other], 0, 10**9).disagreements
    assert len(disagreements) == 1
    assert "187" in disagreements[0]
    assert "327" in disagreements[0]
    same = channel("perf", "package-0", "package", 187.05)
    assert node_energy([one, same], 0, 10**9).disagreements == ()


@pytest.mark.parametrize("node", ["", "n1"])
def test_a_counter_that_stopped_beside_its_power_is_named_on_each_of_several_nodes(node):
    counter = channel("amdsmi", "gpu-0/energy", "gpu", 20)
    power = channel("amdsmi", "gpu-0/power", "gpu", 300, same_as="gpu-0/energy")
    good = channel("amdsmi", "gpu-0/energy", "gpu", 300)
    traces = [replace(trace, node=node) for trace in (counter, power)]
    others = [replace(trace, node="n2") for trace in (good, power)] if node else []
    (text,) = node_energy([*traces, *others], 0, 10**9).disagreements
    front = f"{node}/" if node else ""
    assert text.startswith(f"{front}amdsmi:gpu-0/power measured 300 J")
    assert f"and {front}amdsmi:gpu-0/energy 20 J" in text
    check = replace(channel("ipmi", "gpu", "gpu", 500), node=node)
    (text,) = node_energy([traces[0], check], 0, 10**9).disagreements
    assert text.startswith(f"{front}ipmi (gpu) measured 500 J")


def test_no_meter_is_no_energy():
    energies = node_energy([], 0, 10**9)
    assert math.isnan(energies.total.energy_j)
    assert math.isnan(energies.total.std_j)
    assert energies.by_channel == {}


def test_repeats_make_what_is_random_smaller_and_leave_the_calibration():
    rng = np.random.default_rng(1)
    windows = [Energy(e, 0.5, 4.0) for e in rng.normal(100.0, 2.0, 200)]
    mean = mean_of(windows, [1] * 200)
    assert mean.energy_j == pytest.approx(100.0, abs=0.5)
    assert mean.random_j == pytest.approx(2.0 / math.sqrt(200), rel=0.15)
    assert mean.gain_j == pytest.approx(4.0)


def constant(w):
    return (lambda t: w + 0.0 * t), (lambda t: w * t)


def ramp():
    return (lambda t: 80 + 4 * t), (lambda t: 80 * t + 2 * t * t)


def warming():
    return (
        lambda t: 150 - 60 * np.exp(-t / 1.5),
        lambda t: 150 * t + 90 * np.exp(-t / 1.5),
    )


def sine(hz):
    turn = 2 * np.pi * hz
    return (
        lambda t: 100 + 40 * np.sin(turn * t),
        lambda t: 100 * t - 40 / turn * np.cos(turn * t),
    )


def square(period, share):
    def energy(t):
        whole = np.floor(t / period)
        rest = t - whole * period
        one = share * 180 + (1 - share) * 60
        high = np.minimum(rest, share * period)
        return whole * one * period + high * 180 + (rest - high) * 60

    return (lambda t: np.where((t / period) % 1 < share, 180.0, 60.0)), energy


def shapes(rng):
    """Powers in W and their energies in J, functions of s, all with their own size."""
    scale = rng.uniform(0.8, 1.2)
    kinds = [
        constant(100.0), ramp(), warming(), sine(0.3), sine(5.3), square(0.7317, 0.5),
        square(3.1417, 0.3), square(rng.uniform(0.03, 0.05), 0.5),
    ]  # fmt: skip
    power_of, energy_of = kinds[rng.integers(len(kinds))]
    return (lambda t: scale * power_of(t)), (lambda t: scale * energy_of(t))


def held(t, period_s, rng):
    """When the update was that a meter shows at ``t``."""
    phase = rng.uniform(0, period_s)
    return np.floor((t - phase) / period_s) * period_s + phase


def counter_1ms(rng, power_of, energy_of, a, b):
    t = np.arange(a - 0.05, b + 0.05, 0.01)
    t += rng.uniform(0, 0.002, t.size)
    value = np.floor(energy_of(held(t, 0.001, rng)) / 61e-6) * 61e-6
    return (
        t,
        value,
        Channel(name="c", domain="package", kind="energy", resolution=61e-6, period_s=0.001),
    )


def counter_100ms(rng, power_of, energy_of, a, b):
    t = np.arange(a - 0.4, b + 0.4, 0.001)
    value = np.floor(energy_of(held(t, 0.1, rng)) / 1e-3) * 1e-3
    return t, value, Channel(name="c", domain="gpu", kind="energy", resolution=1e-3, period_s=0.1)


def gauge_10ms(rng, power_of, energy_of, a, b):
    t = np.arange(a - 0.05, b + 0.05, 0.01) + rng.uniform(0, 0.01)
    value = power_of(held(t, 0.01, rng)) * (1 + rng.normal(0, 0.005, t.size))
    return (
        t,
        np.round(value / 0.1) * 0.1,
        Channel(name="c", domain="node", kind="power", resolution=0.1, period_s=0.01),
    )


def stamped_128hz(rng, power_of, energy_of, a, b):
    t = np.arange(a - 0.05, b + 0.05, 1 / 128) + rng.uniform(0, 0.01)
    value = power_of(t) * (1 + rng.normal(0, 0.005, t.size))
    channel_ = Channel(
        name="c", domain="node", kind="power", resolution=0.1, period_s=1 / 128, stamped=True
    )
    return t, np.round(value / 0.1) * 0.1, channel_


def mean_100ms(rng, power_of, energy_of, a, b):
    t = np.arange(a - 0.6, b + 0.6, 0.02) + rng.uniform(0, 0.02)
    at = held(t, 0.1, rng)
    value = (energy_of(at) - energy_of(at - 0.1)) / 0.1
    return (
        t,
        np.round(value, 2),
        Channel(
            name="c", domain="gpu", kind="power", resolution=0.01, period_s=0.1, averaging_s=0.1
        ),
    )


METERS = [counter_1ms, counter_100ms, gauge_10ms, stamped_128hz, mean_100ms]


@pytest.mark.parametrize("meter", METERS)
def test_random_windows_of_known_energy_hold_what_is_stated(meter):
    """95 % of windows lie within two standard uncertainties, which are not idle either."""
    rng = np.random.default_rng(7)
    errors_j, stated_j = np.empty(WINDOWS), np.empty(WINDOWS)
    for i in range(WINDOWS):
        power_of, energy_of = shapes(rng)
        a, length_s = rng.uniform(1, 6), rng.uniform(0.5, 5)
        t, value, channel_ = meter(rng, power_of, energy_of, a, a + length_s)
        trace = Trace("c", "", "", np.round((t - a) * 1e9).astype(np.int64), value)
        energy = channel_energy(trace, channel_, 0, round(length_s * 1e9))
        true_j = float(energy_of(np.array(a + length_s)) - energy_of(np.array(a)))
        errors_j[i], stated_j[i] = energy.energy_j - true_j, energy.std_j
    assert np.mean(np.abs(errors_j) <= 2 * stated_j) >= 0.95
    spread = math.sqrt(np.mean((errors_j / stated_j) ** 2))
    assert SPREAD * spread >= 2
