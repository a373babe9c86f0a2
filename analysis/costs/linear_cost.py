"""Costs that are a sum of numbers of things, each at a price: a fit of the prices.

Prajapati 2019 fits the constants of its models to some measured variants. Times by non-negative
least squares on the relative error, so that short and long ones count alike (section A.5);
energies also by least absolute deviations, a linear program (section B.7.1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from analysis.costs.stencil_time import PredictionError

LEAST_SQUARES, LEAST_ABSOLUTE = "least_squares", "least_absolute"
WAYS = (LEAST_SQUARES, LEAST_ABSOLUTE)
PARTS = 40
"""An interval comes from at most so many refits, each without a part of the rows."""
LEAST_SHARE = 1e-9
"""A direction in which the rows differ by less than this part of the largest does not count."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearCost:
    """A cost as a sum over ``terms``: number times price.

    ``value``: float64 (terms,), the cost of one of each, 0 or more; ``low``, ``high``: its 95 %
    interval. ``inseparable``: groups of terms whose columns depend on each other in the ``n`` rows
    that were fitted, so that only their sum is known; the interval of such a term has every price
    that explains the rows as well. ``error``: root mean square of the relative error of these rows.
    """

    terms: tuple[str, ...]
    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    inseparable: tuple[tuple[str, ...], ...]
    n: int
    error: float

    def of(self, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        """The cost (n,) of numbers ``columns``, of all terms: each (n,)."""
        return np.asarray(_matrix(columns, self.terms) @ self.value)


def at_clocks(
    columns: Mapping[str, np.ndarray],
    clocks: Mapping[str, np.ndarray],
    powers: tuple[int, ...] = (-1,),
    highest: Mapping[str, float] | None = None,
) -> dict[str, np.ndarray]:
    """``columns`` and, for every clock that takes several values, each of them times powers of it:
    what takes cycles of that clock, or energy that rises with it.

    ``clocks``: name -> MHz (n,), NaN where there is none. Powers are of the clock over its highest
    value, so that a price is that at the highest clock. ``highest``: the clocks that take several
    values, and their highest one, where these rows do not have all of them.
    """
    result = dict(columns)
    for clock, mhz in clocks.items():
        known = mhz[np.isfinite(mhz)]
        of = highest.get(clock) if highest is not None else known.max(initial=0.0)
        if of and (highest is not None or known.min() < of):
            relative = np.where(np.isfinite(mhz), mhz / of, 1.0)
            for power in powers:
                by = f"/ {clock}" if power == -1 else f"* {clock}^{power}"
                for name, column in columns.items():
                    result[f"{name} {by}"] = column * relative**power
    return result


def fit_linear_cost(
    columns: Mapping[str, np.ndarray],
    costs: np.ndarray,
    way: str = LEAST_SQUARES,
    *,
    seed: int = 0,
    intervals: bool = True,
) -> LinearCost:
    """Fit prices, with intervals and the terms that cannot be separated.

    ``columns``: term -> (n,), 0 or more; terms that are 0 in every row are left out. ``costs``:
    (n,), positive. ``way``: one of :data:`WAYS`; the second minimises the sum of the absolute
    errors, not of relative ones.

    Raises:
        PredictionError: no row, no term, or an unknown way.
    """
    if way not in WAYS:
        raise PredictionError(f"unknown way to fit {way!r}: use {' or '.join(WAYS)}")
    terms = tuple(name for name, column in columns.items() if np.any(column != 0))
    if not terms or not len(costs):
        raise PredictionError("no variant with counts was measured: measure some, then fit again")
    relative = _matrix(columns, terms) / costs[:, None]
    value = _solved(relative, costs, way)
    groups = _dependent(relative)
    low = high = np.full(len(terms), np.nan)
    if intervals and len(costs) > 1:
        low, high = _interval(relative, costs, value, way, seed)
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


def _solved(relative: np.ndarray, costs: np.ndarray, way: str) -> np.ndarray:
    """The prices; of ``relative`` each row was divided by its cost."""
    if way == LEAST_ABSOLUTE:
        return _least_absolute(relative, costs)
    return _least_squares(relative)[0]


def _least_squares(relative: np.ndarray) -> tuple[np.ndarray, float]:
    """Prices, and the sum of squares that remains."""
    from scipy.optimize import nnls  # noqa: PLC0415

    scale = _scale(relative)
    value, norm = nnls(relative / scale, np.ones(len(relative)), maxiter=100 * len(scale))
    return value / scale, float(norm**2)


def _least_absolute(relative: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """Prices with the least sum of absolute errors: each row has a slack variable that its error
    may not exceed in either direction, and the program minimises the sum of these."""
    from scipy.optimize import linprog  # noqa: PLC0415

    scale, slack = _scale(relative), np.eye(len(relative))
    scaled = relative / scale
    answer = linprog(
        np.concatenate([np.zeros(len(scale)), costs / costs.max()]),
        A_ub=np.block([[scaled, -slack], [-scaled, -slack]]),
        b_ub=np.concatenate([np.ones(len(relative)), -np.ones(len(relative))]),
        method="highs",
    )
    return np.asarray(answer.x[: len(scale)] / scale)


def _scale(relative: np.ndarray) -> np.ndarray:
    largest = np.abs(relative).max(axis=0, initial=0.0)
    return np.where(largest > 0, largest, 1.0)


def _free_directions(relative: np.ndarray) -> np.ndarray:
    """Directions in which prices can move while no row's cost changes: (directions, terms), of
    columns scaled by :func:`_scale`."""
    triangle = np.linalg.qr(relative / _scale(relative), mode="r")
    _, singular, directions = np.linalg.svd(triangle)
    rank = int((singular > LEAST_SHARE * singular.max(initial=0.0)).sum())
    return np.asarray(directions[rank:])


def _dependent(relative: np.ndarray) -> list[list[int]]:
    """Groups of columns that depend on each other linearly, by their places.

    The projection on the free directions connects two columns where its entry is not zero.
    """
    free = _free_directions(relative)
    return grouped(np.abs(free.T @ free) > np.sqrt(LEAST_SHARE))


def grouped(linked: np.ndarray) -> list[list[int]]:
    """Groups of things that are linked, bool (n, n), directly or by others; none of things that
    are not linked to themselves."""
    groups: list[list[int]] = []
    seen: set[int] = set()
    for start in range(len(linked)):
        if start in seen or not linked[start].any():
            continue
        group, waiting = {start}, [start]
        while waiting:
            for other in np.flatnonzero(linked[waiting.pop()]).tolist():
                if other not in group:
                    group.add(other)
                    waiting.append(other)
        seen |= group
        groups.append(sorted(group))
    return groups


def equally_good(value: np.ndarray, relative: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The least and the largest non-negative price of each term with which, together with other
    prices of the others, every row costs what it costs by ``value``; two linear programs a term.

    ``value``: float64 (terms,), 0 or more; ``relative``: (rows, terms). Both are ``value`` where
    the columns are independent.
    """
    scale = _scale(relative)
    low, high = least_and_most(value * scale, _free_directions(relative))
    return low / scale, high / scale


def least_and_most(value: np.ndarray, free: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The least and the largest of each non-negative number of ``value`` (terms,) as all move along
    the directions ``free``, float64 (directions, terms), and none becomes negative."""
    from scipy.optimize import linprog  # noqa: PLC0415

    low, high = value.copy(), value.copy()
    for term in np.flatnonzero((np.abs(free) > np.sqrt(LEAST_SHARE)).any(axis=0)).tolist():
        for sign, side in ((1.0, low), (-1.0, high)):
            moved = linprog(
                sign * free[:, term], A_ub=-free.T, b_ub=value, bounds=(None, None), method="highs"
            )
            if moved.success:
                reached = value[term] + free[:, term] @ moved.x
                side[term] = reached if reached > LEAST_SHARE * value.max() else 0.0
    return low, high


def _interval(
    relative: np.ndarray,
    costs: np.ndarray,
    value: np.ndarray,
    way: str,
    seed: int,
) -> tuple[np.ndarray, np.ndarray]:
    """95 % intervals from refits without each group of rows (jackknife), and every price that
    explains the rows as well."""
    from scipy.special import stdtrit  # noqa: PLC0415

    n = len(relative)
    parts = min(n, PARTS)
    part = np.random.default_rng(seed).permutation(n) % parts
    refits = np.empty((parts, len(value)))
    for left_out in range(parts):
        rows = part != left_out
        refits[left_out] = _solved(relative[rows], costs[rows], way)
    deviation = np.sqrt((parts - 1) / parts * ((refits - refits.mean(axis=0)) ** 2).sum(axis=0))
    used = min(int((value > 0).sum()), parts - 1)
    half = stdtrit(max(parts - used, 1), 0.975) * deviation
    low, high = np.maximum(value - half, 0.0), value + half
    least, most = equally_good(value, relative)
    return np.minimum(low, least), np.maximum(high, most)
