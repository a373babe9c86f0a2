"""Convert the time stamps of another machine's clock to CLOCK_MONOTONIC of this machine.

Each message has a time stamp of the other clock, and arrives at a time of this clock. The
difference is the offset of the clocks plus a delay, which is never negative. So the offset is the
lower envelope of the differences, and a difference in rate tilts it. Of all lines below every
difference, the line with the least sum of distances is the edge of their lower convex hull at their
mean time (Moon, Skelly & Towsley, Estimation and removal of clock skew from network delay
measurements, IEEE INFOCOM 1999).

Only the least difference of each second is stored, for the last five minutes, so that the alignment
follows a rate that changes with temperature. The rates are assumed equal until the stream is ten
seconds long.

A delay that all messages have cannot be separated from the offset: stamps are late by it. On a USB
serial line it is about a millisecond, and up to 16 ms where the adapter collects bytes for that
time (`cat /sys/bus/usb-serial/devices/*/latency_timer`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

NS_PER_S = 10**9
KEPT = 300
"""The number of seconds of the stream that are stored."""
DRIFT_AFTER_S = 10.0
"""The shortest stream whose tilt is used."""


@dataclass(frozen=True)
class Alignment:
    """CLOCK_MONOTONIC in ns = stamp in ns + offset, in ns of this machine's clock."""

    at_s: float
    """The stamp to which ``offset_ns`` belongs."""
    offset_ns: int
    drift_ppm: float
    """The rate of this clock relative to the other, less 1, in parts per million."""

    def monotonic_ns(self, stamp_s: float) -> int:
        """CLOCK_MONOTONIC at the other clock's ``stamp_s``."""
        return (
            round(stamp_s * NS_PER_S)
            + self.offset_ns
            + round((stamp_s - self.at_s) * self.drift_ppm * 1e3)
        )


class ClockAlignment:
    """The alignment of a stream, updated by each message."""

    def __init__(self) -> None:
        self._least: deque[tuple[float, int]] = deque(maxlen=KEPT)
        """(stamp, least difference in ns) of each second of the stream."""
        self._known: Alignment | None = None

    def add(self, stamp_s: float, arrived_ns: int) -> None:
        """Add a message: its time stamp and its arrival. Stamps come in order."""
        difference_ns = arrived_ns - round(stamp_s * NS_PER_S)
        if self._least and int(stamp_s) == int(self._least[-1][0]):
            if difference_ns >= self._least[-1][1]:
                return
            self._least[-1] = (stamp_s, difference_ns)
        else:
            self._least.append((stamp_s, difference_ns))
        self._known = None

    def current(self) -> Alignment:
        """The alignment from the messages so far.

        Raises:
            ValueError: no message was added.
        """
        if not self._least:
            raise ValueError("no message arrived, so the clocks cannot be aligned")
        if self._known is None:
            self._known = align(list(self._least))
        return self._known


def align(least: Sequence[tuple[float, int]]) -> Alignment:
    """The line of least delay under (stamp in s, difference in ns), in order of the stamps."""
    first_s, last_s = least[0][0], least[-1][0]
    span_s = last_s - first_s
    lowest_ns = min(difference for _, difference in least)
    if span_s < DRIFT_AFTER_S:
        return Alignment(last_s, lowest_ns, 0.0)
    # Small numbers, so that floats keep the nanoseconds.
    points = [(stamp - first_s, float(difference - lowest_ns)) for stamp, difference in least]
    mean_s = sum(t for t, _ in points) / len(points)
    (x0, y0), (x1, y1) = _edge_at(_lower_hull(points), mean_s)
    tilt = (y1 - y0) / (x1 - x0)
    offset_ns = lowest_ns + round(y0 + tilt * (span_s - x0))
    return Alignment(last_s, offset_ns, tilt / 1e3)


def _lower_hull(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    hull: list[tuple[float, float]] = []
    for x, y in points:
        while len(hull) > 1:
            (x0, y0), (x1, y1) = hull[-2:]
            if (x1 - x0) * (y - y0) > (y1 - y0) * (x - x0):
                break
            hull.pop()
        hull.append((x, y))
    return hull


def _edge_at(
    hull: Sequence[tuple[float, float]], at_s: float
) -> tuple[tuple[float, float], tuple[float, float]]:
    for start, end in pairwise(hull):
        if at_s <= end[0]:
            return start, end
    return hull[-2], hull[-1]
