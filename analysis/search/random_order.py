"""Candidates drawn at random, each equally likely."""

from __future__ import annotations

import numpy as np

from analysis.search.candidates import Candidates, Measured


def choose(
    candidates: Candidates, measured: Measured, count: int, generator: np.random.Generator
) -> np.ndarray:
    """Draw without replacement from the candidates that have not been measured."""
    free = np.flatnonzero(measured.free(len(candidates)))
    return generator.choice(free, min(count, len(free)), replace=False)
