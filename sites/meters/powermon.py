"""PowerMon 2: eight direct-current rails between a supply and a board, each with V and A.

What is public: D. Bedard, M. Y. Lim, R. Fowler, A. Porterfield, "PowerMon: Fine-grained and
integrated power monitoring for commodity computer systems", IEEE SoutheastCon 2010: eight
channels, each a digital monitor of voltage and current; up to 1,024 samples a second on one
channel and 3,072 in all; a USB serial line to another machine, the logger.

**Assumptions.** The firmware's byte format is not in that paper, and its host program was not
available. So this meter reads the stream of text lines that
:mod:`sites.meters.shared.powermon_lines` defines, from a serial device or from a logger that relays
them at ``tcp://HOST:PORT``. If a real board differs, only that module must be corrected. The
option ``start`` is the text that starts the stream.

**Time.** Lines have time stamps of the logger's clock, which
:mod:`sites.meters.shared.clock_alignment` aligns to CLOCK_MONOTONIC. The times of readings never
decrease, and are never after the arrival of their lines.

**Losses.** The serial line has no flow control. A garbled line is dropped together with its scan;
the time stamps of the other scans show the gap. Sixteen garbled lines in a row are an error (a
wrong baud rate causes them), and so is silence; both messages give the number of dropped lines. A
thread receives the bytes, because the system buffers only a few kilobytes; they are parsed when
they are fetched.
"""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sites.described_options import seconds_option
from sites.meters.shared.byte_streams import ByteStream, SerialStream, SocketStream
from sites.meters.shared.clock_alignment import Alignment, ClockAlignment
from sites.meters.shared.meter import CONTAINS, Channel, MeterDescription, MeterError, Reading
from sites.meters.shared.powermon_lines import SENSORS, Scan, ScanReader

ABOUT = MeterDescription(
    kind="powermon",
    reads="the rails of a PowerMon 2",
    domains="as rails says",
    needs="the board; pyserial for a serial line",
    options={
        "device": "such as /dev/ttyUSB0",
        "host": "or tcp://HOST:PORT of a relay",
        "rails": "sensor (0 to 7) = { name, domain, nominal_v }",
        "baud": "baud rate (default: 1000000)",
        "start": "text to send first",
        "silence_s": "seconds without a scan that are an error (default: 2)",
    },
    probed=False,
)

RAIL_OPTIONS = ("name", "domain", "nominal_v")
HOST = re.compile(r"tcp://([^:/]+|\[[0-9a-fA-F:.]+\]):(\d{1,5})")
BAUD = 1_000_000
SILENCE_S = 2.0
POLL_S = 0.005
"""The time between two receptions. Most lines of a reception have waited, but the last has not, and
the clock alignment uses only the least delay."""
MOST_BYTES = 2**26
"""The most bytes that are buffered until they are fetched: ten minutes at the highest rate."""
MOST_SCANS = 2**20
"""The most scans that are buffered until they are drained: 15 minutes at the highest rate."""
MOST_GARBLED_LINES = 16
CLOCK_STEP_NS = 10**9

CHANNEL_HZ, ALL_HZ = 1024.0, 3072.0
RESOLUTION_W = 0.06
"""One step of the 12-bit current (105.84 mV, ADM1191) across 5 mOhm, at 12 V. Assumed: the paper's
board. Other shunts have other steps."""
GAIN_PCT = 4.0
"""Assumed: an error of the current uniformly distributed within 7 %. Calibrate your own board."""

DEVICE_REMEDY = (
    "connect the board and name its serial device in `device` (`ls /dev/serial/by-id`); your user "
    "must be in the group of the device: `sudo usermod -aG dialout $USER`"
)
HOST_REMEDY = "start the relay on the logger, and check `host` and any firewall"
STREAM_REMEDY = "check the cable, `baud` and `start`; powermon_lines.py describes a line"
CLOCK_REMEDY = "discard the measurement and open the meter again; do not let the clock step"
GONE_REMEDY = "discard the measurement, check `dmesg | tail`, and open the meter again"


@dataclass(frozen=True)
class SensorRail:
    """The supply rail that a sensor is wired to."""

    name: str
    domain: str
    nominal_v: float | None


@dataclass(frozen=True)
class PowermonOptions:
    """The options, checked."""

    device: str | None
    host: tuple[str, int] | None
    baud: int
    rails: Mapping[int, SensorRail]
    start: bytes
    silence_s: float


def open_meter(root: Path, options: Mapping[str, Any]) -> PowermonMeter:
    """Open the stream, start the thread that receives it, and wait for the first scan.

    Sensors that ``rails`` does not name are ignored.
    """
    checked = parse_options(options)
    stream = _open_stream(root, checked)
    meter = PowermonMeter(stream, checked)
    try:
        if checked.start:
            stream.send(checked.start)
        meter.wait_for_scan()
    except BaseException as error:
        meter.close()
        if isinstance(error, OSError):
            raise MeterError(f"{stream.name}: {error}", STREAM_REMEDY) from error
        raise
    return meter


