"""The checks of measurements of one point against one another: copies, repeats, nodes, sessions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
from scipy import special

from analysis.quality.finding import Finding, first_named
from analysis.quality.noise import FALSE_ALARM, MAD_TO_SIGMA, NOISE_FLOOR, RELEVANT, student_limit
from analysis.quality.rows import Rows
from dvfs.groups import Groups
from dvfs.texts import group_codes

APART = 0.1
"""Relative: nodes of one model are often closer than this. Further apart, a fit of all of them
has their distance as its error."""
MIN_CELLS = 5
ROUNDS = 3
"""Times that the levels are estimated from what the points have left."""
BREAK_S = 1800.0
"""After so long without a measurement another session begins."""
FEWEST = 3
"""Points that were measured before from which on a session is judged."""


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
        of_group = taken & (component[series[a]] == group)
        members = np.unique(np.concatenate([a[of_group], b[of_group]]))
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


def outliers(
    rows: Rows, residual: dict[str, np.ndarray], sigma: dict[str, np.ndarray], df: float
) -> list[Finding]:
    """Rows whose energy is far from that of the other repeats of their point."""
    size = np.bincount(rows.cell)[rows.cell]
    judged = size > 1
    if not judged.any() or not df:
        return []
    away = residual["energy"]
    # A row is far from a median also because more than half of the others are off the other way.
    # Of two repeats each is half of their distance from it, and neither is the right one.
    spread = np.where(size == 2, np.sqrt(0.5), np.sqrt(1.0 + 1.0 / ((size + 1) // 2)))
    limit = student_limit(int(judged.sum()), df) * sigma["energy"][rows.kernel] * spread
    bad = np.flatnonzero(judged & (np.abs(away) > np.maximum(limit, RELEVANT)))
    if not len(bad):
        return []
    worst = bad[np.argsort(-np.abs(away[bad]))]
    named = [
        f"{rows.where(rows.kernel[i], rows.setting[i])}, repeat {rows.repeat[i]} "
        f"({100 * np.expm1(away[i]):+.0f} %)"
        for i in worst
    ]
    return [
        Finding(
            "outliers",
            "warning",
            rows.index[bad],
            f"the energy of {len(bad)} rows is far from that of their repeats: "
            f"{first_named(named)}; measure these points again, or leave the rows out",
        )
    ]


def level_changes(
    rows: Rows, residual: dict[str, np.ndarray], sigma: dict[str, np.ndarray]
) -> list[Finding]:
    """A level that changes in the order of measuring, by node: the running sum of deviations grows.

    For repeats in random order the running sum is a Brownian bridge; where its maximum lies,
    the level changed.
    """
    findings = []
    repeated = (np.bincount(rows.cell)[rows.cell] > 1) & (rows.start_unix_s > 0)
    nodes = np.unique(rows.node[repeated])
    for name in ("time", "power"):
        for node in nodes:
            of_node = np.flatnonzero(repeated & (rows.node == node))
            if len(of_node) < 10:
                continue
            of_node = of_node[np.argsort(rows.start_unix_s[of_node], kind="stable")]
            scale = sigma[name][rows.kernel[of_node]]
            # One outlier is not a change of level.
            away = np.clip(residual[name][of_node] / scale, -3.0, 3.0)
            away = away - away.mean()
            run = np.abs(np.cumsum(away)) / np.sqrt(len(of_node))
            at = int(np.argmax(run[:-1])) + 1
            if run[at - 1] <= special.kolmogi(FALSE_ALARM / (2 * len(nodes))):
                continue
            before, after = residual[name][of_node[:at]], residual[name][of_node[at:]]
            step = float(np.median(after) - np.median(before))
            if abs(step) < RELEVANT:
                continue
            shorter = of_node[at:] if 2 * at >= len(of_node) else of_node[:at]
            i = int(of_node[at])
            findings.append(
                Finding(
                    "order",
                    "warning",
                    np.sort(rows.index[shorter]),
                    f"{name} changes by about {100 * np.expm1(step):+.1f} % while "
                    f"measuring on one node, from {rows.where(rows.kernel[i], rows.setting[i])}, "
                    f"repeat {rows.repeat[i]} on; look for heat or other jobs there, and measure "
                    f"the {len(shorter)} rows on the shorter side of the change again",
                )
            )
    return findings


def node_offsets(rows: Rows) -> list[Finding]:
    """Nodes, or repeats where no nodes are named, whose time or power is apart in the same points.

    The offset is the median over points (kernel and setting) of the logarithm of a node's value
    to the mean of the nodes there.
    """
    groups = [("node", rows.node, rows.nodes)]
    if len(rows.nodes) < 2:
        if len(rows.mhz) < 2:  # a sweep of something else
            return []
        groups = [("repeat", *_coded(rows.repeat))]
    findings = []
    for what, code, names in groups:
        if len(names) < 2:
            continue
        findings += _offsets(rows, what, code, names)
    return findings


def _coded(repeat: np.ndarray) -> tuple[np.ndarray, list[str]]:
    groups = Groups(repeat)
    return groups.numbers(), [str(number) for number in groups.codes]


def _offsets(rows: Rows, what: str, code: np.ndarray, names: list[str]) -> list[Finding]:
    each = Groups(rows.cell * len(names) + code)
    cells = Groups(each.codes // len(names))
    compared = cells.by_row(cells.sizes) > 1
    cell, of = np.divmod(each.codes[compared], len(names))
    cells, groups = Groups(cell), Groups(of)
    if len(cells.codes) < MIN_CELLS or len(groups.codes) < 2:
        return []
    levels = {name: each.medians(rows.values[name])[compared] for name in ("power", "time")}
    found = (_offset(rows, *level, what, code, names, cells, groups) for level in levels.items())
    return [finding for finding in found if finding]


def _offset(
    rows: Rows,
    quantity: str,
    level: np.ndarray,
    what: str,
    code: np.ndarray,
    names: list[str],
    cells: Groups,
    groups: Groups,
) -> Finding | None:
    """``level``: a quantity in each cell by node, whose ``cells`` and nodes (``groups``) these
    are."""
    of, n_points = groups.codes[groups.numbers()], len(cells.codes)
    offset, n = np.zeros(len(names)), np.zeros(len(names))
    n[groups.codes] = groups.sizes
    for _ in range(ROUNDS):
        y = level - cells.by_row(cells.means(level - offset[of]))
        offset = np.full(len(names), np.nan)
        offset[groups.codes] = groups.medians(y)
    low, high = (int(np.nanargmin(offset)), int(np.nanargmax(offset)))
    apart = float(offset[high] - offset[low])
    if apart < np.log1p(APART):
        return None
    residual = y - offset[of]
    noise = MAD_TO_SIGMA * float(np.median(np.abs(residual)))
    error = noise * np.sqrt(np.pi / 2 * (1 / n[low] + 1 / n[high]))
    if apart < student_limit(len(names), len(level)) * error:
        return None
    typical = float(np.nanmedian(offset))
    odd = low if abs(offset[low] - typical) > abs(offset[high] - typical) else high
    members = np.flatnonzero(code == odd)
    text = (
        f"{quantity} on {what} {names[high]} is {100 * np.expm1(apart):.0f} % higher than on "
        f"{what} {names[low]} in the same {n_points} points (kernel and setting)"
    )
    if what == "node":
        advice = (
            "taken as repeats, this is the fit's error: judge it with `campaign crossval --scheme "
            "leave-one-node-out`, or give each node a site of its own"
        )
    else:
        text = text.replace(" on repeat", " in repeat")
        advice = (
            "they are no repeats of one measurement: name the nodes in a column node, or find out "
            "what changed between them"
        )
    return Finding("nodes", "warning", rows.index[members], f"{text}; {advice}")


def session_offsets(rows: Rows) -> list[Finding]:
    """Sessions of a partition whose time or power is apart from earlier ones, in the same points.

    The differences of the points are judged against how far they differ from each other: Student's
    t of pairs.
    """
    compared = [
        (quantity, session, log_ratio)
        for sessions in _sessions(rows)
        for quantity in ("power", "time")
        for session, log_ratio in _differences(rows, sessions, quantity)
    ]
    findings = []
    for quantity, session, log_ratio in compared:
        n, step = len(log_ratio), float(log_ratio.mean())
        error = max(float(log_ratio.std(ddof=1)), NOISE_FLOOR) / np.sqrt(n)
        if abs(step) < max(RELEVANT, student_limit(len(compared), n - 1) * error):
            continue
        began = datetime.fromtimestamp(rows.start_unix_s[session].min(), UTC)
        findings.append(
            Finding(
                "sessions",
                "warning",
                np.sort(rows.index[session]),
                f"{quantity} is {100 * np.expm1(step):+.1f} % in the session that began on "
                f"{began:%Y-%m-%d at %H:%M} UTC, in the {n} points (kernel and setting) that were "
                f"measured before too; a fit takes this for an effect of the settings: find out "
                f"what changed (heat, another node, firmware), and measure one of the sessions "
                f"again",
            )
        )
    return findings


def _sessions(rows: Rows) -> list[list[np.ndarray]]:
    """The rows of each session of a partition, in the order of time."""
    sessions = []
    for partition in np.unique(rows.partition):
        of_partition = np.flatnonzero((rows.partition == partition) & (rows.start_unix_s > 0))
        of_partition = of_partition[np.argsort(rows.start_unix_s[of_partition], kind="stable")]
        breaks = np.flatnonzero(np.diff(rows.start_unix_s[of_partition]) > BREAK_S) + 1
        sessions.append(np.split(of_partition, breaks))
    return sessions


def _differences(
    rows: Rows, sessions: list[np.ndarray], quantity: str
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The rows of each session that has enough points of earlier ones, and the logarithms of what
    these are now over what they were first, (points,)."""
    if len(sessions) < 2:
        return []
    import pandas as pd  # noqa: PLC0415  (few tables have several sessions)

    first = pd.Series(dtype=float)
    differences = []
    for session in sessions:
        values = pd.Series(rows.values[quantity][session])
        now = values.groupby(rows.cell[session]).mean()
        log_ratio = (now - first.reindex(now.index)).dropna().to_numpy()
        if len(log_ratio) >= FEWEST:
            differences.append((session, log_ratio))
        first = first.combine_first(now)
    return differences
