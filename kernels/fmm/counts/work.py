"""The work of one evaluation: the tree, lists and accuracy, without charges."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from kernels.fmm.constants import SMALLEST_SINGULAR
from kernels.fmm.operators.surfaces import INNER, OUTER, surface_points, surface_size

if TYPE_CHECKING:
    from kernels.fmm.method import Fmm
    from kernels.fmm.tree.octree import Octree
    from kernels.fmm.tree.v_list import VList


@dataclass(frozen=True, kw_only=True)
class Messages:
    """The numbers of charges and rows that an MPI rank exchanges in an evaluation.

    ``given``: charges that the rank gives, and potentials that it receives for them; ``owned``:
    charges of the points in its leaves. ``sent``: owned charges sent to other ranks; ``received``:
    charges of other ranks' leaves. ``rows_sent``, ``rows_received``: rows of upward densities.
    """

    given: int
    owned: int
    sent: int
    received: int
    rows_sent: int
    rows_received: int


@dataclass(frozen=True, kw_only=True)
class Work:
    """The work of one process in an evaluation: a whole tree, or a rank's part of it.

    ``tree``, ``v_list``, ``w_pairs`` and ``x_pairs``: as in :class:`kernels.fmm.method.Fmm`;
    ``near``: int32 (n, 3), the pairs of leaves of all threads. ``own``, ``active``: as in
    :class:`kernels.fmm.setup.TreePart`; ``leaves``: the leaves whose points the process holds, the
    rank's leaves and other ranks' leaves that act on it directly. ``order``: points along an edge
    of a surface. ``bits``: 32 or 64, of a number in the loops; ``steps``: Newton steps of near
    pairs; ``ranks``: for each level the numbers of singular values in the upward and the downward
    solution. ``coincident``: all points coincide. ``messages``: None with one process.
    """

    tree: Octree
    own: np.ndarray
    active: np.ndarray
    leaves: np.ndarray
    w_pairs: np.ndarray
    x_pairs: np.ndarray
    near: np.ndarray
    v_list: VList
    order: int
    bits: int
    steps: int
    ranks: list[tuple[int, int]]
    interaction: str = "laplace"
    coincident: bool = False
    messages: Messages | None = None


def work_of(method: Fmm, messages: Messages | None = None) -> Work:
    """The work of a prepared method; ``messages``: of a rank of several."""
    holds = [points.end > points.begin for points in (method.sources, method.targets)]
    return Work(
        tree=method.tree,
        own=method.part.own,
        active=method.part.active,
        leaves=np.flatnonzero(holds[0] | holds[1]),
        w_pairs=method.w_pairs,
        x_pairs=method.x_pairs,
        near=np.concatenate(method.near),
        v_list=method.v_list,
        order=method.order,
        bits=method.dtype.itemsize * 8,
        steps=method.rule.steps,
        ranks=[(o.up_solve[0].shape[1], o.down_solve[0].shape[1]) for o in method.operators],
        interaction=method.rule.interaction,
        messages=messages,
    )


def planned_work(
    places: np.ndarray, q: int, order: int, bits: int, steps: int, threads: int
) -> Work:
    """The work of :class:`kernels.fmm.method.Fmm` for the points ``places``, float64 (n, 3)."""
    # A plan imports this module, and must not import Numba until it counts.
    from kernels.fmm.phases.u_schedule import share_pairs  # noqa: PLC0415
    from kernels.fmm.tree.lists import build_lists  # noqa: PLC0415
    from kernels.fmm.tree.octree import build_octree  # noqa: PLC0415
    from kernels.fmm.tree.v_list import build_v_list  # noqa: PLC0415

    tree = build_octree(places, None, q)
    lists = build_lists(tree, surface_size(order))
    return Work(
        tree=tree,
        own=tree.first_child < 0,
        active=np.ones(len(tree), bool),
        leaves=tree.leaves,
        w_pairs=lists.far,
        x_pairs=lists.far,
        near=np.concatenate(share_pairs(tree, lists.near, True, threads)),
        v_list=build_v_list(tree, lists.colleagues, False),
        order=order,
        bits=bits,
        steps=steps,
        ranks=[solution_ranks(order, bits)] * (len(tree.levels) - 1),
        coincident=bool((places == places[0]).all()) and len(places) > 1,
    )


@lru_cache(maxsize=64)
def solution_ranks(order: int, bits: int) -> tuple[int, int]:
    """The numbers of singular values in Laplace's upward and downward solutions.

    See :mod:`kernels.fmm.operators.translation_matrices`.
    """
    inner, outer = surface_points(order, INNER), surface_points(order, OUTER)
    distance = np.linalg.norm(outer[:, None, :] - inner[None, :, :], axis=2)
    size = np.linalg.svd(1.0 / distance, compute_uv=False)
    rank = int((size > SMALLEST_SINGULAR[bits] * size[0]).sum())
    return rank, rank
