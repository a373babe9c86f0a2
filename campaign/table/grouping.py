"""Measured clocks with jitter, grouped into settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dvfs.texts import Texts

CLEARLY = 3.0
"""The least distance of settings, as a multiple of one setting's widest gap, and of its width."""
WIDEST = 0.03
"""The largest relative width of the readings of one setting."""
MOST_SHARED = 0.5
"""The largest share of a group's clocks that one kernel may have: it has all of close settings, but
only a few of one setting's readings."""
ROUND_MHZ = (100.0, 50.0, 25.0, 10.0, 5.0, 1.0, 0.5, 0.1)
"""A setting is the roundest clock among its readings."""
TRIED = 8
"""The number of gaps between settings that are tried, the clearest first."""
FEWEST = 3
"""The fewest clocks of a group: 2600 and 2601 MHz, with and without turbo, are two settings."""


@dataclass(frozen=True)
class Grouped:
    """The clocks of the settings, float64 (rows,), and a note; it is empty if none were grouped."""

    mhz: np.ndarray
    note: str = ""


def grouped_clocks(
    mhz: np.ndarray, keys: Sequence[np.ndarray], name: str, repeats_unnumbered: bool = False
) -> Grouped:
    """Group the clocks of one domain into settings.

    Clocks stay separate if the jitter is not clearly smaller than the distance between settings, or
    if a kernel was measured at each of the clocks, which are then steps of the device.

    Args:
        mhz: float64 (rows,), NaN if there is none.
        keys: the other columns of a row: kernel, parameters, node and repeat.
        name: the name of the column, for the note.
        repeats_unnumbered: whether rows of the same point are repeats without a number.
    """
    finite_mhz = mhz[np.isfinite(mhz)]
    clocks, indices, rows = np.unique(finite_mhz, return_inverse=True, return_counts=True)
    groups = groups_of(clocks)
    if not groups:
        return Grouped(mhz)
    import pandas as pd  # noqa: PLC0415  (most tables need no grouping)

    frame = pd.DataFrame(dict(enumerate(keys)))[np.isfinite(mhz)]
    key = frame.groupby(list(frame.columns), sort=False, dropna=False).ngroup().to_numpy()
    group_of = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    by_key = pd.DataFrame({"group": group_of[indices], "key": key, "clock": indices})
    clocks_of_a_key = by_key.groupby(["group", "key"])["clock"].nunique().groupby("group").mean()
    grouped = meant_clocks(
        clocks, rows, groups, clocks_of_a_key.to_numpy(), name, repeats_unnumbered
    )
    if not grouped.note:
        return Grouped(mhz)
    setting_mhz = mhz.copy()
    setting_mhz[np.isfinite(mhz)] = grouped.mhz[indices]
    return Grouped(setting_mhz, grouped.note)


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
        rows: int64, the number of rows of each clock.
        groups: the result of :func:`groups_of`.
        clocks_of_a_key: float64, by group: the mean number of its clocks over the kernels that
            have any.
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
    """The indices of sorted clocks, divided at the gaps that are clearly wider than all others;
    empty if no gap is, or if each clock would be alone."""
    if len(clocks) < 2 * FEWEST:
        return []
    gaps = np.diff(np.log(clocks))
    ordered = np.sort(gaps)
    ratios = ordered[1:] / np.maximum(ordered[:-1], 1e-9)
    for index in np.argsort(-ratios, kind="stable")[:TRIED].tolist():
        if ratios[index] < CLEARLY:
            break
        groups = np.split(np.arange(len(clocks)), np.flatnonzero(gaps > ordered[index]) + 1)
        widest = max(float(np.log(clocks[g[-1]] / clocks[g[0]])) for g in groups)
        nearest = min(float(np.log(clocks[b[0]] / clocks[a[-1]])) for a, b in pairwise(groups))
        if widest < WIDEST and nearest > CLEARLY * widest:
            return groups if len(groups) < len(clocks) else []
    return []


def _round_mhz(low: float, high: float) -> float:
    """The roundest clock from ``low`` to ``high``, as close as possible to their middle."""
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
    """Group the clocks of each site, and return the notes.

    ``clocks``: ``core_mhz``, ``mem_mhz``, and the achieved ones. Rows without an achieved clock get
    their measured one as such. Changed arrays are replaced. ``keys``: see :func:`grouped_clocks`.
    """
    notes = []
    for name in ("mem_mhz", "core_mhz"):
        for code, site_name in enumerate(site.values):
            achieved = clocks[f"{name}_achieved"]
            rows = np.flatnonzero((site.codes == code) & np.isnan(achieved))
            mhz = clocks[name][rows]
            if len(np.unique(mhz)) < 2 * FEWEST:
                continue
            other_columns = [key[rows] for key in keys]
            if name == "core_mhz":
                other_columns.append(clocks["mem_mhz"][rows])
            grouped = grouped_clocks(mhz, other_columns, name, repeats_unnumbered)
            if grouped.note:
                for changed, values in ((f"{name}_achieved", mhz), (name, grouped.mhz)):
                    clocks[changed] = clocks[changed].copy()
                    clocks[changed][rows] = values
                notes.append(f"{site_name}: {grouped.note}")
    return notes
