"""Cray: the power management counters below ``/sys/cray/pm_counters``.

Files and units: "User Access to Compute Node Power Data" in the documentation of the Cray System
Management software. A file is one line, ``VALUE UNIT TIMESTAMP us``, such as
``1234567 J 1700000000123456 us``, without the time stamp on older systems. The node's controller
updates all files together, ``raw_scan_hz`` times a second (10 Hz).

**Channels.** ``node`` is the energy of the whole node, including accelerators. It contains ``cpu``,
``memory`` and ``accelN``; ``cpu`` contains ``cpuN``. Files that do not exist are left out. Each
counter has an instantaneous power, such as ``node/power``: another measure of the same energy.

**One scan.** ``freshness`` counts the scans. It is read before and after the other files, which are
read again if it changed, so that all values belong to one scan.

**Restart.** ``startup`` changes when the controller restarts: the energies then no longer have a
common start, so every further reading is an error.

**Time.** The stamps are microseconds since 1970 of the controller's clock. They are mapped to
CLOCK_MONOTONIC by an offset, which the first reading determines: the offset of this node's
CLOCK_REALTIME, if the first stamp is then between 0 and 1 s old. Otherwise the clocks differ, and
the stamp is assumed to be as recent as possible: at the end of the reading. No stamp can be later
than the end of its reading; a reading that contradicts this corrects the offset. If the clocks
differ, a time is up to one scan (0.1 s) late at first, and less with each reading of a newer scan.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path
from typing import Any

from sites.described_options import seconds_option
from sites.meters.shared.counter import OPEN_AGAIN, Counter
from sites.meters.shared.kept_file import KeptFile, Remedies, explain, read_bytes
from sites.meters.shared.meter import (
    AbsentMeterError,
    Channel,
    MeterDescription,
    MeterError,
    Reading,
)
from sites.meters.shared.open_meter import OpenMeter, keep_open

ABOUT = MeterDescription(
    kind="cray",
    reads="/sys/cray/pm_counters",
    domains="node, package, dram, gpu",
    needs="a Cray XC or EX node",
    options={
        "stale_s": "seconds without a scan that are an error (default: 5)",
    },
)

PM_COUNTERS = Path("sys/cray/pm_counters")
DOMAINS = {"": "node", "cpu": "package", "memory": "dram", "accel": "gpu"}
"""The prefix of ``_energy``, without its number -> the domain."""
COUNTER_NAME = re.compile(r"(?:(cpu|memory|accel)(\d*)_)?(energy|power)")
VALUE = re.compile(rb"(\d{1,20}) (J|W)(?: (\d{1,20}) us)?\n?")
PLAIN = re.compile(rb"(\d{1,20})(?: (\d{1,20}) us)?\n?")
UNITS = {"energy": b"J", "power": b"W"}

SCAN_HZ = 10
"""The documented rate, used where ``raw_scan_hz`` does not exist."""
STALE_S = 5.0
"""The longest time without a new freshness: 50 scans. The controller's restart takes longer."""
SYNCED_S = 1.0
"""A stamp is at most a few scans old; if it seems older, the two clocks are not synchronised."""
ATTEMPTS = 10
"""The most attempts to read one scan: a reading takes well under a tenth of a scan."""

REMEDIES = Remedies(
    denied="these files are normally readable by all users: ask for `chmod a+r {path}`",
    gone="the driver of the node's controller was unloaded: discard the measurement",
    other="check `dmesg` for the node's controller, and discard the measurement",
)
ABSENT_REMEDY = "only Cray XC and EX nodes have it; on others use powercap, nvml or ipmi"


