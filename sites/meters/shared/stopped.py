"""Detect a counter or gauge that stopped: it shows the same value for too long.

Counters stop without an error: the energy counter of an AMD GPU was seen frozen until the machine
was rebooted, and psys never moves on boards that do not wire it. The energy of such a window would
be too small, and nothing else would show it.
"""

from __future__ import annotations

from collections.abc import Sequence

from sites.meters.shared.meter import Channel

LEAST_PERIODS = {"energy": 20, "power": 50}
"""The most updates in a row that may show the same value. More for a power, which can be steady."""
LEAST_S = 0.2
"""The shortest stretch that counts: SMIs delay RAPL's updates by a few nominal periods of 1 ms."""
LEAST_POWER_W = 1.0
"""The least power of a powered domain, so that a coarse counter (psys: 1 J) has time to change."""
FINE = 1e-3
"""A power with a resolution below this share of its value is never steady: noise changes it."""
UNIT = 1e-6
"""The resolution of a sensor of which only the unit of its file is known, in W or J."""
STEPS_W = (1.0, 0.1, 0.01, 1e-3)
"""The step of such a power: the largest of these of which all its readings are multiples."""
NS_PER_S = 10**9


def stopped(channel: Channel, time_ns: Sequence[int], value: Sequence[float]) -> str | None:
    """Report that a channel stopped, if it showed the same value for longer than is plausible.

    Args:
        channel: the channel that was read.
        time_ns: CLOCK_MONOTONIC of the readings, in order. For a meter with time stamps, the times
            at which it was read: a stamp stops with its counter.
        value: the readings, in J or W.

    Returns:
        A sentence about the longest stretch of equal readings, if it lasts at least 0.2 s and 20
        nominal periods of an energy (50 of a power), and should contain a change: for an energy,
        within the time in which 1 W adds one step of its resolution; for a power, only if its
        resolution is below 1e-3 of its value. None otherwise.

    Raises:
        ValueError: the numbers of times and readings differ, or the times decrease.
    """
    if len(time_ns) != len(value):
        raise ValueError(f"{channel.name}: {len(time_ns)} times of {len(value)} readings")
    begin, end = _longest_still(time_ns, value)
    if end <= begin:
        return None
    still_s = (time_ns[end] - time_ns[begin]) / NS_PER_S
    level = value[begin]
    least_s = max(LEAST_S, LEAST_PERIODS[channel.kind] * channel.period_s)
    if channel.kind == "energy":
        least_s = max(least_s, channel.resolution / LEAST_POWER_W)
    elif _step_w(channel, value) >= FINE * abs(level):
        return None
    if still_s < least_s:
        return None
    unit = "J" if channel.kind == "energy" else "W"
    return (
        f"{channel.name} stopped: it showed {level:.6g} {unit} for {still_s:.3g} s, although it "
        f"is updated every {channel.period_s:.3g} s in steps of {channel.resolution:.3g} {unit}"
    )


def _step_w(channel: Channel, value: Sequence[float]) -> float:
    if channel.resolution != UNIT:
        return channel.resolution
    units = {round(watts / UNIT) for watts in value}
    return next((w for w in STEPS_W if not any(n % round(w / UNIT) for n in units)), UNIT)


def _longest_still(time_ns: Sequence[int], value: Sequence[float]) -> tuple[int, int]:
    """The first and last index of the longest time without a change; (0, 0) without readings."""
    longest, begin = (0, 0), 0
    for index in range(1, len(value)):
        if time_ns[index] < time_ns[index - 1]:
            raise ValueError("the times of readings go back")
        if value[index] != value[begin]:
            begin = index
        elif time_ns[index] - time_ns[begin] > time_ns[longest[1]] - time_ns[longest[0]]:
            longest = (begin, index)
    return longest
