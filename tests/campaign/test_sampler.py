"""How long and how often meters are read: lead times, late readings, and readings that fail."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from campaign.measure.sampler import Sampler, UsedMeter, all_channels, needed_lead_s
from campaign.measure.ticker import FAILED, TEXT_BYTES, Ticker, _tick
from campaign.measure.window import lead_of_total_s
from sites.clocks.fixed import Fixed
from sites.clocks.shared.control import ClockState
from sites.meters import Channel, MeterError, Reading, open_meter


@pytest.mark.parametrize(
    ("period_s", "averaging_s", "expected_s"),
    [(0.1, 0.0, 0.15), (1.2, 0.2, 2.1), (1.5, 0.0, 2.25), (10.0, 0.0, 2.5)],
)
def test_a_window_has_one_and_a_half_periods_before_and_after_it(period_s, averaging_s, expected_s):
    """At most 2.5 s, however slow the slowest meter is."""
    fast = Channel(name="a", domain="node", kind="power", resolution=1.0, period_s=0.01)
    slow = replace(fast, name="b", period_s=period_s, averaging_s=averaging_s)
    meters = [UsedMeter(SimpleNamespace(channels=(fast, slow)))]
    assert needed_lead_s(all_channels(meters)) == pytest.approx(expected_s)
    assert needed_lead_s([]) == 0.0


def test_where_the_total_alone_is_wanted_slower_channels_are_not_waited_for():
    """As NVML on an H100: a counter, its power, and a mean power of the memory over a second."""
    counter = Channel(name="e", domain="gpu", kind="energy", resolution=1e-3, period_s=0.1)
    power = replace(counter, name="p", kind="power", same_as="e", averaging_s=0.025)
    memory = replace(
        power, name="m", domain="gpu-memory", same_as=None, inside="e", averaging_s=1.0
    )
    gpu = UsedMeter(SimpleNamespace(name="nvml", channels=(counter, power, memory)))
    assert needed_lead_s(all_channels([gpu])) == pytest.approx(1.65)
    assert lead_of_total_s([gpu]) == pytest.approx(0.15)
    check = UsedMeter(
        SimpleNamespace(name="ipmi", channels=(replace(counter, period_s=5.0),)), "check"
    )
    assert lead_of_total_s([gpu, check]) == pytest.approx(0.15)
    assert lead_of_total_s([]) == 0.0


@pytest.mark.parametrize("use", ["energy", "check"])
def test_a_channel_that_two_meters_read_is_refused(tmp_path, use):
    """As two [[meters]] of a site file: nvml with the devices 0 and 1, and nvml with 1. The energy
    of GPU 1 would count twice."""
    gpus = [
        Channel(name=f"gpu-{i}/energy", domain="gpu", kind="energy", resolution=1.0, period_s=0.1)
        for i in range(2)
    ]
    both, second = (
        SimpleNamespace(name="nvml", channels=tuple(channels)) for channels in (gpus, gpus[1:])
    )
    with pytest.raises(MeterError, match="two meters of the site file read nvml:gpu-1/energy"):
        Sampler([UsedMeter(both), UsedMeter(second, use)], Fixed(tmp_path), 0.1)
    first = SimpleNamespace(name="nvml", channels=tuple(gpus[:1]))
    Sampler([UsedMeter(first), UsedMeter(second, use)], Fixed(tmp_path), 0.1)


@pytest.fixture
def counter(tmp_path: Path):
    """A file of one number, and its descriptor."""
    path = tmp_path / "energy_uj"
    path.write_text("12345\n")
    descriptor = os.open(path, os.O_RDONLY)
    yield path, descriptor
    os.close(descriptor)


def test_after_a_delay_of_many_periods_reading_goes_on_at_the_next_one(counter):
    """The grid began ten and a half periods ago: a reading at once, and the next half a period
    later, on the grid."""
    period_ns = 100_000_000
    times_ns, raw = np.zeros((2, 2), np.int64), np.zeros((2, 1), np.int64)
    began_ns = time.monotonic_ns() - round(10.5 * period_ns)
    stop, spec = np.zeros(1, np.uint8), np.empty(2, np.int64)
    descriptors = np.array([counter[1]], np.int32)
    text = np.empty(TEXT_BYTES, np.uint8)
    assert _tick(descriptors, began_ns, period_ns, stop, times_ns, raw, text, spec) == 2
    assert raw.ravel().tolist() == [12345, 12345]
    late = (times_ns[:, 0] - began_ns) / period_ns
    assert 10.5 <= late[0] < late[1]
    assert np.ceil(late[0]) <= late[1] < np.ceil(late[0]) + 0.9


def test_the_loop_ends_after_a_reading_that_is_no_number(counter):
    """So that the error is read while its cause is there."""
    path, descriptor = counter
    path.write_text("unavailable\n")
    ticker = Ticker([descriptor], period_s=0.002)
    ticker.start()
    ticker.join(timeout=5.0)
    ended_by_itself = not ticker.is_alive()
    ticks = ticker.end()
    assert ended_by_itself
    assert ticks.raw.tolist() == [[FAILED]]


def test_a_current_below_0_is_a_reading(tmp_path):
    """The offset of an INA3221 makes the current of a rail that carries none negative."""
    chip = tmp_path / "sys/bus/i2c/drivers/ina3221/1-0040/hwmon/hwmon3"
    chip.mkdir(parents=True)
    for name, text in (("in1_label", "VDD_IN"), ("in1_input", "5000"), ("curr1_input", "-16")):
        (chip / name).write_text(f"{text}\n")
    meter = open_meter("ina3221", {}, tmp_path)
    sampler = Sampler([UsedMeter(meter)], Fixed(tmp_path), 0.01)
    sampler.begin()
    time.sleep(0.1)
    sampler.end()
    assert len(sampler.readings[0]) > 3
    assert {reading.values for reading in sampler.readings[0]} == {(-0.08,)}
    meter.close()


def test_a_counter_below_0_is_refused(tmp_path):
    zone = tmp_path / "sys/class/powercap/intel-rapl:0"
    zone.mkdir(parents=True)
    for name, text in (("name", "package-0"), ("max_energy_range_uj", "1000"), ("energy_uj", "5")):
        (zone / name).write_text(f"{text}\n")
    meter = open_meter("powercap", {}, tmp_path)
    with pytest.raises(MeterError, match="energy_uj holds b'-5', not a number"):
        meter.take([-5], 0, 1)
    meter.close()


class Slow:
    """A meter of which a reading takes two and a half periods of the sampler."""

    name = "slow"
    channels = (Channel(name="a", domain="node", kind="power", resolution=1.0, period_s=0.0),)

    def __init__(self) -> None:
        self.began_s: list[float] = []

    def read(self) -> Reading:
        self.began_s.append(time.monotonic())
        time.sleep(0.25)
        return Reading(time.monotonic_ns(), (1.0,))


def test_readings_that_are_late_are_skipped_and_the_next_is_on_the_grid(tmp_path):
    meter = Slow()
    sampler = Sampler([UsedMeter(meter)], Fixed(tmp_path), 0.1)
    sampler.begin()
    time.sleep(1.3)
    sampler.end()
    assert np.median(np.diff(meter.began_s[1:-1])) == pytest.approx(0.3, abs=0.03)


class Spinning:
    """A meter of which every reading takes two milliseconds of the processor."""

    name = "spinning"
    channels = (Channel(name="a", domain="node", kind="power", resolution=1.0, period_s=0.0),)

    def read(self) -> Reading:
        until_s = time.thread_time() + 0.002
        while time.thread_time() < until_s:
            pass
        return Reading(time.monotonic_ns(), (1.0,))


class InAFile(Spinning):
    """A meter of one file, which the compiled loop reads."""

    name = "in a file"

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def descriptors(self) -> tuple[int, ...]:
        return (self.descriptor,)

    def take(self, raw: Sequence[int], start_ns: int, end_ns: int) -> Reading:
        return Reading((start_ns + end_ns) // 2, (float(raw[0]),))


class Counted(Fixed):
    """Clocks as found; counts how often they are read."""

    reads = 0

    def state(self) -> ClockState:
        self.reads += 1
        return ClockState()


def test_clocks_are_read_ten_times_a_second_however_often_meters_are(tmp_path):
    clocks = Counted(tmp_path)
    sampler = Sampler([UsedMeter(Spinning())], clocks, 0.004)
    sampler.begin()
    time.sleep(1.05)
    sampler.end()
    (trace,) = sampler.traces(0)
    assert trace.trace.time_ns.size > 50
    # One when it begins, one at once, ten more in the time, and one when it ends.
    assert 5 <= clocks.reads <= 13
    assert len(sampler.states) == clocks.reads - 1


def test_a_short_window_has_its_clocks_read_early_too(counter, tmp_path):
    """Where all meters are files, the Python thread reads clocks alone. A busy machine may wake it
    late, so once in five tries is enough."""
    within: list[int] = []
    for _ in range(5):
        clocks = Counted(tmp_path)
        sampler = Sampler([UsedMeter(InAFile(counter[1]))], clocks, 0.01)
        sampler.begin()
        time.sleep(0.06)
        within.append(clocks.reads)
        sampler.end()
    assert max(within) >= 2, "one when it begins, one a hundredth of a second later"


def test_reading_costs_the_processor_time_of_its_threads_alone(counter, tmp_path):
    """Not the time of the process, nor that for which they slept."""
    until_s = time.process_time() + 0.2
    while time.process_time() < until_s:
        pass
    sampler = Sampler([UsedMeter(Spinning())], Fixed(tmp_path), 0.02)
    sampler.begin()
    time.sleep(0.6)
    sampler.end()
    (trace,) = sampler.traces(0)
    read_s = 0.002 * (trace.trace.time_ns.size - 2)  # the first and the last in this thread
    assert read_s <= sampler.costs()["sampler"]["cpu_s"] < read_s + 0.1
    compiled = Sampler([UsedMeter(InAFile(counter[1]))], Fixed(tmp_path), 0.01)
    compiled.begin()
    time.sleep(0.3)
    compiled.end()
    (trace,) = compiled.traces(0)
    assert trace.trace.time_ns.size > 5
    assert 0 < compiled.costs()["in a file"]["cpu_s"] < 0.1