class StampClock:
    """Maps the controller's time stamps to CLOCK_MONOTONIC; see the module's docstring."""

    def __init__(self, path: str, stale_s: float) -> None:
        self._path = path
        self._stale_ns = round((stale_s + SYNCED_S) * 1e9)
        self._offset_ns: int | None = None
        self._last_ns = 0

    def map(self, stamp_us: int, end_ns: int) -> int:
        """A stamp's time in CLOCK_MONOTONIC; ``end_ns``: the end of its reading.

        Raises:
            MeterError: the controller's clock was set, or the stamp is too old.
        """
        greatest_ns = end_ns - stamp_us * 1000
        if self._offset_ns is None:
            realtime_offset_ns = time.monotonic_ns() - time.time_ns()
            is_synced = 0 <= greatest_ns - realtime_offset_ns <= SYNCED_S * 1e9
            self._offset_ns = realtime_offset_ns if is_synced else greatest_ns
        old_ns = greatest_ns - self._offset_ns
        if not -SYNCED_S * 1e9 <= old_ns <= self._stale_ns:
            raise MeterError(
                f"the stamp in {self._path} is {old_ns / 1e9:.3g} s older than its reading: the "
                "clock of the node's controller was set, or it does not update this file",
                OPEN_AGAIN,
            )
        self._offset_ns = min(self._offset_ns, greatest_ns)
        self._last_ns = max(self._last_ns, stamp_us * 1000 + self._offset_ns)
        return self._last_ns


def open_meter(root: Path, options: Mapping[str, Any]) -> CrayMeter:
    """Open the counters below ``root``."""
    stale_s = parse_options(options)
    directory = root / PM_COUNTERS
    channels = _find_channels(directory)
    names = ["freshness", "startup", *map(_file_name, channels)]
    with ExitStack() as resources:
        files = keep_open(resources, [directory / name for name in names], REMEDIES)
        fresh, startup = _parse_plain(files[0]), _parse_plain(files[1])
        return CrayMeter(
            channels, files, stale_s, resources.pop_all(), startup=startup, fresh=fresh
        )


class CrayMeter(OpenMeter):
    """The open counters of a node. ``files``: freshness, startup, and one file per channel."""

    def __init__(
        self,
        channels: tuple[Channel, ...],
        files: Sequence[KeptFile],
        stale_s: float,
        resources: ExitStack,
        *,
        startup: int,
        fresh: int,
    ) -> None:
        self._freshness, self._startup_file, *self._values = files
        counters = [
            Counter(file.path, Fraction(1)) if channel.kind == "energy" else None
            for file, channel in zip(self._values, channels, strict=True)
        ]
        self._clock = StampClock(self._values[0].path, stale_s)
        self._stale_s = stale_s
        self._startup = startup
        self._fresh = (fresh, time.monotonic_ns())
        super().__init__(ABOUT.kind, channels, counters, self._read_texts, resources)

    def _read_texts(self) -> list[bytes]:
        return [file.read() for file in self._values]

    def read(self) -> Reading:
        """All channels of one scan: energies in J since the first reading, powers in W.

        Raises:
            MeterError: a file cannot be read, the controller restarted or no longer updates
                the files, a counter decreased, or the meter is closed.
        """
        self.refuse_closed()
        for _ in range(ATTEMPTS):
            start_ns = time.monotonic_ns()
            fresh = _parse_plain(self._freshness)
            texts = self._read_texts()
            startup = _parse_plain(self._startup_file)
            if _parse_plain(self._freshness) == fresh:
                break
        else:
            raise MeterError(
                f"{self._freshness.path} changed during each of {ATTEMPTS} readings",
                "the machine is too busy to read one scan: leave a core free",
            )
        end_ns = time.monotonic_ns()
        self._check_state(startup, fresh, end_ns)
        return self.take(texts, start_ns, end_ns)

    def _check_state(self, startup: int, fresh: int, end_ns: int) -> None:
        if startup != self._startup:
            raise MeterError(
                f"{self._startup_file.path} went from {self._startup} to {startup}: the "
                "node's controller restarted, and its energies with it",
                OPEN_AGAIN,
            )
        if fresh != self._fresh[0]:
            self._fresh = (fresh, end_ns)
        still_s = (end_ns - self._fresh[1]) / 1e9
        if still_s > self._stale_s:
            raise MeterError(
                f"{self._freshness.path} has not changed from {fresh} for {still_s:.3g} s",
                "the node's controller has stopped: discard the measurement, and ask an "
                "administrator to restart it",
            )

    def take(self, raw: Sequence[bytes], start_ns: int, end_ns: int) -> Reading:
        """The result of :meth:`read` for these texts of one scan."""
        parsed = [
            _parse_value(file.path, text, UNITS[channel.kind])
            for file, text, channel in zip(self._values, raw, self.channels, strict=True)
        ]
        stamp_us = parsed[0][1]
        time_ns = (
            (start_ns + end_ns) // 2 if stamp_us is None else self._clock.map(stamp_us, end_ns)
        )
        return Reading(
            time_ns, super().take([value for value, _ in parsed], start_ns, end_ns).values
        )


