"""The adaptive octree (Ying, Biros & Zorin 2004, section 2).

The root cube contains all points. A cell with more than Q sources or more than Q targets is divided
into eight cells, down to the finest level, unless its points coincide. Empty cells are omitted. The
nodes are numbered level by level, and within a level along the Z curve.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from kernels.fmm.tree.morton import MAX_LEVEL, morton_keys, sorted_order, spread_bits


@dataclass(frozen=True, kw_only=True)
class Octree:
    """The nodes of an octree, arrays over nodes.

    ``corner`` float64 (3,) and ``size``: the root cube. ``level``, ``parent`` (-1 for the
    root), ``first_child`` (-1 for a leaf): int32 (nodes,). ``children``: uint8 (nodes,), bit o
    set where there is a child in octant o (x lowest). ``anchor``: int32 (nodes, 3), integer
    coordinates at the node's level. ``begin``, ``end``: int64 (nodes,), the node's range of the
    sorted sources; ``target_begin``, ``target_end``: of the sorted targets, equal where the targets
    are the sources. ``order``, ``target_order``: int64, the user's index of each sorted point.
    ``levels``: int64 (depth + 2,), the first node of each level, and the number of nodes.
    """

    corner: np.ndarray
    size: float
    level: np.ndarray
    parent: np.ndarray
    first_child: np.ndarray
    children: np.ndarray
    anchor: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    target_begin: np.ndarray
    target_end: np.ndarray
    order: np.ndarray
    target_order: np.ndarray
    levels: np.ndarray

    def __len__(self) -> int:
        return len(self.level)

    @property
    def leaves(self) -> np.ndarray:
        """The nodes without children: int64."""
        return np.flatnonzero(self.first_child < 0)

    def octants(self) -> np.ndarray:
        """Each node's octant in its parent, x lowest: int64 (nodes,)."""
        return np.asarray((self.anchor & 1) @ np.array([1, 2, 4]))

    def centres(self) -> np.ndarray:
        """The centres of the nodes: float64 (nodes, 3)."""
        side = self.size * 0.5 ** self.level.astype(np.float64)
        return self.corner + (self.anchor + 0.5) * side[:, None]


def build_octree(sources: np.ndarray, targets: np.ndarray | None, q: int) -> Octree:
    """The octree over sources and targets, float64 (n, 3), with at most ``q`` of either in a leaf.

    ``targets``: None where they are the sources.
    """
    both = sources if targets is None else np.concatenate([sources, targets])
    low, high = both.min(axis=0), both.max(axis=0)
    # A little wider than the points, so that none lies on the far face.
    size = float((high - low).max()) * (1 + 1e-12) or 1.0
    keys = morton_keys(sources, low, size)
    order = sorted_order(keys)
    if targets is None:
        target_keys, target_order = keys, order
    else:
        target_keys = morton_keys(targets, low, size)
        target_order = sorted_order(target_keys)
    *nodes, spans, levels, count = _split(keys, target_keys, q)
    # The arrays may be longer than the number of nodes.
    level, parent, first_child, children, anchor = (array[:count].copy() for array in nodes)
    begin, end, target_begin, target_end = np.ascontiguousarray(spans[:count].T)
    return Octree(
        corner=low,
        size=size,
        level=level,
        parent=parent,
        first_child=first_child,
        children=children,
        anchor=anchor,
        begin=begin,
        end=end,
        target_begin=target_begin,
        target_end=target_end,
        order=order,
        target_order=target_order,
        levels=levels,
    )


@njit(nogil=True, cache=True)
def _first_at_least(keys, low, high, value):
    while low < high:
        middle = (low + high) // 2
        if keys[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


@njit(nogil=True, cache=True)
def _alike(keys, target_keys, span):
    """Whether all sources and targets of a node have the same key. Dividing the node would only
    make a small leaf, and a gradient's error is about a potential's error over the leaf's size."""
    begin, end, target_begin, target_end = span
    key = keys[begin] if begin < end else target_keys[target_begin]
    sources = begin == end or keys[end - 1] == key
    targets = target_begin == target_end
    return sources and (targets or target_keys[target_begin] == key == target_keys[target_end - 1])


@njit(nogil=True, cache=True)
def _split(keys, target_keys, q):
    """The nodes over sorted keys, level by level."""
    same = keys.ctypes.data == target_keys.ctypes.data
    room = 64
    level, parent = np.empty(room, np.int32), np.empty(room, np.int32)
    first_child, children = np.empty(room, np.int32), np.empty(room, np.uint8)
    anchor = np.empty((room, 3), np.int32)
    spans = np.empty((room, 4), np.int64)
    level[0], parent[0], first_child[0], children[0] = 0, -1, -1, 0
    anchor[0] = 0
    spans[0, 0], spans[0, 1], spans[0, 2], spans[0, 3] = 0, len(keys), 0, len(target_keys)
    levels = np.zeros(MAX_LEVEL + 3, np.int64)
    levels[1] = 1
    count, depth = 1, 0
    while True:
        for node in range(levels[depth], levels[depth + 1]):
            begin, end, target_begin, target_end = spans[node]
            few = end - begin <= q and target_end - target_begin <= q
            if few or depth == MAX_LEVEL or _alike(keys, target_keys, spans[node]):
                continue
            if count + 8 > room:
                room *= 2
                level, parent = _longer(level, room), _longer(parent, room)
                first_child, children = _longer(first_child, room), _longer(children, room)
                anchor, spans = _taller(anchor, room), _taller(spans, room)
            first_child[node] = count
            shift = np.uint64(3 * (MAX_LEVEL - 1 - depth))
            key = np.uint64(0)
            for axis in range(3):
                key |= spread_bits(anchor[node, axis]) << np.uint64(axis)
            key <<= np.uint64(3)
            at, target_at = begin, target_begin
            for octant in range(8):
                following = (key + np.uint64(octant + 1)) << shift
                to = end if octant == 7 else _first_at_least(keys, at, end, following)
                if same:
                    target_to = to
                elif octant == 7:
                    target_to = target_end
                else:
                    target_to = _first_at_least(target_keys, target_at, target_end, following)
                if to > at or target_to > target_at:
                    children[node] |= np.uint8(1 << octant)
                    level[count], parent[count] = depth + 1, node
                    first_child[count], children[count] = -1, 0
                    for axis in range(3):
                        anchor[count, axis] = 2 * anchor[node, axis] + ((octant >> axis) & 1)
                    spans[count, 0], spans[count, 1] = at, to
                    spans[count, 2], spans[count, 3] = target_at, target_to
                    count += 1
                at, target_at = to, target_to
        depth += 1
        levels[depth + 1] = count
        if levels[depth + 1] == levels[depth]:
            break
    return level, parent, first_child, children, anchor, spans, levels[: depth + 1], count


@njit(nogil=True, cache=True)
def _longer(array, room):
    longer = np.empty(room, array.dtype)
    for i in range(len(array)):
        longer[i] = array[i]
    return longer


@njit(nogil=True, cache=True)
def _taller(array, room):
    taller = np.empty((room, array.shape[1]), array.dtype)
    for i in range(len(array)):
        for j in range(array.shape[1]):
            taller[i, j] = array[i, j]
    return taller
