"""The V list (Ying, Biros & Zorin 2004, section 3.1), by pairs of parents.

Children of two neighbouring parents interact unless they touch. The V phase therefore takes all
children of a pair of parents at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernels.fmm.constants import CHILDREN, blocking
from kernels.fmm.tree.lists import DIRECTIONS, SELF
from kernels.fmm.tree.octree import Octree
from kernels.host.vectors import HOST


@dataclass(frozen=True)
class VList:
    """The nodes whose children have V lists (parents), numbered level by level.

    ``children``: int64 (parents, 8), by octant, -1 where there is none. ``pairs``: for each group
    of levels with the same operators int32 (2, n), source and target parents by direction, padded
    to whole groups with the number of parents; ``starts``: for each int64 (28,), the first pair of
    each direction. ``levels``: the children's coarsest level in each. ``acted_on``: the number of
    parents that are targets, which come first.
    """

    children: np.ndarray
    pairs: list[np.ndarray]
    starts: list[np.ndarray]
    levels: list[int]
    acted_on: int

    def __len__(self) -> int:
        return len(self.children)


def build_v_list(
    tree: Octree, colleagues: np.ndarray, by_level: bool, active: np.ndarray | None = None
) -> VList:
    """The V list of a tree.

    ``by_level``: whether the levels have different operators; ``active``: bool (nodes,), the nodes
    whose potentials are computed, by default all.
    """
    parent = (tree.first_child >= 0) & (tree.level >= 1)
    nodes = targets = np.flatnonzero(parent)
    if active is not None:
        targets = np.flatnonzero(parent & active)
        others = np.unique(colleagues[targets])
        others = others[others >= 0]
        nodes = np.concatenate([targets, np.setdiff1d(others[parent[others]], targets)])
    number = np.full(len(tree), -1, np.int64)
    number[nodes] = np.arange(len(nodes))
    children = np.full((len(nodes), CHILDREN), -1, np.int64)
    below = np.flatnonzero((tree.parent >= 0) & (number[tree.parent] >= 0))
    children[number[tree.parent[below]], tree.octants()[below]] = below
    groups = [targets]
    if by_level:
        groups = [targets[tree.level[targets] == level] for level in np.unique(tree.level[targets])]
    groups = [group for group in groups if len(group)]
    planned = [_pairs(group, number, colleagues, len(nodes)) for group in groups]
    return VList(
        children,
        [pairs for pairs, _ in planned],
        [starts for _, starts in planned],
        [int(tree.level[group[0]]) + 1 for group in groups],
        len(targets),
    )


def _pairs(
    group: np.ndarray, number: np.ndarray, colleagues: np.ndarray, empty: int
) -> tuple[np.ndarray, np.ndarray]:
    parts, start = [], [0]
    for direction in range(DIRECTIONS):
        other = colleagues[group, direction]
        there = (other >= 0) & (number[other] >= 0) & (direction != SELF)
        targets, sources = number[group[there]], number[other[there]]
        padding = np.full(-len(targets) % blocking(HOST.registers).group, empty)
        parts.append([np.concatenate([parents, padding]) for parents in (sources, targets)])
        start.append(start[-1] + len(parts[-1][0]))
    return (
        np.concatenate([np.stack(part) for part in parts], axis=1).astype(np.int32),
        np.array(start),
    )
