"""The steps of measuring a point, on a counter of known power that is replayed in time."""

from __future__ import annotations

import math
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from campaign.measure import point_life
from campaign.measure.point_life import PartitionSetup, measure
from campaign.measure.protocol import (
    PointSetup,
    WindowedMeasurement,
    energy_of,
    idle_power,
    meter_needs_s,
    run_protocol,
)
from campaign.measure.sampler import MeterTrace, UsedMeter
from campaign.measure.simulated_window import simulate_window
from campaign.measure.window import Window
from campaign.plan.campaign_file import Protocol
from campaign.store.measurement import Trace
from dvfs.setting import AS_FOUND
from kernels.host.ranks import Team
from sites.clocks.fixed import Fixed
from sites.meters import Channel, MeterError, Reading, open_meter
from sites.site_file import MeterEntry, Partition, Site
from sites.site_reading import built_in_sites, read_site
from tests.points import a_point

LATE = 0.25
"""The writer is a thread, which a busy machine can hold up by a tenth of a second."""
QUICK = {"idle_s": 0.2, "warm_up_s": 0.05, "min_duration_s": 0.3, "window_pct": 0.0}


class Wait:
    """A kernel whose iteration takes 10 ms of nothing."""

    def run(self, iterations: int) -> None:
        time.sleep(0.01 * iterations)


@contextmanager
def powered(root: Path, energy_uj: Callable[[float], float]) -> Iterator[UsedMeter]:
    """A powercap meter below ``root`` that shows ``energy_uj`` of the seconds since it began."""
    zone = root / "sys/class/powercap/intel-rapl:0"
    zone.mkdir(parents=True)
    (zone / "name").write_text("package-0\n")
    (zone / "max_energy_range_uj").write_text("262143328850\n")
    stop, ready = threading.Event(), threading.Event()
    begin_s = time.monotonic()

    def write() -> None:
        # One file all the time, as sysfs has, and one write of one length.
        with (zone / "energy_uj").open("wb", buffering=0) as file:
            while not stop.is_set():
                now_uj = int(energy_uj(time.monotonic() - begin_s)) % 262143328850
                os.pwrite(file.fileno(), b"%012d\n" % now_uj, 0)
                ready.set()
                time.sleep(0.001)

    writer = threading.Thread(target=write)
    writer.start()
    ready.wait()
    meter = open_meter("powercap", {}, root)
    try:
        yield UsedMeter(meter)
    finally:
        meter.close()
        stop.set()
        writer.join()


def setup_with(meter: UsedMeter, root: Path, **protocol: float) -> PointSetup:
    return PointSetup(Wait(), Team(), [meter], Fixed(root), Protocol(**(QUICK | protocol)))


def test_even_power_is_steady_and_measured(tmp_path):
    longer = {"idle_s": 0.5, "min_duration_s": 0.5}
    with powered(tmp_path, lambda t: 40e6 * t) as meter:
        idle = idle_power(Team(), [meter], Fixed(tmp_path), Protocol(**(QUICK | longer)))
        measured = run_protocol(setup_with(meter, tmp_path, **longer))
    assert idle["idle_w"] == pytest.approx(40.0, rel=LATE)
    assert measured.steps["steady"] is True
    assert measured.flags == []
    assert len(measured.windows) == 1
    window = measured.windows[0]
    assert window.end_ns >= 0.5e9
    energy, _ = energy_of(measured.windows, 0.0)
    seconds = window.end_ns / 1e9 / window.iterations
    assert energy.energy_j == pytest.approx(40.0 * seconds, rel=LATE)
    assert window.sampling["powercap"]["period_s"] == pytest.approx(0.01, rel=LATE)


def test_power_that_keeps_rising_is_flagged(tmp_path):
    # Twice the power every stretch: two agree only if the writer is held up for half of one.
    with powered(tmp_path, lambda t: 20e6 * 2 ** (t / 0.5)) as meter:
        measured = run_protocol(setup_with(meter, tmp_path, warm_up_max_s=2.0))
    assert measured.steps["steady"] is False
    assert measured.steps["warm_up_s"] >= 2.0
    assert any("not steady" in flag for flag in measured.flags)


