"""Voltage curves: where no voltage is known, V(f) is estimated from the energies.

Only V relative to the highest clock matters: the coefficients absorb its absolute value. There are
two families, both rising with the clock and linear between their knots:

- ``floor``: one voltage up to a knee, then a linear rise to the highest clock, as by a regulator
  that cannot go below its lowest voltage. Of two clocks the lower has the floor.
- ``free``: a voltage for each measured clock, which must not fall as the clock rises.

The sum of squares at the best coefficients is minimised over the knots (variable projection: Golub
and Pereyra, SIAM J. Numer. Anal. 10, 1973).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from analysis.energy.curves import LEVEL, Curves, VoltageCurve, voltage_varies
from analysis.energy.normal_equations import NormalEquations, solve
from analysis.ties import first_least

LOWEST_V = 0.5
"""No relative voltage is estimated below this: few DVFS ranges reach a factor of two."""
KNEE_END = 0.95
FLOOR_STARTS = ((0.9, 0.0), (0.75, 0.0), (0.85, 0.4), (0.75, 0.7))
FREE_START_V = 0.8
LARGEST_FALL = 7.0
"""A larger fall leaves less than a thousandth of the range above the lowest voltage."""
SEARCH = {"ftol": 1e-11, "gtol": 1e-10, "maxiter": 200, "maxcor": 30}
DIGITS = 5
"""Decimals of a curve's parameters: finer than any measurement of a voltage, and coarser than the
uncertainty of the search for the minimum."""


def curve_numbers(family: str, mhz: np.ndarray) -> int:
    """Return the number of parameters of a family's curves over settings ``mhz``, float64
    (S, 2)."""
    return sum(domain.size for domain in _domains(family, mhz))


def _domains(family: str, mhz: np.ndarray) -> list[_Floor | _Free]:
    kind = _Floor if family == "floor" else _Free
    varies = voltage_varies(mhz)
    return [kind(mhz[:, i] if varies[i] else np.full(len(mhz), np.nan)) for i in (0, 1)]


def estimate_curves(
    family: str,
    equations: NormalEquations,
    mhz: np.ndarray,
    weight: np.ndarray | None = None,
    starts: Sequence[np.ndarray] = (),
) -> Curves:
    """Return the curves with which the coefficients fit best.

    ``mhz``: float64 (S, 2), the core and memory clock of each setting of the equations;
    ``weight`` (S,): how often each setting counts; ``starts``: parameters to search from, such as
    those of a similar problem, in place of the usual ones. A domain whose clock does not vary keeps
    V = 1. The parameters are rounded to :data:`DIGITS`, so that results do not depend on the
    processor's rounding on the way to the minimum.
    """
    from scipy import optimize  # noqa: PLC0415

    weight = np.ones(len(mhz)) if weight is None else weight
    domains = _domains(family, mhz)
    cut = domains[0].size
    size = cut + domains[1].size
    if size == 0:
        return Curves(LEVEL, LEVEL, np.zeros(0))
    warm = np.zeros(len(equations.shared))

    def cost(numbers: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal warm
        parts = numbers[:cut], numbers[cut:]
        (core_v, core_by), (mem_v, mem_by) = (
            domain.volts(part) for domain, part in zip(domains, parts, strict=True)
        )
        solution = solve(equations, weight, core_v, mem_v, warm)
        warm = solution.value
        return solution.cost, np.concatenate(
            [solution.core_slope @ core_by, solution.mem_slope @ mem_by]
        )

    bounds = [bound for domain in domains for bound in domain.bounds()]
    if len(starts):
        starts = [np.clip(start, *np.transpose(bounds)) for start in starts]
    else:
        usual = range(len(FLOOR_STARTS) if family == "floor" else 1)
        starts = [np.concatenate([domain.start(i) for domain in domains]) for i in usual]
    minima = [
        optimize.minimize(cost, numbers, jac=True, bounds=bounds, method="L-BFGS-B", options=SEARCH)
        for numbers in starts
    ]
    best = minima[int(first_least(np.array([minimum.fun for minimum in minima])))]
    numbers = np.round(best.x, DIGITS)
    return Curves(domains[0].curve(numbers[:cut]), domains[1].curve(numbers[cut:]), numbers)


def neighbouring_knees(family: str, mhz: np.ndarray, numbers: np.ndarray) -> list[np.ndarray]:
    """Return copies of ``numbers`` with one knee moved to the next interval between clocks, below
    or above.

    The sum of squares has a kink where a knee passes a clock, so that there may be a minimum
    between any two clocks. ``mhz``: float64 (S, 2); none for the family ``free``.
    """
    neighbours = []
    first = 0
    for domain in _domains(family, mhz):
        if isinstance(domain, _Floor) and domain.size == 2:
            clocks = (np.unique(domain.mhz) - domain.low) / (domain.top - domain.low)
            middles = np.minimum((clocks[1:] + clocks[:-1]) / 2, KNEE_END)
            interval = np.searchsorted(clocks, numbers[first + 1], "right") - 1
            for middle in (
                *middles[max(interval - 1, 0) : interval],
                *middles[interval + 1 : interval + 2],
            ):
                moved = numbers.copy()
                moved[first + 1] = middle
                neighbours.append(moved)
        first += domain.size
    return neighbours


class _Floor:
    """Parameters (floor, knee): the voltage below the knee, and the knee's position between lowest
    (0) and highest clock (1). Of two clocks the floor alone, with the knee at the lower."""

    def __init__(self, mhz: np.ndarray) -> None:
        clocks = mhz[np.isfinite(mhz)]
        self.low = float(clocks.min()) if clocks.size else 1.0
        self.top = float(clocks.max()) if clocks.size else 1.0
        self.mhz = np.where(np.isfinite(mhz), mhz, self.top)
        self.size = min(len(np.unique(clocks)), 3) - 1 if clocks.size else 0

    def bounds(self) -> list[tuple[float, float]]:
        return [(LOWEST_V, 1.0), (0.0, KNEE_END)][: self.size]

    def start(self, i: int) -> np.ndarray:
        return np.array(FLOOR_STARTS[i][: self.size])

    def volts(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The voltage of each setting, and how each number changes it: (S,), (S, size)."""
        if not self.size:
            return np.ones(len(self.mhz)), np.zeros((len(self.mhz), 0))
        floor, share = (*numbers, 0.0)[:2]
        span = self.top - self.low
        knee = self.low + share * span
        rise = np.maximum(self.mhz - knee, 0.0) / (self.top - knee)
        share_slope = np.where(
            rise > 0, (1.0 - floor) * (rise - 1.0) * span / (self.top - knee), 0.0
        )
        slopes = np.column_stack([1.0 - rise, share_slope])[:, : self.size]
        return floor + (1.0 - floor) * rise, slopes

    def curve(self, numbers: np.ndarray) -> VoltageCurve:
        if not self.size:
            return LEVEL
        floor, share = (*numbers, 0.0)[:2]
        knee = self.low + share * (self.top - self.low)
        return VoltageCurve(np.array([knee, self.top]), np.array([floor, 1.0]))


