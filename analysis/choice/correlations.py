"""How a metric of variants goes with their rate and efficiency (Anzt et al. 2015, section 3.5)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

CONFIDENCE = 0.95
FEWEST = 4
"""Points from which a correlation has an interval."""
ROUNDING = 1e-12


@dataclass(frozen=True)
class Correlation:
    """Pearson's coefficient with its 95 % interval, NaN where it is not known."""

    r: float
    low: float
    high: float


def correlation(x: np.ndarray, y: np.ndarray) -> Correlation:
    """The correlation of two float64 arrays of one length; NaN where one of them is constant.

    The interval is Fisher's, in z = artanh r. Its standard error is the larger of Fisher's own,
    1 / sqrt(n - 3), which is that of normal data, and the one by the data's fourth moments, which
    holds for any (the delta method on r): metrics of variants are often a few discrete values, or
    spread over decades. Its quantile is Student's, with n - 3 degrees of freedom.
    """
    n = len(x)
    if n < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return Correlation(math.nan, math.nan, math.nan)
    u, v = ((values - values.mean()) / values.std() for values in (x, y))
    r = float(np.mean(u * v))
    if 1.0 - abs(r) < ROUNDING:
        r = math.copysign(1.0, r)
    if n < FEWEST:
        return Correlation(r, math.nan, math.nan)
    if abs(r) == 1.0:
        return Correlation(r, r, r)
    influence = u * v - r * (u**2 + v**2) / 2.0
    by_moments = math.sqrt(float(np.mean(influence**2))) / (1.0 - r**2)
    half = max(1.0, by_moments) / math.sqrt(n - 3)
    half *= float(stdtrit(n - 3, (1.0 + CONFIDENCE) / 2.0))
    z = math.atanh(r)
    return Correlation(r, math.tanh(z - half), math.tanh(z + half))
