"""Whether a channel stands still: a counter or gauge that shows the same for too long.

Counters stop without an error: an AMD GPU's energy was seen frozen until the machine was started
again, and psys never moves on boards that do not wire it. The energy of such a window would be
too small, and nothing else would tell.
"""

from __future__ import annotations

from collections.abc import Sequence

from sites.meters.shared.meter import Channel

LEAST_PERIODS = {"energy": 20, "power": 50}
"""How many updates in a row may show the same. More for a power, which can be steady."""
LEAST_S = 0.2
"""Below this a nominal period of 1 ms says little: SMIs delay RAPL's updates by some of them."""
LEAST_POWER_W = 1.0
"""What every powered domain draws, so that a coarse counter (psys: 1 J) has time to move."""
FINE = 1e-3
"""A power that can show a change of this share of itself is never steady: noise alone moves it."""
NS_PER_S = 10**9


def stopped(channel: Channel, time_ns: Sequence[int], value: Sequence[float]) -> str | None:
    """Say that a channel stood still, if it did for longer than it can have.

    Args:
        channel: whose readings they are.
        time_ns: when they were taken, in CLOCK_MONOTONIC, in order. For a meter with time stamps
            of its own, when it was read: a stamp stops with its counter.
        value: the readings, in J or W.

    Returns:
        A sentence for the longest stretch of readings that are all the same, if it lasts at
        least 20 nominal periods of an energy (50 of a power) and 0.2 s, and a change was to be
        expected in it: of an energy, one step for each watt second of its resolution; of a power,
        only where its resolution is below 1e-3 of what it shows. None otherwise.

    Raises:
        ValueError: there are not as many times as readings, or the times go back.
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
    elif channel.resolution >= FINE * abs(level):
        return None
    if still_s < least_s:
        return None
    unit = "J" if channel.kind == "energy" else "W"
    return (
        f"{channel.name} showed the same {level:.6g} {unit} for {still_s:.3g} s, although it "
        f"is updated every {channel.period_s:.3g} s in steps of {channel.resolution:.3g} {unit}: "
        "it stands still"
    )


def _longest_still(time_ns: Sequence[int], value: Sequence[float]) -> tuple[int, int]:
    """The first and last index of the longest time without a change; (0, 0) of no readings."""
    longest, begin = (0, 0), 0
    for index in range(1, len(value)):
        if time_ns[index] < time_ns[index - 1]:
            raise ValueError("the times of readings go back")
        if value[index] != value[begin]:
            begin = index
        elif time_ns[index] - time_ns[begin] > time_ns[longest[1]] - time_ns[longest[0]]:
            longest = (begin, index)
    return longest
