"""PowerMon 2: eight direct-current rails between a supply and a board, each with V and A.

What is public: D. Bedard, M. Y. Lim, R. Fowler, A. Porterfield, "PowerMon: Fine-grained and
integrated power monitoring for commodity computer systems", IEEE SoutheastCon 2010: eight
channels, each a digital monitor of voltage and current; up to 1,024 samples a second on one
channel and 3,072 in all; a USB serial line to another machine, the logger.

**What is not certain.** The bytes of the firmware are not in that paper, and its host program was
not at hand. So this meter does not speak to the firmware: it reads the stream of text lines
defined in :mod:`sites.meters.shared.powermon_lines`, from a serial device, or from a logger that
relays them at ``tcp://HOST:PORT``. With a board at hand only that module is to be corrected. What
has to be sent to start the stream is the option ``start``.

**Time.** Lines bear the stamps of the logger's clock, which are aligned to CLOCK_MONOTONIC by
:mod:`sites.meters.shared.clock_alignment`: the line of least delay, with drift and uncertainty.
A reading's time never goes back and is never after the arrival of its lines.

**Losses.** The line has no flow control. A garbled line is dropped and counted, and the scan it
belonged to with it: the stamps of the others show the gap. Sixteen garbled lines in turn are an
error (a wrong baud rate looks like that), and so is silence. A thread of its own takes the bytes,
because the system keeps only some kilobytes of them; they are parsed when they are fetched.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from sites.meters.shared.clock_alignment import Alignment, ClockAlignment
from sites.meters.shared.command_output import parse_seconds
from sites.meters.shared.domains import CONTAINS
from sites.meters.shared.meter import Channel, MeterDescription, MeterUnreadable, Reading
from sites.meters.shared.powermon_lines import SENSORS, Scan, ScanReader

ABOUT = MeterDescription(
    kind="powermon",
    reads="the rails of a PowerMon 2, from a serial line or from tcp://HOST:PORT",
    domains="as rails says",
    needs="a PowerMon 2 board, and pyserial for a serial line",
    options={
        "device": "serial device, such as /dev/ttyUSB0",
        "host": "tcp://HOST:PORT of a relay; give either device or host",
        "rails": "table of sensor (0 to 7) = { name, domain, nominal_v }",
        "baud": "baud rate of the serial line (default: 1000000)",
        "start": "ASCII text to send first (default: none)",
        "silence_s": "seconds without a scan after which reading is an error (default: 2)",
    },
    probed=False,
)

RAIL_OPTIONS = ("name", "domain", "nominal_v")
HOST = re.compile(r"tcp://([^:/]+|\[[0-9a-fA-F:.]+\]):(\d{1,5})")
BAUD = 1_000_000
SILENCE_S = 2.0
POLL_S = 0.005
"""How often bytes are taken. A line that waits for it is seen late, but the last of each poll is
not, and the alignment looks at the least delay only."""
MOST_BYTES = 2**26
"""What may wait to be fetched: ten minutes at the highest rate."""
MOST_SCANS = 2**20
"""What may wait to be drained: a quarter of an hour at the highest rate."""
GARBLED_IN_TURN = 16
CLOCK_STEP_NS = 10**9

CHANNEL_HZ, ALL_HZ = 1024.0, 3072.0
RESOLUTION_W = 0.06
"""A step of a current of 12 bits (105.84 mV, ADM1191) across 5 mOhm, at 12 V. Assumed: the paper's
board; other shunts have other steps."""
GAIN_PCT = 4.0
"""Limits of about 7 % on the current, with every value as likely: as remembered from the paper, to
be replaced by a calibration of one's own."""

DEVICE_REMEDY = (
    "plug the board in and name its line in `device` (`ls /dev/serial/by-id`); your user must be "
    "in the group of the device: `sudo usermod -aG dialout $USER`"
)
HOST_REMEDY = "start the relay on the logger, and check `host` and the firewall between"
STREAM_REMEDY = "check the cable, `baud` and `start`; the form of a line is in powermon_lines.py"
CLOCK_REMEDY = "discard the measurement and open it again; stop what sets the clock in steps"
GONE_REMEDY = "discard the measurement, see `dmesg | tail` for the USB line, and open it again"


@dataclass(frozen=True)
class Rail:
    """What a sensor is wired to."""

    name: str
    domain: str
    nominal_v: float | None


@dataclass(frozen=True)
class PowermonOptions:
    """The options, checked."""

    device: str | None
    host: tuple[str, int] | None
    baud: int
    rails: Mapping[int, Rail]
    start: bytes
    silence_s: float


class Line(Protocol):
    """An open stream of bytes."""

    name: str

    def take(self) -> bytes:
        """What came, without waiting; raises OSError where the other end is gone."""

    def send(self, data: bytes) -> None: ...

    def close(self) -> None: ...


