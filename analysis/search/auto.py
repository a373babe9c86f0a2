"""What ``model`` expects, and candidates beside the best.

Where the kernel states what its time is a sum of, the candidates near the least expected cost come
first, and single steps from the best after them. Elsewhere four of five are a forest's choice and
one is beside the best: where the cost changes from one value to the next in a way that the forest
cannot know, single steps still find what is there.
"""

from __future__ import annotations

import numpy as np

from analysis.search import forest, model
from analysis.search.candidates import Candidates, Measured
from analysis.search.neighbours import choose as single_steps
from analysis.search.neighbours import near_best

NEAR_EVERY = 5
"""One of so many is a neighbour of the best, beside a forest."""


def choose(
    candidates: Candidates, measured: Measured, count: int, generator: np.random.Generator
) -> np.ndarray:
    """The model's choice and neighbours of the best candidates.

    Raises:
        ModuleNotFoundError: there is no sum, and scikit-learn is not installed.
    """
    if candidates.terms:
        expected = model.choose(candidates, measured, count, generator)
        return expected if len(expected) else single_steps(candidates, measured, count, generator)
    if len(measured.rows) < forest.START or not len(measured.best_first):
        return forest.choose(candidates, measured, count, generator)
    free = measured.free(len(candidates))
    near = near_best(candidates, measured, free, count // NEAR_EVERY, generator)
    free[near] = False
    left = count - len(near)
    return np.concatenate([near, forest.choose_among(candidates, measured, free, left, generator)])