class _Free:
    """Parameters: the falls of log(V - LOWEST_V) from each clock to the next lower one.

    V - LOWEST_V = (1 - LOWEST_V) exp(-sum of the falls above), so that with falls >= 0 the curve
    rises with the clock and stays above LOWEST_V.
    """

    def __init__(self, mhz: np.ndarray) -> None:
        has_clock = np.isfinite(mhz)
        self.mhz = np.unique(mhz[has_clock])
        self.size = max(len(self.mhz) - 1, 0)
        self.clock_index = np.minimum(
            np.searchsorted(self.mhz, np.where(has_clock, mhz, np.inf)), self.size
        )
        # The i-th clock's logarithm is the sum of all falls above it, negative.
        self.falls = -np.triu(np.ones((self.size + 1, self.size + 1)), 1)[:, 1:]

    def bounds(self) -> list[tuple[float, float]]:
        return [(0.0, LARGEST_FALL)] * self.size

    def start(self, _i: int) -> np.ndarray:
        above = (FREE_START_V - LOWEST_V) / (1.0 - LOWEST_V)
        return np.full(self.size, -np.log(above) / max(self.size, 1))

    def volts(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The voltage of each setting, and how each number changes it: (S,), (S, size)."""
        if not self.size:
            return np.ones(len(self.clock_index)), np.zeros((len(self.clock_index), 0))
        log_slopes = self.falls[self.clock_index]
        above = (1.0 - LOWEST_V) * np.exp(log_slopes @ numbers)
        return LOWEST_V + above, log_slopes * above[:, None]

    def curve(self, numbers: np.ndarray) -> VoltageCurve:
        if not self.size:
            return LEVEL
        above = (1.0 - LOWEST_V) * np.exp(self.falls @ numbers)
        return VoltageCurve(self.mhz, LOWEST_V + above)
