"""PowerMon 2: lines and scans, the logger's clock, and a program on a pseudo-terminal."""

from __future__ import annotations

import random
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sites.meters import Buffered, MeterError, open_meter
from sites.meters.powermon import PowermonMeter
from sites.meters.shared.clock_alignment import ClockAlignment
from sites.meters.shared.powermon_lines import ScanReader, parse_line
from tests.sites.meter_layouts.layout import copied
from tests.sites.meter_layouts.powermon import DEVICE, FOLDER, RAILS, break_with, playing_stream
from tests.sites.powermon_program import line_of
from tests.waiting import wait_until

TREES = Path(__file__).parent.parent / "trees"
OPTIONS = {"device": f"/{DEVICE}", "rails": RAILS}


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    copied("powermon-2-rails", tmp_path)
    with playing_stream(tmp_path):
        yield tmp_path


def open_powermon(root: Path, **options: object) -> PowermonMeter:
    meter = open_meter("powermon", {**OPTIONS, **options}, root)
    assert isinstance(meter, PowermonMeter)
    return meter


# --- Lines and scans -----------------------------------------------------------------------------


def test_a_line_with_and_without_its_checksum() -> None:
    line = line_of(12.25, 3, 12.041, 1.5).rstrip(b"\n")
    sample = parse_line(line)
    assert sample is not None
    assert (sample.stamp_s, sample.sensor, sample.volts, sample.amperes) == (12.25, 3, 12.041, 1.5)
    assert sample.has_checksum
    plain = parse_line(line.partition(b"*")[0].replace(b" ", b", "))
    assert plain is not None
    assert not plain.has_checksum


@given(st.data())
def test_no_lost_or_changed_byte_is_read(data: st.DataObject) -> None:
    line = line_of(data.draw(st.floats(0, 1e6)), 2, data.draw(st.floats(0, 26)), 1.5)[:-1]
    at = data.draw(st.integers(0, len(line) - 1))
    assert parse_line(line) is not None
    lost = ScanReader({2: None})
    lost.take(b"\n" + line + b"\n", 0)
    assert lost.take(line[:at] + line[at + 1 :] + b"\n", 0) == []
    changed = data.draw(st.integers(0, 255).filter(lambda byte: byte != line[at]))
    # Digits of the sum may change their case, and a separator may be another one.
    damaged = line[:at] + bytes([changed]) + line[at + 1 :]
    if damaged.upper() != line.upper():
        assert lost.take(damaged.replace(b"\n", b"?") + b"\n", 0) == []


@given(st.integers(1, 60), st.randoms(use_true_random=False))
def test_bytes_cut_anywhere_give_the_same_scans(pieces: int, chance: random.Random) -> None:
    stream = b"".join(
        line_of(i / 100, sensor, 12.0, i + sensor) for i in range(20) for sensor in (0, 3, 5)
    )
    cuts = sorted(chance.randrange(len(stream)) for _ in range(pieces))
    reader = ScanReader({0: None, 3: None})
    scans = reader.take(b"half a line\n", 0)
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        scans += reader.take(stream[start:end], end)
    assert [scan.watts for scan in scans] == [(12.0 * i, 12.0 * (i + 3)) for i in range(20)]
    assert [scan.stamp_s for scan in scans] == [i / 100 for i in range(20)]
    assert (reader.garbled, reader.incomplete) == (0, 0)


def test_a_scan_without_one_of_its_sensors_is_dropped() -> None:
    reader = ScanReader({0: None, 3: None})
    stream = [line_of(1.0, 0, 1, 1), line_of(1.0, 3, 1, 2), line_of(2.0, 0, 1, 3)]
    stream += [line_of(3.0, 0, 1, 4), line_of(3.0, 3, 1, 5)]
    scans = reader.take(b"\n" + b"".join(stream), 0)
    assert [scan.watts for scan in scans] == [(1.0, 2.0), (4.0, 5.0)]
    assert reader.incomplete == 1


def test_a_voltage_far_from_the_nominal_one_is_dropped() -> None:
    reader = ScanReader({0: 12.0})
    assert reader.take(b"\n1.0 0 2.0410 1.0\n2.0 0 12.0410 1.0\n", 0)[0].watts == (12.041,)
    assert reader.garbled == 1


def test_after_a_line_with_a_checksum_one_without_is_refused() -> None:
    reader = ScanReader({0: None})
    assert len(reader.take(b"\n" + line_of(1, 0, 1, 1) + b"1.1 0 1.0 1.0\n", 0)) == 1
    assert reader.garbled == 1


# --- The other clock -----------------------------------------------------------------------------


@pytest.mark.parametrize("drift_ppm", [-80.0, 0.0, 30.0])
@pytest.mark.parametrize("length_s", [20, 600])
def test_offset_and_drift_are_found_under_random_delays(drift_ppm: float, length_s: int) -> None:
    """Delays of at least 0.3 ms, some of many ms, as a scheduler makes them."""
    chance = random.Random(5)
    alignment = ClockAlignment()
    offset_s, least_s = 1234.5, 0.0003
    for i in range(length_s * 50):
        true_s = 50 + i / 50
        stamp_s = (true_s - offset_s) / (1 + drift_ppm * 1e-6) + 2000
        delay_s = least_s + chance.expovariate(1 / 0.002)
        alignment.add(stamp_s, round((true_s + delay_s) * 1e9))
    clock = alignment.current()
    assert clock.drift_ppm == pytest.approx(drift_ppm, abs=200 / min(length_s, 300))
    for at_s in (true_s - 15, true_s):
        stamp_s = (at_s - offset_s) / (1 + drift_ppm * 1e-6) + 2000
        error_s = clock.monotonic_ns(stamp_s) / 1e9 - at_s - least_s
        assert abs(error_s) < 0.0005


