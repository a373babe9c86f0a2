"""What holds for every meter: readings equal the true values, and faults are errors."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from fractions import Fraction
from functools import partial
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sites.meters import METERS, Channel, FromFiles, Meter, MeterError, Reading, open_meter
from sites.meters.shared.meter import CONTAINS
from sites.meters.shared.stopped import stopped
from tests.sites.meter_layouts import all_layouts
from tests.sites.meter_layouts.layout import TREES, Layout

REPOSITORY = TREES.parent.parent
LAYOUTS = {layout.name: layout for layout in all_layouts()}
NS_PER_S = 10**9
ROUNDED_TWICE = Fraction(11, 10)
"""Rounding to the hardware's steps and the file's unit (at most a fifteenth of a step)."""
RESETS = ("reset", "went back")


def each_layout_that(applies: Callable[[Layout], bool]) -> pytest.MarkDecorator:
    """Parametrise over the layouts for which ``applies`` is true."""
    layouts = [layout for layout in LAYOUTS.values() if applies(layout)]
    return pytest.mark.parametrize("layout", layouts, ids=[layout.name for layout in layouts])


def each_fault_but(*but: str) -> pytest.MarkDecorator:
    """Parametrise over all faults of all layouts except the named faults."""
    return pytest.mark.parametrize(
        ("layout", "fault"),
        [
            pytest.param(layout, fault, id=f"{layout.name}-{fault}".replace(" ", "-"))
            for layout in LAYOUTS.values()
            for fault in layout.faults
            if fault not in but
        ],
    )


each_layout = each_layout_that(lambda layout: True)


@contextmanager
def machine(layout: Layout) -> Iterator[Path]:
    """A root with the layout's tree, readable by all users, and the program that runs beside it."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        root = Path(directory) / "root"
        if layout.tree:
            shutil.copytree(TREES / layout.tree, root)
        else:
            root.mkdir()
        with layout.running(root):
            yield root


def open_in(layout: Layout, root: Path) -> Meter:
    return open_meter(layout.kind, layout.options, root)


def read_shown(layout: Layout, root: Path, meter: Meter, true: Mapping[str, float]) -> Reading:
    """The reading once it has the values now shown, or the one after the layout's lag."""
    begun_ns = time.monotonic_ns()
    layout.show(root, true)
    last_ns = time.monotonic_ns() + round(layout.lag_s * NS_PER_S)
    while True:
        asked_ns = time.monotonic_ns()
        reading = meter.read()
        is_current = reading.time_ns >= begun_ns and shows_powers(meter.channels, reading, true)
        if is_current or asked_ns >= last_ns:
            return reading
        time.sleep(layout.lag_s / 50)


def shows_powers(
    channels: tuple[Channel, ...], reading: Reading, true: Mapping[str, float]
) -> bool:
    """Whether the powers are current. An energy alone does not show how recent it is."""
    return all(
        channel.kind == "power"
        and abs(value - true[channel.name]) <= channel.resolution * float(ROUNDED_TWICE)
        for channel, value in zip(channels, reading.values, strict=True)
    )


def read_for(meter: Meter, bound_s: float) -> None:
    """Read at least once, and repeatedly until this time has passed."""
    end_ns = time.monotonic_ns() + round(bound_s * NS_PER_S)
    while True:
        asked_ns = time.monotonic_ns()
        meter.read()
        if asked_ns >= end_ns:
            return
        time.sleep(bound_s / 50)


class TooLateError(Exception):
    """The machine delayed the test for longer than the meter allows between two readings."""


def read_in_time(meter: Meter, last: Reading | None, read: Callable[[], Reading]) -> Reading:
    """What ``read`` returns; raises TooLateError if it came too late after the last reading."""
    try:
        return read()
    except MeterError as error:
        counters = [counter for counter in getattr(meter, "counters", ()) if counter]
        gaps_s = [gap_s for counter in counters if (gap_s := counter.longest_gap_s) is not None]
        if last is None or not gaps_s:
            raise
        if time.monotonic_ns() - last.time_ns < min(gaps_s) * NS_PER_S:
            raise
        raise TooLateError from error


