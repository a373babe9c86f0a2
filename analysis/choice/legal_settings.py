"""The settings that may be picked: those that were measured, and legal ones of known voltage."""

from __future__ import annotations

from analysis.measurements.observations import Observations, measured_volts
from dvfs.setting import LegalVolts, Setting


def known_volts(data: Observations, legal: LegalVolts) -> dict[Setting, tuple[float, float]]:
    """The core and memory voltage of every setting that was measured or is legal, where they are
    known.

    ``legal``: those of the legal settings, None where there is no such clock or the voltage is not
    known. Where the measurements carry no voltage, every one is 1.
    """
    volts: dict[Setting, tuple[float, float]] = {}
    for setting, (core_v, mem_v) in legal.items():
        if data.voltage == "unit":
            volts[setting] = (1.0, 1.0)
        elif core_v is not None:
            volts[setting] = (core_v, 1.0 if mem_v is None else mem_v)
    return volts | measured_volts(data)
