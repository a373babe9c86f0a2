"""A forest, and in each five candidates one beside the best.

Where the forest is right, it finds the best region early. Where the cost changes from one value to
the next in a way that it cannot know, single steps from the best still find what is beside it.
"""

from __future__ import annotations

import numpy as np

from analysis.search import forest
from analysis.search.candidates import Candidates, Measured
from analysis.search.neighbours import near_best

NEAR_EVERY = 5
"""One of so many is a neighbour of the best."""


def choose(
    candidates: Candidates, measured: Measured, count: int, generator: np.random.Generator
) -> np.ndarray:
    """Neighbours of the best candidates, then the forest's choice.

    Raises:
        ModuleNotFoundError: scikit-learn is not installed.
    """
    if len(measured.rows) < forest.START or not len(measured.best_first):
        return forest.choose(candidates, measured, count, generator)
    free = measured.free(len(candidates))
    near = near_best(candidates, measured, free, count // NEAR_EVERY, generator)
    free[near] = False
    left = count - len(near)
    expected = forest.choose_among(candidates, measured, free, left, generator)
    return np.concatenate([near, expected])
