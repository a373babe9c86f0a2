"""Candidates that differ from the best ones in one parameter, after a random start.

A local search goes from the best candidate to those that differ in one parameter, the nearest
values first. Where all of these have been measured, half of a batch is drawn at random, so that
the search starts elsewhere, and the others are neighbours of the next best.
"""

from __future__ import annotations

import numpy as np

from analysis.search import random_order
from analysis.search.candidates import Candidates, Measured

START = 10
"""So many candidates are drawn at random first."""
CENTRES = 20
"""Neighbours of at most so many candidates are looked for."""


def choose(
    candidates: Candidates, measured: Measured, count: int, generator: np.random.Generator
) -> np.ndarray:
    """Choose neighbours of the best candidates that have not been measured."""
    if measured.too_few(START):
        return random_order.choose(candidates, measured, count, generator)
    free = measured.free(len(candidates))
    drawn = np.empty(0, np.int64)
    best = int(measured.best_first[0])
    if not len(neighbours_of(candidates, best, free, generator)):  # a local minimum
        drawn = generator.choice(np.flatnonzero(free), -(-count // 2), replace=False)
        free[drawn] = False
    neighbours = near_best(candidates, measured, free, count - len(drawn), generator)
    free[neighbours] = False
    remaining = count - len(drawn) - len(neighbours)
    return np.concatenate(
        [drawn, neighbours, generator.choice(np.flatnonzero(free), remaining, False)]
    )


def near_best(
    candidates: Candidates,
    measured: Measured,
    free: np.ndarray,
    count: int,
    generator: np.random.Generator,
) -> np.ndarray:
    """Return at most ``count`` of the ``free`` (N,) candidates: those that differ from the best in
    one parameter, then from the next best, and so on."""
    free = free.copy()
    chosen: list[int] = []
    for centre in measured.best_first[:CENTRES].tolist():
        if len(chosen) == count:
            break
        neighbours = neighbours_of(candidates, centre, free, generator)[: count - len(chosen)]
        free[neighbours] = False
        chosen += neighbours.tolist()
    return np.array(chosen, np.int64)


def neighbours_of(
    candidates: Candidates, centre: int, free: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """Return the ``free`` candidates that differ from ``centre`` in one parameter: the nearest
    values first, equally near ones in random order."""
    distance = np.abs(candidates.levels - candidates.levels[centre])
    rows = np.flatnonzero(free & (np.count_nonzero(distance, axis=1) == 1))
    rows = generator.permutation(rows)
    return rows[np.argsort(distance[rows].sum(axis=1), kind="stable")]
