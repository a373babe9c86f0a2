"""Which energies were not measured but estimated: as the table says, or as the powers show."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import numpy as np

from dvfs.dataset import ESTIMATED, Columns

if TYPE_CHECKING:
    import xarray as xr

FEWEST = 8
"""Powers, and loads, that differ in fewer rows may agree by chance."""
SAME = 1e-4
"""Measured powers, relative to their mean, never all agree as well as this."""
LOAD = re.compile("load|util", re.IGNORECASE)
"""What the name of a label of loads contains."""
BLOCK_ROWS = 1 << 16
"""Texts that are searched at once."""
DEGREE = 3
"""Of the polynomials of the load that programs estimate powers by."""
CONSTANT = "the power is the same in all rows"
OF_LOAD = "the power is a function of {name} alone"


def estimated_energies(dataset: xr.Dataset | Columns, rows: np.ndarray) -> np.ndarray:
    """Why the energies of rows (int64 indices into the measurements) are no measurements: object
    (rows,), empty where nothing says so.

    An imported table says it (``estimated``). Of imported rows that do not, the powers show it:
    they are all the same though the times differ, or the same polynomial of a label of loads.
    """
    why = np.full(len(rows), "", object)
    if "provenance" not in dataset or "imported" not in dataset:
        return why
    imported = np.asarray(dataset["imported"])[rows].astype(bool)
    imported &= ~np.asarray(dataset["simulated"])[rows].astype(bool)
    texts = np.asarray(dataset["provenance"])
    texts = texts[every_row(rows, texts)]
    for i in np.flatnonzero(imported & mention(texts, f'"{ESTIMATED}"')).tolist():
        why[i] = str(json.loads(texts[i]).get(ESTIMATED, ""))
    silent = np.flatnonzero(imported & (why == ""))
    if len(silent) >= FEWEST:
        time_s, energy_j = (
            np.asarray(dataset[name])[rows][silent].astype(float) for name in ("time_s", "energy_j")
        )
        why[silent] = _shown(time_s, energy_j / time_s, texts[every_row(silent, texts)])
    return why


def every_row(rows: np.ndarray, column: np.ndarray) -> np.ndarray | slice:
    """Rows (int64) of a column as its index: one that copies nothing where they are all of it."""
    return slice(None) if len(rows) == len(column) else rows


def mention(texts: np.ndarray, word: str) -> np.ndarray:
    """bool: whether texts (object or StringDType) contain a word."""
    if texts.strides == (0,) and len(texts):
        return np.broadcast_to(word in texts[0], len(texts))
    found = np.zeros(len(texts), bool)
    for at in range(0, len(texts), BLOCK_ROWS):
        block = texts[at : at + BLOCK_ROWS].tolist()
        if word in "\n".join(block):
            found[at : at + BLOCK_ROWS] = [word in text for text in block]
    return found


def _shown(time_s: np.ndarray, power_w: np.ndarray, texts: np.ndarray) -> str:
    """What the powers of rows of different times show; empty where they show nothing."""
    if not np.isfinite(power_w).all():
        return ""
    limit = SAME * power_w.mean()
    is_constant = np.ptp(power_w) <= limit
    if not (is_constant or LOAD.search(texts[0])) or len(np.unique(time_s)) < FEWEST:
        return ""
    if is_constant:
        return CONSTANT
    for name, load in _loads(texts).items():
        if len(np.unique(load)) < FEWEST or not np.isfinite(load).all():
            continue
        terms = np.vander(load / np.abs(load).max(), DEGREE + 1)
        found, *_ = np.linalg.lstsq(terms, power_w, rcond=None)
        if np.abs(terms @ found - power_w).max() <= limit:
            return OF_LOAD.format(name=name)
    return ""


def _loads(texts: np.ndarray) -> dict[str, np.ndarray]:
    """The labels whose name says that they are loads, float64 (rows,), NaN where one is none."""
    labels = [json.loads(text).get("labels", {}) for text in texts]
    return {
        name: np.array([_number(of_row.get(name)) for of_row in labels])
        for name in labels[0]
        if LOAD.search(name)
    }


def _number(value: object) -> float:
    try:
        return float(str(value))
    except ValueError:
        return np.nan
