"""Voltage curves, and measurements at the voltages of a form."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from analysis.energy.models import ESTIMATED
from analysis.measurements.observations import Observations


@dataclass(frozen=True)
class VoltageCurve:
    """A relative voltage: ``volt`` float64 (n,) at ``mhz`` (n,), linear between.

    It is constant below the lowest clock, as below a knee. Above the highest it continues its last
    linear rise, but not faster than the clock.
    """

    mhz: np.ndarray
    volt: np.ndarray

    def at(self, mhz: np.ndarray) -> np.ndarray:
        """Return the voltage at ``mhz``, float64 of its shape; 1 without such a clock (NaN)."""
        has_clock = np.isfinite(mhz)
        clock = np.where(has_clock, mhz, self.mhz[-1])
        volt = np.interp(clock, self.mhz, self.volt)
        if len(self.mhz) > 1:
            slope = (self.volt[-1] - self.volt[-2]) / (self.mhz[-1] - self.mhz[-2])
            slope = min(max(slope, 0.0), self.volt[-1] / self.mhz[-1])
            volt = volt + slope * np.maximum(clock - self.mhz[-1], 0.0)
        return np.where(has_clock, volt, 1.0)


LEVEL = VoltageCurve(np.array([1.0]), np.array([1.0]))
"""V = 1 at any clock."""


@dataclass(frozen=True)
class Curves:
    """The curves of both domains, and the parameters from which they were computed."""

    core: VoltageCurve
    mem: VoltageCurve
    numbers: np.ndarray


NO_CURVES = Curves(LEVEL, LEVEL, np.zeros(0))


def at_voltage(data: Observations, voltage: str, curves: Curves = NO_CURVES) -> Observations:
    """Return the rows with the voltages of a form: known ones, 1, or those of the curves."""
    if voltage not in ("unit", *ESTIMATED):
        return data
    return replace(data, core_v=curves.core.at(data.core_mhz), mem_v=curves.mem.at(data.mem_mhz))


def voltage_varies(mhz: np.ndarray) -> tuple[bool, bool]:
    """Return whether the core's and the memory's voltages are estimated, over settings ``mhz``,
    float64 (S, 2), NaN where there is no such clock.

    Where the memory's clock rises whenever the core's does, no measurement can separate their
    voltages: the core has a curve, and the memory V = 1.
    """
    core, mem = (len(np.unique(clocks[np.isfinite(clocks)])) > 1 for clocks in mhz.T)
    steps = np.diff(np.unique(mhz, axis=0), axis=0)  # by core clock, then by memory clock
    return core, mem and not (core and bool((steps > 0).all()))