def test_the_warm_up_lasts_until_power_is_steady(tmp_path):
    """An approach to 100 W with a time constant of 0.5 s."""

    def energy_uj(t: float) -> float:
        return 1e6 * (100 * t - 35 * (1 - math.exp(-t / 0.5)))

    with powered(tmp_path, energy_uj) as meter:
        measured = run_protocol(setup_with(meter, tmp_path))
    # Stretches of 0.5 s: their mean powers differ by 1 % of 100 W after about 2 s.
    assert measured.steps["steady"] is True
    assert measured.steps["warm_up_s"] >= 1.0


def test_a_coarse_meter_gets_a_longer_window(tmp_path):
    """Whole joules at 100 W: sqrt(1 / 6) J are 2 % of a window of 0.2 s."""
    with powered(tmp_path, lambda t: 1e6 * math.floor(100 * t)) as meter:
        channel = meter.meter.channels[0]
        coarse = Channel(
            name=channel.name,
            domain=channel.domain,
            kind="energy",
            resolution=1.0,
            period_s=channel.period_s,
        )
        needed_s = meter_needs_s(coarse, 100.0, 2.0)
        assert needed_s == pytest.approx(0.204, rel=0.01)
        fine_s = meter_needs_s(channel, 100.0, 0.1)
        assert fine_s == pytest.approx(channel.period_s / math.sqrt(6) / 0.001, rel=0.01)
        measured = run_protocol(setup_with(meter, tmp_path, window_pct=0.05, min_duration_s=0.1))
    # The meter has a resolution of 61 uJ and a period of 1 ms: 0.05 % needs 0.82 s.
    assert measured.windows[0].end_ns >= 0.8e9


def test_a_meter_that_needs_too_long_a_window_is_flagged(tmp_path):
    with powered(tmp_path, lambda t: 40e6 * t) as meter:
        measured = run_protocol(setup_with(meter, tmp_path, window_pct=0.01, max_duration_s=0.5))
    assert any("needs a window of" in flag for flag in measured.flags)


def test_windows_are_repeated_until_the_energy_is_known(tmp_path):
    """Power that changes from second to second needs more windows for less uncertainty."""
    rng = np.random.default_rng(3)
    steps_w = 100 + rng.normal(0, 10, 400)
    known_j = np.concatenate([[0.0], np.cumsum(steps_w * 0.1)])

    def energy_uj(t: float) -> float:
        return 1e6 * float(np.interp(t, np.arange(401) * 0.1, known_j))

    with powered(tmp_path, energy_uj) as meter:
        loose = run_protocol(setup_with(meter, tmp_path, uncertainty_pct=50.0))
        tight = run_protocol(setup_with(meter, tmp_path, uncertainty_pct=0.01, max_windows=6))
    assert len(loose.windows) == 3
    assert len(tight.windows) == 6
    assert tight.steps["random_pct"] > 0.01


def test_a_counter_that_stops_is_no_energy(tmp_path):
    with (
        powered(tmp_path, lambda t: 40e6 * min(t, 0.3)) as meter,
        pytest.raises(MeterError, match="stopped: it showed"),
    ):
        run_protocol(setup_with(meter, tmp_path, steady_pct=0.0, min_duration_s=1.0))


def test_trimmed_edges_do_not_count():
    """100 W inside, 20 W in the first and last tenth of a second of two."""
    time_ns = np.arange(-50, 2051) * 10**6
    power_w = np.where((time_ns < 10**8) | (time_ns > 19 * 10**8), 20.0, 100.0)
    channel = Channel(
        name="c", domain="node", kind="power", resolution=0.0, period_s=1e-3, stamped=True
    )
    trace = MeterTrace("m", channel, trace=Trace("c", "node", "W", time_ns, power_w))
    window = Window(end_ns=2 * 10**9, iterations=10, traces=[trace], achieved=AS_FOUND)
    assert energy_of([window], 0.0)[0].energy_j == pytest.approx(18.4, rel=1e-3)
    assert energy_of([window], 0.2)[0].energy_j == pytest.approx(20.0, rel=1e-9)


