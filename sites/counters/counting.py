"""Count events of a process, its threads and its child processes, around a window.

Each event has a file descriptor, opened before the kernel is prepared, so that threads and
processes that the kernel starts are counted too (``inherit``). Linux counts as many events at once
as the processor has counters, and takes turns where there are more (multiplexing): it then reports
the time that an event was enabled and the time that it was counted, and the count is scaled by
their ratio. See perf_event_open(2).

In a recorded tree, ``perf/counters/NAME`` has a line for each reading: count, ns enabled, ns
counted, in the order of read(2).
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sites.perf_event import EventError, EventSpec, find_event, open_event

RECORDED = Path("perf/counters")
READING = struct.Struct("=QQQ")
TIMES = 1 | 2
"""read_format: time enabled, time running."""
DISABLED, INHERIT, EXCLUDE_KERNEL, EXCLUDE_HYPERVISOR = 1 << 0, 1 << 1, 1 << 5, 1 << 6
ENABLE, DISABLE = 0x2400, 0x2401
"""The requests of ioctl(2): PERF_EVENT_IOC_ENABLE and _DISABLE."""
COUNTED_SHARE = 0.999
"""An event that was counted for less than this share of the time is multiplexed."""


@dataclass(frozen=True)
class EventReading:
    """A reading of an event: its count, and for how many ns it was enabled and counted."""

    count: int
    enabled_ns: int
    counted_ns: int


@dataclass(frozen=True)
class EventCount:
    """An event in a window: its count, scaled where it was counted for ``share`` of the time."""

    count: float
    share: float

    @property
    def multiplexed(self) -> bool:
        """Whether the count is an estimate, because other events were counted in between."""
        return self.share < COUNTED_SHARE


class Event(Protocol):
    """An open event."""

    def enable(self) -> None: ...

    def disable(self) -> None: ...

    def read(self) -> EventReading: ...

    def close(self) -> None: ...


class KernelEvent:
    """An event that Linux counts for this process and those that it starts from now on.

    Raises:
        EventError: the kernel refuses it.
    """

    def __init__(self, spec: EventSpec) -> None:
        flags = DISABLED | INHERIT | EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR
        try:
            self._descriptor = open_event(spec, process=0, cpu=-1, flags=flags, read_format=TIMES)
        except OSError as error:
            raise _refused(spec.name, error) from None

    def enable(self) -> None:
        """Count from now on."""
        fcntl.ioctl(self._descriptor, ENABLE, 0)

    def disable(self) -> None:
        """Stop counting."""
        fcntl.ioctl(self._descriptor, DISABLE, 0)

    def read(self) -> EventReading:
        """The count since it was opened."""
        return EventReading(*READING.unpack(os.read(self._descriptor, READING.size)))

    def close(self) -> None:
        """Release the event; closing again does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class RecordedEvent:
    """The readings of an event in a recorded tree, one after the other.

    Raises:
        EventError: the tree has none.
    """

    def __init__(self, root: Path, name: str) -> None:
        path = root / RECORDED / name
        try:
            lines = path.read_text(encoding="ascii").splitlines()
            self._readings = iter([EventReading(*map(int, line.split())) for line in lines])
        except (OSError, ValueError, TypeError) as error:
            raise EventError(f"{path}: {error}", "record it again") from None
        self._path = path

    def enable(self) -> None:
        """Nothing: it was recorded."""

    def disable(self) -> None:
        """Nothing: it was recorded."""

    def read(self) -> EventReading:
        """The next reading."""
        reading = next(self._readings, None)
        if reading is None:
            raise EventError(f"{self._path}: has no further reading", "record more")
        return reading

    def close(self) -> None:
        """Nothing is kept open."""


class Counters:
    """Open events, by their names in the groups. For one thread only."""

    def __init__(self, events: Mapping[str, Event]) -> None:
        self._events = dict(events)
        self._before: dict[str, EventReading] = {}

    def begin(self) -> None:
        """Count from now on."""
        self._before = {name: event.read() for name, event in self._events.items()}
        for event in self._events.values():
            event.enable()

    def end(self) -> dict[str, EventCount]:
        """Stop counting, and return the counts since :meth:`begin`.

        An event that was never counted is left out: its count is unknown, not zero.
        """
        for event in self._events.values():
            event.disable()
        counts = {}
        for name, event in self._events.items():
            count = count_between(self._before[name], event.read())
            if count is not None:
                counts[name] = count
        return counts

    def close(self) -> None:
        """Close all events."""
        for event in self._events.values():
            event.close()


def count_between(before: EventReading, after: EventReading) -> EventCount | None:
    """The count between two readings, scaled to the whole time; None if it was never counted."""
    counted_ns = after.counted_ns - before.counted_ns
    enabled_ns = after.enabled_ns - before.enabled_ns
    if counted_ns <= 0:
        return None
    return EventCount(
        (after.count - before.count) * enabled_ns / counted_ns, counted_ns / enabled_ns
    )


def open_counters(events: Mapping[str, str], root: Path = Path("/")) -> Counters:
    """Open events. ``events``: name -> argument of :func:`sites.perf_event.find_event`.

    Raises:
        EventError: one of them cannot be counted here.
    """
    is_machine = root.resolve() == Path("/")
    opened: dict[str, Event] = {}
    try:
        for name, event in events.items():
            spec = find_event(root, event)
            opened[name] = KernelEvent(spec) if is_machine else RecordedEvent(root, name)
    except BaseException:
        Counters(opened).close()
        raise
    return Counters(opened)


def _refused(name: str, error: OSError) -> EventError:
    if error.errno in (errno.EACCES, errno.EPERM):
        return EventError(
            f"this user may not count {name}",
            "set kernel.perf_event_paranoid to 2 or less as root (`sysctl`), or ask the site: "
            "with Slurm, some sites allow it by a job option",
        )
    if error.errno in (errno.ENOENT, errno.EOPNOTSUPP, errno.ENODEV):
        return EventError(
            f"this processor does not count {name}",
            "virtual machines rarely have hardware counters; `perf list` shows what there is",
        )
    return EventError(f"{name}: {error.strerror}", "check the event's name and numbers")
