"""The layout of the points in memory: leaf after leaf, each starting a new vector.

Lengths are in a unit that is a power of two, so that no digit of a coordinate is lost, and at least
the root cube's side, so that squares stay within the range of single precision. The slots after a
leaf's last point, up to the end of its vector, hold points outside the cube without charge, so that
loops over vectors need no remainder loop.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from kernels.fmm.constants import SPARE_VECTORS
from kernels.fmm.tree.octree import Octree
from kernels.host.vectors import lanes_of

BEYOND = 4.0
"""A coordinate outside the cube, of points that only fill a vector."""


@dataclass(frozen=True)
class LeafPoints:
    """Points and their leaves.

    ``places``: float64 (n, 3). ``order``: int64 (n,), the points' indices, leaf after leaf.
    ``first``, ``last``: int64 (nodes,), each leaf's part of ``order``. ``leaves``: int64, the
    leaves with points in this process.
    """

    places: np.ndarray
    order: np.ndarray
    first: np.ndarray
    last: np.ndarray
    leaves: np.ndarray


def sources_of(tree: Octree, places: np.ndarray) -> LeafPoints:
    """The sources of a tree."""
    return LeafPoints(places, tree.order, tree.begin, tree.end, tree.leaves)


def targets_of(tree: Octree, places: np.ndarray) -> LeafPoints:
    """The targets of a tree."""
    return LeafPoints(places, tree.target_order, tree.target_begin, tree.target_end, tree.leaves)


@dataclass(frozen=True)
class PointLayout:
    """Points in slots.

    ``place``: float64 (3, slots), coordinates. ``local``: (4, slots) of the loops' type:
    coordinates relative to the centre of the point's leaf, and the charge. ``begin``, ``end``:
    int64 (nodes,), the slots of each leaf's points. ``slot``: int64 (n,), the slot of each point,
    in the user's order. ``most``: slots of the largest leaf, with the spare vectors.
    """

    place: np.ndarray
    local: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    slot: np.ndarray
    most: int


def lay_out(points: LeafPoints, dtype: Any, centres: np.ndarray, unit: float) -> PointLayout:
    """The layout of points; ``centres``: float64 (nodes, 3), the nodes' centres in ``unit``."""
    first, last, leaves = points.first, points.last, points.leaves
    lanes = lanes_of(np.dtype(dtype).itemsize)
    leaves = leaves[np.argsort(first[leaves], kind="stable")]
    count = (last - first)[leaves]
    room = -(-count // lanes) * lanes
    begin = np.zeros(len(first), np.int64)
    begin[leaves] = np.cumsum(room) - room
    end = begin.copy()
    end[leaves] += count
    # Spare vectors at the end, because loops read whole blocks of vectors.
    slots = int(room.sum()) + SPARE_VECTORS * lanes
    place = np.full((3, slots), BEYOND)
    local = np.zeros((4, slots), dtype)
    local[:3] = BEYOND
    slot = np.empty(len(points.order), np.int64)
    _fill(
        leaves, first, begin, end, points.order, points.places, 1.0 / unit, centres,
        place, local, slot,
    )  # fmt: skip
    return PointLayout(place, local, begin, end, slot, int(room.max()) + SPARE_VECTORS * lanes)


@njit(nogil=True, cache=True)
def _fill(leaves, first, begin, end, order, points, scale, centres, place, local, slot):
    for leaf in leaves:
        for i in range(end[leaf] - begin[leaf]):
            given, at = order[first[leaf] + i], begin[leaf] + i
            slot[given] = at
            for axis in range(3):
                x = points[given, axis] * scale
                place[axis, at] = x
                local[axis, at] = x - centres[leaf, axis]


@njit(nogil=True, cache=True)
def copy(of, into):
    """Copy numbers to the start of ``into``; with slices, Numba compiles seconds longer."""
    for i in range(len(of)):
        into[i] = of[i]


@njit(nogil=True, cache=True)
def seen_from(place, begin, end, centre, into):
    """Copy the coordinates of slots ``begin`` to ``end`` relative to ``centre`` to ``into``."""
    for axis in range(3):
        given, copy = place[axis, begin:end], into[axis, : end - begin]
        c = centre[axis]
        for i in range(len(given)):
            copy[i] = given[i] - c
