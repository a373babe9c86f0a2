"""The method on MPI ranks: points divided along the Z curve, local essential trees exchanged.

Every rank has the structure of the whole tree (cells and numbers of points), which is small. It
has the points, densities and spectra only of its leaves and of everything that acts on them
(Warren & Salmon 1993; Lashuk et al. 2009):

- sources of other ranks' leaves that touch its leaves (U) or act on its cells (X);
- upward densities of cells in the V and W lists of its cells. P2M and M2M are linear, so each rank
  computes the contribution of its leaves to any cell, and the ranks that need the cell add the
  contributions. No rank waits until a coarser cell is complete.

All ranks derive from the structure which rank needs which data, so that no rank sends requests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.fmm.accuracy import FmmInputError
from kernels.fmm.constants import COARSEST
from kernels.fmm.counts.work import Messages
from kernels.fmm.method import Fmm
from kernels.fmm.operators.surfaces import surface_size
from kernels.fmm.phases.u_schedule import leaf_costs
from kernels.fmm.setup import Setup, TreePart
from kernels.fmm.tree.layout import LeafPoints
from kernels.fmm.tree.lists import SELF, Lists, build_lists
from kernels.fmm.tree.morton import MAX_LEVEL, morton_keys, sorted_order, spread_bits
from kernels.fmm.tree.octree import Octree

FAR_COST = 8
"""The cost of a point in the far phases, as a number of surfaces with which it interacts."""


@dataclass(frozen=True)
class Exchange:
    """The indices of the rows sent to each rank and received from it, rank after rank.

    ``send``, ``receive``: int64; ``send_counts``, ``receive_counts``: int64 (ranks,).
    """

    send: np.ndarray
    send_counts: np.ndarray
    receive: np.ndarray
    receive_counts: np.ndarray

    def swap(self, comm: Any, rows: np.ndarray) -> np.ndarray:
        """Send ``rows[send]``; returns the received rows in ``receive``'s order. Collective."""
        out = np.ascontiguousarray(rows[self.send])
        into = np.empty((len(self.receive), *rows.shape[1:]), rows.dtype)
        _swap(comm, out, self.send_counts, into, self.receive_counts)
        return into


def _swap(
    comm: Any, out: np.ndarray, out_counts: np.ndarray, into: np.ndarray, into_counts: np.ndarray
) -> None:
    """Alltoallv with counts in rows, so that the bytes may exceed the range of an int."""
    row_bytes = out.dtype.itemsize * int(np.prod(out.shape[1:], dtype=np.int64))
    kind = _bytes_type(row_bytes)
    try:
        comm.Alltoallv(
            [out, out_counts, _starts(out_counts), kind],
            [into, into_counts, _starts(into_counts), kind],
        )
    finally:
        kind.Free()


def _bytes_type(size: int) -> Any:
    from mpi4py import MPI  # noqa: PLC0415  (MPI starts at import)

    return MPI.BYTE.Create_contiguous(size).Commit()


def _starts(counts: np.ndarray) -> np.ndarray:
    return np.asarray(np.cumsum(counts) - counts)


