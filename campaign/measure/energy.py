"""Energy of a window from its traces, with its uncertainty."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from campaign.measure.sampler import MeterTrace
from campaign.measurement import Trace
from sites.meters import Channel

WHOLE = "node"
"""The domain that contains every other."""


@dataclass(frozen=True)
class Energy:
    """Joules over a window, and their standard uncertainty (NaN where there is none)."""

    energy_j: float
    std_j: float


def window_energy(trace: Trace, channel: Channel, end_ns: int) -> Energy:
    """The energy of one channel from the window's start (0) to ``end_ns``.

    A counter: the difference between its readings around the window, taken in proportion to
    the window. Its uncertainty is that of two roundings to the resolution, and of two updates
    that are up to one period old (uniform: a twelfth of the square).
    Power: the integral by the trapezoidal rule, its ends interpolated. Its uncertainty is that
    of the mean of the samples, of the resolution, and of one period's delay at both ends times
    the samples' spread.
    """
    time_s = trace.time_ns / 1e9
    end_s = end_ns / 1e9
    if trace.time_ns.size < 2 or end_ns <= 0:
        return Energy(math.nan, math.nan)
    if channel.kind == "energy":
        span_s = float(time_s[-1] - time_s[0])
        energy_j = float(trace.value[-1] - trace.value[0]) * end_s / span_s
        stale_j = energy_j / end_s * channel.period_s
        return Energy(energy_j, math.sqrt((channel.resolution**2 + stale_j**2) / 6.0))
    inside = (trace.time_ns > 0) & (trace.time_ns < end_ns)
    edges_w = np.interp([0.0, end_s], time_s, trace.value)
    grid_s = np.concatenate([[0.0], time_s[inside], [end_s]])
    power_w = np.concatenate([edges_w[:1], trace.value[inside], edges_w[1:]])
    energy_j = float(np.trapezoid(power_w, grid_s))
    spread_w = float(np.std(power_w, ddof=1))
    variance = spread_w**2 * end_s**2 / power_w.size
    variance += (channel.resolution * end_s) ** 2 / 12.0
    variance += (spread_w * channel.period_s) ** 2 / 6.0
    return Energy(energy_j, math.sqrt(variance))


def total_energy(traces: Sequence[MeterTrace], end_ns: int) -> tuple[Energy, dict[str, Energy]]:
    """The node's energy over a window, and that of every channel, named ``meter:channel``.

    The total never adds a channel to one that contains it: a channel of domain ``node`` is the
    total alone; else the first meter that has a domain speaks for it, with its channels that
    lie inside no other. Without any channel the total is NaN.
    """
    each = {
        f"{t.meter}:{t.channel.name}": window_energy(t.trace, t.channel, end_ns) for t in traces
    }
    whole = [t for t in traces if t.channel.domain == WHOLE]
    counted: list[MeterTrace] = whole[:1]
    if not whole:
        speaker: dict[str, str] = {}
        for t in traces:
            if speaker.setdefault(t.channel.domain, t.meter) == t.meter:
                counted.append(t)
        names = {(t.meter, t.channel.name) for t in counted}
        counted = [t for t in counted if (t.meter, t.channel.inside) not in names]
    if not counted:
        return Energy(math.nan, math.nan), each
    parts = [each[f"{t.meter}:{t.channel.name}"] for t in counted]
    total_j = sum(part.energy_j for part in parts)
    return Energy(total_j, math.sqrt(sum(part.std_j**2 for part in parts))), each
