"""The checks of energy against power and time, and of their units."""

from __future__ import annotations

import numpy as np

from analysis.quality.finding import MAX_NAMED, Finding, first_named
from analysis.quality.noise import RELEVANT
from analysis.quality.rows import Rows

PLAUSIBLE_W = (1e-3, 2e4)


def energy_against_power(rows: Rows, power_w: np.ndarray) -> list[Finding]:
    """Rows whose energy is not the power (W) kept beside it times the time."""
    known = np.flatnonzero(power_w > 0)
    ratio = np.exp(rows.values["power"][known]) / power_w[known]
    wrong = np.abs(np.log(ratio)) > RELEVANT
    if not wrong.any():
        return []
    bad = known[wrong]
    usual = float(np.median(ratio[wrong]))
    one_factor = len(bad) > 2 and np.abs(np.log(ratio[wrong] / usual)).max() < RELEVANT
    named = [
        f"{rows.where(rows.kernel[i], rows.setting[i])}: {np.exp(rows.values['energy'][i]):.4g} J, "
        f"but {power_w[i] * np.exp(rows.values['time'][i]):.4g} J by power times time"
        for i in bad[:MAX_NAMED]
    ]
    cause = (
        f"always by a factor of {usual:.4g}: one of the units is wrong, import it with a factor"
        if one_factor
        else "find out which of the two was measured, and leave the other out"
    )
    return [
        Finding(
            "energy",
            "warning",
            rows.index[bad],
            f"in {len(bad)} rows energy is not power times time ({first_named(named)}); {cause}",
        )
    ]


def plausible(rows: Rows) -> list[Finding]:
    """A median power that is not plausible for a node."""
    power_w = float(np.exp(np.median(rows.values["power"])))
    if PLAUSIBLE_W[0] <= power_w <= PLAUSIBLE_W[1]:
        return []
    return [
        Finding(
            "units",
            "warning",
            rows.index,
            f"the median of energy over time is {power_w:.3g} W, which is not plausible for a "
            f"node; check the "
            f"units of energy_j and time_s (mJ? ms?) and import with their factors",
        )
    ]