class RankedFmm(Fmm):
    """One rank's part of the method; every call is collective."""

    def __init__(self, comm: Any, given: np.ndarray, setup: Setup) -> None:
        """Distribute the points and prepare the method.

        Args:
            comm: an mpi4py communicator.
            given: float64 (n, 3), any points, both sources and targets; the rank that gives a
                point need not own it afterwards.
            setup: the same on all ranks.

        Raises:
            FmmInputError: a rank would have no leaf. All ranks raise it.
        """
        self.comm = comm
        rank, ranks = comm.Get_rank(), comm.Get_size()
        corner, size = _root_cube(comm, given)
        keys = morton_keys(given, corner, size)
        self._sorted = sorted_order(keys)
        tree = _global_tree(comm, keys, corner, size, setup.q)
        lists = build_lists(tree, surface_size(setup.order))
        owner = _owners(tree, lists, setup, ranks)
        active = _active(tree, owner, ranks)
        if not active.any(axis=1).all():
            raise FmmInputError(
                f"{int(tree.end[0])} points in {len(tree.leaves)} leaves cannot be divided among "
                f"{ranks} ranks: take fewer ranks, more points or smaller leaves"
            )
        # Send points to their owners. Sorted points of one leaf, and leaves of one owner, are
        # contiguous.
        leaves = tree.leaves[np.argsort(tree.begin[tree.leaves], kind="stable")]
        starts = np.array([_first_key(tree, leaf) for leaf in leaves], np.uint64)
        leaf_of = leaves[np.searchsorted(starts, keys, side="right") - 1]
        self._out_counts = np.bincount(owner[leaf_of], minlength=ranks).astype(np.int64)
        self._in_counts = np.empty_like(self._out_counts)
        comm.Alltoall(self._out_counts, self._in_counts)
        here = self._forth(given)
        mine = np.flatnonzero(owner == rank)
        mine = mine[np.argsort(tree.begin[mine], kind="stable")]
        own_keys = morton_keys(here, corner, size)
        order = sorted_order(own_keys)
        first = np.zeros(len(tree), np.int64)
        last = np.zeros(len(tree), np.int64)
        first[mine] = np.cumsum((tree.end - tree.begin)[mine]) - (tree.end - tree.begin)[mine]
        last[mine] = first[mine] + (tree.end - tree.begin)[mine]
        # The leaves of this rank that other ranks need, and other ranks' leaves that it needs.
        needed = [_needed_leaves(lists, owner, active[r], r) for r in range(ranks)]
        send = [mine[np.isin(mine, needed[r])] if r != rank else mine[:0] for r in range(ranks)]
        receive = [
            needed[rank][owner[needed[rank]] == r] if r != rank else mine[:0] for r in range(ranks)
        ]
        receive = [leaf[np.argsort(tree.begin[leaf], kind="stable")] for leaf in receive]
        count = tree.end - tree.begin
        self._ghosts = Exchange(
            np.concatenate([order[:0], *(order[_spans(first, last, part)] for part in send)]),
            np.array([count[part].sum() for part in send], np.int64),
            np.arange(sum(int(count[part].sum()) for part in receive)),
            np.array([count[part].sum() for part in receive], np.int64),
        )
        n = len(here)
        ghosts = self._ghosts.swap(comm, here)
        ghost_leaves = np.concatenate(receive).astype(np.int64)
        first[ghost_leaves] = n + np.cumsum(count[ghost_leaves]) - count[ghost_leaves]
        last[ghost_leaves] = first[ghost_leaves] + count[ghost_leaves]
        self._here = n
        points = LeafPoints(
            np.concatenate([here, ghosts]),
            np.concatenate([order, np.arange(n, n + len(ghosts))]),
            first,
            last,
            np.concatenate([mine, ghost_leaves]),
        )
        super().__init__(tree, points, None, setup, TreePart(owner == rank, active[rank]))
        used = [_needed_nodes(tree, self.lists, owner, active[r], r) for r in range(ranks)]
        send_nodes = [
            np.flatnonzero(used[r] & active[rank]) if r != rank else mine[:0] for r in range(ranks)
        ]
        receive_nodes = [
            np.flatnonzero(used[rank] & active[r]) if r != rank else mine[:0] for r in range(ranks)
        ]
        self._nodes = Exchange(
            np.concatenate(send_nodes),
            np.array([len(part) for part in send_nodes], np.int64),
            np.concatenate(receive_nodes),
            np.array([len(part) for part in receive_nodes], np.int64),
        )

    @property
    def n_sources(self) -> int:
        """The number of charges that this rank gives."""
        return len(self._sorted)

    @property
    def messages(self) -> Messages:
        """The messages of this rank in an evaluation of potentials."""
        return Messages(
            given=len(self._sorted),
            owned=self._here,
            sent=len(self._ghosts.send),
            received=len(self._ghosts.receive),
            rows_sent=len(self._nodes.send),
            rows_received=len(self._nodes.receive),
        )

    def evaluate(self, charges: np.ndarray) -> np.ndarray:
        """The potentials of all ranks' charges at the points that this rank gave. Collective."""
        return self._back(super().evaluate(self._all_charges(charges)))

    def gradients(self, charges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The potentials and gradients at the points that this rank gave. Collective."""
        potential, gradient = super().gradients(self._all_charges(charges))
        return self._back(potential), self._back(gradient)

    def _all_charges(self, charges: np.ndarray) -> np.ndarray:
        here = self._forth(np.asarray(charges, np.float64))
        return np.concatenate([here, self._ghosts.swap(self.comm, here)])

    def _largest(self, charges: np.ndarray) -> float:
        from mpi4py import MPI  # noqa: PLC0415

        return float(self.comm.allreduce(super()._largest(charges), op=MPI.MAX))

    def _exchange(self, density: np.ndarray) -> None:
        received = self._nodes.swap(self.comm, density)
        # Several ranks may contribute to a cell.
        np.add.at(density, self._nodes.receive, received)

    def _forth(self, given: np.ndarray) -> np.ndarray:
        """Send the rows of this rank's given points to the points' owners; returns its rows."""
        out = np.ascontiguousarray(given[self._sorted])
        into = np.empty((int(self._in_counts.sum()), *given.shape[1:]), given.dtype)
        _swap(self.comm, out, self._out_counts, into, self._in_counts)
        return into

    def _back(self, rows: np.ndarray) -> np.ndarray:
        """Send the rows of this rank's points to the ranks that gave them; returns its rows."""
        out = np.ascontiguousarray(rows[: self._here])
        into = np.empty((len(self._sorted), *rows.shape[1:]), rows.dtype)
        _swap(self.comm, out, self._in_counts, into, self._out_counts)
        given = np.empty_like(into)
        given[self._sorted] = into
        return given


def _root_cube(comm: Any, given: np.ndarray) -> tuple[np.ndarray, float]:
    from mpi4py import MPI  # noqa: PLC0415

    low, high = np.full(3, np.inf), np.full(3, -np.inf)
    if len(given):
        low, high = given.min(axis=0), given.max(axis=0)
    comm.Allreduce(MPI.IN_PLACE, low, op=MPI.MIN)
    comm.Allreduce(MPI.IN_PLACE, high, op=MPI.MAX)
    return low, float((high - low).max()) * (1 + 1e-12) or 1.0


def _global_tree(comm: Any, keys: np.ndarray, corner: np.ndarray, size: float, q: int) -> Octree:
    """The tree over all ranks' points, built level by level from sums of counts. ``keys``: sorted.

    Its ``begin`` and ``end`` count the points of all ranks along the Z curve.
    """
    from mpi4py import MPI  # noqa: PLC0415

    total = comm.allreduce(len(keys))
    level, parent = [np.zeros(1, np.int32)], [np.full(1, -1, np.int32)]
    anchor = [np.zeros((1, 3), np.int32)]
    begin, end = [np.zeros(1, np.int64)], [np.array([total])]
    first_child: list[np.ndarray] = []
    masks: list[np.ndarray] = []
    levels = [0, 1]
    octants = np.array([[o & 1, o >> 1 & 1, o >> 2] for o in range(8)])
    while True:
        depth = len(levels) - 2
        split = (end[-1] - begin[-1] > q) & (depth < MAX_LEVEL)
        first_child.append(np.full(len(split), -1, np.int32))
        masks.append(np.zeros(len(split), np.uint8))
        if not split.any():
            break
        mothers = np.flatnonzero(split)
        cells = 2 * anchor[-1][mothers][:, None, :] + octants
        low = _interleaved(cells.reshape(-1, 3)) << np.uint64(3 * (MAX_LEVEL - depth - 1))
        width = np.uint64(1) << np.uint64(3 * (MAX_LEVEL - depth - 1))
        counts = np.searchsorted(keys, low + width) - np.searchsorted(keys, low)
        counts = np.ascontiguousarray(counts, np.int64)
        comm.Allreduce(MPI.IN_PLACE, counts, op=MPI.SUM)
        counts = counts.reshape(-1, 8)
        there = counts > 0
        per = there.sum(axis=1)
        first_child[-1][mothers] = levels[-1] + np.cumsum(per) - per
        masks[-1][mothers] = (there << np.arange(8)).sum(axis=1)
        starts = begin[-1][mothers][:, None] + np.cumsum(counts, axis=1) - counts
        level.append(np.full(int(per.sum()), depth + 1, np.int32))
        parent.append(np.repeat(mothers + levels[-2], per).astype(np.int32))
        anchor.append(cells[there].astype(np.int32))
        begin.append(starts[there])
        end.append((starts + counts)[there])
        levels.append(levels[-1] + int(per.sum()))
    firsts, lasts, empty = np.concatenate(begin), np.concatenate(end), np.zeros(0, np.int64)
    return Octree(
        corner=corner,
        size=size,
        level=np.concatenate(level),
        parent=np.concatenate(parent),
        first_child=np.concatenate(first_child),
        children=np.concatenate(masks),
        anchor=np.concatenate(anchor),
        begin=firsts,
        end=lasts,
        target_begin=firsts,
        target_end=lasts,
        order=empty,
        target_order=empty,
        levels=np.array(levels),
    )


def _interleaved(cells: np.ndarray) -> np.ndarray:
    """The Morton keys of cells, int (n, 3), at the cells' level: uint64 (n,)."""
    keys = np.empty(len(cells), np.uint64)
    for i, (x, y, z) in enumerate(cells.tolist()):
        keys[i] = int(spread_bits(x)) | (int(spread_bits(y)) << 1) | (int(spread_bits(z)) << 2)
    return keys


def _first_key(tree: Octree, node: int) -> int:
    x, y, z = tree.anchor[node].tolist()
    key = int(spread_bits(x)) | (int(spread_bits(y)) << 1) | (int(spread_bits(z)) << 2)
    return key << 3 * (MAX_LEVEL - int(tree.level[node]))


def _owners(tree: Octree, lists: Lists, setup: Setup, ranks: int) -> np.ndarray:
    """The rank of each leaf: sections of the Z curve with about equal work; -1: not a leaf."""
    count = tree.end - tree.begin
    cost = leaf_costs(tree, lists.near) + FAR_COST * surface_size(setup.order) * count
    leaves = tree.leaves[np.argsort(tree.begin[tree.leaves], kind="stable")]
    until = np.cumsum(cost[leaves])
    share = (until - cost[leaves] / 2) / max(until[-1], 1.0)
    owner = np.full(len(tree), -1, np.int64)
    owner[leaves] = np.minimum(share * ranks, ranks - 1).astype(np.int64)
    return owner


def _active(tree: Octree, owner: np.ndarray, ranks: int) -> np.ndarray:
    """bool (ranks, nodes): the leaves of each rank, and their ancestors."""
    active = owner[None, :] == np.arange(ranks)[:, None]
    for depth in range(len(tree.levels) - 2, 0, -1):
        nodes = np.arange(tree.levels[depth], tree.levels[depth + 1])
        for r in range(ranks):
            active[r, tree.parent[nodes[active[r, nodes]]]] = True
    return np.asarray(active)


def _needed_leaves(lists: Lists, owner: np.ndarray, active: np.ndarray, rank: int) -> np.ndarray:
    """The leaves of other ranks whose sources act directly on this rank's points or cells."""
    one, two = lists.near.T
    leaf, node = lists.far.T
    acting = np.unique(
        np.concatenate([two[owner[one] == rank], one[owner[two] == rank], leaf[active[node]]])
    )
    return np.asarray(acting[owner[acting] != rank])


def _needed_nodes(
    tree: Octree, lists: Lists, owner: np.ndarray, active: np.ndarray, rank: int
) -> np.ndarray:
    """bool (nodes,): the nodes in the V and W lists of this rank's nodes."""
    leaf, node = lists.far.T
    needed = np.zeros(len(tree), bool)
    needed[node[owner[leaf] == rank]] = True
    parents = np.flatnonzero(active & (tree.first_child >= 0))
    colleagues = np.delete(lists.colleagues[parents], SELF, axis=1)
    sources = np.zeros(len(tree), bool)
    sources[colleagues[colleagues >= 0]] = True
    needed |= (tree.level >= COARSEST) & sources[np.maximum(tree.parent, 0)]
    return needed


def _spans(first: np.ndarray, last: np.ndarray, leaves: np.ndarray) -> np.ndarray:
    """The indices from ``first`` to ``last`` of each leaf, leaf after leaf."""
    count = (last - first)[leaves]
    ends = np.cumsum(count)
    return np.asarray(np.arange(int(count.sum())) - np.repeat(ends - count - first[leaves], count))
