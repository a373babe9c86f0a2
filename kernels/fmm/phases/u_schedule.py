"""Who takes which pair of leaves: the U phase shared out among threads.

Each thread owns the leaves of a stretch of the Z curve, of about the same work, and writes to
them alone. A pair within a stretch acts both ways at once; of a pair across two stretches each
thread computes what its own leaf has of it.
"""

from __future__ import annotations

import numpy as np

from kernels.fmm.constants import BOTH_WAYS, ITSELF, ONE_WAY
from kernels.fmm.tree.octree import Octree


def leaf_costs(tree: Octree, near: np.ndarray) -> np.ndarray:
    """Half the pairs of points of each leaf's pairs: float64 (nodes,)."""
    one, two = near.T
    sources, targets = tree.end - tree.begin, tree.target_end - tree.target_begin
    cost = (sources[one] * targets[two] + sources[two] * targets[one]) / 2.0
    return np.asarray(np.bincount(one, cost, len(tree)) + np.bincount(two, cost, len(tree)))


def share_pairs(
    tree: Octree, near: np.ndarray, same: bool, threads: int, own: np.ndarray | None = None
) -> list[np.ndarray]:
    """For each thread int32 (n, 3): target leaf, source leaf, and what is to be done.

    ``near``: int32 (pairs, 2), of :class:`kernels.fmm.tree.lists.Lists`; ``same``: whether the
    targets are the sources; ``own``: bool (nodes,), the leaves that are to be acted on, all by
    default.
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
        # By target, so that its points stay in the cache.
        shared.append(np.ascontiguousarray(rows[np.argsort(rows[:, 0], kind="stable")]))
    return shared
