"""The candidates whose costs a model expects to be near the least.

Where the kernel states the summands of its time (counts, loops, launches), the model is their sum
with prices fitted to the measured candidates. The search measures the candidates within a tenth of
the least expected cost, and then ends (Prajapati 2019, section A.5). Elsewhere it is a forest.
"""

from __future__ import annotations

import numpy as np

from analysis.costs.linear_cost import fit_linear_cost
from analysis.costs.stencil_time import near_least
from analysis.search import forest, random_order
from analysis.search.candidates import Candidates, Measured

START = 12
"""So many candidates are drawn at random first."""


def choose(
    candidates: Candidates, measured: Measured, count: int, generator: np.random.Generator
) -> np.ndarray:
    """Choose the candidates of least expected cost; none where all near it were measured.

    Raises:
        ModuleNotFoundError: the kernel states no sum, and scikit-learn is not installed.
    """
    if not candidates.terms:
        return forest.choose(candidates, measured, count, generator)
    if measured.too_few(START):
        missing = max(START - len(measured.rows), 1)
        return random_order.choose(candidates, measured, min(count, missing), generator)
    free = measured.free(len(candidates))
    cheapest = near_least(expected(candidates, measured))
    return np.asarray(cheapest[free[cheapest]][:count])


def expected(candidates: Candidates, measured: Measured) -> np.ndarray:
    """Return the expected cost (N,) of every candidate, from the measured ones."""
    succeeded = np.isfinite(measured.costs)
    rows = measured.rows[succeeded]
    columns = {name: column[rows] for name, column in candidates.terms.items()}
    fitted = fit_linear_cost(columns, measured.costs[succeeded], intervals=False)
    return fitted.of(candidates.terms)
