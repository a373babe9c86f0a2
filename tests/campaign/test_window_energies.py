"""What is not sure about a window's energy, beside the stated formulas written out in plain loops.

test_energy shows that the stated uncertainties are as large as true errors. Here each of them is
the number that its formula gives.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from campaign.measure.energy import added, mean_of, node_energy
from campaign.measure.point_life import _meters
from campaign.measure.protocol import energy_of, meter_needs_s
from campaign.measure.sampler import MeterTrace
from campaign.measure.simulated_window import simulate_window
from campaign.measure.window import Window
from campaign.store.channel_energy import (
    FEW_BLOCKS,
    HIDDEN,
    LARGEST_SHARE,
    Energy,
    channel_energy,
    updates,
)
from campaign.store.measurement import Trace
from dvfs.setting import AS_FOUND, Setting
from sites.meters import Channel
from tests.analysis.simulated_tk1 import simulated_tk1
from tests.campaign.test_energy import METERS, shapes
from tests.kept import check_kept


def trace(times_s, values, unit="W") -> Trace:
    time_ns = np.round(np.asarray(times_s) * 1e9).astype(np.int64)
    return Trace("c", "node", unit, time_ns, np.asarray(values, float))


def gauge(**more) -> Channel:
    """A power whose readings carry their own times: none of them is seen late."""
    own = {"name": "c", "domain": "node", "kind": "power", "resolution": 0.0, "period_s": 0.01}
    return Channel(**{**own, "stamped": True, **more})


def plain_between(power_w: list[float], step_s: float) -> float:
    """The docstring's rule: every second and every fourth sample left out, block by block."""
    n = len(power_w) - 1
    if n < 4:
        return sum(((b - a) * step_s) ** 2 for a, b in pairwise(power_w)) / 2
    first = second = 0.0
    for block in range(n // 4):
        p = power_w[4 * block : 4 * block + 5]
        every = step_s * ((p[0] + p[4]) / 2 + p[1] + p[2] + p[3])
        halved = 2 * step_s * ((p[0] + p[4]) / 2 + p[2])
        quartered = 4 * step_s * (p[0] + p[4]) / 2
        first += 8 / 7 * (every - halved) ** 2
        second += 4 / 3 * (halved - quartered) ** 2
    ratio = 2.0
    if n // 4 >= FEW_BLOCKS and first > 0:
        ratio = min(max(second / first / (1 + 1 / math.sqrt(n // 4)), 2.0), 10.0)
    return first / (ratio - 1) * n / (4 * (n // 4))


def of_noise(n: int) -> list[float]:
    return (100 + 5 * np.random.default_rng(n).normal(size=n)).tolist()


def of_sine(n: int) -> list[float]:
    return (100 + 40 * np.sin(np.arange(n) / 6)).tolist()


def of_steps(n: int) -> list[float]:
    return [140.0 if i % 29 > 13 else 80.0 for i in range(n)]


@pytest.mark.parametrize("shape", [of_noise, of_sine, of_steps])
@pytest.mark.parametrize("n", [3, 4, 5, 8, 9, 31, 32, 33, 35, 101])
def test_what_happens_between_samples_is_told_from_samples_left_out(shape, n):
    power_w = shape(n)
    length_ns = (n - 1) * 10**7
    energy = channel_energy(trace(0.01 * np.arange(n), power_w), gauge(), 0, length_ns)
    assert energy.random_j**2 == pytest.approx(plain_between(power_w, 0.01), rel=1e-9, abs=1e-18)
    assert energy.gain_j == 0.0


@pytest.mark.parametrize("averaging_s", [0.002, 0.005, 0.01, 0.03])
def test_a_reading_that_is_a_mean_hides_less_between_samples_and_more_at_the_edges(averaging_s):
    """Readings stand in the middle of what they are the mean of, half of that earlier."""
    n = 60
    times_s, power_w = 0.01 * np.arange(n), np.array(of_noise(n))
    begin_s, end_s = 0.105, 0.395
    channel = gauge(averaging_s=averaging_s)
    energy = channel_energy(trace(times_s, power_w), channel, 105_000_000, 395_000_000)
    middle_s = times_s - averaging_s / 2
    inside = (middle_s > begin_s) & (middle_s < end_s)
    ends_w = [float(np.interp(at, middle_s, power_w)) for at in (begin_s, end_s)]
    grid_s = [begin_s, *middle_s[inside].tolist(), end_s]
    seen_w = [ends_w[0], *power_w[inside].tolist(), ends_w[1]]
    joules = sum(
        (seen_w[i] + seen_w[i + 1]) / 2 * (grid_s[i + 1] - grid_s[i])
        for i in range(len(grid_s) - 1)
    )
    assert energy.energy_j == pytest.approx(joules, rel=1e-12)
    reach = 1 + round(averaging_s / 0.02)
    edges = 0.0
    for at_s in (begin_s, end_s):
        at = int(np.sum(middle_s < at_s))
        near = power_w[max(at - reach, 0) : at + reach]
        hidden_w = HIDDEN * near.mean()
        edges += max((near.max() - near.min()) ** 2 / 20, hidden_w**2 / 90) * averaging_s**2
    share = 1 - min(1, averaging_s / 0.01)
    # Blocks are of four intervals of unlike lengths where the window cuts the first and the last.
    blocks = (len(grid_s) - 1) // 4
    first = second = 0.0
    for block in range(blocks):
        k = 4 * block
        one, two, four = (
            sum(
                (seen_w[i] + seen_w[i + step]) / 2 * (grid_s[i + step] - grid_s[i])
                for i in range(k, k + 4, step)
            )
            for step in (1, 2, 4)
        )
        first += 8 / 7 * (one - two) ** 2
        second += 4 / 3 * (two - four) ** 2
    assert blocks < FEW_BLOCKS
    between = share * first * (len(grid_s) - 1) / (4 * blocks)
    assert energy.random_j**2 == pytest.approx(between + edges, rel=1e-9)


def test_resolution_offset_and_calibration_of_a_power():
    """A rounding that all readings may share, a twelfth of its square; 3 % of the energy, and
    0.5 W of an offset over two seconds, as the root of the sum of squares."""
    channel = gauge(resolution=0.4, gain_pct=3.0, offset_w=0.5)
    energy = channel_energy(trace(np.arange(0, 3, 0.01), np.full(300, 50.0)), channel, 0, 2 * 10**9)
    assert energy.energy_j == pytest.approx(100.0)
    assert energy.random_j == pytest.approx(0.4 * 2 / math.sqrt(12))
    assert energy.gain_j == pytest.approx(math.hypot(3.0, 1.0))
    assert energy.std_j == pytest.approx(math.hypot(energy.random_j, energy.gain_j))


@pytest.mark.parametrize(("sampled_s", "late_s"), [(0.004, 0.004), (0.02, 0.02), (0.1, 0.05)])
def test_an_update_may_be_seen_as_late_as_one_sample_or_one_period(sampled_s, late_s):
    """Of a power that rises by 10 W a second: the energy is that of updates half as late, and the
    two ends differ by 10 W, whose lateness is spread evenly."""
    times_s = np.arange(-1, 3, sampled_s)
    channel = gauge(stamped=False, period_s=0.05)
    power_w = 100 + 10 * times_s
    energy = channel_energy(trace(times_s, power_w), channel, 0, 10**9)
    assert energy.energy_j == pytest.approx(105 + 10 * late_s / 2, rel=1e-6)
    slope = (10 * late_s) ** 2 / 12
    assert energy.random_j**2 >= slope * (1 - 1e-9)
    still = channel_energy(trace(times_s, power_w), gauge(period_s=0.05), 0, 10**9)
    assert energy.random_j**2 - still.random_j**2 == pytest.approx(slope, rel=0.05)


@pytest.mark.parametrize(("begin_s", "end_s"), [(0.0, 1.1), (0.2, 1.5), (-0.3, 0.5), (-0.3, 1.4)])
def test_a_window_beyond_the_readings_is_less_sure_with_every_second(begin_s, end_s):
    """Where the power may have changed by a fifth that no reading shows: a third of the square."""
    times_s = np.arange(0, 1.001, 0.01)
    read = trace(times_s, np.full(times_s.size, 100.0))
    energy = channel_energy(read, gauge(), round(begin_s * 1e9), round(end_s * 1e9))
    beyond = max(-begin_s, 0.0) ** 2 + max(end_s - 1.0, 0.0) ** 2
    assert energy.energy_j == pytest.approx(100.0 * (end_s - begin_s))
    assert energy.random_j**2 == pytest.approx(20.0**2 * beyond / 3)


@pytest.mark.parametrize("edge", ["inside", "before", "after"])
def test_a_counter_s_edges_are_as_unsure_as_the_steps_around_them(edge):
    """By the formula, with the mean powers before, between and after, which give a step's size."""
    times_s = np.array([0.0, 0.3, 0.5, 0.9, 1.0, 1.4, 1.7, 2.0])
    powers_w = np.array([50.0, 120.0, 80.0, 20.0, 90.0, 60.0, 150.0])
    joules = np.concatenate([[0.0], np.cumsum(powers_w * np.diff(times_s))])
    begin_s, end_s = {"inside": (0.4, 1.5), "before": (-0.2, 1.05), "after": (0.7, 2.3)}[edge]
    channel = gauge(kind="energy", resolution=0.3, period_s=0.05)
    counted = trace(times_s, joules, "J")
    energy = channel_energy(counted, channel, round(begin_s * 1e9), round(end_s * 1e9))
    mean_w = joules[-1] / 2.0
    variance = 0.3**2 / 6
    total = {begin_s: 0.0, end_s: 0.0}
    for at_s in (begin_s, end_s):
        within_s = min(max(at_s, 0.0), 2.0)
        beyond_s = at_s - within_s
        total[at_s] = float(np.interp(within_s, times_s, joules)) + mean_w * beyond_s
        i = min(max(int(np.sum(times_s < within_s)) - 1, 0), 6)
        before = powers_w[i] - powers_w[max(i - 1, 0)]
        after = powers_w[min(i + 1, 6)] - powers_w[i]
        both = abs(before) + abs(after)
        step_w = math.sqrt(30) * abs(before * after) / both if both else 0.0
        step_w = max(step_w, HIDDEN * mean_w)
        variance += (step_w * (times_s[i + 1] - times_s[i])) ** 2 / 90
        variance += ((powers_w.max() - powers_w.min()) * beyond_s) ** 2 / 3
    assert energy.energy_j == pytest.approx(total[end_s] - total[begin_s])
    assert energy.random_j**2 == pytest.approx(variance, rel=1e-9)


@pytest.mark.parametrize(("hz", "seen"), [(1.0, 0.25), (4.0, 0.5), (17.0, 0.9)])
def test_a_meter_that_looks_at_a_part_of_the_time_counts_readings_by_their_autocorrelation(
    hz, seen
):
    n = 101
    times_s = 0.01 * np.arange(n)
    noise = np.random.default_rng(3).normal(size=n)
    power_w = 100 + 20 * np.sin(2 * np.pi * hz * times_s) + 8 * times_s + noise
    energy = channel_energy(trace(times_s, power_w), gauge(seen=seen), 0, 10**9)
    slope, level = np.polyfit(times_s, power_w, 1)
    apart = (power_w - level - slope * times_s).tolist()
    spread = sum(w * w for w in apart) / n
    together = 1.0
    for lag in range(1, n // 2):
        products = [a * b for a, b in zip(apart[lag:], apart, strict=False)]
        term = sum(products) / len(products) / spread
        if term <= 0:
            break
        together += 2 * term
    share = min(together / n, LARGEST_SHARE)
    unseen = (1 - seen) * spread / (1 - share) * share
    between = plain_between(power_w.tolist(), 0.01)
    assert energy.random_j**2 == pytest.approx(max(unseen, between), rel=1e-6)
    assert unseen > between or hz > 10


def test_two_readings_of_such_a_meter_may_be_anything_between_them():
    energy = channel_energy(trace([0.0, 2.0], [100.0, 130.0]), gauge(seen=0.25), 0, 2 * 10**9)
    assert energy.random_j**2 == pytest.approx(0.75 * (30.0 * 2.0) ** 2)
    flat = channel_energy(trace(np.arange(9.0), np.full(9, 7.0)), gauge(seen=0.5), 0, 8 * 10**9)
    assert flat.random_j == pytest.approx(0.0, abs=1e-12)


def test_a_meter_that_reads_zero_all_of_the_time_is_sure_of_it():
    """Readings without any spread have no autocorrelation, which would be 0 over 0."""
    zero = channel_energy(trace(np.arange(9.0), np.zeros(9)), gauge(seen=0.5), 0, 8 * 10**9)
    assert (zero.energy_j, zero.random_j) == (0.0, 0.0)


@pytest.mark.parametrize("phase_ms", [0, 13, 60, 99])
def test_a_value_that_stays_is_one_update_a_period(phase_ms):
    """A meter with a period of 100 ms, read every 2 ms: the updates where they were, also those
    that showed the same value again."""
    at_ms = np.arange(0, 1500, 2)
    number = (at_ms - phase_ms) // 100
    values = np.array(
        [3.0, 5.0, 5.0, 5.0, 4.0, 4.0, 9.0, 9.0, 9.0, 9.0, 9.0, 2.0, 7.0, 7.0, 8.0, 1.0]
    )
    channel = gauge(stamped=False, period_s=0.1)
    time_s, value = updates(trace(at_ms / 1e3, values[number + 1]), channel)
    change_ms = [ms for ms in at_ms[1:].tolist() if values[(ms - phase_ms) // 100 + 1]
                 != values[(ms - 2 - phase_ms) // 100 + 1]]  # fmt: skip
    assert {round(1e3 * s) for s in time_s.tolist()} >= set(change_ms)
    spacing_ms = np.diff(np.round(1e3 * time_s))
    assert spacing_ms.min() >= 98
    assert spacing_ms.max() <= 102
    for s, v in zip(time_s.tolist(), value.tolist(), strict=True):
        ms = round(1e3 * s)
        if ms >= 0:
            assert v == values[(ms - phase_ms) // 100 + 1], ms


def test_readings_that_are_their_own_updates_are_kept():
    read = trace([0.0, 0.1, 0.2, 0.3], [1.0, 1.0, 1.0, 2.0])
    for channel in (gauge(period_s=0.5), gauge(stamped=False, period_s=0.2)):
        time_s, value = updates(read, channel)
        assert value.tolist() == [1.0, 1.0, 1.0, 2.0]
        assert time_s.tolist() == [0.0, 0.1, 0.2, 0.3]
    same = trace(np.arange(50) / 100, np.full(50, 4.0))
    assert updates(same, gauge(stamped=False, period_s=0.1))[0].tolist() == [0.0, 0.49]


def test_a_window_that_ends_before_it_begins_has_no_energy():
    read = trace([0.0, 1.0, 2.0], [5.0, 5.0, 5.0])
    assert math.isnan(channel_energy(read, gauge(), 10**9, 10**9).energy_j)
    assert channel_energy(read, gauge(), 0, 1).energy_j == pytest.approx(5e-9)


def test_sums_and_means_of_energies():
    parts = [Energy(3.0, 0.3, 0.1), Energy(4.0, 0.4, 0.2)]
    both = added(parts)
    assert (both.energy_j, both.random_j, both.gain_j) == pytest.approx((7.0, 0.5, 0.3))
    # Stated: sqrt(0.09 + 0.16) / 2; shown by the spread: sqrt(0.5 / 2).
    mean = mean_of(parts, [1, 1])
    assert (mean.energy_j, mean.random_j, mean.gain_j) == pytest.approx((3.5, 0.5, 0.15))
    stated = mean_of([Energy(3.0, 3.0, 0.0), Energy(3.1, 4.0, 0.0)], [1, 1])
    assert stated.random_j == pytest.approx(2.5)
    assert mean_of(parts[:1], [1]) == parts[0]


@pytest.mark.parametrize(("apart_j", "named"), [(2.9, False), (3.1, True), (-3.1, True)])
def test_meters_disagree_beyond_three_of_their_uncertainties(apart_j, named):
    """A gain of 0.6 % and one of 0.8 % of 100 J: together 1 J."""
    times_s = np.arange(0, 1.001, 0.01)

    def read(meter: str, joules: float, gain_pct: float, **more) -> MeterTrace:
        channel = gauge(gain_pct=100 * gain_pct / joules, name=meter, **more)
        return MeterTrace(meter, channel, trace=trace(times_s, np.full(times_s.size, joules)))

    first, other = read("a", 100.0, 0.6), read("b", 100.0 + apart_j, 0.8)
    said = node_energy([first, other], 0, 10**9).disagreements
    assert bool(said) is named
    if named:
        joules = f"{100 + apart_j:.6g}"
        assert said == (f"b (node) measured {joules} J (0.8) and a (node) 100 J (0.6)",)
    double = read("a", 100.0 + apart_j, 0.8, same_as="a")
    again = node_energy([first, MeterTrace("a", double.channel, trace=double.trace)], 0, 10**9)
    assert len(again.disagreements) <= 1


@pytest.mark.parametrize("trim_s", [0.0, 0.3])
def test_an_iteration_has_its_share_of_the_window(trim_s):
    """100 W over two seconds of eight iterations: 25 J each, with 0.3 s cut at both ends or not."""
    times_s = np.arange(-0.5, 2.501, 0.01)
    read = MeterTrace("m", gauge(gain_pct=1.0), trace=trace(times_s, np.full(times_s.size, 100.0)))
    window = Window(end_ns=2 * 10**9, iterations=8, traces=[read], achieved=AS_FOUND)
    energy, by_window = energy_of([window, window], trim_s)
    assert energy.energy_j == pytest.approx(25.0)
    assert energy.gain_j == pytest.approx(0.25)
    assert by_window[0].total.energy_j == pytest.approx(200.0)
    (of_channel,) = _meters([window, window], by_window).values()
    assert of_channel["energy_j"] == pytest.approx(25.0)
    assert of_channel["energy_std_j"] == pytest.approx(energy.gain_j)


def test_windows_of_different_numbers_of_iterations_count_by_their_iterations():
    """100 W over 1 s of 10 iterations, and 300 W over 4 s of 20: (100 + 1200) J / 30."""
    windows = [
        Window(
            end_ns=seconds * 10**9,
            iterations=iterations,
            traces=[MeterTrace("m", gauge(), trace=trace([-1.0, 5.0], [watts, watts]))],
            achieved=AS_FOUND,
        )
        for seconds, iterations, watts in ((1, 10, 100.0), (4, 20, 300.0))
    ]
    energy, by_window = energy_of(windows, 0.0)
    assert energy.energy_j == pytest.approx(1300.0 / 30)
    # The windows are 100 J - 433.3 J and 1200 J - 866.7 J from it.
    assert energy.random_j == pytest.approx(2 * 333.3333 / 30, rel=1e-5)
    (of_channel,) = _meters(windows, by_window).values()
    assert of_channel["energy_j"] == pytest.approx(1300.0 / 30)


def test_a_meter_needs_a_window_for_its_resolution_and_its_period():
    """Of a counter of 2 J at 100 W: 0.02 s; of a power of 2 W the same share of a period."""
    counter = gauge(kind="energy", resolution=2.0, period_s=0.1)
    assert meter_needs_s(counter, 100.0, 1.0) == pytest.approx(
        math.hypot(0.02, 0.1) / math.sqrt(6) * 100
    )
    power = gauge(resolution=2.0, period_s=0.1)
    assert meter_needs_s(power, 100.0, 0.5) == pytest.approx(
        math.hypot(0.002, 0.1) / math.sqrt(6) * 200
    )


def windows_of(meter: Callable) -> object:
    """Forty windows of a meter: energies, and what is not sure about them."""
    rng = np.random.default_rng(11)
    found = []
    for i in range(40):
        power_of, energy_of_ = shapes(rng)
        a, length_s = rng.uniform(1, 6), rng.uniform(0.2, 3)
        t, value, channel = meter(rng, power_of, energy_of_, a, a + length_s)
        own = {"gain_pct": 1.0, "offset_w": 0.2, "seen": 0.5 if i % 4 == 0 else 1.0}
        channel = Channel(**{**vars(channel), **own})
        read = Trace("c", "", "", np.round((t - a) * 1e9).astype(np.int64), value)
        late_s = 0.6 if i % 5 == 0 else 0.0  # some windows end after the last reading
        energy = channel_energy(read, channel, 0, round((length_s + late_s) * 1e9))
        found.append([energy.energy_j, energy.random_j, energy.gain_j])
    return np.array(found).T.tolist()


def simulated() -> object:
    site = simulated_tk1("default")
    phases = {"near": {"sp": 6e8}, "far": {"sp": 2e8, "dram": 5e7}}
    counts = {"sp": 8e8, "dram": 5e7}
    return [
        simulate_window(site, counts, setting, 0.2, "seed", own)
        for setting in (Setting(852.0, 924.0), Setting(396.0, 204.0))
        for own in (None, phases)
    ]


RESULTS: dict[str, Callable[[], object]] = {
    **{meter.__name__: lambda meter=meter: windows_of(meter) for meter in METERS},
    "simulated": simulated,
}


@pytest.mark.parametrize("name", RESULTS)
def test_windows_keep_their_energies(name):
    """The same readings give the same energy and the same uncertainty in a later version."""
    check_kept("windows", name, RESULTS[name]())
