"""Reads meters and clocks while a kernel runs."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dvfs.setting import NUMBERS, Setting
from sites.clocks import ClockControl, ClockState
from sites.meters import Buffered, Channel, FromFiles, Meter, MeterError, Reading

if TYPE_CHECKING:
    from campaign.measure.ticker import Ticker
    from campaign.store.measurement import Trace

CLOCK_PERIOD_S = 0.1
FIRST_CLOCK_S = 0.01
"""The time from the window's start to the first reading of the clocks."""
LONGEST_LEAD_S = 2.5
"""The longest wait for a slow meter before and after a window."""


@dataclass(frozen=True)
class UsedMeter:
    """An open meter. ``use``: energy (the meter counts) or check (it is only compared)."""

    meter: Meter
    use: str = "energy"

    @property
    def channels(self) -> list[MeterChannel]:
        """Its channels, each with its meter's name and use."""
        return [MeterChannel(self.meter.name, channel, self.use) for channel in self.meter.channels]


@dataclass(frozen=True)
class MeterChannel:
    """A channel of a meter. ``node`` is empty if a single node measures."""

    meter: str
    channel: Channel
    use: str = "energy"
    node: str = ""


@dataclass(frozen=True)
class MeterTrace(MeterChannel):
    """A channel with its readings."""

    trace: Trace = field(kw_only=True)

    @property
    def name(self) -> str:
        """The channel's name in a measurement."""
        return f"{self.node}/{self.meter}:{self.channel.name}".removeprefix("/")


