"""The lines of a PowerMon 2 logger, and the scans that they form. Correct the format here.

A line is one sample of one sensor: ``TIME SENSOR VOLTS AMPERES``, in ASCII, separated by spaces or
commas and ended by a newline: ``12.003906 3 12.0410 1.0234``. TIME is seconds of the logger's
clock since any instant; SENSOR is 0 to 7. A line may end in a checksum ``*HH``, the exclusive or of
all bytes before the ``*`` in hexadecimal, as in NMEA 0183. After the first line with a checksum, a
line without one is refused. Lines that start with ``#`` are comments.

Without a checksum, a lost byte may leave a valid line: ``2.0410`` for ``12.0410``. The rail's
nominal voltage detects some of these errors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

SENSORS = 8
VOLTS_OFF = 0.25
"""The largest deviation from a rail's nominal voltage, as a share: supplies stay within it."""
NUMBER = rb"\d{1,12}\.\d{1,9}"
LINE = re.compile(
    rb"(" + NUMBER + rb")[ ,]+([0-7])[ ,]+(" + NUMBER + rb")[ ,]+(" + NUMBER + rb")"
    rb"(?:\*([0-9A-Fa-f]{2}))?\r?"
)


@dataclass(frozen=True)
class Sample:
    """One line."""

    stamp_s: float
    """By the logger's clock."""
    sensor: int
    volts: float
    amperes: float
    has_checksum: bool


@dataclass(frozen=True)
class Scan:
    """One sample of each sensor."""

    stamp_s: float
    """The mean of the samples' stamps, by the logger's clock."""
    arrived_ns: int
    """CLOCK_MONOTONIC, when the last of its lines had arrived."""
    watts: tuple[float, ...]


def parse_line(line: bytes) -> Sample | None:
    """The sample in a line without its newline; None if its form or its checksum is wrong."""
    match = LINE.fullmatch(line)
    if match is None:
        return None
    stamp, sensor, volts, amperes, check = match.groups()
    if check is not None:
        checksum = 0
        for byte in line[: line.rindex(b"*")]:
            checksum ^= byte
        if checksum != int(check, 16):
            return None
    return Sample(float(stamp), int(sensor), float(volts), float(amperes), check is not None)


class ScanReader:
    """Turns bytes into scans.

    Args:
        nominal_v: sensor -> its rail's nominal voltage, or None. A scan is one sample of each of
            these sensors; others are ignored.
    """

    def __init__(self, nominal_v: Mapping[int, float | None]) -> None:
        self.garbled = 0
        """Lines that were dropped because they were not valid."""
        self.garbled_in_a_row = 0
        """Invalid lines since the last valid one."""
        self.incomplete = 0
        """Scans that were dropped because a sensor was missing."""
        self._nominal_v = dict(nominal_v)
        self._rest: bytes | None = None
        """The start of a line; None before the first newline: reading may start within a line."""
        self._needs_checksum = False
        self._has_scanned = False
        self._samples: dict[int, Sample] = {}
        self._last: Sample | None = None

    def take(self, data: bytes, arrived_ns: int) -> list[Scan]:
        """The scans that these bytes complete."""
        if self._rest is None:
            _, newline, data = data.partition(b"\n")
            if not newline:
                return []
        *lines, self._rest = ((self._rest or b"") + data).split(b"\n")
        # Input without newlines, such as another protocol, must not fill memory.
        if len(self._rest) > 256:
            self._count_garbled()
            self._rest = b""
        scans = []
        for line in lines:
            scan = self._take_line(line, arrived_ns)
            if scan is not None:
                scans.append(scan)
        return scans

    def _take_line(self, line: bytes, arrived_ns: int) -> Scan | None:
        if line.startswith(b"#"):
            return None
        sample = parse_line(line)
        if sample is None or not self._is_plausible(sample):
            self._count_garbled()
            return None
        self.garbled_in_a_row = 0
        self._needs_checksum |= sample.has_checksum
        self._last = sample
        if sample.sensor not in self._nominal_v:
            return None
        if self._samples and sample.sensor <= max(self._samples):
            # Reading may have started within a scan.
            self.incomplete += self._has_scanned
            self._samples = {}
        self._samples[sample.sensor] = sample
        if len(self._samples) < len(self._nominal_v):
            return None
        samples, self._samples = self._samples, {}
        self._has_scanned = True
        return Scan(
            stamp_s=sum(part.stamp_s for part in samples.values()) / len(samples),
            arrived_ns=arrived_ns,
            watts=tuple(samples[key].volts * samples[key].amperes for key in self._nominal_v),
        )

    def _is_plausible(self, sample: Sample) -> bool:
        if self._needs_checksum and not sample.has_checksum:
            return False
        if self._last is not None and not 0 <= sample.stamp_s - self._last.stamp_s < 60:
            # A stamp that jumps counts as garbled; the next line is then compared with no other.
            self._last = None
            return False
        nominal_v = self._nominal_v.get(sample.sensor)
        return nominal_v is None or abs(sample.volts - nominal_v) <= VOLTS_OFF * nominal_v

    def _count_garbled(self) -> None:
        self.garbled += 1
        self.garbled_in_a_row += 1