def test_a_short_stream_takes_no_drift() -> None:
    alignment = ClockAlignment()
    for i in range(50):
        alignment.add(i / 10, 10**9 + i * 10**8 + (i % 7) * 10**6)
    clock = alignment.current()
    assert (clock.offset_ns, clock.drift_ppm) == (10**9, 0.0)
    with pytest.raises(ValueError, match="no message"):
        ClockAlignment().current()


# --- On a line -----------------------------------------------------------------------------------


def test_scans_have_times_of_this_machine(root: Path) -> None:
    (root / FOLDER / "clock").write_text("12345.5 1.0")
    before_ns = time.monotonic_ns()
    meter = open_powermon(root)
    assert isinstance(meter, Buffered)
    assert [(channel.name, channel.domain) for channel in meter.channels] == [
        ("cpu-12v", "package"),
        ("gpu-12v", "gpu"),
    ]
    time.sleep(0.5)
    latest = meter.read()
    readings = meter.drain()
    assert any(abs(reading.time_ns - latest.time_ns) < 10**6 for reading in readings)
    assert len(readings) > 20
    assert {reading.values for reading in readings} == {(60.0, 108.0)}
    times_ns = [reading.time_ns for reading in readings]
    assert times_ns == sorted(set(times_ns))
    assert before_ns - 10**7 < times_ns[0] < times_ns[-1] <= time.monotonic_ns()
    assert meter.alignment().offset_ns == pytest.approx(-12345.5e9, abs=20e6)
    time.sleep(0.1)
    assert meter.drain()[0].time_ns > times_ns[-1]
    # A machine that holds this process up for long loses a line or two, as on a real one.
    assert sum(meter.dropped) < len(readings) / 10
    meter.close()


@pytest.mark.parametrize("fault", ["drop", "garble"])
def test_damaged_lines_lose_scans_and_change_no_value(root: Path, fault: str) -> None:
    meter = open_powermon(root)
    break_with(root, fault)
    wait_until(lambda: meter.read() is not None and meter.dropped[0] > 10, 10.0)
    readings = meter.drain()
    assert {reading.values for reading in readings} == {(60.0, 108.0)}
    assert meter.dropped[1] > 0
    meter.close()


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("hang up", "is lost.*discard"),
        ("silent", "no complete scan"),
        ("garbage", r"in a row are garbled \([0-9]+ garbled lines and [0-9]+ incomplete scans"),
    ],
)
def test_a_lost_line_is_an_error(root: Path, fault: str, said: str) -> None:
    meter = open_powermon(root)
    break_with(root, fault)

    def fails() -> bool:
        try:
            meter.drain()
        except MeterError as error:
            assert str(root / DEVICE) in error.what
            assert re.search(said, str(error))
            return True
        return False

    wait_until(fails, 10.0)
    meter.close()


def test_a_clock_that_is_set_is_an_error(root: Path) -> None:
    meter = open_powermon(root)
    (root / FOLDER / "clock").write_text("30 1")
    until_s = time.monotonic() + 20.0
    with pytest.raises(MeterError, match="clock was set"):
        while time.monotonic() < until_s:
            meter.read()
            time.sleep(0.02)
    with pytest.raises(MeterError, match="clock was set"):
        meter.read()
    meter.close()


def test_a_rail_without_samples_is_an_error_in_time(root: Path) -> None:
    rails = {**RAILS, "5": {"name": "board", "domain": "board"}}
    with pytest.raises(MeterError, match=r"no complete scan.*baud"):
        open_powermon(root, rails=rails, silence_s=0.3)


def test_no_device(tmp_path: Path) -> None:
    with pytest.raises(MeterError, match=r"ttyUSB0 cannot be opened.*dialout"):
        open_powermon(tmp_path)


def test_a_logger_on_another_host(tmp_path: Path) -> None:
    """A relay on a socket, which receives the start text and closes the connection at the end."""
    server = socket.create_server(("127.0.0.1", 0))
    received = []

    def relay() -> None:
        connection, _ = server.accept()
        with connection:
            received.append(connection.recv(100))
            for _ in range(60):
                stamp_s = time.monotonic() + 77
                connection.sendall(b"# remark\n" + line_of(stamp_s, 1, 5.0, 2.0))
                time.sleep(0.005)

    thread = threading.Thread(target=relay)
    thread.start()
    options = {
        "host": f"tcp://127.0.0.1:{server.getsockname()[1]}",
        "rails": {"1": {"name": "drive", "domain": "board", "nominal_v": 5}},
        "start": "go\n",
    }
    meter = open_meter("powermon", options, tmp_path)
    assert meter.read().values == (10.0,)
    thread.join()
    server.close()
    time.sleep(0.1)
    with pytest.raises(MeterError, match="other end closed the connection"):
        meter.read()
    meter.close()
    assert received == [b"go\n"]
    with pytest.raises(MeterError, match=r"tcp://127.0.0.1:\d+.*relay"):
        open_meter("powermon", options, tmp_path)