class Sampler(threading.Thread):
    """Reads every meter at a rate, and in the window the achieved clocks ten times a second.

    A compiled loop that no kernel can delay reads the meters that are files of one number
    (:mod:`campaign.measure.ticker`). A Python thread reads the others; a kernel that holds Python's
    lock can delay it. ``begin`` takes the first reading and ``end`` the last, long enough before
    and after the window that a slow meter shows an update on both sides of each edge. ``end``
    raises the error of a meter. Clocks are read only between the two, the last time by ``end``.
    """

    def __init__(
        self,
        meters: Sequence[UsedMeter],
        clocks: ClockControl,
        period_s: float,
        lead_s: float | None = None,
        compiled: bool = True,
    ) -> None:
        """``lead_s``: how long meters are read before and after the window; None: as long as the
        slowest of their channels needs. ``compiled``: False lets the Python thread read all.

        Raises:
            MeterError: two of the meters read the same channel.
        """
        super().__init__(name="sampler", daemon=True)
        refuse_doubles([channel for used in meters for channel in used.channels])
        self.meters = list(meters)
        self.clocks = clocks
        self.period_s = period_s
        self.readings: list[list[Reading]] = [[] for _ in meters]
        self.states: list[ClockState] = []
        self.error: Exception | None = None
        self._compiled = compiled
        self.lead_s = needed_lead_s(all_channels(meters)) if lead_s is None else lead_s
        self._tickers: dict[int, Ticker] = {}
        self._ended = threading.Event()
        self._slow: list[int] = []
        self._next_clock_s = math.inf
        self._window_is_over = False
        self._reading_clocks = threading.Lock()
        self._cpu_s = 0.0

    def begin(self) -> None:
        """Take the first readings and start."""
        self._read(range(len(self.meters)))
        for i, opened in enumerate(self.meters):
            if self._compiled and isinstance(opened.meter, FromFiles):
                from campaign.measure.ticker import Ticker, compile_loop  # noqa: PLC0415  (Numba)

                compile_loop()
                self._tickers[i] = Ticker(opened.meter.descriptors(), self.period_s)
                self._tickers[i].start()
        self._slow = [i for i in range(len(self.meters)) if i not in self._tickers]
        if self._slow:
            self.start()
        time.sleep(self.lead_s)
        self.clocks.state()  # a clock that is a mean since the last reading begins here
        self._next_clock_s = time.monotonic() + FIRST_CLOCK_S
        if not self._slow:
            self.start()

    def end(self) -> None:
        """Stop, and take the last readings."""
        self._read_clocks(last=True)
        time.sleep(self.lead_s)
        self._ended.set()
        self.join()
        if self.error is not None:
            for ticker in self._tickers.values():
                ticker.end()
            raise self.error
        for i, ticker in self._tickers.items():
            self._take(i, ticker)
        self._read(range(len(self.meters)))

    def _read_clocks(self, *, last: bool = False) -> None:
        with self._reading_clocks:
            if self._window_is_over or self.error is not None:
                return
            self._window_is_over = last
            try:
                self.states.append(self.clocks.state())
            except Exception as error:  # end() raises it
                self.error = error

    def _take(self, i: int, ticker: Ticker) -> None:
        """Store the readings of a meter of files. After a failed reading, read again for its
        error."""
        from campaign.measure.ticker import FAILED  # noqa: PLC0415  (Numba)

        meter = self.meters[i].meter
        assert isinstance(meter, FromFiles)  # noqa: S101
        ticks = ticker.end()
        for (start_ns, end_ns), raw in zip(
            ticks.times_ns.tolist(), ticks.raw.tolist(), strict=True
        ):
            if FAILED in raw:
                second = self.meters[i].meter.read()
                raise MeterError(
                    f"{self.meters[i].meter.name}: one reading was not a number; the next one was "
                    f"{second.values}",
                    "measure again; if it happens again, see the kernel's log",
                )
            self.readings[i].append(meter.take(raw, start_ns, end_ns))

    def run(self) -> None:
        """Run the thread: read on a grid of the period, and skip readings that are late."""
        begin_cpu_s = time.thread_time()
        period_s = self.period_s if self._slow else CLOCK_PERIOD_S
        begin = time.monotonic() + FIRST_CLOCK_S - period_s
        tick = 0
        try:
            while True:
                now = time.monotonic()
                tick = max(tick + 1, int((now - begin) / period_s) + 1)
                if self._ended.wait(begin + tick * period_s - now):
                    return
                self._read(self._slow)
                if time.monotonic() >= self._next_clock_s:
                    self._read_clocks()
                    self._next_clock_s += CLOCK_PERIOD_S
        except Exception as error:  # end() raises it
            self.error = error
        finally:
            self._cpu_s = time.thread_time() - begin_cpu_s

    def _read(self, indices: Sequence[int]) -> None:
        for i in indices:
            meter = self.meters[i].meter
            readings = meter.drain() if isinstance(meter, Buffered) else [meter.read()]
            for reading in readings:
                # The same time stamp means the same reading.
                if not self.readings[i] or reading.time_ns > self.readings[i][-1].time_ns:
                    self.readings[i].append(reading)

    def traces(self, start_ns: int) -> list[MeterTrace]:
        """The readings of every channel, with times from ``start_ns`` (CLOCK_MONOTONIC)."""
        # Imported only now, so that a measured program starts without waiting for them.
        import numpy as np  # noqa: PLC0415

        from campaign.store.measurement import Trace  # noqa: PLC0415

        traces = []
        for opened, readings in zip(self.meters, self.readings, strict=True):
            time_ns = np.array([r.time_ns for r in readings], np.int64) - start_ns
            for i, channel in enumerate(opened.meter.channels):
                value = np.array([r.values[i] for r in readings], np.float64)
                if channel.kind == "energy" and value.size:
                    value = value - value[0]
                unit = "J" if channel.kind == "energy" else "W"
                trace = Trace(channel.name, channel.domain, unit, time_ns, value)
                traces.append(MeterTrace(opened.meter.name, channel, opened.use, trace=trace))
        return traces

    def costs(self) -> dict[str, dict[str, float]]:
        """For each meter the median and 99th percentile of the time between readings, in s.

        ``cpu_s`` is the processor time of a meter's compiled loop; under ``sampler``, of the Python
        thread that reads the other meters and the clocks.
        """
        import numpy as np  # noqa: PLC0415

        costs: dict[str, dict[str, float]] = {}
        for i, (opened, readings) in enumerate(zip(self.meters, self.readings, strict=True)):
            gaps_s = np.diff([r.time_ns for r in readings]) / 1e9
            if gaps_s.size:
                costs[opened.meter.name] = {
                    "period_s": float(np.median(gaps_s)),
                    "gap_p99_s": float(np.percentile(gaps_s, 99)),
                }
                if i in self._tickers:
                    costs[opened.meter.name]["cpu_s"] = self._tickers[i].cpu_s
        costs["sampler"] = {"cpu_s": self._cpu_s}
        return costs

    def achieved_setting(self) -> Setting:
        """The mean achieved clocks and power limit in the window, and the profiles that were read;
        None for each that could not be read."""
        means: list[float | None] = []
        for name in NUMBERS:
            values = [v for s in self.states if (v := getattr(s.setting, name)) is not None]
            means.append(math.fsum(values) / len(values) if values else None)
        profiles = dict.fromkeys(p for s in self.states if (p := s.setting.profile) is not None)
        return Setting(*means, profile=", ".join(profiles) or None)

    def conditions(self) -> dict[str, Any]:
        """The other reports of the clock control: throttling, temperature, voltage."""
        conditions: dict[str, Any] = {}
        sources = {s.source for s in self.states if s.setting.core_mhz is not None and s.source}
        if sources:
            conditions["clock_read_from"] = ", ".join(sorted(sources))
        if any(s.apart_pct for s in self.states):
            import statistics  # noqa: PLC0415

            conditions["clocks_apart_pct"] = statistics.median(s.apart_pct for s in self.states)
        reasons = sorted({reason for s in self.states for reason in s.throttled})
        if reasons:
            share = sum(bool(s.throttled) for s in self.states) / len(self.states)
            conditions |= {"throttled": reasons, "throttled_share": share}
        for name in ("temperature_c", "core_v"):
            values = [v for s in self.states if (v := getattr(s, name)) is not None]
            if values:
                conditions[name] = math.fsum(values) / len(values)
        return conditions


def refuse_doubles(channels: Sequence[MeterChannel]) -> None:
    """Check that no channel is read by two meters of one kind: its energy would count twice.

    Raises:
        MeterError: one is.
    """
    names = [f"{channel.meter}:{channel.channel.name}" for channel in channels]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise MeterError(
            f"two meters of the site file read {twice}",
            "leave one of these [[meters]] out, or let their options name other channels",
        )


def all_channels(meters: Sequence[UsedMeter]) -> list[Channel]:
    """The channels of all meters."""
    return [channel for opened in meters for channel in opened.meter.channels]


def needed_lead_s(channels: Iterable[Channel]) -> float:
    """How long channels are read before and after a window: one and a half of their periods."""
    slowest_s = max((c.period_s + c.averaging_s for c in channels), default=0.0)
    return min(1.5 * slowest_s, LONGEST_LEAD_S)
