"""Energy of one channel over a window, from its trace, with what is not sure about it.

Two kinds of uncertainty are kept apart. One is drawn anew in every window: edges that fall
between two readings, what happens between two samples, roundings. The other is the meter's own
calibration, which no repeat makes smaller.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from campaign.store.measurement import Trace
from sites.meters import Channel

NS_PER_S = 1e9
HIDDEN = 0.2
"""What a power may do within an update of a meter, which no reading shows: the size of a step,
relative to the power. Assumed; kernels whose iterations are shorter than the meter's period."""
FEW_BLOCKS = 8
"""With fewer blocks the ratio of two differences says nothing, and white noise is assumed."""
MOST_TOGETHER = 0.8
"""The most that one independent reading's share of a window is taken for."""
WHITE, SMOOTH = 2.0, 10.0
"""The ratio for readings that have nothing to do with each other, and for a smooth curve."""


@dataclass(frozen=True)
class Energy:
    """Joules over a window; NaN where there is none.

    ``random_j`` and ``gain_j`` are standard uncertainties: what changes from window to window,
    and the meter's calibration.
    """

    energy_j: float
    random_j: float
    gain_j: float = 0.0

    @property
    def std_j(self) -> float:
        """The standard uncertainty."""
        return math.hypot(self.random_j, self.gain_j)


NONE = Energy(math.nan, math.nan, math.nan)


def channel_energy(trace: Trace, channel: Channel, begin_ns: int, end_ns: int) -> Energy:
    """The energy of a channel between two times of its trace.

    A counter: the difference between two values, each interpolated between its updates.
    Power: the integral by the trapezoidal rule over its updates, each of which stands in the
    middle of what it is the mean of.
    Updates are taken to be seen late by half the time between samples, or half a period where
    that is shorter.
    """
    late_s = _late_s(trace, channel)
    time_s, value = updates(trace, channel)
    time_s = time_s - late_s / 2.0
    begin_s, end_s = begin_ns / NS_PER_S, end_ns / NS_PER_S
    if time_s.size < 2 or end_s <= begin_s:
        return NONE
    if channel.kind == "energy":
        energy_j, variance = _counted(time_s, value, channel, (begin_s, end_s), late_s)
    else:
        energy_j, variance = _integrated(time_s, value, channel, (begin_s, end_s), late_s)
    gain_j = abs(energy_j) * channel.gain_pct / 100.0
    zero_j = channel.offset_w * (end_s - begin_s)
    return Energy(energy_j, math.sqrt(variance), math.hypot(gain_j, zero_j))


def _late_s(trace: Trace, channel: Channel) -> float:
    """How old an update can be when it is first seen."""
    if channel.stamped or trace.time_ns.size < 2:
        return 0.0
    return min(float(np.median(np.diff(trace.time_ns))) / NS_PER_S, channel.period_s)


def updates(trace: Trace, channel: Channel) -> tuple[np.ndarray, np.ndarray]:
    """The trace's times in s and values at its meter's updates.

    A meter that is read faster than it updates shows each value many times; the first time is
    when it was new. A value that stays for several periods is several updates, a period apart,
    counted back from the change that ends it; so the first update may be older than the first
    reading. Of a meter that never changes, the first and the last reading stay.
    """
    time_s = trace.time_ns / NS_PER_S
    value = np.asarray(trace.value, np.float64)
    if time_s.size < 3 or channel.stamped or _late_s(trace, channel) >= channel.period_s / 2.0:
        return time_s, value
    new = np.flatnonzero(value[1:] != value[:-1]) + 1
    if not new.size:
        return time_s[[0, -1]], value[[0, -1]]
    period_s = channel.period_s
    older = math.ceil((time_s[new[0]] - time_s[0]) / period_s)
    begin_s = np.append(time_s[new[0]] - older * period_s, time_s[new])
    end_s = np.append(time_s[new], time_s[-1])
    held = value[np.append(0, new)]
    more = np.maximum(np.round((end_s - begin_s) / period_s).astype(int) - 1, 0)
    back = np.repeat(np.cumsum(more), more) - np.arange(more.sum())
    every_s = np.concatenate([begin_s, np.repeat(end_s, more) - back * period_s])
    order = np.argsort(every_s, kind="stable")
    return every_s[order], np.concatenate([held, np.repeat(held, more)])[order]


def _counted(
    time_s: np.ndarray,
    value: np.ndarray,
    channel: Channel,
    window_s: tuple[float, float],
    late_s: float,
) -> tuple[float, float]:
    """(J, variance) of a counter.

    Of each edge: a rounding to the resolution and an update seen late (uniform, a twelfth of the
    square each), and a step of the power between the two readings around it. If the step lies
    at a share u of the time g between them, and the edge anywhere, the variance is
    (u (1 - u) step g)^2 / 3; the mean powers before, between and after tell step and u. If u may
    be anything, it is (step g)^2 / 90: so for what no reading shows.
    """
    gap_s = np.diff(time_s)
    power_w = np.diff(value) / np.maximum(gap_s, 1e-9)
    mean_w = float((value[-1] - value[0]) / (time_s[-1] - time_s[0]))
    total_j, variance = 0.0, channel.resolution**2 / 6.0
    for edge_s, sign in zip(window_s, (-1.0, 1.0), strict=True):
        within_s = min(max(edge_s, float(time_s[0])), float(time_s[-1]))
        beyond_s = edge_s - within_s
        total_j += sign * (float(np.interp(within_s, time_s, value)) + mean_w * beyond_s)
        at = min(max(int(np.searchsorted(time_s, within_s)) - 1, 0), gap_s.size - 1)
        before_w = float(power_w[at] - power_w[max(at - 1, 0)])
        after_w = float(power_w[min(at + 1, gap_s.size - 1)] - power_w[at])
        changes_w = abs(before_w) + abs(after_w)
        step_w = math.sqrt(30.0) * abs(before_w * after_w) / max(changes_w, 1e-9)
        step_w = max(step_w, HIDDEN * mean_w)
        # A twelfth each of two readings, of which the edge takes the mean by its distance.
        variance += (max(float(power_w[at]), mean_w) * late_s) ** 2 / 18.0
        variance += (step_w * float(gap_s[at])) ** 2 / 90.0
        variance += (float(np.ptp(power_w)) * beyond_s) ** 2 / 3.0
    return total_j, variance


