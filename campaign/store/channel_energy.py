"""The energy of a channel over a window, from its trace, with its uncertainty.

There are two kinds of uncertainty. The random one is independent in each window: edges between two
readings, changes between two samples, roundings. The other is the meter's calibration; repeats do
not reduce it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from campaign.store.measurement import Trace
from sites.meters import Channel

NS_PER_S = 1e9
HIDDEN = 0.2
"""The assumed size, relative to the power, of a step within an update of a meter, which no reading
shows. Its cause: kernels whose iterations are shorter than the meter's period."""
FEW_BLOCKS = 8
"""With fewer blocks the ratio of two differences is meaningless, and white noise is assumed."""
LARGEST_SHARE = 0.8
"""The largest value for the share of a window that one independent reading stands for."""
WHITE, SMOOTH = 2.0, 10.0
"""The ratio for independent readings, and for a smooth curve."""


@dataclass(frozen=True)
class Energy:
    """Joules over a window; NaN if unknown.

    ``random_j`` and ``gain_j`` are standard uncertainties: the random one of each window, and that
    of the meter's calibration.
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
    Power: the integral by the trapezoidal rule over its updates; each update stands in the middle
    of the time that it averages.
    Each update is assumed to be seen late by half the time between samples, or by half a period if
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
    """The greatest age, in s, of an update when it is first seen."""
    if channel.stamped or trace.time_ns.size < 2:
        return 0.0
    return min(float(np.median(np.diff(trace.time_ns))) / NS_PER_S, channel.period_s)


def updates(trace: Trace, channel: Channel) -> tuple[np.ndarray, np.ndarray]:
    """The times in s, and the values, of the meter's updates in a trace.

    A meter that is read faster than it updates shows each value many times; the first time is that
    of the update. A value that stays for several periods is several updates, a period apart,
    counted back from the change that ends it; so the first update may be older than the first
    reading. If the value never changes, the result is the first and the last reading.
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

    The errors of each edge: a rounding to the resolution and an update seen late (uniform, a
    twelfth of the square each), and a step of the power between the two readings around the edge.
    If the step lies at a share u of the time g between them, and the edge anywhere, the variance is
    (u (1 - u) step g)^2 / 3; step and u follow from the mean powers before, between and after. For
    any u, as for steps that no reading shows, the variance is (step g)^2 / 90.
    """
    gap_s = np.diff(time_s)
    power_w = np.diff(value) / np.maximum(gap_s, 1e-9)
    mean_w = float((value[-1] - value[0]) / (time_s[-1] - time_s[0]))
    total_j, variance = 0.0, channel.resolution**2 / 6.0
    for edge_s, sign in zip(window_s, (-1.0, 1.0), strict=True):
        within_s = min(max(edge_s, float(time_s[0])), float(time_s[-1]))
        beyond_s = edge_s - within_s
        total_j += sign * (float(np.interp(within_s, time_s, value)) + mean_w * beyond_s)
        gap = min(max(int(np.searchsorted(time_s, within_s)) - 1, 0), gap_s.size - 1)
        before_w = float(power_w[gap] - power_w[max(gap - 1, 0)])
        after_w = float(power_w[min(gap + 1, gap_s.size - 1)] - power_w[gap])
        changes_w = abs(before_w) + abs(after_w)
        step_w = math.sqrt(30.0) * abs(before_w * after_w) / max(changes_w, 1e-9)
        step_w = max(step_w, HIDDEN * mean_w)
        # A twelfth each of two readings, of which the edge takes the mean by its distance.
        variance += (max(float(power_w[gap]), mean_w) * late_s) ** 2 / 18.0
        variance += (step_w * float(gap_s[gap])) ** 2 / 90.0
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
    """The variance of the trapezoidal rule, in J^2, from its changes with fewer samples.

    With every second sample the integral over four intervals changes by D1, and from there to every
    fourth by D2. From one to the next the variance doubles for independent readings, grows fourfold
    for rare steps between two readings, and sixteenfold for a smooth curve. If it grows r-fold, the
    variance at the full rate is that of D1 over r - 1. The factors 8/7 and 4/3 allow for the ends
    that blocks share.
    """
    n = power_w.size - 1
    blocks = n // 4
    if blocks == 0:
        steps_j = np.diff(power_w) * np.diff(grid_s)
        return float((steps_j**2).sum()) / 2.0
    first_of_block = 4 * np.arange(blocks)
    by_step = {
        step: sum(
            (power_w[first_of_block + k] + power_w[first_of_block + k + step])
            / 2.0
            * (grid_s[first_of_block + k + step] - grid_s[first_of_block + k])
            for k in range(0, 4, step)
        )
        for step in (1, 2, 4)
    }
    d1, d2 = by_step[1] - by_step[2], by_step[2] - by_step[4]
    first, second = 8.0 / 7.0 * float((d1**2).sum()), 4.0 / 3.0 * float((d2**2).sum())
    ratio = WHITE
    if blocks >= FEW_BLOCKS and first > 0:
        # Reduced, because the ratio of few blocks may be too large.
        ratio = min(max(second / first / (1.0 + 1.0 / math.sqrt(blocks)), WHITE), SMOOTH)
    return first / (ratio - 1.0) * n / (4.0 * blocks)


def _unseen(power_w: np.ndarray, grid_s: np.ndarray) -> float:
    """The variance, in J^2, of the integral of a meter's readings that observe a part of the time.

    Such a meter can beat with a load that changes at its rate: the readings then vary slowly though
    the mean load does not. So the number of independent readings is found from the autocorrelation
    (the sum of its first positive terms) of the residuals from a straight line.
    """
    n, length_s = power_w.size, float(grid_s[-1] - grid_s[0])
    if n < 3:
        return float(np.ptp(power_w)) ** 2 * length_s**2
    line = np.polynomial.Polynomial.fit(grid_s, power_w, 1)
    residual_w = power_w - line(grid_s)
    spread = float((residual_w**2).mean())
    if spread == 0.0:
        return 0.0
    correlation = 1.0
    for lag in range(1, n // 2):
        term = float((residual_w[lag:] * residual_w[:-lag]).mean()) / spread
        if term <= 0.0:
            break
        correlation += 2.0 * term
    share = min(correlation / n, LARGEST_SHARE)
    # Divided, because n correlated readings show only a part of the true spread.
    return spread / (1.0 - share) * length_s**2 * share


def _edge(time_s: np.ndarray, value: np.ndarray, channel: Channel, edge_s: float) -> float:
    """The variance, in J^2, of one edge: within the time of an average, or beyond the readings."""
    index = int(np.searchsorted(time_s, edge_s))
    reach = 1 + round(channel.averaging_s / (2.0 * channel.period_s)) if channel.period_s else 1
    near_w = value[max(index - reach, 0) : index + reach]
    step_w, hidden_w = float(np.ptp(near_w)), HIDDEN * float(near_w.mean())
    within = max(step_w**2 / 20.0, hidden_w**2 / 90.0) * channel.averaging_s**2
    beyond_s = max(time_s[0] - edge_s, edge_s - time_s[-1], 0.0)
    return float(within + (max(step_w, hidden_w) * beyond_s) ** 2 / 3.0)
