"""A linear cost model, the sum over terms of a count times a price, and a fit of the prices.

Prajapati 2019 fits the constants of its models to some measured variants: times by non-negative
least squares on the relative error, so that short and long ones count equally (section A.5), and
energies also by least absolute deviations, a linear program (section B.7.1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from analysis.costs.stencil_time import PredictionError

Way = Literal["least_squares", "least_absolute"]
LEAST_SQUARES: Way = "least_squares"
LEAST_ABSOLUTE: Way = "least_absolute"
PARTS = 40
"""The most refits for an interval, each without one part of the rows."""
LEAST_SHARE = 1e-9
"""The least singular value, as a share of the largest, that counts as nonzero."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearCost:
    """A cost as a sum over ``terms``: count times price.

    ``value``: float64 (terms,), the prices, 0 or more; ``low``, ``high``: their 95 % intervals.
    ``inseparable``: groups of terms whose columns are linearly dependent in the ``n`` fitted rows,
    so that only their sum is known; the interval of such a term includes every price that explains
    the rows equally well. ``error``: root mean square of the relative error of these rows.
    """

    terms: tuple[str, ...]
    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    inseparable: tuple[tuple[str, ...], ...]
    n: int
    error: float

    def of(self, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        """The costs (n,) for the counts ``columns``: term -> (n,), with all terms."""
        return np.asarray(_matrix(columns, self.terms) @ self.value)


def at_clocks(
    columns: Mapping[str, np.ndarray],
    clocks: Mapping[str, np.ndarray],
    powers: tuple[int, ...] = (-1,),
    highest: Mapping[str, float] | None = None,
) -> dict[str, np.ndarray]:
    """``columns``, and each column times powers of every clock that takes several values: for costs
    in cycles of that clock, or energies that rise with it.

    ``clocks``: name -> MHz (n,), NaN for none. Powers are of the clock over its highest value, so
    that a price holds at the highest clock. ``highest``: the clocks that take several values and
    their highest values, if these rows have only some of them.
    """
    result = dict(columns)
    for clock, mhz in clocks.items():
        finite = mhz[np.isfinite(mhz)]
        top_mhz = highest.get(clock) if highest is not None else finite.max(initial=0.0)
        if top_mhz and (highest is not None or finite.min() < top_mhz):
            relative = np.where(np.isfinite(mhz), mhz / top_mhz, 1.0)
            for power in powers:
                factor = f"/ {clock}" if power == -1 else f"* {clock}^{power}"
                for name, column in columns.items():
                    result[f"{name} {factor}"] = column * relative**power
    return result


def fit_linear_cost(
    columns: Mapping[str, np.ndarray],
    costs: np.ndarray,
    way: Way = LEAST_SQUARES,
    *,
    intervals: bool = True,
) -> LinearCost:
    """Fit prices, with intervals and the terms that cannot be separated.

    ``columns``: term -> (n,), 0 or more; terms that are 0 in every row are omitted. ``costs``:
    (n,), positive. ``way``: what is least, the sum of squared relative or of absolute errors.

    Raises:
        PredictionError: no row, or no term.
    """
    terms = tuple(name for name, column in columns.items() if np.any(column != 0))
    if not terms or not len(costs):
        raise PredictionError("no variant with counts was measured: measure some, then fit again")
    relative = _matrix(columns, terms) / costs[:, None]
    value = _solved(relative, costs, way)
    groups = _dependent(relative)
    low = high = np.full(len(terms), np.nan)
    if intervals and len(costs) > 1:
        low, high = _interval(relative, costs, value, way)
    error = float(np.sqrt(np.mean((relative @ value - 1.0) ** 2)))
    return LinearCost(
        terms=terms,
        value=value,
        low=low,
        high=high,
        inseparable=tuple(tuple(terms[i] for i in group) for group in groups),
        n=len(costs),
        error=error,
    )


def _matrix(columns: Mapping[str, np.ndarray], terms: tuple[str, ...]) -> np.ndarray:
    return np.stack([np.asarray(columns[name], float) for name in terms], axis=1)


def _solved(relative: np.ndarray, costs: np.ndarray, way: Way) -> np.ndarray:
    """The prices. ``relative``: the counts (rows, terms), each row divided by its cost."""
    from scipy.optimize import nnls  # noqa: PLC0415

    if way == LEAST_ABSOLUTE:
        return _least_absolute(relative, costs)
    scale = _scale(relative)
    value, _ = nnls(relative / scale, np.ones(len(relative)), maxiter=100 * len(scale))
    return np.asarray(value / scale)


def _least_absolute(relative: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """The prices with the least sum of absolute errors: each row has a slack variable that bounds
    its error in both directions, and the program minimises the sum of these."""
    from scipy.optimize import linprog  # noqa: PLC0415

    scale, slack = _scale(relative), np.eye(len(relative))
    scaled = relative / scale
    solution = linprog(
        np.concatenate([np.zeros(len(scale)), costs / costs.max()]),
        A_ub=np.block([[scaled, -slack], [-scaled, -slack]]),
        b_ub=np.concatenate([np.ones(len(relative)), -np.ones(len(relative))]),
        method="highs",
    )
    return np.asarray(solution.x[: len(scale)] / scale)


def _scale(relative: np.ndarray) -> np.ndarray:
    largest = np.abs(relative).max(axis=0, initial=0.0)
    return np.where(largest > 0, largest, 1.0)


def _free_directions(relative: np.ndarray) -> np.ndarray:
    """The directions in which prices can move without a change of any row's cost, for columns
    scaled by :func:`_scale`: (directions, terms)."""
    triangle = np.linalg.qr(relative / _scale(relative), mode="r")
    _, singular, directions = np.linalg.svd(triangle)
    rank = int((singular > LEAST_SHARE * singular.max(initial=0.0)).sum())
    return np.asarray(directions[rank:])


def _dependent(relative: np.ndarray) -> list[list[int]]:
    """The groups of linearly dependent columns, by index.

    The projection onto the free directions links two columns if its entry is not zero.
    """
    free = _free_directions(relative)
    return grouped(np.abs(free.T @ free) > np.sqrt(LEAST_SHARE))


def grouped(linked: np.ndarray) -> list[list[int]]:
    """The connected components of the graph ``linked``, bool (n, n), as sorted indices; a node
    without any link is in none."""
    from scipy.sparse.csgraph import connected_components  # noqa: PLC0415

    _, component = connected_components(linked, directed=False)
    with_link = component[linked.any(axis=1)]
    return [np.flatnonzero(component == group).tolist() for group in np.unique(with_link)]


def equally_good(value: np.ndarray, relative: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The least and the largest non-negative price of each term for which some prices of the other
    terms give every row the same cost as ``value``; two linear programs a term.

    ``value``: float64 (terms,), 0 or more; ``relative``: (rows, terms). Both results are ``value``
    if the columns are independent.
    """
    scale = _scale(relative)
    low, high = least_and_most(value * scale, _free_directions(relative))
    return low / scale, high / scale


def least_and_most(value: np.ndarray, free: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The least and the largest value of each entry of ``value`` (terms,) while all entries move
    along the directions ``free``, float64 (directions, terms), and none is negative."""
    from scipy.optimize import linprog  # noqa: PLC0415

    low, high = value.copy(), value.copy()
    for term in np.flatnonzero((np.abs(free) > np.sqrt(LEAST_SHARE)).any(axis=0)).tolist():
        for sign, limits in ((1.0, low), (-1.0, high)):
            solution = linprog(
                sign * free[:, term], A_ub=-free.T, b_ub=value, bounds=(None, None), method="highs"
            )
            if solution.success:
                limit = value[term] + free[:, term] @ solution.x
                limits[term] = limit if limit > LEAST_SHARE * value.max() else 0.0
    return low, high


def _interval(
    relative: np.ndarray,
    costs: np.ndarray,
    value: np.ndarray,
    way: Way,
) -> tuple[np.ndarray, np.ndarray]:
    """95 % intervals from refits without each part of the rows (jackknife), widened to every price
    that explains the rows equally well."""
    from scipy.special import stdtrit  # noqa: PLC0415

    n = len(relative)
    parts = min(n, PARTS)
    part = np.random.default_rng(0).permutation(n) % parts
    refits = np.empty((parts, len(value)))
    for left_out in range(parts):
        rows = part != left_out
        refits[left_out] = _solved(relative[rows], costs[rows], way)
    deviation = np.sqrt((parts - 1) / parts * ((refits - refits.mean(axis=0)) ** 2).sum(axis=0))
    n_prices = min(int((value > 0).sum()), parts - 1)
    half = stdtrit(max(parts - n_prices, 1), 0.975) * deviation
    low, high = np.maximum(value - half, 0.0), value + half
    least, most = equally_good(value, relative)
    return np.minimum(low, least), np.maximum(high, most)
