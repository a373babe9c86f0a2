"""The measured period, resolution and reading time of a meter on this machine."""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import dataclass
from itertools import pairwise

from sites.meters.shared.meter import Buffered, Meter, Reading

UPDATES = 30
"""The most changes of each channel to wait for."""
NS_PER_S = 1e9


@dataclass(frozen=True)
class Behaviour:
    """The behaviour of a channel; None where it changed too seldom.

    ``period_s``: the median time between two changes of the value. ``step``: the smallest
    change, in J or W. ``read_s``: the median time that a reading of the whole meter takes.
    """

    period_s: float | None
    step: float | None
    read_s: float


def observe(meter: Meter, seconds: float) -> list[Behaviour]:
    """Read a meter repeatedly for ``seconds``, or until every channel changed UPDATES times.

    Returns:
        The behaviour of each channel.

    Raises:
        MeterError: the meter cannot be read.
    """
    readings: list[Reading] = []
    costs_s: list[float] = []
    changes = [0] * len(meter.channels)
    end_ns = time.monotonic_ns() + round(seconds * NS_PER_S)
    while time.monotonic_ns() < end_ns and min(changes, default=UPDATES) < UPDATES:
        begin_ns = time.monotonic_ns()
        new = meter.drain() if isinstance(meter, Buffered) else [meter.read()]
        costs_s.append((time.monotonic_ns() - begin_ns) / NS_PER_S)
        for reading in new:
            if readings:
                for i, value in enumerate(reading.values):
                    changes[i] += value != readings[-1].values[i]
            readings.append(reading)
        if not new:
            time.sleep(0.001)
    read_s = statistics.median(costs_s)
    return [_channel_behaviour(readings, i, read_s) for i in range(len(meter.channels))]


def _channel_behaviour(readings: list[Reading], i: int, read_s: float) -> Behaviour:
    times_ns: list[int] = []
    steps: list[float] = []
    for before, after in pairwise(readings):
        if after.values[i] != before.values[i]:
            times_ns.append(after.time_ns)
            steps.append(abs(after.values[i] - before.values[i]))
    if len(times_ns) < 3:
        return Behaviour(None, None, read_s)
    gaps_s = [(b - a) / NS_PER_S for a, b in pairwise(times_ns)]
    step = min(steps)
    return Behaviour(statistics.median(gaps_s), step if math.isfinite(step) else None, read_s)
