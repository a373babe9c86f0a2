"""The protocol's steps on a clock that only the kernel and the protocol's own waits move: how often
the kernel runs, and what is said, are exact numbers."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from campaign.measure.energy import refuse_stopped
from campaign.measure.protocol import (
    PointSetup,
    WindowedMeasurement,
    _agree,
    idle_power,
    meter_needs_s,
    run_protocol,
)
from campaign.measure.sampler import MeterTrace, UsedMeter
from campaign.measure.window import Window
from campaign.plan.campaign_file import Protocol
from campaign.store.channel_energy import Energy
from campaign.store.measurement import Trace
from dvfs.setting import AS_FOUND
from kernels.host.ranks import Team
from sites.clocks.fixed import Fixed
from sites.meters import Channel, MeterError, Reading

QUICK = {"idle_s": 0.2, "warm_up_s": 0.05, "min_duration_s": 0.3, "window_pct": 0.0}


class Machine:
    """A kernel, its counter of energy, and the time, in s from 1000."""

    name = "counter"

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **channel: float) -> None:
        own = {"resolution": 0.0, "period_s": 0.001} | channel
        self.channels = (Channel(name="node", domain="node", kind="energy", **own),)
        self.now_ns, self.joules, self.watts = 1000 * 10**9, 0.0, 40.0
        self.one_s: Callable[[int], float] = lambda run: 0.004
        self.power_w: Callable[[int], float] = lambda run: 40.0
        self.ran: list[int] = []
        self.slept_s: list[float] = []
        self._moving = threading.Lock()
        monkeypatch.setattr(time, "monotonic", lambda: self.now_ns / 1e9)
        monkeypatch.setattr(time, "monotonic_ns", lambda: self.now_ns)
        monkeypatch.setattr(time, "sleep", self.sleep)

    def move(self, seconds: float) -> None:
        with self._moving:
            self.now_ns += round(seconds * 1e9)
            self.joules += self.watts * seconds

    def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.move(seconds)

    def run(self, iterations: int) -> None:
        number = len(self.ran)
        self.ran.append(iterations)
        self.watts = self.power_w(number)
        self.move(iterations * self.one_s(number))

    def read(self) -> Reading:
        with self._moving:
            return Reading(self.now_ns, (self.joules,))

    def close(self) -> None:
        """Nothing is open."""

    def measured(self, root: Path, metered: bool = True, **protocol: float) -> WindowedMeasurement:
        meters = [UsedMeter(self)] if metered else []
        asked = Protocol(**(QUICK | protocol))
        return run_protocol(PointSetup(self, Team(), meters, Fixed(root), asked))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_idle_power_is_the_energy_over_the_time(machine, tmp_path):
    protocol = Protocol(**QUICK)
    idle = idle_power(Team(), [UsedMeter(machine)], Fixed(tmp_path), protocol)
    assert idle["idle_w"] == pytest.approx(40.0, rel=1e-6)
    assert 0.2 in machine.slept_s
    # Of both edges, what a step of a fifth of the power could hide between readings.
    assert 0 < idle["idle_std_w"] <= 40.0 * 0.2 * math.sqrt(2 / 90) * 1.1
    assert idle_power(Team(), [], Fixed(tmp_path), protocol) == {}
    nothing = Protocol(**(QUICK | {"idle_s": 0.0}))
    assert idle_power(Team(), [UsedMeter(machine)], Fixed(tmp_path), nothing) == {}


def test_a_kernel_of_four_milliseconds(machine, tmp_path):
    """Warm-up of 50 ms: 1 iteration, as many as 46 ms hold, and one more; two stretches of half a
    second; a window of 0.3 s with a twentieth more."""
    measured = machine.measured(tmp_path)
    assert machine.ran == [1, 11, 1, 125, 125, math.ceil(75 * 1.05)]
    assert measured.steps["warm_up_s"] == pytest.approx(0.052 + 1.0)
    assert measured.steps["steady"] is True
    assert measured.steps["windows"] == 1
    assert measured.flags == []
    assert measured.windows[0].end_ns == pytest.approx(79 * 4e6)
    assert measured.windows[0].iterations == 79


def test_without_a_meter_there_are_neither_stretches_nor_a_cool_down(machine, tmp_path):
    measured = machine.measured(tmp_path, metered=False, cool_down_s=7.0)
    assert machine.ran == [1, 11, 1, 79]
    assert measured.steps == {"windows": 1}
    assert 7.0 not in machine.slept_s
    machine.measured(tmp_path, steady_pct=0.0, cool_down_s=7.0)
    assert machine.ran[4:] == [1, 11, 1, 79]
    assert machine.slept_s[-1] == 7.0


def test_a_kernel_that_is_longer_than_the_window_runs_once_in_it(machine, tmp_path):
    machine.one_s = lambda run: 400.0
    measured = machine.measured(tmp_path, metered=False)
    assert machine.ran[-1] == measured.windows[0].iterations == 1


def test_a_fast_kernel_is_repeated_a_hundredfold_at_most_from_run_to_run(machine, tmp_path):
    machine.one_s = lambda run: 1e-6
    machine.measured(tmp_path, metered=False)
    assert machine.ran[:3] == [1, 100, 10_000]
    assert sum(machine.ran[:-1]) * 1e-6 >= 0.05
    assert sum(machine.ran[:-2]) * 1e-6 < 0.05
    assert machine.ran[-1] == pytest.approx(315_000, abs=1)


def test_stretches_are_as_long_as_twenty_periods_of_the_slowest_meter(monkeypatch, tmp_path):
    machine = Machine(monkeypatch, period_s=0.1)
    machine.measured(tmp_path)
    assert machine.ran[3:5] == [500, 500]  # 2 s


def test_a_slow_meter_that_is_only_compared_makes_no_stretch_longer(machine, tmp_path):
    """As Slurm's accounting beside RAPL: twenty of its periods are ten minutes."""
    alone = machine.measured(tmp_path)
    ran, machine.ran = machine.ran, []
    channels = (replace(machine.channels[0], period_s=30.0),)
    slow = SimpleNamespace(name="slow", channels=channels, read=machine.read)
    meters = [UsedMeter(machine), UsedMeter(slow, "check")]
    setup = PointSetup(machine, Team(), meters, Fixed(tmp_path), Protocol(**QUICK))
    beside = run_protocol(setup)
    assert machine.ran == ran
    assert beside.steps == alone.steps


