"""The checks between measurements of one point: copies, repeats, nodes, sessions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import numpy as np
from scipy import special

from analysis.quality.finding import Finding, first_named
from analysis.quality.noise import FALSE_ALARM, MAD_TO_SIGMA, NOISE_FLOOR, RELEVANT, student_limit
from analysis.quality.rows import Rows
from dvfs.groups import Groups
from dvfs.texts import group_codes

APART = 0.1
"""The relative difference of nodes from which it is a finding. Nodes of one model often differ by
less; a larger difference becomes the error of a fit to all of them."""
MIN_CELLS = 5
ROUNDS = 3
"""The number of iterations that estimate the offsets of nodes and the levels of points."""
BREAK_S = 1800.0
"""The time without a measurement after which another session begins."""
FEWEST = 3
"""The fewest points measured before for which a session is judged."""


def identical(rows: Rows) -> Iterator[Finding]:
    """Findings of measurements that are listed twice: rows with equal keys, or equal values."""
    groups = Groups(group_codes([rows.cell, rows.partition, rows.node, rows.repeat]))
    if (groups.sizes > 1).any():
        twice = np.flatnonzero(groups.by_row(groups.sizes) > 1)
        firsts = np.sort(groups.firsts[groups.sizes > 1])
        first = [rows.where(rows.kernel[i], rows.setting[i]) for i in firsts]
        yield Finding(
            "duplicates",
            "warning",
            rows.index[twice],
            f"{len(twice)} rows are the same kernel, parameters, setting, node and repeat as "
            f"another ({first_named(first)}); number them in repeat, or keep one of each",
        )
    # Without noise, simulated kernels with equal counts are equal by design.
    if not rows.simulated:
        yield from _copies(rows)


def _copies(rows: Rows) -> Iterator[Finding]:
    """Findings of series (a kernel's repeat on a node) with bitwise equal times and energies."""
    energies = np.sort(rows.values["energy"])
    if (energies[1:] != energies[:-1]).all():
        return
    by_value = (rows.values["energy"], rows.values["time"], rows.setting)
    if not _equal_neighbours(np.lexsort(by_value), by_value).any():
        return
    series_key = np.column_stack([rows.kernel, rows.partition, rows.node, rows.repeat])
    keys, series = np.unique(series_key, axis=0, return_inverse=True)
    series = series.reshape(-1)
    order = np.lexsort([series, *by_value])
    is_equal = _equal_neighbours(order, by_value)
    a, b = order[:-1][is_equal], order[1:][is_equal]
    distinct = series[a] != series[b]
    a, b = a[distinct], b[distinct]
    if not len(a):
        return
    n_settings = np.bincount(series)
    pairs, pair, n_equal = np.unique(
        np.column_stack([series[a], series[b]]), axis=0, return_inverse=True, return_counts=True
    )
    pair = pair.reshape(-1)
    # Coarse readings agree by chance here and there, but not at half of the settings.
    copied = (n_equal >= 2) & (2 * n_equal >= n_settings[pairs].min(1))
    if not copied.any():
        return
    from scipy import sparse  # noqa: PLC0415
    from scipy.sparse.csgraph import connected_components  # noqa: PLC0415

    graph = sparse.coo_matrix(
        (np.ones(copied.sum()), pairs[copied].T), shape=(len(keys), len(keys))
    )
    _, component = connected_components(graph, directed=False)
    is_copied = copied[pair]
    for group in np.unique(component[pairs[copied][:, 0]]):
        of_group = is_copied & (component[series[a]] == group)
        members = np.unique(np.concatenate([a[of_group], b[of_group]]))
        copies = [
            f"{rows.kernels[keys[s, 0]]}, repeat {keys[s, 3]}" for s in np.unique(series[members])
        ]
        yield Finding(
            "duplicates",
            "warning",
            rows.index[members],
            f"time and energy are the same to the last bit at "
            f"{len(np.unique(rows.setting[members]))} settings: {first_named(copies)}; they "
            f"are copies of one measurement, keep one of them",
        )


def _equal_neighbours(order: np.ndarray, columns: Sequence[np.ndarray]) -> np.ndarray:
    """bool (rows - 1,): whether each row, in this order, has the values of the previous row."""
    is_equal = np.ones(len(order) - 1, bool)
    for values in columns:
        is_equal &= values[order[1:]] == values[order[:-1]]
    return is_equal


def outliers(
    rows: Rows, residual: dict[str, np.ndarray], sigma: dict[str, np.ndarray], df: float
) -> Iterator[Finding]:
    """A finding of rows whose energy is far from the median of their point."""
    n_repeats = np.bincount(rows.cell)[rows.cell]
    judged = n_repeats > 1
    if not judged.any() or not df:
        return
    deviation = residual["energy"]
    # The median has noise too. Two repeats are each half their distance from their median, and
    # neither is known to be right.
    spread = np.where(n_repeats == 2, np.sqrt(0.5), np.sqrt(1.0 + 1.0 / ((n_repeats + 1) // 2)))
    limit = student_limit(int(judged.sum()), df) * sigma["energy"][rows.kernel] * spread
    bad = np.flatnonzero(judged & (np.abs(deviation) > np.maximum(limit, RELEVANT)))
    if not len(bad):
        return
    worst = bad[np.argsort(-np.abs(deviation[bad]))]
    named = [
        f"{rows.where(rows.kernel[i], rows.setting[i])}, repeat {rows.repeat[i]} "
        f"({100 * np.expm1(deviation[i]):+.0f} %)"
        for i in worst
    ]
    yield Finding(
        "outliers",
        "warning",
        rows.index[bad],
        f"the energy of {len(bad)} rows is far from that of their repeats: "
        f"{first_named(named)}; measure these points again, or leave the rows out",
    )


def level_changes(
    rows: Rows, residual: dict[str, np.ndarray], sigma: dict[str, np.ndarray]
) -> Iterator[Finding]:
    """Findings of a node's level that changes in the order of time, by the sum of deviations.

    For repeats in random order the running sum is a Brownian bridge. If its maximum is too large,
    the level changed there.
    """
    usable = (np.bincount(rows.cell)[rows.cell] > 1) & (rows.start_unix_s > 0)
    nodes = np.unique(rows.node[usable])
    for name in ("time", "power"):
        for node in nodes:
            node_rows = np.flatnonzero(usable & (rows.node == node))
            if len(node_rows) < 10:
                continue
            node_rows = node_rows[np.argsort(rows.start_unix_s[node_rows], kind="stable")]
            scale = sigma[name][rows.kernel[node_rows]]
            # One outlier is not a change of level.
            deviation = np.clip(residual[name][node_rows] / scale, -3.0, 3.0)
            deviation = deviation - deviation.mean()
            running_sum = np.abs(np.cumsum(deviation)) / np.sqrt(len(node_rows))
            change = int(np.argmax(running_sum[:-1])) + 1
            if running_sum[change - 1] <= special.kolmogi(FALSE_ALARM / (2 * len(nodes))):
                continue
            before, after = residual[name][node_rows[:change]], residual[name][node_rows[change:]]
            step = float(np.median(after) - np.median(before))
            if abs(step) < RELEVANT:
                continue
            shorter = node_rows[change:] if 2 * change >= len(node_rows) else node_rows[:change]
            i = int(node_rows[change])
            yield Finding(
                "order",
                "warning",
                np.sort(rows.index[shorter]),
                f"{name} changes by about {100 * np.expm1(step):+.1f} % while "
                f"measuring on one node, from {rows.where(rows.kernel[i], rows.setting[i])}, "
                f"repeat {rows.repeat[i]} on; look for heat or other jobs there, and measure "
                f"the {len(shorter)} rows on the shorter side of the change again",
            )


def node_offsets(rows: Rows) -> Iterator[Finding]:
    """Findings of nodes whose time or power differs in the same points; without node names, of
    repeats.

    The offset is the median over points (kernel and setting) of the logarithm of the ratio of a
    node's value to the mean of the nodes.
    """
    kind, code, names = "node", rows.node, rows.nodes
    if len(names) < 2:
        repeats = Groups(rows.repeat)
        kind, code, names = "repeat", repeats.numbers(), [str(number) for number in repeats.codes]
        if len(names) < 2 or len(rows.mhz) < 2:  # with one setting, a sweep of something else
            return
    pairs = Groups(rows.cell * len(names) + code)
    cells = Groups(pairs.codes // len(names))
    compared = cells.by_row(cells.sizes) > 1
    cell, member = np.divmod(pairs.codes[compared], len(names))
    cells, groups = Groups(cell), Groups(member)
    if len(cells.codes) < MIN_CELLS or len(groups.codes) < 2:
        return
    for quantity in ("power", "time"):
        levels = pairs.medians(rows.values[quantity])[compared]
        yield from _offset(rows, quantity, levels, kind, code, names, cells, groups)


def _offset(
    rows: Rows,
    quantity: str,
    levels: np.ndarray,
    kind: str,
    code: np.ndarray,
    names: list[str],
    cells: Groups,
    groups: Groups,
) -> Iterator[Finding]:
    """A finding of the largest difference between members (nodes or repeats).

    ``levels``: a quantity in each pair of cell and member; ``cells`` and ``groups`` group the pairs
    by cell and by member."""
    member, n_points = groups.codes[groups.numbers()], len(cells.codes)
    offset, n = np.zeros(len(names)), np.zeros(len(names))
    n[groups.codes] = groups.sizes
    for _ in range(ROUNDS):
        y = levels - cells.by_row(cells.means(levels - offset[member]))
        offset = np.full(len(names), np.nan)
        offset[groups.codes] = groups.medians(y)
    low, high = (int(np.nanargmin(offset)), int(np.nanargmax(offset)))
    difference = float(offset[high] - offset[low])
    if difference < np.log1p(APART):
        return
    residual = y - offset[member]
    noise = MAD_TO_SIGMA * float(np.median(np.abs(residual)))
    error = noise * np.sqrt(np.pi / 2 * (1 / n[low] + 1 / n[high]))
    if difference < student_limit(len(names), len(levels)) * error:
        return
    typical = float(np.nanmedian(offset))
    odd = low if abs(offset[low] - typical) > abs(offset[high] - typical) else high
    members = np.flatnonzero(code == odd)
    text = (
        f"{quantity} on {kind} {names[high]} is {100 * np.expm1(difference):.0f} % higher than on "
        f"{kind} {names[low]} in the same {n_points} points (kernel and setting)"
    )
    if kind == "node":
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
    yield Finding("nodes", "warning", rows.index[members], f"{text}; {advice}")


def session_offsets(rows: Rows) -> Iterator[Finding]:
    """Findings of sessions whose time or power differs from a partition's earlier ones, in the same
    points, by Student's t of pairs.
    """
    compared = [
        (quantity, session, log_ratio)
        for sessions in _sessions(rows)
        for quantity in ("power", "time")
        for session, log_ratio in _differences(rows, sessions, quantity)
    ]
    for quantity, session, log_ratio in compared:
        n, step = len(log_ratio), float(log_ratio.mean())
        error = max(float(log_ratio.std(ddof=1)), NOISE_FLOOR) / np.sqrt(n)
        if abs(step) < max(RELEVANT, student_limit(len(compared), n - 1) * error):
            continue
        began = datetime.fromtimestamp(rows.start_unix_s[session].min(), UTC)
        yield Finding(
            "sessions",
            "warning",
            np.sort(rows.index[session]),
            f"{quantity} is {100 * np.expm1(step):+.1f} % in the session that began on "
            f"{began:%Y-%m-%d at %H:%M} UTC, in the {n} points (kernel and setting) that were "
            f"measured before too; a fit takes this for an effect of the settings: find out "
            f"what changed (heat, another node, firmware), and measure one of the sessions "
            f"again",
        )


def _sessions(rows: Rows) -> list[list[np.ndarray]]:
    """The rows of each session in the order of time, by partition."""
    sessions = []
    for partition in np.unique(rows.partition):
        rows_by_time = np.flatnonzero((rows.partition == partition) & (rows.start_unix_s > 0))
        rows_by_time = rows_by_time[np.argsort(rows.start_unix_s[rows_by_time], kind="stable")]
        breaks = np.flatnonzero(np.diff(rows.start_unix_s[rows_by_time]) > BREAK_S) + 1
        sessions.append(np.split(rows_by_time, breaks))
    return sessions


def _differences(
    rows: Rows, sessions: list[np.ndarray], quantity: str
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The rows of each session with enough points measured before, and the logarithms of the ratios
    of these points' values to their first ones, (points,)."""
    if len(sessions) < 2:
        return []
    import pandas as pd  # noqa: PLC0415  (few tables have several sessions)

    first = pd.Series(dtype=float)
    differences = []
    for session in sessions:
        values = pd.Series(rows.values[quantity][session])
        means = values.groupby(rows.cell[session]).mean()
        log_ratio = (means - first.reindex(means.index)).dropna().to_numpy()
        if len(log_ratio) >= FEWEST:
            differences.append((session, log_ratio))
        first = first.combine_first(means)
    return differences
