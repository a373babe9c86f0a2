"""Choosing among numbers that differ by rounding alone: the first of them, on any processor."""

from __future__ import annotations

import numpy as np

TIE = 1e-9
"""Numbers that differ by less than this, relative to the least, are the same but for rounding."""


def first_least(values: np.ndarray) -> np.ndarray:
    """Along the first axis, the index of the first value that is not above the least but for
    rounding: int64 of the shape of the other axes. NaN counts as larger than any number."""
    known = np.where(np.isnan(values), np.inf, values)
    least = known.min(axis=0)
    with np.errstate(invalid="ignore"):  # of infinities alone the first is taken
        return np.asarray((known <= least + TIE * np.abs(least)).argmax(axis=0))
