"""Clocks and a power limit, set together by two controls."""

from __future__ import annotations

from dataclasses import replace

from dvfs.setting import Setting
from sites.clocks.shared.control import ClockControl, ClockState


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