def in_time(attempt: Callable[[], None]) -> None:
    """Run the attempt, which opens its own meter, and repeat it if the machine delayed it."""
    while True:
        try:
            return attempt()
        except TooLateError:
            continue


def in_time_on_a_machine(layout: Layout, check: Callable[[Layout, Path, Meter], None]) -> None:
    """Run a check of a meter on a machine of its own, and repeat both as :func:`in_time` does."""

    def attempt() -> None:
        with machine(layout) as root, closing(open_in(layout, root)) as meter:
            check(layout, root, meter)

    in_time(attempt)


def values_at(
    layout: Layout, channels: tuple[Channel, ...], phase: float, rise: float
) -> dict[str, float]:
    """True values: energies at a phase of their range and a rise in steps, powers that differ."""
    true = {}
    for index, channel in enumerate(channels, start=1):
        share = 1 / index
        if channel.kind == "energy":
            start_j = phase * (channel.wraps_at_j or 1e5)
            true[channel.name] = start_j + rise * share * layout.greatest_step_j
        else:
            level = (0.37 + 0.618 * rise * share) % 0.8 + 0.2
            true[channel.name] = level * layout.greatest_power_w
    return true


def most_wraps(channel: Channel, rise_j: float) -> int:
    """The greatest number of wraps in this rise, at any phase."""
    return 0 if channel.wraps_at_j is None else int(rise_j // channel.wraps_at_j) + 1


def check(
    channels: tuple[Channel, ...],
    first: tuple[Reading, Mapping[str, float]],
    now: tuple[Reading, Mapping[str, float]],
) -> None:
    """Compare energies since the first reading and present powers with exact arithmetic."""
    for index, channel in enumerate(channels):
        true, measured = Fraction(now[1][channel.name]), Fraction(now[0].values[index])
        tolerance = Fraction(channel.resolution) * ROUNDED_TWICE
        if channel.kind == "energy":
            true -= Fraction(first[1][channel.name])
            measured -= Fraction(first[0].values[index])
            # A counter that starts again at its last step loses that step.
            tolerance *= 1 + most_wraps(channel, float(true))
        assert abs(measured - true) <= tolerance, (channel, float(measured), float(true))


# --- What a meter says of itself -----------------------------------------------------------------


@each_layout
def test_the_channels(layout: Layout) -> None:
    assert layout.kind in METERS
    with machine(layout) as root, closing(open_in(layout, root)) as meter:
        assert meter.name == layout.kind
        assert tuple(channel.name for channel in meter.channels) == layout.channels
        by_name = {channel.name: channel for channel in meter.channels}
        assert len(by_name) == len(meter.channels)
        # What the tests that follow are chosen by.
        assert layout.wraps == any(channel.wraps_at_j is not None for channel in meter.channels)
        assert layout.from_files == isinstance(meter, FromFiles)
        for channel in meter.channels:
            assert channel.domain in CONTAINS
            assert channel.kind in ("energy", "power")
            assert channel.resolution > 0
            assert channel.period_s > 0
            assert channel.averaging_s >= 0
            assert 0 < channel.seen <= 1
            assert channel.gain_pct >= 0
            if channel.kind == "power":
                assert channel.wraps_at_j is None
            elif channel.wraps_at_j is not None:
                assert channel.wraps_at_j > 1000 * channel.resolution
            if channel.same_as is not None:
                other = by_name[channel.same_as]
                assert (other.domain, other.inside, other.same_as) == (
                    channel.domain,
                    channel.inside,
                    None,
                )
                assert other.kind != channel.kind
            outer, depth = channel.inside, 0
            while outer is not None:
                outer, depth = by_name[outer].inside, depth + 1
                assert depth <= len(by_name)


# --- Truth in, readings out ----------------------------------------------------------------------


@each_layout
def test_values_are_read_within_the_resolution(layout: Layout) -> None:
    with machine(layout) as root, closing(open_in(layout, root)) as meter:
        true = values_at(layout, meter.channels, 0.3, 0.0)
        first = read_shown(layout, root, meter, true), true
        for rise in (0.0, 0.5, 1.0):
            true = values_at(layout, meter.channels, 0.3, rise)
            before_ns = time.monotonic_ns()
            reading = read_shown(layout, root, meter, true)
            assert len(reading.values) == len(meter.channels)
            assert reading.time_ns <= time.monotonic_ns()
            # A meter's own stamp may be some microseconds off, as clocks are compared.
            assert reading.time_ns >= before_ns - 10**6 * meter.channels[0].stamped
            check(meter.channels, first, (reading, true))


@each_layout
def test_energies_are_exact_at_any_phase(layout: Layout) -> None:
    # What is read late costs a wait for each value.
    examples, most = (10, 30) if layout.lag_s == 0 else (3, 2)
    with machine(layout) as root:
        with closing(open_in(layout, root)) as meter:
            channels = meter.channels

        @settings(max_examples=examples)
        @given(
            phase=st.floats(0, 5, exclude_max=True),
            rises=st.lists(st.floats(0, 1), min_size=1, max_size=most),
        )
        def are_exact(phase: float, rises: list[float]) -> None:
            def attempt() -> None:
                # A new meter can't know what was shown before it was opened.
                layout.show(root, values_at(layout, channels, phase, 0.0))
                with closing(open_in(layout, root)) as meter:
                    check_rises(layout, root, meter, phase, rises)

            in_time(attempt)

        are_exact()


def check_rises(layout: Layout, root: Path, meter: Meter, phase: float, rises: list[float]) -> None:
    true = values_at(layout, meter.channels, phase, 0.0)
    first, risen = (read_shown(layout, root, meter, true), true), 0.0
    last = first[0]
    for rise in rises:
        risen += rise
        true = values_at(layout, meter.channels, phase, risen)
        reading = read_in_time(meter, last, partial(read_shown, layout, root, meter, true))
        check(meter.channels, first, (reading, true))
        assert reading.time_ns >= last.time_ns
        for channel, before, after in zip(meter.channels, last.values, reading.values, strict=True):
            assert channel.kind == "power" or after >= before
        last = reading


@each_layout_that(lambda layout: layout.wraps)
def test_energies_are_exact_over_several_wraps(layout: Layout) -> None:
    in_time_on_a_machine(layout, check_several_wraps)


def check_several_wraps(layout: Layout, root: Path, meter: Meter) -> None:
    ranges_j = {
        channel.name: channel.wraps_at_j for channel in meter.channels if channel.wraps_at_j
    }
    steps = int(3 * min(ranges_j.values()) / layout.greatest_step_j * len(meter.channels)) + 1
    assert steps <= 2000, "a greater greatest_step_j makes it quick enough for a test"
    true = values_at(layout, meter.channels, 0.9, 0.0)
    layout.show(root, true)
    first = meter.read(), true
    last = first[0]
    for rise in range(1, steps + 1):
        true = values_at(layout, meter.channels, 0.9, rise)
        layout.show(root, true)
        last = read_in_time(meter, last, meter.read)
    check(meter.channels, first, (last, true))
    assert max((true[name] - first[1][name]) / range_j for name, range_j in ranges_j.items()) >= 3


@each_layout_that(lambda layout: layout.from_files)
def test_a_loop_over_descriptors_reads_the_same(layout: Layout) -> None:
    with machine(layout) as root, closing(open_in(layout, root)) as meter:
        assert isinstance(meter, FromFiles)
        for rise in (0.0, 0.4, 0.9):
            layout.show(root, values_at(layout, meter.channels, 0.98, rise))
            reading = meter.read()  # Opens the files that are now in the place of the last ones.
            start_ns = time.monotonic_ns()
            raw = [int(os.pread(descriptor, 64, 0)) for descriptor in meter.descriptors()]
            taken = meter.take(raw, start_ns, time.monotonic_ns())
            assert taken.values == reading.values
            assert taken.time_ns >= start_ns
        meter.close()
        with pytest.raises(MeterError):
            meter.descriptors()
        with pytest.raises(MeterError):
            meter.take(raw, time.monotonic_ns(), time.monotonic_ns())


# --- While it changes ----------------------------------------------------------------------------

WRITER = """
import json, sys, time
from pathlib import Path
from tests.sites.meter_layouts import all_layouts
name, root, energies_j, rates_w, powers_w, duration_s = json.loads(sys.argv[1])
layout = next(one for one in all_layouts() if one.name == name)
log, count, passed_ns = [], 0, 0
print("ready", flush=True)
last_ns = time.monotonic_ns()
end_ns = last_ns + int(duration_s * 1e9)
while last_ns < end_ns or len(log) <= 10:
    before_ns = time.monotonic_ns()
    # A writer that was held up catches up with no jump that its powers could not make.
    passed_ns += min(before_ns - last_ns, 20 * 10**6 + int(layout.update_s * 1e9))
    last_ns, count = before_ns, count + 1
    true = {each: start + rates_w[each] * passed_ns / 1e9 for each, start in energies_j.items()}
    # Powers jump, and rise: an old value is none of those that are shown now.
    level = 0.4 + 0.3 * (count * 7 % 11) / 11 + 0.3 * min(passed_ns / 1e9 / duration_s, 1.0)
    true |= {each: power * level for each, power in powers_w.items()}
    layout.show(Path(root), true)
    log.append([before_ns, time.monotonic_ns(), true])
    time.sleep(layout.update_s)
print(json.dumps(log))
"""


@each_layout
def test_a_writer_replays_values_while_they_are_read(layout: Layout) -> None:
    """No reading is outside what was shown around its time."""
    in_time_on_a_machine(layout, check_while_written)


def check_while_written(layout: Layout, root: Path, meter: Meter) -> None:
    start = values_at(layout, meter.channels, 0.998, 0.0)
    spans: list[tuple[int, Reading, int]] = []

    def read() -> None:
        before_ns = time.monotonic_ns()
        reading = read_in_time(meter, spans[-1][1] if spans else None, meter.read)
        spans.append((before_ns, reading, time.monotonic_ns()))

    read_shown(layout, root, meter, start)
    read()
    log = replay(layout, root, meter.channels, start, read)
    time.sleep(layout.lag_s)
    read()
    compare_with_log(layout, meter.channels, start, spans, log)
    if min(len(log), len(spans)) <= 10:  # other programs had the processors
        raise TooLateError


def replay(
    layout: Layout,
    root: Path,
    channels: tuple[Channel, ...],
    start: Mapping[str, float],
    read: Callable[[], None],
) -> list[tuple[int, int, dict[str, float]]]:
    """Read as fast as possible while the writer runs; returns what was shown, and when."""
    energies = [channel.name for channel in channels if channel.kind == "energy"]
    powers = [channel.name for channel in channels if channel.kind == "power"]
    arguments = [
        layout.name,
        str(root),
        {name: start[name] for name in energies},
        {name: 5 * layout.greatest_step_j / (1 + i) for i, name in enumerate(energies)},
        {name: layout.greatest_power_w / (1 + 0.1 * i) for i, name in enumerate(powers)},
        # The counters that wrap do so within a third of a second.
        0.4 + 2 * layout.lag_s,
    ]
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, json.dumps(arguments)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert writer.stdout is not None
    # A counter may not be left unread for long, so it is read while the writer starts, too.
    output: list[str] = []
    waiter = threading.Thread(target=lambda: output.append(writer.communicate()[0]))
    waiter.start()
    try:
        while waiter.is_alive():
            read()
            time.sleep(layout.lag_s / 50)
    except BaseException:
        writer.kill()
        raise
    finally:
        waiter.join()
    assert writer.returncode == 0
    return [tuple(entry) for entry in json.loads(output[0].removeprefix("ready\n"))]


def compare_with_log(
    layout: Layout,
    channels: tuple[Channel, ...],
    start: Mapping[str, float],
    spans: list[tuple[int, Reading, int]],
    log: list[tuple[int, int, dict[str, float]]],
) -> None:
    first = spans[0][1]
    begun_ns, done_ns = [entry[0] for entry in log], [entry[1] for entry in log]
    shown = [start, *(entry[2] for entry in log)]
    lag_ns = round(layout.lag_s * NS_PER_S)
    for before_ns, reading, after_ns in spans:
        # The last values that were surely shown before, and the last that may have been.
        oldest = bisect_right(done_ns, before_ns - lag_ns)
        newest = bisect_right(begun_ns, after_ns)
        earliest_ns = before_ns
        if channels[0].stamped:
            # Its own time is when it was shown, with some microseconds between two clocks.
            earliest_ns = min(before_ns, begun_ns[oldest - 1] if oldest else 0)
            earliest_ns -= lag_ns + 10**6
        assert earliest_ns <= reading.time_ns <= after_ns
        for index, channel in enumerate(channels):
            value = reading.values[index]
            tolerance = channel.resolution * float(ROUNDED_TWICE)
            if channel.kind == "power":
                around = [state[channel.name] for state in shown[oldest : newest + 1]]
                assert min(abs(value - expected) for expected in around) <= tolerance
            else:
                end_j = shown[newest][channel.name]
                tolerance *= 1 + most_wraps(channel, end_j - start[channel.name])
                rise_j = value - first.values[index]
                assert rise_j >= shown[oldest][channel.name] - start[channel.name] - tolerance
                assert rise_j <= end_j - start[channel.name] + tolerance
    for (_, earlier, _), (_, later, _) in pairwise(spans):
        assert later.time_ns >= earlier.time_ns
        for index, channel in enumerate(channels):
            assert channel.kind == "power" or later.values[index] >= earlier.values[index]


# --- Faults --------------------------------------------------------------------------------------


@each_fault_but("denied")
def test_a_fault_is_an_error_that_says_what_happened_and_how_to_fix_it(
    layout: Layout, fault: str
) -> None:
    with machine(layout) as root, closing(open_in(layout, root)) as meter:
        layout.show(root, values_at(layout, meter.channels, 0.5, 0.0))
        meter.read()
        layout.faults[fault](root)
        with pytest.raises(MeterError) as caught:
            read_for(meter, layout.lag_s)
        check_message(layout, root, caught.value)
        if fault in RESETS:
            # Nothing is guessed later on either.
            layout.show(root, values_at(layout, meter.channels, 0.5, 0.5))
            time.sleep(layout.lag_s)
            with pytest.raises(MeterError):
                meter.read()


def check_message(layout: Layout, root: Path, error: MeterError) -> None:
    assert any(word in error.what for word in (str(root), *layout.named)), error.what
    assert len(error.remedy) > 10


@each_fault_but("denied", *RESETS)  # A meter that is opened later can't know of a reset.
def test_a_fault_before_opening_gives_no_reading(layout: Layout, fault: str) -> None:
    with machine(layout) as root:
        with closing(open_in(layout, root)) as meter:
            layout.show(root, values_at(layout, meter.channels, 0.5, 0.0))
        layout.faults[fault](root)
        time.sleep(layout.lag_s)
        with pytest.raises(MeterError) as caught, closing(open_in(layout, root)) as meter:
            meter.read()
        assert len(caught.value.remedy) > 10


READ_AS_ANOTHER_USER = """
import ctypes, importlib, json, os, subprocess, sys
from pathlib import Path
from sites.meters import METERS, MeterError, open_meter
kind, options, root = json.loads(sys.argv[1])
# The other user may not be able to read this Python.
importlib.import_module(METERS[kind])
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
try:
    print(json.dumps(["read", str(open_meter(kind, options, Path(root)).read())]))
except MeterError as error:
    print(json.dumps([error.what, error.remedy]))
"""


@each_layout_that(lambda layout: "denied" in layout.faults)
def test_the_error_says_how_to_get_permission_to_read(layout: Layout) -> None:
    """Root may read any file, so another user opens the meter, in another process."""
    with machine(layout) as root:
        with closing(open_in(layout, root)) as meter:
            layout.show(root, values_at(layout, meter.channels, 0.5, 0.0))
        layout.faults["denied"](root)
        arguments = json.dumps([layout.kind, dict(layout.options), str(root)])
        done = subprocess.run(
            [sys.executable, "-c", READ_AS_ANOTHER_USER, arguments],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        error = MeterError(*json.loads(done.stdout))
        assert error.what != "read", error.remedy
        check_message(layout, root, error)


@each_layout_that(lambda layout: bool(layout.tree))
def test_an_empty_machine_has_no_meter(layout: Layout, tmp_path: Path) -> None:
    with pytest.raises(MeterError) as caught, closing(open_in(layout, tmp_path)) as meter:
        meter.read()
    assert caught.value.what
    assert len(caught.value.remedy) > 10


@each_layout
def test_a_channel_that_stops_is_noticed(layout: Layout) -> None:
    """Real readings, at the times of sixty nominal periods."""
    with machine(layout) as root, closing(open_in(layout, root)) as meter:
        read_shown(layout, root, meter, values_at(layout, meter.channels, 0.1, 0.0))
        still = [meter.read() for _ in range(60)]
        moving = [
            read_shown(layout, root, meter, values_at(layout, meter.channels, 0.1, index / 60))
            for index in range(60 if layout.lag_s == 0 else 3)
        ]
        for index, channel in enumerate(meter.channels):
            needed_s = max(channel.period_s, 0.01, channel.resolution / 50)
            times_ns = [round(i * needed_s * NS_PER_S) for i in range(60)]
            values = [reading.values[index] for reading in still]
            fine = channel.kind == "energy" or channel.resolution < 1e-3 * values[0]
            said = stopped(channel, times_ns, values)
            assert (said is not None) == fine
            assert said is None or channel.name in said
            values = [reading.values[index] for reading in moving]
            assert stopped(channel, times_ns[: len(values)], values) is None


# --- Closing, and options ------------------------------------------------------------------------


@each_layout
def test_a_closed_meter_is_unreadable(layout: Layout) -> None:
    with machine(layout) as root:
        meter = open_in(layout, root)
        layout.show(root, values_at(layout, meter.channels, 0.1, 0.0))
        meter.read()
        meter.close()
        meter.close()
        with pytest.raises(MeterError) as caught:
            meter.read()
        assert "closed" in caught.value.what
        assert caught.value.remedy


@each_layout
def test_no_file_stays_open(layout: Layout) -> None:
    def opened() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    with machine(layout) as root:
        open_in(layout, root).close()  # What is loaded once, such as a library, may stay.
        before = opened()
        meter = open_in(layout, root)
        for rise in (0.1, 0.2):
            layout.show(root, values_at(layout, meter.channels, 0.1, rise))
            meter.read()
        meter.close()
        assert opened() == before


@each_layout
def test_an_unknown_option_lists_the_known_ones(layout: Layout) -> None:
    options = getattr(import_module(METERS[layout.kind]), "OPTIONS", ())
    with machine(layout) as root:
        with pytest.raises(ValueError, match="no_such_option") as caught:
            open_meter(layout.kind, {**layout.options, "no_such_option": 1}, root)
        for option in options:
            assert option in str(caught.value)
        for wrong, would_do in layout.wrong_options:
            with pytest.raises(ValueError, match=would_do):
                open_meter(layout.kind, {**layout.options, **wrong}, root)
