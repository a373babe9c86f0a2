"""The check for nodes, or rounds of repeats, that are apart in all points."""

from __future__ import annotations

import numpy as np

from analysis.quality.finding import Finding
from analysis.quality.noise import MAD_TO_SIGMA, student_limit
from analysis.quality.rows import Rows
from dvfs.groups import Groups

APART = 0.1
"""Relative: nodes of one model are often closer than this. Further apart, a fit of all of them
has their distance as its error."""
MIN_CELLS = 5
ROUNDS = 3
"""Times that the levels are estimated from what the points have left."""


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