def parse_options(options: Mapping[str, Any]) -> float:
    return seconds_option(options, "stale_s", STALE_S)


def _find_channels(directory: Path) -> tuple[Channel, ...]:
    try:
        names = {path.name for path in directory.iterdir()}
    except FileNotFoundError as error:
        raise AbsentMeterError(f"{directory} does not exist", ABSENT_REMEDY) from error
    except OSError as error:
        raise explain(str(directory), error, REMEDIES) from error
    if "energy" not in names:
        raise MeterError(f"{directory / 'energy'} does not exist", REMEDIES.gone)
    period_s = 1 / _scan_hz(directory)
    is_stamped = b" us" in read_bytes(directory / "energy", REMEDIES)
    ordered: list[tuple[tuple[int, int, bool], Channel]] = []
    for name in names:
        # accel_energy is the only accelerator of older systems; elsewhere, the sum of accelN.
        match = COUNTER_NAME.fullmatch(name)
        if match is None or (name.startswith("accel_") and f"accel0_{match[3]}" in names):
            continue
        part, number, kind = match[1] or "", match[2] or "", match[3]
        counter = f"{part}{number}_energy" if part else "energy"
        label = f"{part}{number}" or "node"
        is_power = kind == "power"
        inside = None if not part else "cpu" if number and part == "cpu" else "node"
        if inside == "cpu" and "cpu_energy" not in names:
            inside = "node"
        order = (list(DOMAINS).index(part), int(number or -1), is_power)
        channel = Channel(
            name=f"{label}/power" if is_power else label,
            domain=DOMAINS[part],
            kind="power" if is_power else "energy",
            resolution=1.0,
            period_s=period_s,
            inside=inside,
            same_as=label if is_power and counter in names else None,
            stamped=is_stamped,
        )
        ordered.append((order, channel))
    return tuple(channel for _, channel in sorted(ordered, key=lambda pair: pair[0]))


def _file_name(channel: Channel) -> str:
    label = channel.name.removesuffix("/power")
    return channel.kind if label == "node" else f"{label}_{channel.kind}"


def _scan_hz(directory: Path) -> int:
    path = directory / "raw_scan_hz"
    if not path.exists():
        return SCAN_HZ
    text = read_bytes(path, REMEDIES)
    match = re.match(rb"(\d{1,6})(?: Hz)?\b", text)
    if match is None or int(match[1]) == 0:
        raise MeterError(f"{path} holds {text[:40]!r}, not a rate in Hz", REMEDIES.other)
    return int(match[1])


def _parse_plain(file: KeptFile) -> int:
    text = file.read()
    match = PLAIN.fullmatch(text)
    if match is None:
        raise MeterError(f"{file.path} holds {text[:40]!r}, not a number", REMEDIES.other)
    return int(match[1])


def _parse_value(path: str, text: bytes, unit: bytes) -> tuple[int, int | None]:
    """The value, and the time stamp in us; None for a file without one."""
    match = VALUE.fullmatch(text)
    if match is None or match[2] != unit:
        raise MeterError(
            f"{path} holds {text[:60]!r}, not a number of {unit.decode()} with a time stamp",
            REMEDIES.other,
        )
    return int(match[1]), None if match[3] is None else int(match[3])
