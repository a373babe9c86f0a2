"""Direct sums divided into jobs for one block of threads: targets of a node, and a source list.

Points of a node, or of its surface, lie in slots, in groups of 32. A job has up to ``warps * tile``
groups of targets, ``tile`` for each warp. Its list has the groups of all nodes that act on the
target node. An empty group pads the list to whole chunks of one group for each warp.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernels.cuda.processor import WARP


@dataclass(frozen=True)
class Places:
    """The slots of points. ``first``: int64 (nodes,), the first slot of each node, a multiple of
    32; ``sizes``: int64 (nodes,), its number of points, 0 for a node that is not in the sums;
    ``empty``: a group without points."""

    first: np.ndarray
    sizes: np.ndarray
    empty: int

    @property
    def groups(self) -> np.ndarray:
        """The number of groups of each node: int64 (nodes,)."""
        return np.asarray(-(-self.sizes // WARP))


@dataclass(frozen=True)
class DirectJobs:
    """``jobs``: uint32 (n, 4), the first group of targets, the number of these groups, the begin of
    the list in ``groups``, and its number of chunks. ``groups``: uint32, all lists. ``shifts``:
    float32 (groups, 4), the vector from the target node's centre to the centre of each group's
    node, and a 0; None if coordinates are not relative to centres."""

    jobs: np.ndarray
    groups: np.ndarray
    shifts: np.ndarray | None = None

    def warp_chunks(self, tile: int) -> int:
        """The number of chunks that warps with targets process, added over these warps."""
        _, targets, _, chunks = self.jobs.astype(np.int64).T
        return int((-(-targets // tile) * chunks).sum())

    @property
    def chunks(self) -> int:
        """The number of chunks that blocks process, added over blocks."""
        return int(self.jobs[:, 3].sum(dtype=np.int64))


def make_jobs(
    targets: Places,
    sources: Places,
    pairs: np.ndarray,
    warps: int,
    tile: int,
    centres: np.ndarray | None = None,
) -> DirectJobs:
    """The jobs of all nodes with targets, in the order of their slots. The jobs of a node without
    sources have no chunks.

    ``pairs``: int64 (n, 2), target node and source node. ``centres``: float64 (nodes, 3), the
    centres of nodes, if coordinates are relative to them.
    """
    pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
    target, source = pairs.T
    length = sources.groups[source]
    listed = np.bincount(target, length, len(targets.sizes)).astype(np.int64)
    chunks = -(-listed // warps)
    begin = warps * (np.cumsum(chunks) - chunks)
    # The position of a pair's groups: after the groups of the target's earlier pairs.
    before = np.cumsum(length) - length - (np.cumsum(listed) - listed)[target]
    groups = np.full(warps * int(chunks.sum()), sources.empty, np.uint32)
    within = np.arange(int(length.sum())) - np.repeat(np.cumsum(length) - length, length)
    at = np.repeat(begin[target] + before, length) + within
    groups[at] = np.repeat(sources.first[source] // WARP, length) + within
    shifts = None
    if centres is not None:
        shifts = np.zeros((len(groups), 4), np.float32)
        shifts[at, :3] = np.repeat(centres[source] - centres[target], length, axis=0)
    nodes = np.flatnonzero(targets.sizes)
    nodes = nodes[np.argsort(targets.first[nodes], kind="stable")]
    held = targets.groups
    cuts = -(-held[nodes] // (warps * tile))
    of = np.repeat(nodes, cuts)
    done = (np.arange(len(of)) - np.repeat(np.cumsum(cuts) - cuts, cuts)) * warps * tile
    jobs = np.column_stack(
        [
            targets.first[of] // WARP + done,
            np.minimum(held[of] - done, warps * tile),
            begin[of],
            chunks[of],
        ]
    )
    return DirectJobs(jobs.astype(np.uint32), groups, shifts)