def _integrated(
    time_s: np.ndarray,
    value: np.ndarray,
    channel: Channel,
    window_s: tuple[float, float],
    late_s: float,
) -> tuple[float, float]:
    """(J, variance) of a power."""
    begin_s, end_s = window_s
    length_s = end_s - begin_s
    time_s = time_s - channel.averaging_s / 2.0
    inside = (time_s > begin_s) & (time_s < end_s)
    edges_w = np.interp([begin_s, end_s], time_s, value)
    grid_s = np.concatenate([[begin_s], time_s[inside], [end_s]])
    power_w = np.concatenate([edges_w[:1], value[inside], edges_w[1:]])
    energy_j = float(np.trapezoid(power_w, grid_s))
    covered = min(1.0, channel.averaging_s / channel.period_s) if channel.period_s else 0.0
    variance = (1.0 - covered) * _between_samples(power_w, grid_s)
    if channel.seen < 1.0:
        variance = max(variance, (1.0 - channel.seen) * _unseen(power_w, grid_s))
    variance += (channel.resolution * length_s) ** 2 / 12.0
    variance += ((edges_w[1] - edges_w[0]) * late_s) ** 2 / 12.0
    for edge_s in window_s:
        variance += _edge(time_s, value, channel, edge_s)
    return energy_j, variance


def _between_samples(power_w: np.ndarray, grid_s: np.ndarray) -> float:
    """Variance of the trapezoidal rule, in J^2, from how it changes when samples are left out.

    With every second sample the integral over four intervals changes by D1, with every fourth
    by D2. For readings that are independent of each other the variances double from one to the
    next, for rare steps between two readings they grow fourfold, for a smooth curve sixteenfold;
    if they grow r-fold, the variance at the full rate is that of D1 over r - 1. The factors 8/7
    and 4/3 are for the ends that blocks share.
    """
    n = power_w.size - 1
    blocks = n // 4
    if blocks == 0:
        steps_j = np.diff(power_w) * np.diff(grid_s)
        return float((steps_j**2).sum()) / 2.0
    at = 4 * np.arange(blocks)
    every = {
        step: sum(
            (power_w[at + k] + power_w[at + k + step])
            / 2.0
            * (grid_s[at + k + step] - grid_s[at + k])
            for k in range(0, 4, step)
        )
        for step in (1, 2, 4)
    }
    d1, d2 = every[1] - every[2], every[2] - every[4]
    first, second = 8.0 / 7.0 * float((d1**2).sum()), 4.0 / 3.0 * float((d2**2).sum())
    ratio = WHITE
    if blocks >= FEW_BLOCKS and first > 0:
        # Less by what the ratio of few blocks may be too large by.
        ratio = min(max(second / first / (1.0 + 1.0 / math.sqrt(blocks)), WHITE), SMOOTH)
    return first / (ratio - 1.0) * n / (4.0 * blocks)


def _unseen(power_w: np.ndarray, grid_s: np.ndarray) -> float:
    """Variance, in J^2, of the integral of readings that follow each other slowly.

    A meter that looks at a part of the time can beat with a load that changes as often as it
    looks: its readings then go up and down though the load does not. So the readings, less a
    straight line, count as many as their autocorrelation leaves (the sum of its first positive
    terms).
    """
    n, length_s = power_w.size, float(grid_s[-1] - grid_s[0])
    if n < 3:
        return float(np.ptp(power_w)) ** 2 * length_s**2
    line = np.polynomial.Polynomial.fit(grid_s, power_w, 1)
    apart_w = power_w - line(grid_s)
    spread = float((apart_w**2).mean())
    if spread == 0.0:
        return 0.0
    together = 1.0
    for lag in range(1, n // 2):
        term = float((apart_w[lag:] * apart_w[:-lag]).mean()) / spread
        if term <= 0.0:
            break
        together += 2.0 * term
    share = min(together / n, MOST_TOGETHER)
    # What n correlated readings show of the true spread, less than all of it.
    return spread / (1.0 - share) * length_s**2 * share


def _edge(time_s: np.ndarray, value: np.ndarray, channel: Channel, edge_s: float) -> float:
    """Variance, in J^2, of one edge: it falls within a mean, or beyond what was read."""
    at = int(np.searchsorted(time_s, edge_s))
    reach = 1 + round(channel.averaging_s / (2.0 * channel.period_s)) if channel.period_s else 1
    near_w = value[max(at - reach, 0) : at + reach]
    step_w, hidden_w = float(np.ptp(near_w)), HIDDEN * float(near_w.mean())
    within = max(step_w**2 / 20.0, hidden_w**2 / 90.0) * channel.averaging_s**2
    beyond_s = max(time_s[0] - edge_s, edge_s - time_s[-1], 0.0)
    return float(within + (max(step_w, hidden_w) * beyond_s) ** 2 / 3.0)
