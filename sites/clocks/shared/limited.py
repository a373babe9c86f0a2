"""Clocks and a power limit, set together by two controls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from dvfs.setting import Setting
from sites.clocks.shared.control import ClockControl, ClockState

LIMIT_PCT = 1.0
"""A device may round its power limit by so much."""


def is_limit(found_w: float, limit_w: float) -> bool:
    """Whether a limit that a device reports is the one that was asked for, in W."""
    return abs(found_w / limit_w - 1.0) <= LIMIT_PCT / 100.0


def value_of_all(values: Sequence[float], asked: float | None) -> float:
    """A power limit or clock of several devices: their mean, or that which is furthest from what
    was asked for, so that one device with another is noticed."""
    if asked is None:
        return sum(values) / len(values)
    return max(values, key=lambda value: abs(value - asked))


class LimitControl(ClockControl, Protocol):
    """Sets the power limit of a setting, and no clock."""

    def range_w(self) -> tuple[float | None, float | None]:
        """The lowest and the highest limit that every device offers, in W; None where it is not
        reported.

        Raises:
            ClocksError: it cannot be read.
        """


class WithPowerLimit:
    """A clock control, and one that sets the power limit of each setting first."""

    def __init__(self, clocks: ClockControl, limit: ClockControl) -> None:
        self._clocks = clocks
        self._limit = limit

    def legal(self) -> list[Setting] | None:
        clocks, limits = self._clocks.legal(), self._limit.legal()
        if clocks is None or limits is None:
            return None
        return [Setting(*one.clocks, limit.power_limit_w) for one in clocks for limit in limits]

    def set(self, setting: Setting) -> None:
        self._limit.set(Setting(power_limit_w=setting.power_limit_w))
        self._clocks.set(setting.without_limit)

    def state(self) -> ClockState:
        state, limit = self._clocks.state(), self._limit.state()
        at = Setting(*state.setting.clocks, limit.setting.power_limit_w)
        return replace(state, setting=at)

    def restore(self) -> None:
        try:
            self._clocks.restore()
        finally:
            self._limit.restore()
