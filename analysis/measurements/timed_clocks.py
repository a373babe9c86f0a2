"""Clocks that a timed loop shows by their ratios, where its cycles are not known.

A timed loop gives a rate, which is the clock up to a factor of the processor. If the clocks of a
node's settings were set, the rates follow them: rate / asked clock is one number, the factor. If
nothing was set, the rate is the same at all settings, and that quotient is not.

The factor is the one with which most settings of the node agree. It is taken only if these are
most of the node's settings, and if they are so far apart that one constant rate could not agree
with them as well.
"""

from __future__ import annotations

import numpy as np

TOLERANCE_PCT = 2.0
"""How far a rate may be from the factor times the clock, in %, if nothing else is said."""
LEAST_SPAN = 4.0
"""How many tolerances the agreeing clocks must span. A constant rate agrees with clocks that span
two: one tolerance below and one above it."""
LEAST_SLOPE = 0.8
"""The least slope of log rate against log clock over the agreeing settings: 1 where clocks are
set, 0 where they are not."""


def shown_by_timing(
    node: np.ndarray,
    asked_mhz: np.ndarray,
    timed_mhz: np.ndarray,
    tolerance_pct: float = TOLERANCE_PCT,
) -> np.ndarray:
    """Which rows ran at the clock that was asked for, by the ratios over the settings of a node.

    Args:
        node: the node of each row, any type that can be compared, (n,).
        asked_mhz: the core clock that was asked for, MHz, (n,); NaN where none was.
        timed_mhz: the clock that the timed loop gives, MHz or any multiple of it, (n,); NaN where
            it was not run.
        tolerance_pct: how far the two may be apart, in %, after the factor.

    Returns:
        bool (n,): shown. False where there is nothing to compare.
    """
    node = np.asarray(node)
    asked, timed = (np.asarray(mhz, np.float64) for mhz in (asked_mhz, timed_mhz))
    shown = np.zeros(len(node), bool)
    with np.errstate(invalid="ignore"):
        usable = (asked > 0) & (timed > 0) & np.isfinite(asked) & np.isfinite(timed)
    allowed = np.log1p(tolerance_pct / 100.0)
    for name in np.unique(node[usable]):
        rows = np.flatnonzero(usable & (node == name))
        log_asked, log_timed = np.log(asked[rows]), np.log(timed[rows])
        clocks, setting = np.unique(log_asked, return_inverse=True)
        rates = np.array([np.median(log_timed[setting == k]) for k in range(len(clocks))])
        factors = rates - clocks
        agree = np.abs(factors[:, None] - factors[None, :]) <= allowed
        members = agree[int(agree.sum(1).argmax())]
        factor = np.median(factors[members])
        members = np.abs(factors - factor) <= allowed
        if _follows(clocks[members], rates[members], allowed) and 2 * members.sum() > len(clocks):
            shown[rows] = np.abs(log_timed - log_asked - factor) <= allowed
    return shown


def _follows(log_clock: np.ndarray, log_rate: np.ndarray, allowed: float) -> bool:
    """Whether rates follow clocks that are far enough apart to say so."""
    if len(log_clock) < 2 or np.ptp(log_clock) < LEAST_SPAN * allowed:
        return False
    return bool(np.polyfit(log_clock, log_rate, 1)[0] >= LEAST_SLOPE)
