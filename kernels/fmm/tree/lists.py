"""The interaction lists U, W and X of Ying, Biros & Zorin (2004, section 3.1).

For a leaf B, U(B) holds the leaves that touch it, including B; W(B) the descendants of its
colleagues that do not touch it but whose parents do. For any node B, X(B) holds the leaves A with B
in W(A), and V(B) the children of its parent's colleagues that do not touch it (see
:mod:`kernels.fmm.tree.v_list`). B's colleagues are the nodes of its level that touch it, and B.

A pair that interacts both ways is stored once: a pair of U for both leaves, and a pair of W, which
read backwards is a pair of X. Where a node of W has few points, its leaves are paired directly,
because that costs less than a surface of equivalent points.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from kernels.fmm.tree.octree import Octree

DIRECTIONS = 27
"""The directions of colleagues: index 9 (dz + 1) + 3 (dy + 1) + dx + 1; 13: the node itself."""
SELF = 13


@dataclass(frozen=True)
class Lists:
    """The pairs of nodes that interact.

    ``colleagues``: int32 (nodes, 27), -1 where there is none. ``near``: int32 (pairs, 2), leaves
    that act on each other directly, each pair once, including a leaf with itself. ``far``:
    int32 (pairs, 2), a leaf and a node of its W.
    """

    colleagues: np.ndarray
    near: np.ndarray
    far: np.ndarray


def build_lists(tree: Octree, few: int) -> Lists:
    """The lists of a tree; nodes of W with at most ``few`` points are paired directly."""
    colleagues = _colleagues(tree.parent, tree.first_child, tree.children, tree.anchor)
    points = np.maximum(tree.end - tree.begin, tree.target_end - tree.target_begin)
    near, n_near, far, n_far = _pairs(
        colleagues, tree.level, tree.first_child, tree.children, tree.anchor, points, few
    )
    return Lists(colleagues, near[:n_near].copy(), far[:n_far].copy())


@njit(nogil=True, cache=True)
def child_in(first_child, children, node, octant):
    """The child of a node in an octant; -1 where there is none."""
    mask = int(children[node])
    if not (mask >> octant) & 1:
        return -1
    below = mask & ((1 << octant) - 1)
    count = 0
    while below:
        below &= below - 1
        count += 1
    return first_child[node] + count


@njit(nogil=True, cache=True)
def _colleagues(parent, first_child, children, anchor):
    n = len(parent)
    colleagues = np.full((n, DIRECTIONS), -1, np.int32)
    colleagues[0, SELF] = 0
    for node in range(1, n):
        above = parent[node]
        x, y, z = anchor[node]
        px, py, pz = anchor[above]
        for dz in range(-1, 2):
            for dy in range(-1, 2):
                for dx in range(-1, 2):
                    qx, qy, qz = (x + dx) >> 1, (y + dy) >> 1, (z + dz) >> 1
                    side = 9 * (qz - pz + 1) + 3 * (qy - py + 1) + qx - px + 1
                    other = colleagues[above, side]
                    if other < 0 or first_child[other] < 0:
                        continue
                    octant = ((x + dx) & 1) | (((y + dy) & 1) << 1) | (((z + dz) & 1) << 2)
                    colleagues[node, 9 * (dz + 1) + 3 * (dy + 1) + dx + 1] = child_in(
                        first_child, children, other, octant
                    )
    return colleagues


@njit(nogil=True, cache=True)
def _touch(anchor, level, coarse, fine):
    shift = level[fine] - level[coarse]
    for axis in range(3):
        low = anchor[coarse, axis] << shift
        high = (anchor[coarse, axis] + 1) << shift
        if anchor[fine, axis] + 1 < low or anchor[fine, axis] > high:
            return False
    return True


@njit(nogil=True, cache=True)
def _longer(pairs):
    longer = np.empty((2 * len(pairs), 2), np.int32)
    for i in range(len(pairs)):
        longer[i, 0], longer[i, 1] = pairs[i, 0], pairs[i, 1]
    return longer


@njit(nogil=True, cache=True)
def _pairs(colleagues, level, first_child, children, anchor, points, few):
    near, far = np.empty((1024, 2), np.int32), np.empty((64, 2), np.int32)
    n_near, n_far = 0, 0
    stack = np.empty(1 << 16, np.int32)
    for leaf in range(len(level)):
        if first_child[leaf] >= 0:
            continue
        for side in range(DIRECTIONS):
            other = colleagues[leaf, side]
            if other < 0 or (first_child[other] < 0 and other < leaf):
                continue
            top = 0
            stack[0] = other
            while top >= 0:
                node = stack[top]
                top -= 1
                touches = _touch(anchor, level, leaf, node)
                if first_child[node] < 0 and (touches or points[node] <= few):
                    if n_near == len(near):
                        near = _longer(near)
                    near[n_near, 0], near[n_near, 1] = leaf, node
                    n_near += 1
                elif touches or points[node] <= few:
                    mask = children[node]
                    for k in range(8):
                        if (mask >> k) & 1:
                            top += 1
                            stack[top] = child_in(first_child, children, node, k)
                else:
                    if n_far == len(far):
                        far = _longer(far)
                    far[n_far, 0], far[n_far, 1] = leaf, node
                    n_far += 1
    return near, n_near, far, n_far