def open_meter(root: Path, options: Mapping[str, Any]) -> PowermonMeter:
    """Open the line, start the thread that listens, and wait for the first scan.

    Args:
        root: ``/``, or a tree below which ``device`` lies.
        options: ``rails``: sensor (0 to 7) -> ``domain``, ``name`` and, optional, ``nominal_v``;
            those that are not named are ignored. Either ``device``, such as /dev/ttyUSB0, with
            ``baud`` (1,000,000), or ``host``, such as tcp://logger:7070. ``start``: text that is
            sent first. ``silence_s``: after how long without a scan the stream is lost (2 s).

    Raises:
        MeterUnreadable: the line can't be opened, or brings no scan in time.
        ValueError: an option that there isn't, or that has not its form.
    """
    checked = _parse_options(options)
    line = _open_line(root, checked)
    meter = PowermonMeter(line, checked)
    try:
        if checked.start:
            line.send(checked.start)
        meter.wait_for_scan()
    except BaseException as error:
        meter.close()
        if isinstance(error, OSError):
            raise MeterUnreadable(f"{line.name}: {error}", STREAM_REMEDY) from error
        raise
    return meter


class PowermonMeter:
    """The rails. ``read`` and ``drain`` are for one thread, which is not the listening one."""

    name = "powermon"

    def __init__(self, line: Line, options: PowermonOptions) -> None:
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
        self._line = line
        self._chunks: deque[tuple[bytes, int]] = deque()
        self._waiting_bytes = 0
        self._lock = threading.Lock()
        self._failure: tuple[str, str] | None = None
        self._reader = ScanReader({each: rail.nominal_v for each, rail in options.rails.items()})
        self._clock = ClockAlignment()
        self._scans: deque[Scan] = deque(maxlen=MOST_SCANS)
        self._newest: Scan | None = None
        self._read_ns = self._drained_ns = 0
        self._lost_scans = 0
        self._last_scan_ns = time.monotonic_ns()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="powermon meter", daemon=True)
        self._thread.start()

    @property
    def garbled_lines(self) -> int:
        """How many lines were dropped."""
        return self._reader.garbled

    @property
    def incomplete_scans(self) -> int:
        """How many scans were dropped for a sensor that was missing in them."""
        return self._reader.incomplete

    def alignment(self) -> Alignment:
        """How the logger's clock stands to this machine's, by what was fetched until now."""
        return self._clock.current()

    def wait_for_scan(self) -> None:
        """Wait for the first scan; raises MeterUnreadable where it does not come in time."""
        while self._newest is None:
            self._fetch()
            self._stop.wait(POLL_S)

    def read(self) -> Reading:
        """The newest scan, in W; it stays among those that ``drain`` returns.

        Raises:
            MeterUnreadable: the line is lost, silent or speaks otherwise, or the meter is closed.
        """
        self._fetch()
        assert self._newest is not None  # noqa: S101  (open_meter waited for it)
        reading = self._reading(self._newest, self._read_ns)
        self._read_ns = reading.time_ns
        return reading

    def drain(self) -> list[Reading]:
        """All scans since the last call, by the alignment known now; raises as ``read``."""
        self._fetch()
        scans, self._scans = self._scans, deque(maxlen=MOST_SCANS)
        lost, self._lost_scans = self._lost_scans, 0
        if lost:
            raise MeterUnreadable(
                f"{self._line.name}: {lost} scans were never fetched", "fetch them every minute"
            )
        readings = []
        for scan in scans:
            readings.append(self._reading(scan, self._drained_ns))
            self._drained_ns = readings[-1].time_ns
        return readings

    def close(self) -> None:
        """Close the line; again does nothing."""
        self._stop.set()
        self._thread.join()
        self._line.close()

    def _reading(self, scan: Scan, last_ns: int) -> Reading:
        time_ns = min(self._clock.current().monotonic_ns(scan.stamp_s), scan.arrived_ns)
        # An alignment that became better must not make time go back.
        return Reading(max(time_ns, last_ns), scan.watts)

    def _fetch(self) -> None:
        """Parse what came."""
        if self._stop.is_set():
            raise MeterUnreadable("the powermon meter is closed", "open it again")
        with self._lock:
            chunks, self._chunks, self._waiting_bytes = self._chunks, deque(), 0
            failure = self._failure
        known = None if self._newest is None else self._clock.current()
        for data, arrived_ns in chunks:
            for scan in self._reader.take(data, arrived_ns):
                if self._is_of_another_clock(scan, known):
                    failure = (f"{self._line.name}: the logger's clock was set", CLOCK_REMEDY)
                    self._failure = failure
                    break
                self._clock.add(scan.stamp_s, scan.arrived_ns)
                self._lost_scans += len(self._scans) == MOST_SCANS
                self._scans.append(scan)
                self._newest, self._last_scan_ns = scan, arrived_ns
        if failure is not None:
            raise MeterUnreadable(*failure)
        if self._reader.garbled_in_turn >= GARBLED_IN_TURN:
            raise MeterUnreadable(
                f"{self._line.name}: {self._reader.garbled_in_turn} lines in turn make no sense",
                STREAM_REMEDY,
            )
        silent_s = (time.monotonic_ns() - self._last_scan_ns) / 1e9
        if silent_s > self._silence_s:
            raise MeterUnreadable(
                f"{self._line.name} brought no scan of all rails for {silent_s:.3g} s",
                STREAM_REMEDY,
            )

    def _is_of_another_clock(self, scan: Scan, known: Alignment | None) -> bool:
        """Whether its stamp goes back, or lies so far ahead that no least delay explains it."""
        if known is None or self._newest is None:
            return False
        ahead_ns = known.monotonic_ns(scan.stamp_s) - scan.arrived_ns
        return scan.stamp_s <= self._newest.stamp_s or ahead_ns > CLOCK_STEP_NS

    def _listen(self) -> None:
        while not self._stop.wait(POLL_S):
            try:
                data = self._line.take()
            except OSError as error:
                with self._lock:
                    self._failure = (f"{self._line.name} is lost: {error}", GONE_REMEDY)
                return
            if not data:
                continue
            with self._lock:
                self._chunks.append((data, time.monotonic_ns()))
                self._waiting_bytes += len(data)
                if self._waiting_bytes > MOST_BYTES:
                    self._failure = (
                        f"{self._line.name}: {self._waiting_bytes} bytes were never fetched",
                        "fetch them at least every minute",
                    )
                    return


