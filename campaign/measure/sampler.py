"""Reading meters and clocks beside a running kernel."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from campaign.measurement import Trace
from sites.clocks import ClockControl
from sites.meters import Channel, Meter, Reading
from sites.setting import Setting

CLOCK_PERIOD_S = 0.1


@dataclass(frozen=True)
class MeterTrace:
    """One channel's readings, and what the channel says of itself."""

    meter: str
    channel: Channel
    trace: Trace


class Sampler(threading.Thread):
    """Reads every meter at a rate, and the achieved clocks ten times a second.

    The first reading is taken by ``begin`` and the last by ``end``, in the caller's thread, so
    that a window always has both edges. An error of a meter is raised by ``end``.
    """

    def __init__(self, meters: Sequence[Meter], clocks: ClockControl, period_s: float) -> None:
        super().__init__(name="sampler", daemon=True)
        self.meters = meters
        self.clocks = clocks
        self.period_s = period_s
        self.readings: list[list[Reading]] = [[] for _ in meters]
        self.achieved: list[Setting] = []
        self.error: Exception | None = None
        self._ended = threading.Event()

    def begin(self) -> None:
        """Take the first reading and start."""
        self._read()
        self.start()

    def end(self) -> None:
        """Stop, and take the last reading."""
        self._ended.set()
        self.join()
        if self.error is not None:
            raise self.error
        self._read()
        self.achieved.append(self.clocks.state().setting)

    def run(self) -> None:
        """The thread: readings on a grid of the period, late ones skipped, not made up for."""
        begin = time.monotonic()
        next_clock = begin
        tick = 0
        try:
            while True:
                now = time.monotonic()
                tick = max(tick + 1, int((now - begin) / self.period_s) + 1)
                if self._ended.wait(begin + tick * self.period_s - now):
                    return
                self._read()
                if time.monotonic() >= next_clock:
                    self.achieved.append(self.clocks.state().setting)
                    next_clock += CLOCK_PERIOD_S
        except Exception as error:  # told by end()
            self.error = error

    def _read(self) -> None:
        for meter, readings in zip(self.meters, self.readings, strict=True):
            readings.append(meter.read())

    def traces(self, start_ns: int) -> list[MeterTrace]:
        """Every channel's readings, with times from ``start_ns`` (CLOCK_MONOTONIC)."""
        found = []
        for meter, readings in zip(self.meters, self.readings, strict=True):
            time_ns = np.array([r.time_ns for r in readings], np.int64) - start_ns
            for i, channel in enumerate(meter.channels):
                value = np.array([r.values[i] for r in readings], np.float64)
                if channel.kind == "energy":
                    value = value - value[0]
                unit = "J" if channel.kind == "energy" else "W"
                trace = Trace(channel.name, channel.domain, unit, time_ns, value)
                found.append(MeterTrace(meter.name, channel, trace))
        return found

    def achieved_setting(self) -> Setting:
        """The mean of the achieved clocks of the window; None where they could not be read."""
        means: list[float | None] = []
        for name in ("core_mhz", "mem_mhz"):
            known = [getattr(s, name) for s in self.achieved if getattr(s, name) is not None]
            means.append(sum(known) / len(known) if known else None)
        return Setting(*means)
