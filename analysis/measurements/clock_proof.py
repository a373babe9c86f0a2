"""How each measurement's clocks were shown, also in stores that do not say so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from analysis.measurements.timed_clocks import shown_by_timing
from dvfs.dataset import CLOCK_UNPROVEN, READ_BACK, SIMULATED, STATED, TIMED, Columns, texts_of
from dvfs.texts import Texts

if TYPE_CHECKING:
    import xarray as xr

UNPROVEN = "unproven"
"""Of a measurement at a clock that was asked for, which nothing showed."""


def clock_proofs(dataset: xr.Dataset | Columns, rows: np.ndarray) -> np.ndarray:
    """How the clocks of rows (int64 indices into the measurements) were shown: object (rows,).

    As the store says: one of :data:`dvfs.dataset.CLOCK_PROOFS`, :data:`UNPROVEN` for the
    status ``clock unproven``, or empty where no clock was asked for. Rows of earlier versions say
    nothing: simulated and imported ones are taken for that, and of the others a domain that was
    asked for at several clocks is proven where the achieved clock was read. Core clocks that one
    measurement alone does not prove are shown by the ratios of the timed loop over a node's
    settings, if there are any (:func:`~analysis.measurements.timed_clocks.shown_by_timing`).
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
