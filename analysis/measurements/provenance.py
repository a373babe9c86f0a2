"""Provenance of measurements: what proves their clocks, and which energies are estimates.

A timed loop of unknown cycles proves clocks by their ratios. Its rate is proportional to the clock,
with a factor of the processor. If a node's clocks were set, rate / requested clock is the same
number at all settings, the factor. If nothing was set, the rate is the same at all settings, and
this quotient is not.

The factor is the one with which most settings of the node agree. It counts only if these are the
majority of the node's settings, and if they span a range in which a constant rate could not agree
with them.
"""

from __future__ import annotations

import json
import re

import numpy as np

from dvfs.dataset import (
    CLOCK_UNPROVEN,
    ESTIMATED,
    READ_BACK,
    SIMULATED,
    STATED,
    TIMED,
    Columns,
)

TOLERANCE_PCT = 2.0
"""The default tolerance between a rate and the factor times the clock, in %."""
LEAST_SPAN = 4.0
"""The least range of the agreeing clocks, in tolerances. A constant rate agrees with clocks over a
range of two: one tolerance below it and one above."""
LEAST_SLOPE = 0.8
"""The least slope of log rate against log clock over the agreeing settings: 1 where clocks are
set, 0 where they are not."""
UNPROVEN = "unproven"
"""The proof of a requested clock that nothing shows."""


def shown_by_timing(
    node: np.ndarray,
    requested_mhz: np.ndarray,
    timed_mhz: np.ndarray,
    tolerance_pct: float = TOLERANCE_PCT,
) -> np.ndarray:
    """Whether rows ran at the requested clock, by the ratios over the settings of a node.

    Args:
        node: the node of each row, any comparable type, (n,).
        requested_mhz: the requested core clock, MHz, (n,); NaN for none.
        timed_mhz: the clock by the timed loop, MHz or any multiple of it, (n,); NaN if it did not
            run.
        tolerance_pct: the greatest deviation from the factor times the requested clock, in %.

    Returns:
        bool (n,): whether the clock is proven; False if there is nothing to compare.
    """
    node = np.asarray(node)
    requested, timed = (np.asarray(mhz, np.float64) for mhz in (requested_mhz, timed_mhz))
    shown = np.zeros(len(node), bool)
    with np.errstate(invalid="ignore"):
        usable = (requested > 0) & (timed > 0) & np.isfinite(requested) & np.isfinite(timed)
    allowed = np.log1p(tolerance_pct / 100.0)
    for name in np.unique(node[usable]):
        rows = np.flatnonzero(usable & (node == name))
        log_requested, log_timed = np.log(requested[rows]), np.log(timed[rows])
        clocks, setting = np.unique(log_requested, return_inverse=True)
        rates = np.array([np.median(log_timed[setting == k]) for k in range(len(clocks))])
        factors = rates - clocks
        agree = np.abs(factors[:, None] - factors[None, :]) <= allowed
        members = agree[int(agree.sum(1).argmax())]
        factor = np.median(factors[members])
        members = np.abs(factors - factor) <= allowed
        if _follows(clocks[members], rates[members], allowed) and 2 * members.sum() > len(clocks):
            shown[rows] = np.abs(log_timed - log_requested - factor) <= allowed
    return shown


def _follows(log_clock: np.ndarray, log_rate: np.ndarray, allowed: float) -> bool:
    """Whether rates are proportional to clocks over a sufficient range."""
    if len(log_clock) < 2 or np.ptp(log_clock) < LEAST_SPAN * allowed:
        return False
    return bool(np.polyfit(log_clock, log_rate, 1)[0] >= LEAST_SLOPE)


