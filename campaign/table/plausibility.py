"""Clocks and voltages that no device has: refused, with the factor that would make them right."""

from __future__ import annotations

import numpy as np

from analysis.dataset import POSSIBLE
from campaign.table.cells import Cells

FACTORS = (1e-3, 1e3, 1e-6)


def note_impossible(cells: Cells, columns: dict[str, np.ndarray], judged: np.ndarray) -> None:
    """Note the ``judged`` rows (bool) whose value in a column (float64, NaN where there is none)
    no device has; see :data:`analysis.dataset.POSSIBLE`."""
    for name in POSSIBLE:
        values = columns[name]
        low, high, unit = POSSIBLE[name]
        for i in np.flatnonzero(judged & ((values < low) | (values > high))).tolist():
            right = [f"{f:g}" for f in FACTORS if low <= values[i] * f <= high]
            advice = (
                f"with factor = {right[0]} in the map it is {values[i] * float(right[0]):g} {unit}"
                if right
                else f"the column is in {unit}"
            )
            cells.note(
                i,
                f"{name}: found {values[i]:g}; devices have {low:g} to {high:,g} {unit}; {advice}",
            )
