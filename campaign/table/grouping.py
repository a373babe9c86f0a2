"""Clocks as they were measured, with jitter, grouped into the settings that they mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dvfs.texts import Texts

CLEARLY = 3.0
"""Settings are apart by so many times the widest gap, and the width, of what is one setting."""
WIDEST = 0.03
"""Relative: readings of one setting differ by no more."""
MOST_SHARED = 0.5
"""The share of a group's clocks at which one kernel may have been measured: of settings that are
near each other it has all, of readings of one setting its own few."""
ROUND_MHZ = (100.0, 50.0, 25.0, 10.0, 5.0, 1.0, 0.5, 0.1)
"""A setting is named by the roundest clock among its readings."""
TRIED = 8
"""Widths of the gap between settings that are tried, the clearest first."""
FEWEST = 3
"""Clocks that are grouped: 2600 and 2601 MHz, with and without turbo, are two settings."""


@dataclass(frozen=True)
class Grouped:
    """Clocks of the settings, float64 (rows,), and what was grouped, empty where nothing was."""

    mhz: np.ndarray
    note: str = ""


def grouped_clocks(
    mhz: np.ndarray, keys: Sequence[np.ndarray], name: str, repeats_unnumbered: bool = False
) -> Grouped:
    """Group the clocks of one domain into settings.

    Only where the jitter is clearly smaller than the distance between settings, and where a
    kernel was not measured at each of the clocks: then they are steps of the device.

    Args:
        mhz: float64 (rows,), NaN where there is none.
        keys: what a row is beside its clock: its kernel, parameters, node and repeat.
        name: of the column, for the note.
        repeats_unnumbered: rows of the same point are repeats without a number.
    """
    clocks, at, rows = np.unique(mhz[np.isfinite(mhz)], return_inverse=True, return_counts=True)
    groups = groups_of(clocks)
    if not groups:
        return Grouped(mhz)
    import pandas as pd  # noqa: PLC0415  (most tables need no grouping)

    frame = pd.DataFrame(dict(enumerate(keys)))[np.isfinite(mhz)]
    key = frame.groupby(list(frame.columns), sort=False, dropna=False).ngroup().to_numpy()
    group_of = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    by_key = pd.DataFrame({"group": group_of[at], "key": key, "clock": at})
    clocks_of_a_key = by_key.groupby(["group", "key"])["clock"].nunique().groupby("group").mean()
    grouped = meant_clocks(
        clocks, rows, groups, clocks_of_a_key.to_numpy(), name, repeats_unnumbered
    )
    if not grouped.note:
        return Grouped(mhz)
    now = mhz.copy()
    now[np.isfinite(mhz)] = grouped.mhz[at]
    return Grouped(now, grouped.note)


def meant_clocks(
    clocks: np.ndarray,
    rows: np.ndarray,
    groups: list[np.ndarray],
    clocks_of_a_key: np.ndarray,
    name: str,
    repeats_unnumbered: bool,
) -> Grouped:
    """The setting of each clock.

    Args:
        clocks: float64, sorted and distinct.
        rows: int64, of each clock.
        groups: of :func:`groups_of`.
        clocks_of_a_key: float64, the clocks of a group that a kernel has in the mean, where it has
            any.
        name: as for :func:`grouped_clocks`.
        repeats_unnumbered: as for :func:`grouped_clocks`.
    """
    meant = clocks.copy()
    joined = []
    for i, group in enumerate(groups):
        shared = float(clocks_of_a_key[i]) / len(group)
        single = repeats_unnumbered and 2 * len(group) >= rows[group].sum()
        if len(group) >= FEWEST and (shared <= MOST_SHARED or single):
            meant[group] = _round_mhz(float(clocks[group[0]]), float(clocks[group[-1]]))
            joined.append(group)
    if not joined or len(np.unique(meant)) < 2:
        return Grouped(clocks)
    widest = max(joined, key=lambda group: float(clocks[group[-1]] / clocks[group[0]]))
    note = (
        f"{name}: {len(clocks)} clocks as measured are taken for {len(np.unique(meant))} settings "
        f"(such as {clocks[widest[0]]:g} to {clocks[widest[-1]]:g} for {meant[widest[0]]:g} MHz); "
        f'{name}_achieved keeps each row\'s own. clocks = "exact" in the map takes them as they are'
    )
    return Grouped(meant, note)


def groups_of(clocks: np.ndarray) -> list[np.ndarray]:
    """Sorted clocks, divided at the gaps that are clearly wider than all others: indices; nothing
    where that leaves all together, or each alone."""
    if len(clocks) < 2 * FEWEST:
        return []
    gaps = np.diff(np.log(clocks))
    ordered = np.sort(gaps)
    apart = ordered[1:] / np.maximum(ordered[:-1], 1e-9)
    for at in np.argsort(-apart, kind="stable")[:TRIED].tolist():
        if apart[at] < CLEARLY:
            break
        groups = np.split(np.arange(len(clocks)), np.flatnonzero(gaps > ordered[at]) + 1)
        widest = max(float(np.log(clocks[g[-1]] / clocks[g[0]])) for g in groups)
        nearest = min(float(np.log(clocks[b[0]] / clocks[a[-1]])) for a, b in pairwise(groups))
        if widest < WIDEST and nearest > CLEARLY * widest:
            return groups if len(groups) < len(clocks) else []
    return []


def _round_mhz(low: float, high: float) -> float:
    """The roundest clock from ``low`` to ``high`` that is nearest to their middle."""
    middle = (low + high) / 2
    for step in ROUND_MHZ:
        mhz = round(middle / step) * step
        if low <= mhz <= high:
            return float(mhz)
    return middle


def group_settings(
    site: Texts,
    keys: Sequence[np.ndarray],
    clocks: dict[str, np.ndarray],
    repeats_unnumbered: bool,
) -> list[str]:
    """Group the clocks of each site; what was grouped, a note each.

    ``clocks``: ``core_mhz``, ``mem_mhz``, and the achieved ones, which take the rows' own values
    where they have none; those that change are replaced. ``keys``: as for :func:`grouped_clocks`.
    """
    notes = []
    for name in ("mem_mhz", "core_mhz"):
        for code, one in enumerate(site.values):
            achieved = clocks[f"{name}_achieved"]
            rows = np.flatnonzero((site.codes == code) & np.isnan(achieved))
            mhz = clocks[name][rows]
            if len(np.unique(mhz)) < 2 * FEWEST:
                continue
            beside = [key[rows] for key in keys]
            if name == "core_mhz":
                beside.append(clocks["mem_mhz"][rows])
            grouped = grouped_clocks(mhz, beside, name, repeats_unnumbered)
            if grouped.note:
                for changed, values in ((f"{name}_achieved", mhz), (name, grouped.mhz)):
                    clocks[changed] = clocks[changed].copy()
                    clocks[changed][rows] = values
                notes.append(f"{one}: {grouped.note}")
    return notes
