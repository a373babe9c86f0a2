"""The check of voltages that fall as the clock rises."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from analysis.quality.finding import Finding, first_named
from analysis.quality.rows import Rows
from dvfs.groups import Groups

FALLS = 0.02
"""Relative: a voltage under load that was measured falls by less."""
REVERSED = 0.05
"""Relative: from the lowest to the highest clock, no voltage table falls by as much."""


def falling_voltages(rows: Rows) -> list[Finding]:
    """Voltages (the median at each clock of a domain) that are lower at a higher clock."""
    findings = []
    for domain, name in ((0, "core"), (1, "mem")):
        clocks, of_setting = np.unique(rows.mhz[:, domain], return_inverse=True)
        at, volts = of_setting[rows.setting], rows.volts[:, domain]
        known = np.isfinite(volts) & np.isfinite(clocks)[at]
        groups = Groups(at[known])
        clocks, median_v = clocks[groups.codes], groups.medians(volts[known])
        falls = [
            f"{low_v:g} V at {low:g} MHz, {high_v:g} V at {high:g} MHz"
            for (low, low_v), (high, high_v) in pairwise(zip(clocks, median_v, strict=True))
            if high_v < low_v * (1 - FALLS)
        ]
        if not falls:
            continue
        whole = median_v[-1] < median_v[0] * (1 - REVERSED)
        findings.append(
            Finding(
                "voltages",
                "refused" if whole else "warning",
                rows.index[known],
                f"in {int(known.sum())} rows {name}_v falls as {name}_mhz rises "
                f"({first_named(falls)}); "
                + (
                    "the voltages may be in reverse order or of another column: correct them, or "
                    "leave them out"
                    if whole
                    else "check the voltage of these clocks"
                ),
            )
        )
    return findings
