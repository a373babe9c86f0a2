"""The settings that may be picked: those that were measured, and legal ones of known voltage."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from analysis.measurements.observations import Observations

Setting = tuple[float, float]


def known_volts(
    data: Observations,
    legal: Mapping[tuple[float | None, float | None], tuple[float | None, float | None]],
) -> dict[Setting, tuple[float, float]]:
    """The voltages of every setting that was measured or is legal, where they are known.

    ``legal``: (core MHz, memory MHz) -> (core V, memory V), None where there is no such clock or
    the voltage is not known. Where the measurements carry no voltage, every one is 1.

    Returns:
        (core MHz, memory MHz), NaN where there is no such clock -> (core V, memory V).
    """
    # NaN is not equal to itself, so settings are compared with None in its place.
    measured = {tuple(map(_none_for_nan, pair)): pair for pair in data.settings}
    volts: dict[Setting, tuple[float, float]] = {}
    for pair, (core_v, mem_v) in legal.items():
        core_mhz, mem_mhz = (math.nan if mhz is None else float(mhz) for mhz in pair)
        setting = measured.get(pair, (core_mhz, mem_mhz))
        if data.voltage == "unit":
            volts[setting] = (1.0, 1.0)
        elif core_v is not None:
            volts[setting] = (core_v, 1.0 if mem_v is None else mem_v)
    for index in np.unique(data.setting):
        rows = data.setting == index
        volts[data.settings[index]] = (
            float(data.core_v[rows].mean()),
            float(data.mem_v[rows].mean()),
        )
    return volts


def _none_for_nan(mhz: float) -> float | None:
    return None if math.isnan(mhz) else mhz