class PowermonMeter:
    """The rails. Call ``read`` and ``drain`` from one thread only."""

    name = "powermon"

    def __init__(self, stream: ByteStream, options: PowermonOptions) -> None:
        period_s = max(1 / CHANNEL_HZ, len(options.rails) / ALL_HZ)
        self.channels = tuple(
            Channel(
                name=rail.name,
                domain=rail.domain,
                kind="power",
                resolution=RESOLUTION_W,
                period_s=period_s,
                stamped=True,
                gain_pct=GAIN_PCT,
            )
            for rail in options.rails.values()
        )
        self._silence_s = options.silence_s
        self._stream = stream
        self._chunks: deque[tuple[bytes, int]] = deque()
        self._waiting_bytes = 0
        self._lock = threading.Lock()
        self._failure: tuple[str, str] | None = None
        self._reader = ScanReader(
            {sensor: rail.nominal_v for sensor, rail in options.rails.items()}
        )
        self._clock = ClockAlignment()
        self._scans: deque[Scan] = deque(maxlen=MOST_SCANS)
        self._newest: Scan | None = None
        self._read_ns = self._drained_ns = 0
        self._lost_scans = 0
        self._last_scan_ns = time.monotonic_ns()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._receive, name="powermon meter", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> tuple[int, int]:
        """(garbled lines, incomplete scans) that were dropped since the meter was opened."""
        return self._reader.garbled, self._reader.incomplete

    def alignment(self) -> Alignment:
        """The alignment of the logger's clock to this machine's, from the scans fetched so far."""
        return self._clock.current()

    def wait_for_scan(self) -> None:
        """Wait for the first scan; raises MeterError if it does not come in time."""
        while self._newest is None:
            self._fetch()
            self._stop.wait(POLL_S)

    def read(self) -> Reading:
        """The newest scan, in W; ``drain`` returns it too.

        Raises:
            MeterError: the stream is lost, silent or garbled, or the meter is closed.
        """
        self._fetch()
        assert self._newest is not None  # noqa: S101  (open_meter waited for it)
        reading = self._reading(self._newest, self._read_ns)
        self._read_ns = reading.time_ns
        return reading

    def drain(self) -> list[Reading]:
        """All scans since the last call, timed by the present alignment; raises as ``read``."""
        self._fetch()
        scans, self._scans = self._scans, deque(maxlen=MOST_SCANS)
        lost, self._lost_scans = self._lost_scans, 0
        if lost:
            raise MeterError(
                f"{self._stream.name}: {lost} scans were lost because they were not read in time",
                "measure again",
            )
        readings = []
        for scan in scans:
            readings.append(self._reading(scan, self._drained_ns))
            self._drained_ns = readings[-1].time_ns
        return readings

    def close(self) -> None:
        """Close the stream; closing again does nothing."""
        self._stop.set()
        self._thread.join()
        self._stream.close()

    def _reading(self, scan: Scan, last_ns: int) -> Reading:
        time_ns = min(self._clock.current().monotonic_ns(scan.stamp_s), scan.arrived_ns)
        # A better alignment must not make time go back.
        return Reading(max(time_ns, last_ns), scan.watts)

    def _fetch(self) -> None:
        """Parse the received bytes."""
        if self._stop.is_set():
            raise MeterError("internal error: the powermon meter is closed", "please report it")
        with self._lock:
            chunks, self._chunks, self._waiting_bytes = self._chunks, deque(), 0
            failure = self._failure
        alignment = None if self._newest is None else self._clock.current()
        for data, arrived_ns in chunks:
            for scan in self._reader.take(data, arrived_ns):
                if self._clock_was_set(scan, alignment):
                    failure = (f"{self._stream.name}: the logger's clock was set", CLOCK_REMEDY)
                    self._failure = failure
                    break
                self._clock.add(scan.stamp_s, scan.arrived_ns)
                self._lost_scans += len(self._scans) == MOST_SCANS
                self._scans.append(scan)
                self._newest, self._last_scan_ns = scan, arrived_ns
        if failure is not None:
            raise MeterError(*failure)
        if self._reader.garbled_in_a_row >= MOST_GARBLED_LINES:
            raise MeterError(
                f"{self._stream.name}: {self._reader.garbled_in_a_row} lines in a row are garbled "
                + self._losses(),
                STREAM_REMEDY,
            )
        silent_s = (time.monotonic_ns() - self._last_scan_ns) / 1e9
        if silent_s > self._silence_s:
            raise MeterError(
                f"{self._stream.name} sent no complete scan for {silent_s:.3g} s " + self._losses(),
                STREAM_REMEDY,
            )

    def _losses(self) -> str:
        lines, scans = self.dropped
        return f"({lines} garbled lines and {scans} incomplete scans dropped since it was opened)"

    def _clock_was_set(self, scan: Scan, alignment: Alignment | None) -> bool:
        """Whether the scan's stamp decreases, or is further ahead than a delay can explain."""
        if alignment is None or self._newest is None:
            return False
        ahead_ns = alignment.monotonic_ns(scan.stamp_s) - scan.arrived_ns
        return scan.stamp_s <= self._newest.stamp_s or ahead_ns > CLOCK_STEP_NS

    def _receive(self) -> None:
        while not self._stop.wait(POLL_S):
            try:
                data = self._stream.take()
            except OSError as error:
                with self._lock:
                    self._failure = (f"{self._stream.name} is lost: {error}", GONE_REMEDY)
                return
            if not data:
                continue
            with self._lock:
                self._chunks.append((data, time.monotonic_ns()))
                self._waiting_bytes += len(data)
                if self._waiting_bytes > MOST_BYTES:
                    self._failure = (
                        f"{self._stream.name}: {self._waiting_bytes} bytes were not read in time",
                        "measure again",
                    )
                    return