def test_a_point_of_several_windows_keeps_all_their_traces(tmp_path):
    """Through a point's whole life: a recording of 100 W on this machine as it is."""
    rows = [f"{i * 0.005:.3f},{0.5 * i + 0.01 * (i % 2):.3f}" for i in range(12000)]
    (tmp_path / "trace.csv").write_text("time_s,board\n" + "\n".join(rows) + "\n")
    channels = {"board": {"domain": "node", "kind": "energy", "unit": "J"}}
    options = {"path": str(tmp_path / "trace.csv"), "channels": channels}
    site = Site(
        name="lab",
        meters=[MeterEntry(kind="recorded", options=options)],
        partitions={"p": Partition()},
    )
    protocol = Protocol(**(QUICK | {"uncertainty_pct": 1e-6, "max_windows": 4}))
    point = a_point(site="lab")
    measured = measure(PartitionSetup(site, protocol, ("idle",)), point, 0)
    assert measured is not None
    assert measured.status == "ok", measured.text
    assert measured.energy_j == pytest.approx(100.0 * measured.time_s, rel=0.01)
    assert measured.provenance["protocol"]["windows"] == 4
    assert measured.provenance["protocol"]["idle_w"] == pytest.approx(100.0, rel=0.05)
    traces = {trace.channel: trace for trace in measured.traces}
    edges_ns = traces["window"].time_ns.reshape(4, 2)
    assert edges_ns[0, 0] == 0
    assert (np.diff(edges_ns.reshape(-1)) > 0).all()
    lengths_s = (edges_ns[:, 1] - edges_ns[:, 0]).sum() / 1e9
    assert lengths_s == pytest.approx(measured.time_s * measured.iterations, rel=1e-6)
    (board,) = (name for name in traces if name.startswith("recorded:"))
    assert (np.diff(traces[board].time_ns) > 0).all()
    assert measured.meters[board]["counts"] is True
    assert f"the energy is replayed from a recording: {board}" in measured.provenance["flags"]


def test_what_happened_in_any_window_is_in_the_record(monkeypatch):
    """Throttled in the first of three windows alone, and a voltage that falls from one to the
    next: the flag is there, and the voltage is that of all windows, as the clocks are."""
    states = [
        {"throttled": ["thermal"], "throttled_share": 1.0, "core_v": 0.9},
        {"core_v": 0.8},
        {"core_v": 0.7},
    ]
    windows = [
        Window(end_ns=10**9, iterations=1, traces=[], achieved=AS_FOUND, conditions=conditions)
        for conditions in states
    ]
    measured = WindowedMeasurement(windows, {}, [])
    monkeypatch.setattr(point_life, "run_protocol", lambda setup, **_: measured)
    site = Site(name="lab", partitions={"p": Partition()})
    done = measure(PartitionSetup(site, Protocol(), ("idle",)), a_point(site="lab"), 0)
    assert done is not None
    assert "the clocks were throttled: thermal" in done.provenance["flags"]
    assert (done.core_v, done.voltage_origin) == (pytest.approx(0.8), "measured")


class Noting:
    """A kernel that notes when it ran, in s of CLOCK_MONOTONIC."""

    def __init__(self) -> None:
        self.ran_s: list[tuple[float, float]] = []

    def run(self, iterations: int) -> None:
        begin_s = time.monotonic()
        time.sleep(0.002 * iterations)
        self.ran_s.append((begin_s, time.monotonic()))


def test_the_node_cools_down_after_the_last_window(tmp_path):
    kernel, cool_down_s = Noting(), 0.5
    with powered(tmp_path, lambda t: 40e6 * t) as meter:
        quick = {"steady_pct": 0.0, "min_duration_s": 0.02}
        setup = setup_with(meter, tmp_path, cool_down_s=cool_down_s, **quick)
        run_protocol(replace(setup, prepared=kernel))
        idle_s = time.monotonic() - kernel.ran_s[-1][1]
    assert idle_s >= cool_down_s


class SeesPart:
    """A meter of constant power that samples a quarter of the time, as NVML's of an A100."""

    name = "sees-part"
    channels = (
        Channel(name="gpu", domain="gpu", kind="power", resolution=0.001, period_s=0.06, seen=0.25),
    )

    def read(self) -> Reading:
        return Reading(time.monotonic_ns(), (300.0,))

    def close(self) -> None:
        """Nothing is open."""


