"""The U phase cut into jobs of one block of threads: targets of a leaf, and a list of sources.

A job has the targets of up to ``warps * tile`` groups of slots; a warp holds ``tile`` of them. Its
list names the groups of all leaves in the target leaf's U list, and is filled up to whole chunks,
of a group for each warp, with a group that holds no points.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernels.cuda.processor import WARP


@dataclass(frozen=True)
class UJobs:
    """``jobs``: uint32 (n, 4), the first group of targets, how many there are, where the list
    begins in ``groups``, and how many chunks it has. ``groups``: uint32, all lists."""

    jobs: np.ndarray
    groups: np.ndarray

    def warp_chunks(self, tile: int) -> int:
        """Chunks that warps compute with, added over warps: those that hold targets."""
        _, targets, _, chunks = self.jobs.astype(np.int64).T
        return int((-(-targets // tile) * chunks).sum())

    @property
    def chunks(self) -> int:
        """Chunks that blocks go through, added over blocks."""
        return int(self.jobs[:, 3].sum(dtype=np.int64))


def make_jobs(
    first: np.ndarray, sizes: np.ndarray, pairs: np.ndarray, empty: int, warps: int, tile: int
) -> UJobs:
    """The jobs of the leaves.

    ``first``: int64 (nodes,), each leaf's first slot, a multiple of 32; ``sizes``: int64 (nodes,),
    each leaf's points, 0 for a node that is no leaf. ``pairs``: int64 (n, 2), target leaf and
    source leaf. ``empty``: the group without points.
    """
    pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
    target, source = pairs.T
    held = -(-sizes // WARP)
    length = held[source]
    listed = np.bincount(target, length, len(sizes)).astype(np.int64)
    chunks = -(-listed // warps)
    begin = warps * (np.cumsum(chunks) - chunks)
    # Where the groups of a pair lie: behind those of the pairs of the same target before it.
    before = np.cumsum(length) - length - (np.cumsum(listed) - listed)[target]
    groups = np.full(warps * int(chunks.sum()), empty, np.uint32)
    within = np.arange(int(length.sum())) - np.repeat(np.cumsum(length) - length, length)
    at = np.repeat(begin[target] + before, length) + within
    groups[at] = np.repeat(first[source] // WARP, length) + within
    leaves = np.flatnonzero(sizes)
    leaves = leaves[np.argsort(first[leaves], kind="stable")]
    cuts = -(-held[leaves] // (warps * tile))
    of = np.repeat(leaves, cuts)
    cut = np.arange(len(of)) - np.repeat(np.cumsum(cuts) - cuts, cuts)
    done = cut * warps * tile
    jobs = np.column_stack(
        [first[of] // WARP + done, np.minimum(held[of] - done, warps * tile), begin[of], chunks[of]]
    )
    return UJobs(jobs.astype(np.uint32), groups)
