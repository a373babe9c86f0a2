"""Direct sums cut into jobs of one block of threads: targets of a node, and a list of sources.

Points of a node, or of its surface, lie in slots, in groups of 32. A job has the targets of up to
``warps * tile`` groups; a warp holds ``tile`` of them. Its list names the groups of all nodes that
act on the target node, and is filled up to whole chunks, of a group for each warp, with a group
that holds no points.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernels.cuda.processor import WARP


@dataclass(frozen=True)
class Places:
    """Where points lie. ``first``: int64 (nodes,), each node's first slot, a multiple of 32;
    ``sizes``: int64 (nodes,), its points, 0 for a node that has no part in the sums; ``empty``: a
    group without points."""

    first: np.ndarray
    sizes: np.ndarray
    empty: int

    @property
    def groups(self) -> np.ndarray:
        """Groups of each node: int64 (nodes,)."""
        return np.asarray(-(-self.sizes // WARP))


@dataclass(frozen=True)
class DirectJobs:
    """``jobs``: uint32 (n, 4), the first group of targets, how many there are, where the list
    begins in ``groups``, and how many chunks it has. ``groups``: uint32, all lists. ``shifts``:
    float32 (groups, 4), from the target node's centre to that of each group's node, with a 0; None
    where coordinates are not relative to centres."""

    jobs: np.ndarray
    groups: np.ndarray
    shifts: np.ndarray | None = None

    def warp_chunks(self, tile: int) -> int:
        """Chunks that warps compute with, added over warps: those that hold targets."""
        _, targets, _, chunks = self.jobs.astype(np.int64).T
        return int((-(-targets // tile) * chunks).sum())

    @property
    def chunks(self) -> int:
        """Chunks that blocks go through, added over blocks."""
        return int(self.jobs[:, 3].sum(dtype=np.int64))


def make_jobs(
    targets: Places,
    sources: Places,
    pairs: np.ndarray,
    warps: int,
    tile: int,
    centres: np.ndarray | None = None,
) -> DirectJobs:
    """The jobs of all nodes with targets, in the order of their slots; those of a node on which
    none acts have no chunks.

    ``pairs``: int64 (n, 2), target node and source node. ``centres``: float64 (nodes, 3), of nodes,
    where coordinates are relative to them.
    """
    pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
    target, source = pairs.T
    length = sources.groups[source]
    listed = np.bincount(target, length, len(targets.sizes)).astype(np.int64)
    chunks = -(-listed // warps)
    begin = warps * (np.cumsum(chunks) - chunks)
    # Where the groups of a pair lie: behind those of the pairs of the same target before it.
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
