"""The strategies by name. A strategy's module is imported on first use.

A new strategy is a file with a function ``choose`` (:data:`analysis.search.candidates.Strategy`)
and a line here.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

import numpy as np

from analysis.search.candidates import Candidates, Measured, Strategy

STRATEGIES = {
    "auto": "analysis.search.auto",
    "model": "analysis.search.model",
    "neighbours": "analysis.search.neighbours",
    "random": "analysis.search.random_order",
    "all": "analysis.search.declared_order",
}
"""Name -> module. The module's docstring begins with what the strategy does."""


def next_batch(
    strategy: str,
    candidates: Candidates,
    measured: Measured,
    count: int,
    seed: int | Sequence[int],
) -> np.ndarray:
    """Return the rows of the next candidates to measure, at most ``count``, int64; none where all
    have been measured. Failed ones are not tried again.

    A pure function of its arguments, so that an interrupted search continues in the same way.

    Raises:
        KeyError: there is no such strategy.
        ModuleNotFoundError: the strategy needs a package that is not installed.
    """
    free = np.flatnonzero(measured.free(len(candidates)))
    if len(free) <= count:
        return free
    seeds = [seed] if isinstance(seed, int) else seed
    generator = np.random.default_rng([*seeds, len(measured.rows)])
    choose: Strategy = import_module(STRATEGIES[strategy]).choose
    return choose(candidates, measured, count, generator)