def clock_proofs(columns: Columns, rows: np.ndarray) -> np.ndarray:
    """What proves the clocks of rows (int64 indices into the measurements): object (rows,).

    One of :data:`dvfs.dataset.CLOCK_PROOFS`, from the store; :data:`UNPROVEN` for the status
    ``clock unproven``; or empty if no clock was requested. For rows of earlier versions, which have
    no proof: simulated and imported rows count as such; in others, a domain with several requested
    clocks is proven if the achieved clock was read. Core clocks that a measurement alone does not
    prove may be proven by the ratios of the timed loop over a node's settings
    (:func:`shown_by_timing`).
    """

    recorded, status = (columns.texts(name)[rows] for name in ("clock_proof", "status"))
    proof = recorded.array().copy()
    is_missing = recorded.array(bool, [value == "" for value in recorded.values])
    requested, achieved = np.zeros(len(rows), bool), np.ones(len(rows), bool)
    has_clock = np.zeros(len(rows), bool)
    mem_achieved = np.ones(len(rows), bool)
    for name in ("core_mhz", "mem_mhz"):
        mhz = columns[name][rows].astype(float)
        has_clock |= np.isfinite(mhz)
        if len(np.unique(mhz[np.isfinite(mhz)])) > 1:
            requested |= np.isfinite(mhz)
            achieved_mhz = columns[f"{name}_achieved"][rows].astype(float)
            in_domain = np.isfinite(achieved_mhz) | ~np.isfinite(mhz)
            achieved &= in_domain
            if name == "mem_mhz":
                mem_achieved = in_domain
    simulated = columns["simulated"][rows].astype(bool)
    imported = columns["imported"][rows].astype(bool)
    proof[is_missing & requested & ~achieved] = UNPROVEN
    proof[is_missing & requested & achieved] = READ_BACK
    proof[is_missing & imported & has_clock] = STATED
    proof[is_missing & simulated] = SIMULATED
    proof[status.array(bool, [value == CLOCK_UNPROVEN for value in status.values])] = UNPROVEN
    doubtful = (proof == UNPROVEN) & mem_achieved
    if doubtful.any():
        core_mhz, timed_mhz = (columns[name][rows] for name in ("core_mhz", "core_mhz_timed"))
        shown = shown_by_timing(np.array(columns["node"][rows].tolist()), core_mhz, timed_mhz)
        proof[doubtful & shown] = TIMED
    return proof


FEWEST = 8
"""The fewest rows, and distinct loads, whose agreement is not chance."""
SAME = 1e-4
"""A range of powers, relative to their mean, that measured powers always exceed."""
LOAD = re.compile("load|util", re.IGNORECASE)
"""Matches the names of labels that are loads."""
BLOCK_ROWS = 1 << 16
"""The number of texts in one search."""
DEGREE = 3
"""The degree of the polynomials in the load by which programs estimate powers."""
CONSTANT = "the power is the same in all rows"
OF_LOAD = "the power is a function of {name} alone"


def estimated_energies(columns: Columns, rows: np.ndarray) -> np.ndarray:
    """Why the energies of rows (int64 indices into the measurements) are estimates: object (rows,),
    empty if nothing shows it.

    An imported table may state it (``estimated``). Otherwise the powers of imported rows may show
    it: they are constant though the times differ, or a polynomial of a label of loads.
    """
    why = np.full(len(rows), "", object)
    imported = columns["imported"][rows].astype(bool)
    imported &= ~columns["simulated"][rows].astype(bool)
    texts = columns["provenance"]
    texts = texts[every_row(rows, texts)]
    for i in np.flatnonzero(imported & mention(texts, f'"{ESTIMATED}"')).tolist():
        why[i] = str(json.loads(texts[i]).get(ESTIMATED, ""))
    unstated = np.flatnonzero(imported & (why == ""))
    if len(unstated) >= FEWEST:
        time_s, energy_j = (
            columns[name][rows][unstated].astype(float) for name in ("time_s", "energy_j")
        )
        why[unstated] = _evidence(time_s, energy_j / time_s, texts[every_row(unstated, texts)])
    return why


def every_row(rows: np.ndarray, column: np.ndarray) -> np.ndarray | slice:
    """An index of a column by rows (int64), which copies nothing if these are all rows."""
    return slice(None) if len(rows) == len(column) else rows


def mention(texts: np.ndarray, word: str) -> np.ndarray:
    """bool: whether texts (object or StringDType) contain a word."""
    if texts.strides == (0,) and len(texts):
        return np.broadcast_to(word in texts[0], len(texts))
    contains = np.zeros(len(texts), bool)
    for begin in range(0, len(texts), BLOCK_ROWS):
        block = texts[begin : begin + BLOCK_ROWS].tolist()
        if word in "\n".join(block):
            contains[begin : begin + BLOCK_ROWS] = [word in text for text in block]
    return contains


def _evidence(time_s: np.ndarray, power_w: np.ndarray, texts: np.ndarray) -> str:
    """How powers at different times show that they are estimates; empty if they do not."""
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
        coefficients, *_ = np.linalg.lstsq(terms, power_w, rcond=None)
        if np.abs(terms @ coefficients - power_w).max() <= limit:
            return OF_LOAD.format(name=name)
    return ""


def _loads(texts: np.ndarray) -> dict[str, np.ndarray]:
    """The labels that are loads by their names, float64 (rows,), NaN for no number."""
    labels = [json.loads(text).get("labels", {}) for text in texts]
    return {
        name: np.array([_number(row_labels.get(name)) for row_labels in labels])
        for name in labels[0]
        if LOAD.search(name)
    }


def _number(value: object) -> float:
    try:
        return float(str(value))
    except ValueError:
        return np.nan
