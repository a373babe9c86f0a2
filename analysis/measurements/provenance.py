"""Where measurements come from: what showed their clocks, and which energies were estimated.

A timed loop whose cycles are not known shows clocks by their ratios. It gives a rate, which is the
clock up to a factor of the processor. If the clocks of a node's settings were set, the rates follow
them: rate / asked clock is one number, the factor. If nothing was set, the rate is the same at all
settings, and that quotient is not.

The factor is the one with which most settings of the node agree. It is taken only if these are
most of the node's settings, and if they are so far apart that one constant rate could not agree
with them as well.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import numpy as np

from dvfs.dataset import (
    CLOCK_UNPROVEN,
    ESTIMATED,
    READ_BACK,
    SIMULATED,
    STATED,
    TIMED,
    Columns,
    texts_of,
)
from dvfs.texts import Texts

if TYPE_CHECKING:
    import xarray as xr

TOLERANCE_PCT = 2.0
"""How far a rate may be from the factor times the clock, in %, if nothing else is said."""
LEAST_SPAN = 4.0
"""How many tolerances the agreeing clocks must span. A constant rate agrees with clocks that span
two: one tolerance below and one above it."""
LEAST_SLOPE = 0.8
"""The least slope of log rate against log clock over the agreeing settings: 1 where clocks are
set, 0 where they are not."""
UNPROVEN = "unproven"
"""Of a measurement at a clock that was asked for, which nothing showed."""


def shown_by_timing(
    node: np.ndarray,
    asked_mhz: np.ndarray,
    timed_mhz: np.ndarray,
    tolerance_pct: float = TOLERANCE_PCT,
) -> np.ndarray:
    """Which rows ran at the clock that was asked for, by the ratios over the settings of a node.

    Args:
        node: the node of each row, any type that can be compared, (n,).
        asked_mhz: the core clock that was asked for, MHz, (n,); NaN where none was.
        timed_mhz: the clock that the timed loop gives, MHz or any multiple of it, (n,); NaN where
            it was not run.
        tolerance_pct: how far the two may be apart, in %, after the factor.

    Returns:
        bool (n,): shown. False where there is nothing to compare.
    """
    node = np.asarray(node)
    asked, timed = (np.asarray(mhz, np.float64) for mhz in (asked_mhz, timed_mhz))
    shown = np.zeros(len(node), bool)
    with np.errstate(invalid="ignore"):
        usable = (asked > 0) & (timed > 0) & np.isfinite(asked) & np.isfinite(timed)
    allowed = np.log1p(tolerance_pct / 100.0)
    for name in np.unique(node[usable]):
        rows = np.flatnonzero(usable & (node == name))
        log_asked, log_timed = np.log(asked[rows]), np.log(timed[rows])
        clocks, setting = np.unique(log_asked, return_inverse=True)
        rates = np.array([np.median(log_timed[setting == k]) for k in range(len(clocks))])
        factors = rates - clocks
        agree = np.abs(factors[:, None] - factors[None, :]) <= allowed
        members = agree[int(agree.sum(1).argmax())]
        factor = np.median(factors[members])
        members = np.abs(factors - factor) <= allowed
        if _follows(clocks[members], rates[members], allowed) and 2 * members.sum() > len(clocks):
            shown[rows] = np.abs(log_timed - log_asked - factor) <= allowed
    return shown


def _follows(log_clock: np.ndarray, log_rate: np.ndarray, allowed: float) -> bool:
    """Whether rates follow clocks that are far enough apart to say so."""
    if len(log_clock) < 2 or np.ptp(log_clock) < LEAST_SPAN * allowed:
        return False
    return bool(np.polyfit(log_clock, log_rate, 1)[0] >= LEAST_SLOPE)


def clock_proofs(dataset: xr.Dataset | Columns, rows: np.ndarray) -> np.ndarray:
    """How the clocks of rows (int64 indices into the measurements) were shown: object (rows,).

    As the store says: one of :data:`dvfs.dataset.CLOCK_PROOFS`, :data:`UNPROVEN` for the
    status ``clock unproven``, or empty where no clock was asked for. Rows of earlier versions say
    nothing: simulated and imported ones are taken for that, and of the others a domain that was
    asked for at several clocks is proven where the achieved clock was read. Core clocks that one
    measurement alone does not prove are shown by the ratios of the timed loop over a node's
    settings, if there are any (:func:`shown_by_timing`).
    """

    def column(name: str, missing: object) -> np.ndarray:
        if name in dataset:
            return np.asarray(dataset[name][rows])
        return np.full(len(rows), missing)

    def texts(name: str) -> Texts:
        return texts_of(dataset, name)[rows] if name in dataset else Texts.same("", len(rows))

    proof, status = texts("clock_proof"), texts("status")
    said = proof.array().copy()
    silent = proof.array(bool, [value == "" for value in proof.values])
    asked, read = np.zeros(len(rows), bool), np.ones(len(rows), bool)
    has_clock = np.zeros(len(rows), bool)
    mem_read = np.ones(len(rows), bool)
    for name in ("core_mhz", "mem_mhz"):
        mhz = column(name, np.nan).astype(float)
        has_clock |= np.isfinite(mhz)
        if len(np.unique(mhz[np.isfinite(mhz)])) > 1:
            asked |= np.isfinite(mhz)
            achieved = column(f"{name}_achieved", np.nan).astype(float)
            known = np.isfinite(achieved) | ~np.isfinite(mhz)
            read &= known
            if name == "mem_mhz":
                mem_read = known
    simulated = column("simulated", False).astype(bool)
    imported = column("imported", False).astype(bool)
    said[silent & asked & ~read] = UNPROVEN
    said[silent & asked & read] = READ_BACK
    said[silent & imported & has_clock] = STATED
    said[silent & simulated] = SIMULATED
    said[status.array(bool, [value == CLOCK_UNPROVEN for value in status.values])] = UNPROVEN
    doubtful = (said == UNPROVEN) & mem_read
    if doubtful.any() and "core_mhz_timed" in dataset:
        core_mhz, timed_mhz = (column(name, np.nan) for name in ("core_mhz", "core_mhz_timed"))
        shown = shown_by_timing(np.array(column("node", "").tolist()), core_mhz, timed_mhz)
        said[doubtful & shown] = TIMED
    return said


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
