"""The candidates whose costs a model expects to be near the least.

Where the kernel states what its time is a sum of (counts, loops, launches), the model is that sum
with prices fitted to what has been measured, and the search measures the candidates within a tenth
of the least expected cost and then ends (Prajapati 2019, section A.5). Elsewhere it is a forest.
"""

from __future__ import annotations

import numpy as np

from analysis.costs.linear_cost import fit_linear_cost
from analysis.costs.stencil_time import near_least
from analysis.search import forest
from analysis.search.candidates import Candidates, Measured

START = 12
"""So many candidates are drawn at random first."""
NEAR = 0.10
"""Candidates whose expected cost is at most this fraction above the least are measured."""


def choose(
    candidates: Candidates, measured: Measured, count: int, generator: np.random.Generator
) -> np.ndarray:
    """The candidates of the least expected cost; none where all that are near it are measured.

    Raises:
        ModuleNotFoundError: there is no sum, and scikit-learn is not installed.
    """
    free = measured.free(len(candidates))
    if not candidates.terms:
        return forest.choose_among(candidates, measured, free, count, generator)
    if len(measured.rows) < START or not len(measured.best_first):
        missing = max(START - len(measured.rows), 1)
        return generator.choice(
            np.flatnonzero(free), min(count, missing, int(free.sum())), replace=False
        )
    near = near_least(expected(candidates, measured), NEAR)
    return np.asarray(near[free[near]][:count])


def expected(candidates: Candidates, measured: Measured) -> np.ndarray:
    """The expected cost (N,) of every candidate, from those that were measured."""
    known = np.isfinite(measured.costs)
    rows = measured.rows[known]
    columns = {name: column[rows] for name, column in candidates.terms.items()}
    fitted = fit_linear_cost(columns, measured.costs[known], intervals=False)
    return fitted.of(candidates.terms)
