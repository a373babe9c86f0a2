"""The check for duplicates: rows with the same key, and series that are copies of others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from analysis.quality.finding import Finding, first_named
from analysis.quality.rows import Rows
from dvfs.groups import Groups
from dvfs.texts import group_codes


def identical(rows: Rows) -> list[Finding]:
    """Rows that are one measurement listed twice: with the same key, or the same values."""
    groups = Groups(group_codes([rows.cell, rows.partition, rows.node, rows.repeat]))
    findings = []
    if (groups.sizes > 1).any():
        twice = np.flatnonzero(groups.by_row(groups.sizes) > 1)
        firsts = np.sort(groups.firsts[groups.sizes > 1])
        first = [rows.where(rows.kernel[i], rows.setting[i]) for i in firsts]
        findings.append(
            Finding(
                "duplicates",
                "warning",
                rows.index[twice],
                f"{len(twice)} rows are the same kernel, parameters, setting, node and repeat as "
                f"another ({first_named(first)}); number them in repeat, or keep one of each",
            )
        )
    # Without noise, simulated kernels with equal counts are equal by design.
    return findings if rows.simulated else findings + _copies(rows)


def _copies(rows: Rows) -> list[Finding]:
    """Series (a kernel's repeat on a node) whose time and energy are another's, bit for bit."""
    energies = np.sort(rows.values["energy"])
    if (energies[1:] != energies[:-1]).all():
        return []
    by_value = (rows.values["energy"], rows.values["time"], rows.setting)
    if not _equal_neighbours(np.lexsort(by_value), by_value).any():
        return []
    series_key = np.column_stack([rows.kernel, rows.partition, rows.node, rows.repeat])
    keys, series = np.unique(series_key, axis=0, return_inverse=True)
    series = series.reshape(-1)
    order = np.lexsort([series, *by_value])
    same = _equal_neighbours(order, by_value)
    a, b = order[:-1][same], order[1:][same]
    distinct = series[a] != series[b]
    a, b = a[distinct], b[distinct]
    if not len(a):
        return []
    n_settings = np.bincount(series)
    pairs, pair, agreed = np.unique(
        np.column_stack([series[a], series[b]]), axis=0, return_inverse=True, return_counts=True
    )
    pair = pair.reshape(-1)
    # Coarse readings agree by chance here and there, but not at half of the settings.
    copied = (agreed >= 2) & (2 * agreed >= n_settings[pairs].min(1))
    if not copied.any():
        return []
    from scipy import sparse  # noqa: PLC0415
    from scipy.sparse.csgraph import connected_components  # noqa: PLC0415

    graph = sparse.coo_matrix(
        (np.ones(copied.sum()), pairs[copied].T), shape=(len(keys), len(keys))
    )
    _, component = connected_components(graph, directed=False)
    taken = copied[pair]
    findings = []
    for group in np.unique(component[pairs[copied][:, 0]]):
        mine = taken & (component[series[a]] == group)
        members = np.unique(np.concatenate([a[mine], b[mine]]))
        who = [
            f"{rows.kernels[keys[s, 0]]}, repeat {keys[s, 3]}" for s in np.unique(series[members])
        ]
        findings.append(
            Finding(
                "duplicates",
                "warning",
                rows.index[members],
                f"time and energy are the same to the last bit at "
                f"{len(np.unique(rows.setting[members]))} settings: {first_named(who)}; they "
                f"are copies of one measurement, keep one of them",
            )
        )
    return findings


def _equal_neighbours(order: np.ndarray, columns: Sequence[np.ndarray]) -> np.ndarray:
    """bool: whether a row, in this order, has the values of the one before it."""
    same = np.ones(len(order) - 1, bool)
    for values in columns:
        same &= values[order[1:]] == values[order[:-1]]
    return same