def _open_stream(root: Path, options: PowermonOptions) -> ByteStream:
    if options.host is not None:
        try:
            return SocketStream(*options.host)
        except OSError as error:
            address = "tcp://{}:{}".format(*options.host)
            raise MeterError(f"{address}: {error}", HOST_REMEDY) from error
    path = root / str(options.device).lstrip("/")
    try:
        return SerialStream(str(path), options.baud)
    except ImportError as error:
        raise MeterError(
            "the Python package pyserial is missing", "install it with `pip install pyserial`"
        ) from error
    except OSError as error:  # pyserial's own error is a subclass
        raise MeterError(f"{path} cannot be opened: {error}", DEVICE_REMEDY) from error


def parse_options(options: Mapping[str, Any]) -> PowermonOptions:
    device, host = options.get("device"), options.get("host")
    if (device is None) == (host is None):
        raise ValueError(
            "powermon needs either device, such as /dev/ttyUSB0, or host, such as tcp://a:7070"
        )
    if device is not None and not (isinstance(device, str) and device.strip("/")):
        raise ValueError(f"device is a path such as /dev/ttyUSB0, not {device!r}")
    address = None
    if host is not None:
        match = HOST.fullmatch(host) if isinstance(host, str) else None
        if match is None or not 0 < int(match[2]) < 65536:
            raise ValueError(f"host is an address such as tcp://logger:7070, not {host!r}")
        address = (match[1].strip("[]"), int(match[2]))
    baud = options.get("baud", BAUD)
    if isinstance(baud, bool) or not isinstance(baud, int) or baud < 1:
        raise ValueError(f"baud is a whole number such as {BAUD}, not {baud!r}")
    start = options.get("start", "")
    if not isinstance(start, str) or not start.isascii():
        raise ValueError(f"start is an ASCII text, not {start!r}")
    return PowermonOptions(
        device=device,
        host=address,
        baud=baud,
        rails=_parse_rails(options.get("rails")),
        start=start.encode("ascii"),
        silence_s=seconds_option(options, "silence_s", SILENCE_S),
    )


def _parse_rails(value: Any) -> dict[int, SensorRail]:
    if not isinstance(value, Mapping) or not value:
        raise ValueError(
            'rails is a table of sensors such as 0 = {name = "cpu-12v", domain = "package"}, '
            f"not {value!r}"
        )
    rails = {}
    for sensor, entry in value.items():
        if not str(sensor).isdigit() or int(sensor) >= SENSORS:
            raise ValueError(f"{sensor!r} in rails is not a sensor; sensors are 0 to {SENSORS - 1}")
        is_table = isinstance(entry, Mapping) and {"name", "domain"} <= set(entry)
        if not is_table or set(entry) - set(RAIL_OPTIONS):
            raise ValueError(
                f"rail {sensor} is a table of {', '.join(RAIL_OPTIONS)}, not {entry!r}"
            )
        name, domain, nominal_v = entry["name"], entry["domain"], entry.get("nominal_v")
        if not isinstance(name, str) or not name:
            raise ValueError(f"the name of rail {sensor} is a text such as cpu-12v, not {name!r}")
        if domain not in CONTAINS:
            raise ValueError(f"the domain of rail {sensor} is one of {', '.join(CONTAINS)}")
        if nominal_v is not None and (
            isinstance(nominal_v, bool) or not isinstance(nominal_v, int | float) or nominal_v <= 0
        ):
            raise ValueError(f"nominal_v of rail {sensor} is volts above 0, not {nominal_v!r}")
        rails[int(sensor)] = SensorRail(name, domain, nominal_v)
    if len({rail.name for rail in rails.values()}) < len(rails):
        raise ValueError("two rails have the same name; give each its own")
    return dict(sorted(rails.items()))
