"""The check of energy against power and time."""

from __future__ import annotations

import numpy as np

from analysis.quality.finding import MAX_NAMED, Finding, first_named
from analysis.quality.noise import RELEVANT
from analysis.quality.rows import Rows


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
