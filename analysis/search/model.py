"""The candidates whose costs a model expects to be near the least.

Where the kernel states the summands of its time (counts, loops, launches), the model is their sum
with prices fitted to the measured candidates. The search measures the candidates within a tenth of
the least expected cost, and then ends (Prajapati 2019, section A.5). Elsewhere it is a forest.
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
    """Choose the candidates of least expected cost; none where all near it were measured.

    Raises:
        ModuleNotFoundError: the kernel states no sum, and scikit-learn is not installed.
    """
    free = measured.free(len(candidates))
    if not candidates.terms:
        return forest.choose_among(candidates, measured, free, count, generator)
    if len(measured.rows) < START or not len(measured.best_first):
        missing = max(START - len(measured.rows), 1)
        return generator.choice(
            np.flatnonzero(free), min(count, missing, int(free.sum())), replace=False
        )
    cheapest = near_least(expected(candidates, measured), NEAR)
    return np.asarray(cheapest[free[cheapest]][:count])


def expected(candidates: Candidates, measured: Measured) -> np.ndarray:
    """Return the expected cost (N,) of every candidate, from the measured ones."""
    succeeded = np.isfinite(measured.costs)
    rows = measured.rows[succeeded]
    columns = {name: column[rows] for name, column in candidates.terms.items()}
    fitted = fit_linear_cost(columns, measured.costs[succeeded], intervals=False)
    return fitted.of(candidates.terms)