def test_windows_begin_at_random_phases_of_a_meter_that_sees_part_of_the_time(tmp_path):
    """Without the wait all windows would begin at one phase of the meter's period.

    The wait is drawn from Python's generator: each gap between two runs is a constant and the
    draw that belongs to it. A busy machine may delay some runs, so there are eight attempts.
    """
    windows, seed = 8, 5
    protocol = Protocol(
        warm_up_s=0.0, steady_pct=0.0, min_duration_s=0.01, uncertainty_pct=1e-9, max_windows=8
    )
    expected = random.Random(seed)
    draws_s = [expected.uniform(0.0, 0.06) for _ in range(windows)]
    alike = []
    while not alike or (max(alike) < 0.9 and len(alike) < 8):
        kernel = Noting()
        random.seed(seed)
        run_protocol(PointSetup(kernel, Team(), [UsedMeter(SeesPart())], Fixed(tmp_path), protocol))
        last = kernel.ran_s[-windows:]
        gaps_s = [after[0] - before[1] for before, after in pairwise(last)]
        alike.append(float(np.corrcoef(gaps_s, draws_s[1:])[0, 1]))
    assert max(alike) >= 0.9


def test_windows_do_not_wait_for_a_meter_that_sees_all_of_the_time(tmp_path):
    """Nor without any meter. A wait would be drawn from Python's generator."""
    protocol = Protocol(warm_up_s=0.0, steady_pct=0.0, min_duration_s=0.01)
    with powered(tmp_path, lambda t: 40e6 * t) as meter:
        for meters in ([], [meter]):
            random.seed(5)
            run_protocol(PointSetup(Noting(), Team(), meters, Fixed(tmp_path), protocol))
            assert random.random() == random.Random(5).random()


def test_the_core_clock_is_timed_before_and_after_each_window(tmp_path):
    protocol = Protocol(warm_up_s=0.0, steady_pct=0.0, min_duration_s=0.01)
    cpus = frozenset(sorted(os.sched_getaffinity(0))[:1])
    both = set()
    for _ in range(5):  # two timings may agree to the nanosecond
        setup = PointSetup(Noting(), Team(), [], Fixed(tmp_path), protocol, timed_cpus=cpus)
        (window,) = run_protocol(setup).windows
        assert [len(mhz) for mhz in window.timed_mhz] == [1, 1]
        both.add(window.timed_mhz)
    assert any(before != after for before, after in both)
    setup = replace(setup, timed_cpus=frozenset())
    assert run_protocol(setup).windows[0].timed_mhz == ((), ())


@pytest.mark.parametrize("meter_hz", [None, 256.0])
def test_the_simulated_meter_has_the_rate_of_its_site(meter_hz):
    """The board's meter takes 1,024 samples a second (PowerMon 2; Choi and Vuduc 2016)."""
    site = read_site(built_in_sites()["jetson-tk1"])
    if meter_hz is not None:
        simulated = site.simulated.model_copy(update={"meter_hz": meter_hz})
        site = site.model_copy(update={"simulated": simulated})
    window = simulate_window(site, {"sp": 1e9}, site.settings[0], 0.5, "seed")
    trace = window.traces[0]
    hz = meter_hz or 1024.0
    inside_s = trace.trace.time_ns[:-1] / 1e9
    assert np.diff(inside_s) == pytest.approx(1.0 / hz, rel=1e-5)
    assert trace.trace.time_ns.size == pytest.approx(hz * window.end_ns / 1e9, abs=2)
    assert trace.channel.period_s == pytest.approx(1.0 / hz)


def test_a_simulated_window_has_its_least_length_between_the_trimmed_edges():
    site = read_site(built_in_sites()["jetson-tk1"])
    content = {"site": site.name, "partition": "board", "setting": site.settings[-1]}
    point = a_point("sp_fma", params='{"level":"dram","ops_per_word":1,"threads":1}', **content)
    protocol = Protocol(min_duration_s=0.2, trim_s=0.15)
    measured = measure(PartitionSetup(site, protocol, ("sp_fma",)), point, 0)
    assert measured is not None and measured.status == "ok"
    assert measured.time_s * measured.iterations == pytest.approx(0.5, abs=measured.time_s)
