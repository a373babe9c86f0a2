"""Voltage curves, and measurements at the voltages of a form."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from analysis.energy.models import ESTIMATED
from analysis.measurements.observations import Observations


@dataclass(frozen=True)
class VoltageCurve:
    """A relative voltage: ``volt`` float64 (n,) at ``mhz`` (n,), straight between.

    Below the lowest clock it stays, as below a knee; above the highest it goes on as straight as
    it rose before, but not faster than the clock.
    """

    mhz: np.ndarray
    volt: np.ndarray

    def at(self, mhz: np.ndarray) -> np.ndarray:
        """float64 of the shape of ``mhz``; 1 where there is no such clock (NaN)."""
        known = np.isfinite(mhz)
        at = np.where(known, mhz, self.mhz[-1])
        volt = np.interp(at, self.mhz, self.volt)
        if len(self.mhz) > 1:
            slope = (self.volt[-1] - self.volt[-2]) / (self.mhz[-1] - self.mhz[-2])
            slope = min(max(slope, 0.0), self.volt[-1] / self.mhz[-1])
            volt = volt + slope * np.maximum(at - self.mhz[-1], 0.0)
        return np.where(known, volt, 1.0)


LEVEL = VoltageCurve(np.array([1.0]), np.array([1.0]))
"""V = 1 at any clock."""


@dataclass(frozen=True)
class Curves:
    """The curves of both domains, and the numbers that the search found them by."""

    core: VoltageCurve
    mem: VoltageCurve
    numbers: np.ndarray


NO_CURVES = Curves(LEVEL, LEVEL, np.zeros(0))


def at_voltage(data: Observations, voltage: str, curves: Curves = NO_CURVES) -> Observations:
    """The rows with the voltages of a form: the known ones, 1, or those of the curves."""
    if voltage not in ("unit", *ESTIMATED):
        return data
    return replace(data, core_v=curves.core.at(data.core_mhz), mem_v=curves.mem.at(data.mem_mhz))


def voltage_varies(mhz: np.ndarray) -> tuple[bool, bool]:
    """Whether the core's and the memory's voltage are estimated, over settings ``mhz``, float64
    (S, 2), NaN where there is no such clock.

    Where the memory's clock rises whenever the core's does, no measurement shows whose voltage it
    is: the core has a curve, and the memory's V = 1.
    """
    core, mem = (len(np.unique(clocks[np.isfinite(clocks)])) > 1 for clocks in mhz.T)
    steps = np.diff(np.unique(mhz, axis=0), axis=0)  # by core clock, then by memory clock
    return core, mem and not (core and bool((steps > 0).all()))
