"""The fastest setting by brute force: that of the highest clocks among equally fast ones."""

from __future__ import annotations

from collections.abc import Mapping

from dvfs.setting import Setting


def raced(time_s: Mapping[Setting, float], noise: float) -> Setting:
    """``noise``: the relative standard error of each time."""
    least = min(time_s.values())
    tied = [
        setting
        for setting, of in time_s.items()
        if of - least <= 1.96 * noise * (of**2 + least**2) ** 0.5
    ]
    return max(tied, key=lambda setting: [mhz or 0.0 for mhz in setting.clocks])
