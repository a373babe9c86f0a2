"""Every candidate, in the order in which they are declared."""

from __future__ import annotations

import numpy as np

from analysis.search.candidates import Candidates, Measured


def choose(
    candidates: Candidates, measured: Measured, count: int, generator: np.random.Generator
) -> np.ndarray:
    """Return the first candidates that have not been measured."""
    return np.flatnonzero(measured.free(len(candidates)))[:count]
