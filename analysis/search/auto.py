"""What ``model`` expects, and candidates next to the best.

Where the kernel states the summands of its time, the candidates near the least expected cost come
first, and then neighbours of the best. Elsewhere a forest chooses four of five candidates, and one
is a neighbour of the best: where the cost changes between values in a way that the forest cannot
predict, neighbours still find better ones.
"""

from __future__ import annotations

import numpy as np

from analysis.search import forest, model
from analysis.search.candidates import Candidates, Measured
from analysis.search.neighbours import choose as single_steps
from analysis.search.neighbours import near_best

NEAR_EVERY = 5
"""One of so many candidates is a neighbour of the best, where a forest chooses the others."""


def choose(
    candidates: Candidates, measured: Measured, count: int, generator: np.random.Generator
) -> np.ndarray:
    """Choose the model's candidates and neighbours of the best.

    Raises:
        ModuleNotFoundError: the kernel states no sum, and scikit-learn is not installed.
    """
    if candidates.terms:
        expected = model.choose(candidates, measured, count, generator)
        return expected if len(expected) else single_steps(candidates, measured, count, generator)
    if measured.too_few(forest.START):
        return forest.choose(candidates, measured, count, generator)
    free = measured.free(len(candidates))
    near = near_best(candidates, measured, free, count // NEAR_EVERY, generator)
    free[near] = False
    remaining = count - len(near)
    return np.concatenate(
        [near, forest.choose_among(candidates, measured, free, remaining, generator)]
    )