@pytest.mark.parametrize(
    ("steady_pct", "watts"),
    [
        (8.0, [200.0, 180.0, 165.0, 155.0, 100.0]),
        (8.0, [100.0, 115.0, 127.0, 137.0, 300.0]),
        # Between two readings half a second apart a step could hide: more than 5 % of the power.
        (1.0, [200.0, 180.0, 170.0, 163.0, 100.0]),
        (1.0, [100.0, 100.0]),
    ],
)
def test_the_warm_up_ends_when_two_stretches_agree(machine, tmp_path, steady_pct, watts):
    machine.power_w = lambda run: watts[min(max(run - 3, 0), len(watts) - 1)]
    measured = machine.measured(tmp_path, steady_pct=steady_pct)
    allowed = max(steady_pct, 5.0) / 100
    stretches = 1 + next(
        i for i, (a, b) in enumerate(pairwise(watts), 1) if abs(b - a) <= allowed * b
    )
    assert machine.ran.count(125) == stretches
    assert measured.steps["warm_up_s"] == pytest.approx(0.052 + 0.5 * stretches)
    assert measured.flags == []


@pytest.mark.parametrize(
    ("before", "after", "pct", "close"),
    [
        ((108.0, 0.0), (100.0, 0.0), 8.0, True),  # "at most this"
        ((108.1, 0.0), (100.0, 0.0), 8.0, False),
        ((92.0, 0.0), (100.0, 0.0), 8.0, True),
        ((0.0, 0.0), (0.0, 0.0), 1.0, True),  # a device that is switched off
        # Twice both uncertainties, sqrt(1.2^2 + 0.9^2) = 1.5 each time, and 5 % at most.
        ((102.9, 1.2), (100.0, 0.9), 0.1, True),
        ((103.1, 1.2), (100.0, 0.9), 0.1, False),
        ((104.9, 30.0), (100.0, 40.0), 0.1, True),
        ((105.1, 30.0), (100.0, 40.0), 0.1, False),
        ((105.1, 30.0), (100.0, 40.0), 6.0, True),
    ],
)
def test_two_powers_agree_within_what_is_asked_or_known(before, after, pct, close):
    assert _agree(Energy(*before), Energy(*after), pct) is close


def test_power_that_never_settles_is_flagged_with_the_time(machine, tmp_path):
    machine.power_w = lambda run: 100.0 * 1.2**run
    measured = machine.measured(tmp_path, steady_pct=1.5, warm_up_max_s=3.2)
    assert machine.ran.count(125) == 7  # 0.052 s and seven times half a second
    assert measured.steps["steady"] is False
    assert measured.flags == ["power was not steady within 1.5 % after 4 s"]


@pytest.mark.parametrize(
    ("protocol", "length_s", "flagged"),
    [
        ({"window_pct": 1.0}, 0.8165, False),  # 20 ms / sqrt(6) of it are 1 %
        ({"window_pct": 2.0}, 0.40825, False),
        ({"window_pct": 4.0}, 0.3, False),
        ({"window_pct": 1.0, "trim_s": 0.25}, 1.3165, False),
        ({"window_pct": 1.0, "max_duration_s": 0.5}, 0.5, True),
        ({"window_pct": 1.0, "max_duration_s": 0.2}, 0.3, True),
        ({"window_pct": 1.0, "min_duration_s": 2.0}, 2.0, False),
        ({"window_pct": 0.0, "trim_s": 0.1}, 0.5, False),
    ],
)
def test_a_window_is_as_long_as_asked_and_as_the_meter_needs(
    monkeypatch, tmp_path, protocol, length_s, flagged
):
    """A counter of 0.8 J at 40 W, which is 20 ms of it, and a period of 0.1 ms."""
    machine = Machine(monkeypatch, resolution=0.8, period_s=0.0001)
    measured = machine.measured(tmp_path, **protocol)
    assert measured.windows[0].iterations == math.ceil(length_s / 0.004 * 1.05 - 1e-3)
    needed_s = meter_needs_s(machine.channels[0], 40.0, protocol["window_pct"] or 1.0)
    longest_s = max(protocol.get("max_duration_s", 60.0), 0.3)
    said = (
        f"the meter needs a window of {needed_s:.3g} s for an uncertainty of "
        f"{protocol['window_pct']:g} %, and the longest window is {longest_s:.3g} s"
    )
    assert measured.flags == ([said] if flagged else [])


