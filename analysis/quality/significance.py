"""From which size on a difference counts: no chance, and not too small to matter."""

from __future__ import annotations

from scipy import special

FALSE_ALARM = 0.01
"""The chance that a check finds something in a clean data set."""
RELEVANT = 0.01
"""Differences of less than one percent are of no interest, however sure they are."""


def student_limit(n_compared: int, df: float) -> float:
    """Student's t of ``df`` degrees of freedom beyond which none of ``n_compared`` comes by
    chance."""
    # scipy.special: scipy.stats takes a second to import.
    tail = 0.5 * FALSE_ALARM / max(n_compared, 1)
    return float(-special.stdtrit(min(max(df, 1.0), 1e6), tail))
