"""Clocks, power limit and profile, each set by its control, and the core voltage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from dvfs.setting import Setting
from sites.clocks.shared.control import ClockControl, ClockState
from sites.clocks.shared.hwmon_voltage import read_volts

LIMIT_PCT = 1.0
"""The largest rounding of a power limit by a device, in %."""


def is_limit(found_w: float, limit_w: float) -> bool:
    """Whether a limit that a device reports is the requested one, in W."""
    return abs(found_w / limit_w - 1.0) <= LIMIT_PCT / 100.0


def value_of_all(values: Sequence[float], requested: float | None) -> float:
    """A power limit or clock of several devices: their mean, or the value furthest from the
    requested one, so that a device with another value is noticed."""
    if requested is None:
        return sum(values) / len(values)
    return max(values, key=lambda value: abs(value - requested))


class LimitControl(ClockControl, Protocol):
    """Sets the power limit of a setting, and no clock."""

    def range_w(self) -> tuple[float | None, float | None]:
        """The lowest and the highest limit that every device offers, in W; None where it is not
        reported.

        Raises:
            ClocksError: it cannot be read.
        """


class Together:
    """A clock control, and the controls that set other fields of each setting first.

    ``axes``: the field of a setting -> its control, in the order in which they are set.
    ``voltage``: hwmon's input of the core voltage, which states then have.
    """

    def __init__(
        self, clocks: ClockControl, axes: Mapping[str, ClockControl], voltage: Path | None
    ) -> None:
        self._clocks = clocks
        self._axes = axes
        self._voltage = voltage

    def legal(self) -> list[Setting] | None:
        legal = self._clocks.legal()
        for axis, control in self._axes.items():
            offered = control.legal()
            if legal is None or offered is None:
                return None
            values = [getattr(offer, axis) for offer in offered]
            legal = [replace(setting, **{axis: value}) for setting in legal for value in values]
        return legal

    def set(self, setting: Setting) -> None:
        for axis, control in self._axes.items():
            control.set(Setting(**{axis: getattr(setting, axis)}))
        self._clocks.set(replace(setting, **dict.fromkeys(self._axes)))

    def state(self) -> ClockState:
        state = self._clocks.state()
        if self._voltage is not None:
            state = replace(state, core_v=read_volts(self._voltage))
        values = {
            axis: getattr(control.state().setting, axis) for axis, control in self._axes.items()
        }
        return replace(state, setting=replace(state.setting, **values))

    def restore(self) -> None:
        with ExitStack() as last:
            for control in self._axes.values():
                last.callback(control.restore)
            self._clocks.restore()
