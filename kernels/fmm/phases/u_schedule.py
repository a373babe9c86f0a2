"""The distribution of the U phase's pairs of leaves over threads.

Each thread owns the leaves of one section of the Z curve, with about equal work, and writes only to
them. A pair within a section is computed both ways at once; for a pair across two sections each
thread computes the potentials at its leaf.
"""

from __future__ import annotations

import numpy as np

from kernels.fmm.constants import BOTH_WAYS, ITSELF, ONE_WAY
from kernels.fmm.tree.octree import Octree


def leaf_costs(tree: Octree, near: np.ndarray) -> np.ndarray:
    """The cost of each leaf: half the pairs of points in its pairs of leaves, float64 (nodes,)."""
    one, two = near.T
    sources, targets = tree.end - tree.begin, tree.target_end - tree.target_begin
    cost = (sources[one] * targets[two] + sources[two] * targets[one]) / 2.0
    return np.asarray(np.bincount(one, cost, len(tree)) + np.bincount(two, cost, len(tree)))


def share_pairs(
    tree: Octree, near: np.ndarray, same: bool, threads: int, own: np.ndarray | None = None
) -> list[np.ndarray]:
    """For each thread int32 (n, 3): target leaf, source leaf, and their interaction.

    ``near``: int32 (pairs, 2), of :class:`kernels.fmm.tree.lists.Lists`; ``same``: whether the
    targets are the sources; ``own``: bool (nodes,), the leaves whose potentials are computed, by
    default all.
    """
    one, two = near.T
    load = leaf_costs(tree, near)
    leaves = tree.leaves if own is None else np.flatnonzero(own)
    leaves = leaves[np.argsort(tree.begin[leaves] + tree.target_begin[leaves], kind="stable")]
    until = np.cumsum(load[leaves])
    share = (until - load[leaves] / 2) / max(until[-1], 1.0)
    owner = np.full(len(tree), -1, np.int64)
    owner[leaves] = np.minimum(share * threads, threads - 1).astype(np.int64)
    itself = one == two
    shared = []
    for thread in range(threads):
        first, second = owner[one] == thread, owner[two] == thread
        both = first & second & ~itself & same
        jobs = [
            (near[both], BOTH_WAYS),
            (near[first & itself], ITSELF if same else ONE_WAY),
            (near[first & ~itself & ~both], ONE_WAY),
            (near[second & ~itself & ~both][:, ::-1], ONE_WAY),
        ]
        rows = np.concatenate(
            [np.column_stack([pairs, np.full(len(pairs), what)]) for pairs, what in jobs]
        ).astype(np.int32)
        # Sorted by target, so that the target's points stay in the cache.
        shared.append(np.ascontiguousarray(rows[np.argsort(rows[:, 0], kind="stable")]))
    return shared