class SerialLine:
    """A serial device, opened by pyserial."""

    def __init__(self, path: str, baud: int) -> None:
        import serial  # noqa: PLC0415

        self.name = path
        self._serial = serial.Serial(path, baud, timeout=0, exclusive=True)

    def take(self) -> bytes:
        # An adapter that was pulled out is readable and gives nothing: pyserial raises for it.
        return bytes(self._serial.read(max(1, self._serial.in_waiting)))

    def send(self, data: bytes) -> None:
        self._serial.write(data)

    def close(self) -> None:
        self._serial.close()


class SocketLine:
    """A relay on another host."""

    def __init__(self, host: str, port: int) -> None:
        self.name = f"tcp://{host}:{port}"
        self._socket = socket.create_connection((host, port), timeout=10)
        self._socket.setblocking(False)

    def take(self) -> bytes:
        with contextlib.suppress(BlockingIOError):
            data = self._socket.recv(2**16)
            if not data:
                raise ConnectionResetError("the logger closed the connection")
            return data
        return b""

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def close(self) -> None:
        self._socket.close()


def _open_line(root: Path, options: PowermonOptions) -> Line:
    if options.host is not None:
        try:
            return SocketLine(*options.host)
        except OSError as error:
            shown = "tcp://{}:{}".format(*options.host)
            raise MeterUnreadable(f"{shown}: {error}", HOST_REMEDY) from error
    path = root / str(options.device).lstrip("/")
    try:
        return SerialLine(str(path), options.baud)
    except ImportError as error:
        raise MeterUnreadable(
            "the Python package pyserial is missing", "pip install 'dvfs-campaign[serial]'"
        ) from error
    except OSError as error:  # pyserial's own error is one
        raise MeterUnreadable(f"{path} can't be opened: {error}", DEVICE_REMEDY) from error


def _parse_options(options: Mapping[str, Any]) -> PowermonOptions:
    ABOUT.check_options(options)
    device, host = options.get("device"), options.get("host")
    if (device is None) == (host is None):
        raise ValueError("powermon takes either device, as /dev/ttyUSB0, or host, as tcp://a:7070")
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
        raise ValueError(f"start is a text in ASCII that is sent first, not {start!r}")
    return PowermonOptions(
        device=device,
        host=address,
        baud=baud,
        rails=_parse_rails(options.get("rails")),
        start=start.encode("ascii"),
        silence_s=parse_seconds(options, "silence_s") or SILENCE_S,
    )


def _parse_rails(value: Any) -> dict[int, Rail]:
    if not isinstance(value, Mapping) or not value:
        raise ValueError(
            'rails is a table of sensors such as 0 = {name = "cpu-12v", domain = "package"}, '
            f"not {value!r}"
        )
    rails = {}
    for sensor, entry in value.items():
        if not str(sensor).isdigit() or int(sensor) >= SENSORS:
            raise ValueError(f"{sensor!r} in rails is no sensor: they are 0 to {SENSORS - 1}")
        is_table = isinstance(entry, Mapping) and {"name", "domain"} <= set(entry)
        if not is_table or set(entry) - set(RAIL_OPTIONS):
            raise ValueError(f"rail {sensor} has {', '.join(RAIL_OPTIONS)}, not {entry!r}")
        name, domain, nominal_v = entry["name"], entry["domain"], entry.get("nominal_v")
        if not isinstance(name, str) or not name:
            raise ValueError(f"the name of rail {sensor} is a text such as cpu-12v, not {name!r}")
        if domain not in CONTAINS:
            raise ValueError(f"the domain of rail {sensor} is one of {', '.join(CONTAINS)}")
        if nominal_v is not None and (
            isinstance(nominal_v, bool) or not isinstance(nominal_v, int | float) or nominal_v <= 0
        ):
            raise ValueError(f"nominal_v of rail {sensor} is volts above 0, not {nominal_v!r}")
        rails[int(sensor)] = Rail(name, domain, nominal_v)
    if len({rail.name for rail in rails.values()}) < len(rails):
        raise ValueError("two rails have the same name: give each its own")
    return dict(sorted(rails.items()))
