"""Points that bound others in a plane: Pareto front, convex hull, and minima of weighted sums.

Of points equal in both coordinates the first counts. All functions take coordinates as float64
(points,) and return indices as int64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

STRAIGHT = 1e-12
"""With both coordinates scaled to a range of 1, a turn that is no larger counts as straight."""


def pareto_front(time_s: np.ndarray, energy_j: np.ndarray) -> np.ndarray:
    """Return the points that no other beats in both, by rising time. NaN is never on the front."""
    order = np.lexsort((energy_j, time_s))
    front: list[int] = []
    least = math.inf
    for k in order:
        if math.isfinite(time_s[k]) and energy_j[k] < least:
            front.append(int(k))
            least = float(energy_j[k])
    return np.array(front, np.int64)


def pareto_steps(time_s: np.ndarray, energy_j: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the corners of the step line through a front, given by rising time: between two of its
    points nothing is better than the first of them."""
    return np.repeat(time_s, 2)[1:], np.repeat(energy_j, 2)[:-1]


def convex_hull(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the corners of the convex hull, counter-clockwise from the largest x (of several the
    one of largest y), and how many of them form the upper arc: those before the least x.

    Points inside an edge are not corners. One point, or equal points, have one corner; points on a
    line have two.
    """
    order = np.lexsort((y, x))
    again = (np.diff(x[order]) == 0) & (np.diff(y[order]) == 0)
    distinct = order[np.concatenate([[True], ~again])].tolist()
    if len(distinct) == 1:
        return np.array(distinct, np.int64), 1
    lower = _left_turns(x, y, distinct)
    upper = _left_turns(x, y, distinct[::-1])
    return np.array([*upper[:-1], *lower[:-1]], np.int64), len(upper) - 1


def least_of_weighted_sums(time_s: np.ndarray, energy_j: np.ndarray) -> np.ndarray:
    """Return the points that minimise alpha t + (1 - alpha) e for some interval of alpha from 0 to
    1, by rising alpha: the lower left part of the convex hull, from least energy to least time."""
    front = pareto_front(time_s, energy_j)
    return np.array(_left_turns(time_s, energy_j, front.tolist())[::-1], np.int64)


def _left_turns(x: np.ndarray, y: np.ndarray, along: Sequence[int]) -> list[int]:
    """Return those of the points ``along``, sorted by x, whose chain turns left everywhere."""
    wide, high = (float(np.ptp(values[list(along)])) or 1.0 for values in (x, y))
    chain: list[int] = []
    for k in along:
        while len(chain) > 1:
            a, b = chain[-2:]
            turn = (x[b] - x[a]) * (y[k] - y[b]) - (y[b] - y[a]) * (x[k] - x[b])
            if turn > STRAIGHT * wide * high:
                break
            chain.pop()
        chain.append(k)
    return chain


def least_across(x: np.ndarray, y: np.ndarray, at_y: float) -> float:
    """Return the least x at which an edge of a polygon has the y ``at_y``, from its corners in
    order; NaN where no edge does."""
    least = math.inf
    for i in range(len(x)):
        k = (i + 1) % len(x)
        low, high = sorted((y[i], y[k]))
        if low <= at_y <= high:
            ends = [x[i], x[k]] if low == high else []
            share = 0.0 if low == high else (at_y - y[i]) / (y[k] - y[i])
            least = min(least, *ends, x[i] + share * (x[k] - x[i]))
    return least if math.isfinite(least) else math.nan
