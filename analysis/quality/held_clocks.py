"""The check of achieved clocks against the nominal ones."""

from __future__ import annotations

import numpy as np

from analysis.measurements.observations import setting_text
from analysis.quality.finding import MAX_NAMED, Finding, first_named
from analysis.quality.rows import Rows

HELD_CLOCK = 0.05
"""Relative: an achieved clock further than this from the nominal one was not held."""


def off_nominal(rows: Rows) -> np.ndarray:
    """bool, a row each: whether an achieved clock is not the nominal one."""
    nominal = rows.mhz[rows.setting]
    with np.errstate(invalid="ignore"):
        return np.asarray((np.abs(rows.achieved_mhz / nominal - 1.0) > HELD_CLOCK).any(1))


def clocks_not_held(rows: Rows) -> list[Finding]:
    """Rows whose achieved clocks are not the nominal ones."""
    off = np.flatnonzero(off_nominal(rows))
    if not len(off):
        return []
    named = []
    for i in off[:MAX_NAMED]:
        reached = setting_text(rows.achieved_mhz[i])
        named.append(f"{rows.where(rows.kernel[i], rows.setting[i])} ran at {reached}")
    return [
        Finding(
            "clocks",
            "warning",
            rows.index[off],
            f"in {len(off)} rows the achieved clock is more than {100 * HELD_CLOCK:.0f} % from "
            f"the nominal one ({first_named(named)}"
            + ("; and more" if len(off) > MAX_NAMED else "")
            + "); import the achieved clocks as core_mhz and mem_mhz",
        )
    ]
