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
        each = Groups(rows.cell * len(names) + code)
        for quantity in ("power", "time"):
            finding = _offsets(rows, quantity, what, code, names, each)
            if finding:
                findings.append(finding)
    return findings


def _coded(repeat: np.ndarray) -> tuple[np.ndarray, list[str]]:
    numbers, code = np.unique(repeat, return_inverse=True)
    return code, [str(number) for number in numbers]


def _offsets(
    rows: Rows, quantity: str, what: str, code: np.ndarray, names: list[str], each: Groups
) -> Finding | None:
    cells = Groups(each.codes // len(names))
    compared = cells.by_row(cells.sizes) > 1
    level = each.medians(rows.values[quantity])[compared]
    cell, of = np.divmod(each.codes[compared], len(names))
    cells, groups = Groups(cell), Groups(of)
    n_points = len(cells.codes)
    if n_points < MIN_CELLS or len(groups.codes) < 2:
        return None
    offset, n = np.zeros(len(names)), np.zeros(len(names))
    n[groups.codes] = groups.sizes
    for _ in range(ROUNDS):
        y = level - cells.by_row(cells.means(level - offset[of]))
        offset = np.full(len(names), np.nan)
        offset[groups.codes] = groups.medians(y)
    low, high = (int(np.nanargmin(offset)), int(np.nanargmax(offset)))
    apart = float(offset[high] - offset[low])
    residual = y - offset[of]
    noise = MAD_TO_SIGMA * float(np.median(np.abs(residual)))
    error = noise * np.sqrt(np.pi / 2 * (1 / n[low] + 1 / n[high]))
    if apart < np.log1p(APART) or apart < student_limit(len(names), len(level)) * error:
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
