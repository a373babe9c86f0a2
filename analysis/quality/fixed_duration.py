"""The check for kernels whose time follows no clock: loops that run for a fixed duration."""

from __future__ import annotations

import numpy as np

from analysis.quality.finding import Finding, first_named
from analysis.quality.noise import MedianGrid
from analysis.quality.rows import Rows

SPAN = float(np.log(1.3))
"""Clocks nearer together than this say nothing."""
FLAT = 0.02
"""Relative: times that differ by less over all settings do not depend on the clocks."""
MIN_SETTINGS = 3


def fixed_duration(rows: Rows, grids: dict[str, MedianGrid]) -> list[Finding]:
    """Times that depend on no clock.

    A kernel that waits for memory does not follow the core clock alone; no kernel that computes
    or moves data is independent of both clocks. Where all kernels take the same time at all
    settings, each was run for a fixed time: its energies are not those of the same work.
    """
    y = grids["time"].y
    known = np.isfinite(y)
    spans = np.array([_span(rows.mhz[of]) for of in known])  # (kernels, 2)
    swept = (known.sum(1) >= MIN_SETTINGS) & (spans > SPAN).any(1)
    spread = np.nanmax(np.where(known, y, -np.inf), 1) - np.nanmin(np.where(known, y, np.inf), 1)
    flat = swept & (spread < FLAT)
    if not flat.any():
        return []
    kernels = np.flatnonzero(flat)
    members = np.flatnonzero(np.isin(rows.kernel, kernels))
    level = np.array([float(np.nanmedian(y[k])) for k in kernels])
    all_flat = bool(flat[swept].all())
    alike = len(kernels) >= MIN_SETTINGS and float(np.ptp(level)) < FLAT
    named = first_named(
        [f"{rows.kernels[k]}: {np.exp(of):.4g} s" for k, of in zip(kernels, level, strict=True)]
    )
    where = f"in {len(members)} rows of {len(kernels)} of {len(rows.kernels)} kernels ({named})"
    remedy = (
        "import the time and the energy of the same work at each setting: divide both by the "
        "iterations that were done"
    )
    if all_flat and alike:
        return [
            Finding(
                "time",
                "refused",
                rows.index[members],
                f"{where} the time is the same at all settings and for all kernels: these loops "
                f"ran for a fixed time, so their energies are not those of the same work; {remedy}",
            )
        ]
    # With the core clock alone swept, kernels that wait for memory are flat.
    if not all_flat or len(kernels) < MIN_SETTINGS:
        both = (spans > SPAN).all(1)
        kernels = np.flatnonzero(flat & both)
        if not len(kernels):
            return []
        members = np.flatnonzero(np.isin(rows.kernel, kernels))
        named = first_named([rows.kernels[k] for k in kernels])
        where = f"in {len(members)} rows of {len(kernels)} of {len(rows.kernels)} kernels ({named})"
    return [
        Finding(
            "time",
            "warning",
            rows.index[members],
            f"{where} the time depends on no clock; if these loops ran for a fixed time, {remedy}; "
            f"if the clocks were not set, no fit can use them",
        )
    ]


def _span(mhz: np.ndarray) -> tuple[float, float]:
    """The logarithm of the largest clock ratio, of core and memory; 0 where it is not known."""
    core, mem = (column[np.isfinite(column)] for column in mhz.T)
    return tuple(float(np.ptp(np.log(c))) if len(c) else 0.0 for c in (core, mem))  # type: ignore[return-value]