def test_a_kernel_that_gets_faster_fills_the_window_all_the_same(machine, tmp_path):
    """A tenth more than what the first try showed to be needed."""
    machine.one_s = lambda run: 0.004 if run < 3 else 0.0005
    measured = machine.measured(tmp_path, metered=False)
    assert machine.ran[3:] == [79, math.ceil(79 * (0.3 / (79 * 0.0005)) * 1.1)]
    assert len(measured.windows) == 1
    assert measured.windows[0].end_ns >= 0.3e9


def test_a_kernel_that_takes_no_time_is_tried_six_times(machine, tmp_path):
    machine.one_s = lambda run: 0.1 if run == 0 else 0.0
    measured = machine.measured(tmp_path, metered=False)
    assert machine.ran[1:] == [4 * 1000**n for n in range(6)]
    assert measured.windows[0].iterations == 4 * 1000**5
    machine.one_s = lambda run: 0.01 if machine.ran[-1] < 10 else 0.0
    machine.ran.clear()
    machine.measured(tmp_path, metered=False, min_duration_s=60.0)
    assert machine.ran[-1] == 1 << 53


@pytest.mark.parametrize(
    ("period_s", "silent_s", "refused"),
    [(0.001, 0.45, False), (0.001, 0.55, True), (0.1, 0.95, False), (0.1, 1.05, True)],
)
def test_a_meter_that_falls_silent_before_the_end_is_refused(period_s, silent_s, refused):
    """After half a second, or ten periods of a slower meter."""
    window_s = 2.1
    time_ns = np.arange(0, round((window_s - silent_s) * 1e9) + 1, 10**6)
    own = Channel(
        name="node", domain="node", kind="energy", resolution=0.0, period_s=period_s, stamped=True
    )
    read = MeterTrace("m", own, trace=Trace("node", "node", "J", time_ns, time_ns * 4e-8))
    window = Window(
        end_ns=round(window_s * 1e9), iterations=1, traces=[read], achieved=AS_FOUND
    )  # fmt: skip
    if refused:
        with pytest.raises(MeterError, match=f"m:node: no reading for {silent_s:.3g} s"):
            refuse_stopped(window.traces, window.end_ns)
    else:
        refuse_stopped(window.traces, window.end_ns)
    refuse_stopped([replace(read, use="check")], window.end_ns)


def test_a_single_reading_is_no_energy_and_the_reason_is_named():
    """A BMC that takes 5 s to answer, in a window of 1 s: its answer is from before the window."""
    own = Channel(name="power", domain="node", kind="power", resolution=1.0, period_s=1.0)
    trace = Trace("power", "node", "W", np.array([-(10**9), 3 * 10**9]), np.array([100.0, 101.0]))
    refuse_stopped([MeterTrace("ipmi", own, trace=trace)], 10**9)
    one = replace(trace, time_ns=trace.time_ns[:1], value=trace.value[:1])
    with pytest.raises(MeterError, match="ipmi:power: a single reading of a window of 1 s"):
        refuse_stopped([MeterTrace("ipmi", own, trace=one)], 10**9)
    before = replace(trace, time_ns=np.array([-2 * 10**9, -(10**8)]))
    with pytest.raises(MeterError, match="ipmi:power: no reading since the begin of a window"):
        refuse_stopped([MeterTrace("ipmi", own, trace=before)], 10**9)
    refuse_stopped([MeterTrace("ipmi", own, "check", trace=one)], 10**9)


def test_a_counter_that_never_changes_has_no_energy():
    """An NVML counter (0.1 s) that froze: a window of the default 1 s is 13 of its periods, too few
    for a stretch within a longer window to be refused."""
    time_ns = np.arange(-150_000_000, 1_150_000_001, 10**7)
    frozen = np.zeros(time_ns.size)
    own = Channel(name="gpu-0", domain="gpu", kind="energy", resolution=1e-3, period_s=0.1)
    read = MeterTrace("nvml", own, trace=Trace("gpu-0", "gpu", "J", time_ns, frozen))
    moved = replace(read.trace, value=np.where(time_ns < 0, 0.0, 0.001))
    with pytest.raises(MeterError, match=r"nvml:gpu-0: the counter did not change in 1.3 s"):
        refuse_stopped([read], 10**9)
    refuse_stopped([replace(read, trace=moved)], 10**9)
