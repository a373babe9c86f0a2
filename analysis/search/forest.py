"""Candidates that a forest of random trees expects to cost little, or about which it is unsure.

The forest (Geurts et al. 2006) is fitted to the logarithm of the cost. The cost of a kernel depends
on products and ratios of its parameters (threads of a block, tiles that fit, work a thread) and on
whether they divide each other. So the forest's features are the logarithms of the product and of
the ratio of each two parameters, the powers of two in each, and the remaining factor.
A batch spreads over weights of the uncertainty, from none to four standard deviations of the trees,
and a fifth of it is drawn at random: with one weight all of a batch would be in one region.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from analysis.search import random_order
from analysis.search.candidates import Candidates, Measured

START = 10
"""So many candidates are drawn at random first."""
TREES = 100
WEIGHTS = (0.0, 1.0, 2.0, 4.0)
"""Multiples of the standard deviation subtracted from the expected log cost, in turn."""
RANDOM_EVERY = 5
"""One of so many is drawn at random."""
MOST = 20_000
"""The most candidates that the forest predicts for a batch: those near the best, and a random
draw."""
CENTRES = 5
MOST_NAMED = 50
"""The most values that the forest distinguishes of a parameter that is not a number."""


def choose(
    candidates: Candidates, measured: Measured, count: int, generator: np.random.Generator
) -> np.ndarray:
    """Choose the candidates with the lowest expected cost, less a multiple of its uncertainty.

    Raises:
        ModuleNotFoundError: scikit-learn is not installed.
    """
    if measured.too_few(START):
        return random_order.choose(candidates, measured, count, generator)
    free = measured.free(len(candidates))
    return choose_among(candidates, measured, free, count, generator)


def choose_among(
    candidates: Candidates,
    measured: Measured,
    free: np.ndarray,
    count: int,
    generator: np.random.Generator,
) -> np.ndarray:
    """:func:`choose` among the ``free`` candidates: (N,), bool; after the random start."""
    rows = looked_at(candidates, measured, free, generator)
    mean, deviation = expected(candidates, measured, rows, generator)
    chosen = np.zeros(len(rows), bool)
    order: list[int] = []
    for place in range(count):
        if place % RANDOM_EVERY == RANDOM_EVERY - 1:
            index = int(generator.choice(np.flatnonzero(~chosen)))
        else:
            score = mean - WEIGHTS[place % RANDOM_EVERY % len(WEIGHTS)] * deviation
            index = int(np.argmin(np.where(chosen, np.inf, score)))
        chosen[index] = True
        order.append(index)
        if chosen.all():
            break
    return rows[order]


def looked_at(
    candidates: Candidates, measured: Measured, free: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """Return the ``free`` rows in random order: all, or where these are more than :data:`MOST`,
    those that differ from one of the best in one parameter and a random draw."""
    rows = generator.permutation(np.flatnonzero(free))
    if len(rows) <= MOST:
        return rows
    is_neighbour = np.zeros(len(candidates), bool)
    for centre in measured.best_first[:CENTRES].tolist():
        differing = np.count_nonzero(candidates.levels != candidates.levels[centre], axis=1)
        is_neighbour |= free & (differing == 1)
    return np.concatenate([rows[is_neighbour[rows]], rows[~is_neighbour[rows]]])[:MOST]


def expected(
    candidates: Candidates, measured: Measured, rows: np.ndarray, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return the expected log cost of ``rows``, and its standard deviation over the trees.

    A candidate that failed counts as the worst measured one, and every one in the worse half as the
    median: how bad it is does not matter, and the trees then separate the better ones."""
    from sklearn.ensemble import ExtraTreesRegressor  # noqa: PLC0415

    features = forest_features(candidates)
    costs = np.where(np.isfinite(measured.costs), measured.costs, np.nanmax(measured.costs))
    forest = ExtraTreesRegressor(
        TREES, max_features=0.3, random_state=int(generator.integers(1 << 31))
    ).fit(features[measured.rows], np.log(np.minimum(costs, np.median(costs))))
    row_features = features[rows]
    of_trees = np.stack([tree.tree_.predict(row_features)[:, 0] for tree in forest.estimators_])
    return of_trees.mean(axis=0), of_trees.std(axis=0)


def forest_features(candidates: Candidates) -> np.ndarray:
    """Return the forest's features of each candidate: (N, F), float32."""
    numbers = candidates.numbers
    features = list(numbers.values())
    for name, column in candidates.columns.items():
        if name not in numbers:
            features += [column == value for value in np.unique(column)[1:MOST_NAMED]]
    positive = {
        name: np.log2(values)
        for name, values in numbers.items()
        if values.min() > 0 and len(np.unique(values)) > 2
    }
    for first, second in combinations(positive.values(), 2):
        features += [first + second, first - second]
    for name, logarithm in positive.items():
        values = numbers[name]
        if np.all(values == np.round(values)) and values.max() < 1 << 53:
            whole = values.astype(np.int64)
            powers = np.log2(whole & -whole)
            features += [powers, logarithm - powers]
    if not features:
        return np.zeros((len(candidates), 1), np.float32)
    return np.stack(features, axis=1).astype(np.float32)
