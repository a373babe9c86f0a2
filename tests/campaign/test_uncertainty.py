"""What is not sure about a channel's energy: each part alone, against its closed form."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from campaign.store.channel_energy import Energy, channel_energy, updates
from campaign.store.measurement import Trace
from sites.meters import Channel

WATTS = Channel(name="c", domain="node", kind="power", resolution=0.0, period_s=0.1, stamped=True)
JOULES = Channel(name="c", domain="node", kind="energy", resolution=0.0, period_s=0.1, stamped=True)


def trace(time_s, value) -> Trace:
    time_ns = np.round(np.asarray(time_s, float) * 1e9).astype(np.int64)
    return Trace("c", "node", "", time_ns, np.asarray(value, float))


def energy(channel, time_s, value, begin_s=0.0, end_s=2.0) -> Energy:
    return channel_energy(trace(time_s, value), channel, round(begin_s * 1e9), round(end_s * 1e9))


def runs(*lengths: int) -> tuple[np.ndarray, np.ndarray]:
    """Readings every 20 ms of a value that is 1, then 2, then 3 ..., each for some readings."""
    value = np.repeat(np.arange(1.0, len(lengths) + 1), lengths)
    return 0.02 * np.arange(value.size), value


@pytest.mark.parametrize(
    ("lengths", "at_s", "values"),
    [
        ((3, 15, 10, 21), np.arange(-0.04, 0.87, 0.1), [1, 2, 2, 2, 3, 3, 4, 4, 4, 4]),
        ((8, 5, 5, 6), np.arange(-0.04, 0.37, 0.1), [1, 1, 2, 3, 4]),
        ((5, 5, 6), [0.0, 0.1, 0.2], [1, 2, 3]),
        ((5, 7, 6), [0.0, 0.1, 0.24], [1, 2, 3]),  # 0.14 s is one period
    ],
)
def test_a_value_that_stays_is_as_many_updates_as_periods(lengths, at_s, values):
    time_s, value = runs(*lengths)
    at, seen = updates(trace(time_s, value), replace(WATTS, stamped=False))
    assert seen.tolist() == values
    np.testing.assert_allclose(at, at_s, atol=1e-12)


def test_readings_that_are_updates_themselves_are_taken_as_they_are():
    time_s, value = runs(3, 4)
    never = np.full(7, 5.0)
    late = replace(WATTS, stamped=False)
    assert updates(trace(time_s, never), late)[0].tolist() == [time_s[0], time_s[-1]]
    assert updates(trace(time_s, never), late)[1].tolist() == [5.0, 5.0]
    for channel, of in (
        (WATTS, trace(time_s, value)),  # stamped by the meter
        (late, trace(time_s[2:4], value[2:4])),  # two readings
        (replace(late, period_s=0.04), trace(time_s, value)),  # read twice in a period
    ):
        at, seen = updates(of, channel)
        np.testing.assert_allclose(at, of.time_ns / 1e9)
        assert seen.tolist() == of.value.tolist()
    at, seen = updates(trace(time_s, value), replace(late, period_s=0.0401))
    assert seen.tolist() != value.tolist()


GRID = np.linspace(-1.0, 3.0, 41)
EVEN = np.full(GRID.size, 100.0)


def test_a_constant_power_is_unsure_by_what_no_reading_shows():
    """Rounding, calibration, zero, and a fifth of the power within the mean at either edge."""
    plain = energy(WATTS, GRID, EVEN)
    assert (plain.energy_j, plain.random_j, plain.gain_j) == pytest.approx((200.0, 0.0, 0.0))
    meter = replace(WATTS, resolution=0.7, gain_pct=1.0, offset_w=0.3, averaging_s=0.2)
    seen = energy(meter, GRID, EVEN)
    hidden = 2 * 20.0**2 / 90.0 * 0.2**2
    assert seen.random_j == pytest.approx(math.sqrt((0.7 * 2.0) ** 2 / 12.0 + hidden))
    assert seen.gain_j == pytest.approx(math.hypot(2.0, 0.6))
    assert seen.std_j == pytest.approx(math.hypot(seen.random_j, seen.gain_j))
    assert Energy(1.0, 3.0).std_j == 3.0


@pytest.mark.parametrize(
    ("channel", "time_s", "value"),
    [
        (WATTS, [0.5], [1.0]),
        (JOULES, [], []),
    ],
)
def test_a_reading_alone_has_no_energy_and_no_uncertainty(channel, time_s, value):
    nothing = energy(channel, time_s, value)
    assert np.isnan([nothing.energy_j, nothing.random_j, nothing.gain_j]).all()
    no_time = energy(WATTS, GRID, EVEN, 1.0, 1.0)
    assert np.isnan([no_time.energy_j, no_time.random_j, no_time.gain_j]).all()


def test_beyond_the_readings_the_power_is_that_of_the_ends():
    """Readings from 0.5 to 1 of a window from 0 to 2: half a second and a second are not seen."""
    seen = energy(WATTS, [0.5, 0.75, 1.0], [100.0] * 3)
    assert seen.energy_j == pytest.approx(200.0)
    assert seen.random_j == pytest.approx(math.sqrt(20.0**2 * (0.5**2 + 1.0**2) / 3.0))
    # What changes within is of the rule alone: nothing near the edges shows it.
    seen = energy(WATTS, [0.5, 0.75, 1.0], [100.0, 130.0, 130.0])
    grid_s, power_w = [0.0, 0.5, 0.75, 1.0, 2.0], [100.0, 100.0, 130.0, 130.0, 130.0]
    assert seen.energy_j == pytest.approx(np.trapezoid(power_w, grid_s))
    half_j = np.trapezoid(power_w[::2], grid_s[::2])
    variance = 8.0 / 7.0 * (seen.energy_j - half_j) ** 2
    variance += (20.0 * 0.5) ** 2 / 3.0 + (26.0 * 1.0) ** 2 / 3.0
    assert seen.random_j == pytest.approx(math.sqrt(variance))


def trapezoid_left_out(power_w, grid_s):
    """The variance of the rule as its description has it, block by block."""
    n = len(power_w) - 1
    blocks = n // 4
    if not blocks:
        return (
            sum(
                ((power_w[i + 1] - power_w[i]) * (grid_s[i + 1] - grid_s[i])) ** 2 for i in range(n)
            )
            / 2.0
        )
    d1 = d2 = 0.0
    for block in range(blocks):
        mine = slice(4 * block, 4 * block + 5)
        p, g = power_w[mine], grid_s[mine]
        whole, half, quarter = (np.trapezoid(p[::k], g[::k]) for k in (1, 2, 4))
        d1 += (whole - half) ** 2
        d2 += (half - quarter) ** 2
    first, second = 8.0 / 7.0 * d1, 4.0 / 3.0 * d2
    ratio = 2.0
    if blocks >= 8 and first > 0:
        ratio = min(max(second / first / (1.0 + blocks**-0.5), 2.0), 10.0)
    return first / (ratio - 1.0) * n / (4.0 * blocks)


SHAPES = {
    "noise": lambda t: 50.0 + np.random.default_rng(3).normal(0.0, 2.0, t.size),
    "smooth": lambda t: 50.0 + 20.0 * np.sin(3.0 * t),
    "steps": lambda t: 50.0 + 20.0 * (np.floor(t * 1.7) % 2),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("readings", [2, 3, 4, 5, 7, 31, 32, 43, 200])
@pytest.mark.parametrize("averaging_s", [0.0, 0.04, 0.1])
def test_what_happens_between_readings_shows_when_some_are_left_out(shape, readings, averaging_s):
    time_s = np.linspace(-0.3, 1.9, readings)  # the last tenth of a second is not read
    value = SHAPES[shape](time_s)
    channel = replace(WATTS, averaging_s=averaging_s)
    seen = energy(channel, time_s, value)
    at = time_s - averaging_s / 2.0
    inside = (at > 0.0) & (at < 2.0)
    grid_s = np.array([0.0, *at[inside], 2.0])
    power_w = np.interp(grid_s, at, value)
    assert seen.energy_j == pytest.approx(np.trapezoid(power_w, grid_s))
    variance = (1.0 - averaging_s / 0.1) * trapezoid_left_out(power_w, grid_s)
    for edge_s in (0.0, 2.0):
        after = int((at < edge_s).sum())
        reach = 1 if averaging_s < 0.1 else 1 + round(averaging_s / 0.2)
        near = value[max(after - reach, 0) : after + reach]
        step, hidden = np.ptp(near), 0.2 * near.mean()
        variance += max(step**2 / 20.0, hidden**2 / 90.0) * averaging_s**2
        beyond_s = max(at[0] - edge_s, edge_s - at[-1], 0.0)
        variance += (max(step, hidden) * beyond_s) ** 2 / 3.0
    assert seen.random_j == pytest.approx(math.sqrt(variance))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("readings", [2, 9, 41])
def test_a_meter_that_looks_now_and_then_is_less_sure_of_slow_changes(shape, readings):
    """Readings that follow each other slowly count as few, by their autocorrelation."""
    time_s = np.linspace(0.0, 2.0, readings)
    value = SHAPES[shape](time_s)
    seen = energy(replace(WATTS, seen=0.25), time_s, value)
    if readings == 2:
        unseen = np.ptp(value) ** 2 * 4.0
    else:
        away = value - np.polyval(np.polyfit(time_s, value, 1), time_s)
        spread, together = np.mean(away**2), 1.0
        for lag in range(1, readings // 2):
            term = np.mean(away[lag:] * away[:-lag]) / spread
            if term <= 0.0:
                break
            together += 2.0 * term
        share = min(together / readings, 0.8)
        unseen = spread * share / (1.0 - share) * 4.0
    rule = trapezoid_left_out(value, time_s)
    assert seen.random_j == pytest.approx(math.sqrt(max(rule, 0.75 * unseen)))


@pytest.mark.parametrize("late_s", [0.05, 0.3])
def test_an_update_seen_late_moves_the_edges(late_s):
    """A ramp of 10 W/s, read every 50 ms or every 300 ms of a period of 100 ms."""
    channel = replace(WATTS, stamped=False)
    time_s = np.arange(-12, 60) * late_s
    seen = energy(channel, time_s, 100.0 + 10.0 * time_s)
    late_s = min(late_s, 0.1)
    # The readings stand half of it earlier, so the power at any time is higher by as much.
    assert seen.energy_j == pytest.approx(2.0 * (110.0 + 10.0 * late_s / 2.0))
    assert seen.random_j == pytest.approx(math.sqrt((20.0 * late_s) ** 2 / 12.0), abs=1e-6)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("window", [(0.0, 2.0), (-0.3, 2.2), (0.4, 0.45), (0.5, 2.6)])
@pytest.mark.parametrize("stamped", [True, False])
def test_a_counter_is_unsure_at_its_two_edges(seed, window, stamped):
    rng = np.random.default_rng(seed)
    time_s = np.cumsum(rng.uniform(0.08, 0.3, 12)) - 0.2
    watts = rng.uniform(0.0, 200.0, 11) * rng.integers(0, 2, 11)
    value = np.concatenate([[7.0], 7.0 + np.cumsum(watts * np.diff(time_s))])
    channel = replace(JOULES, stamped=stamped, resolution=0.25)
    seen = energy(channel, time_s, value, *window)
    late_s = 0.0 if stamped else 0.1
    at = np.round(time_s * 1e9) / 1e9 - late_s / 2.0
    power_w = np.diff(value) / np.diff(at)
    mean_w = (value[-1] - value[0]) / (at[-1] - at[0])

    def counted(edge_s):
        if edge_s < at[0]:
            return value[0] - mean_w * (at[0] - edge_s)
        return np.interp(edge_s, at, value) + mean_w * max(edge_s - at[-1], 0.0)

    assert seen.energy_j == pytest.approx(counted(window[1]) - counted(window[0]))
    variance = 0.25**2 / 6.0
    for edge_s in window:
        here = max(i for i in range(11) if i == 0 or at[i] < min(edge_s, at[-1]))
        before = abs(power_w[here] - power_w[here - 1]) if here else 0.0
        after = abs(power_w[here + 1] - power_w[here]) if here < 10 else 0.0
        # Of a step that divides its gap into shares u and 1 - u, u (1 - u) step comes back.
        step = math.sqrt(30.0) * before * after / (before + after) if before + after else 0.0
        step = max(step, 0.2 * mean_w)
        variance += (step * (at[here + 1] - at[here])) ** 2 / 90.0
        variance += (max(power_w[here], mean_w) * late_s) ** 2 / 18.0
        beyond_s = max(at[0] - edge_s, edge_s - at[-1], 0.0)
        variance += (np.ptp(power_w) * beyond_s) ** 2 / 3.0
    assert seen.random_j == pytest.approx(math.sqrt(variance))
