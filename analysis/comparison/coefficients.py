"""The comparison of the coefficients of two sites' fits: tests of differences, ratios, intervals.

The sites' measurements are independent, and so are the errors of their coefficients. A difference
is tested with Student's t and Satterthwaite's (1946) degrees of freedom; the interval of a ratio is
Fieller's (1954).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from scipy import special

from analysis.comparison.changes import ALPHA, COVERAGE, benjamini_hochberg
from analysis.energy.fit_summary import Coefficient, FitSummary
from analysis.energy.models import NOT_KNOWN

OPERATION = "c0_"
"""The beginning of the names of operations' coefficients."""
UPPER = (1.0 + COVERAGE) / 2.0
"""The quantile at the upper end of an interval."""


@dataclass(frozen=True, kw_only=True)
class CoefficientRatio:
    """A coefficient of two sites, ``value`` over ``reference``.

    ``low``, ``high``: the 95 % interval of this ratio alone; ``high`` is infinite if the reference
    may be 0. ``p``: the probability of such a difference between equal coefficients;
    ``adjusted_p``: corrected for the number of coefficients (Benjamini & Hochberg 1995). The ratio
    is NaN if the reference is 0, the others if a fit has no intervals. Both p are NaN if the
    coefficients do not stand for the same: one is for known voltages and the other is not, or one
    is a power of which the other model has taken the clock trees out.
    """

    name: str
    unit: str
    reference: float
    value: float
    ratio: float
    low: float
    high: float
    p: float
    adjusted_p: float = math.nan

    @property
    def significant(self) -> bool:
        """Whether the difference is significant, over all coefficients."""
        return self.adjusted_p <= ALPHA

    def as_dict(self) -> dict[str, Any]:
        """An entry of ``against`` of ``campaign coefficients --json``; missing values are None."""
        return {
            name: value if not isinstance(value, float) or math.isfinite(value) else None
            for name, value in (asdict(self) | {"significant": self.significant}).items()
        }


def compare_coefficients(reference: FitSummary, other: FitSummary) -> list[CoefficientRatio]:
    """The ratios of the coefficients in both fits, ``other`` over ``reference``, except lumped ones
    of single kernels."""
    others = {entry.name: entry for entry in other.coefficients}
    made = [
        _ratio(entry, others[entry.name], reference.degrees_of_freedom, other.degrees_of_freedom)
        for entry in reference.coefficients
        if entry.name in others and not entry.is_lumped
    ]
    volts_known = {fit.voltage not in NOT_KNOWN for fit in (reference, other)}
    if len(volts_known) > 1 or reference.model != other.model:
        made = [
            ratio
            if len(volts_known) == 1 and ratio.name.startswith(OPERATION)
            else replace(ratio, p=math.nan)
            for ratio in made
        ]
    adjusted = benjamini_hochberg(np.array([ratio.p for ratio in made]))
    return [
        replace(ratio, adjusted_p=float(value)) for ratio, value in zip(made, adjusted, strict=True)
    ]


def _ratio(first: Coefficient, second: Coefficient, df_a: float, df_b: float) -> CoefficientRatio:
    a, b = first.value, second.value
    ratio = b / a if a > 0 else math.nan
    low, high, p = math.nan, math.nan, math.nan
    if first.high is not None and second.high is not None:
        # The lower limit of an interval may be cut at 0, the upper one never is.
        var_a, var_b = (
            (half_width / special.stdtrit(df, UPPER)) ** 2
            for half_width, df in ((first.high - a, df_a), (second.high - b, df_b))
        )
        spread = var_a**2 / df_a + var_b**2 / df_b
        df = (var_a + var_b) ** 2 / spread if spread > 0 else math.inf
        if var_a + var_b > 0:
            t = abs(b - a) / math.sqrt(var_a + var_b)
            p = 2.0 * float(special.stdtr(df, -t))
        else:
            p = float(a == b)
        if a > 0:
            low, high = _fieller(a, b, var_a, var_b, float(special.stdtrit(df, UPPER)))
    return CoefficientRatio(
        name=first.name,
        unit=first.unit,
        reference=a,
        value=b,
        ratio=ratio,
        low=low,
        high=high,
        p=p,
    )


def _fieller(a: float, b: float, var_a: float, var_b: float, t: float) -> tuple[float, float]:
    """Fieller's interval of r = b / a: |b - r a| <= t sqrt(var_b + r^2 var_a). It starts at 0 or
    above, as neither coefficient is negative."""
    square = a * a - t * t * var_a
    if square <= 0:  # the reference may be 0: every large ratio is possible
        return 0.0, math.inf
    middle = a * b / square
    half = math.sqrt(max((a * b) ** 2 - square * (b * b - t * t * var_b), 0.0)) / square
    return max(middle - half, 0.0), middle + half
