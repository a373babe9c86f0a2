"""The steps between points and surfaces: P2M and P2L (to), M2P and L2P (from surfaces)."""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np
from numba import njit

from kernels.fmm.phases.pair_loops import act_one_way, act_with_gradient
from kernels.fmm.tree.layout import BEYOND, copy, seen_from
from kernels.host.vectors import HOST

VECTOR_BYTES = HOST.bytes


@njit(nogil=True, cache=True)
def to_surfaces(
    rule, pairs, first, last, place, local, begin, end, centres, level, rings, check, most,
    parameter,
):  # fmt: skip
    """Add the potentials of a leaf's sources at a node's check surface: P2M, P2L.

    Args:
        rule: the loops' rule.
        pairs: int32 (n, 2), leaf and node; the pairs from ``first`` to ``last`` are computed.
        place, local, begin, end: the sources' :class:`kernels.fmm.tree.layout.PointLayout`.
        centres: float64 (nodes, 3); ``level``: int (nodes,).
        rings: (levels, 4, columns), the surface of each level's cells, padded to whole vectors.
        check: (nodes, columns), added to: potentials times the rule's unit.
        most: slots of the largest leaf.
        parameter: of the interaction.
    """
    lanes = VECTOR_BYTES // local.itemsize
    seen = np.zeros((4, most), local.dtype)
    met = np.zeros((2, lanes), local.dtype)
    for i in range(first, last):
        leaf, node = pairs[i]
        b, e = begin[leaf], end[leaf]
        if leaf == node:
            source = local[:, b:e]
        else:
            seen_from(place, b, e, centres[node], seen)
            copy(local[3, b:e], seen[3])
            source = seen[:, : e - b]
        act_one_way(
            rule, source, e - b, rings[level[node]], check[node], check.shape[1], parameter, met
        )


@njit(nogil=True, cache=True)
def _place_surface(ring, density, source):
    """Copy a surface's points and a node's densities to ``source``."""
    for axis in range(3):
        copy(ring[axis], source[axis])
    copy(density, source[3])


@njit(nogil=True, cache=True)
def from_surfaces(
    rule, pairs, first, last, place, local, begin, end, centres, level, rings, density, surface,
    sums, most, parameter,
):  # fmt: skip
    """Add the potentials of a node's equivalent densities at a leaf's targets: M2P, L2P.

    Args: as for :func:`to_surfaces`, with the targets' layout. ``density``: (nodes, columns), whose
    first ``surface`` columns are used; ``sums``: (slots,), added to.
    """
    lanes = VECTOR_BYTES // local.itemsize
    seen = np.zeros((4, most), local.dtype)
    source = np.zeros((4, rings.shape[2]), local.dtype)
    met = np.zeros((2, lanes), local.dtype)
    for i in range(first, last):
        leaf, node = pairs[i]
        b, e = begin[leaf], end[leaf]
        n = e - b
        room = (n + lanes - 1) // lanes * lanes
        _place_surface(rings[level[node]], density[node], source)
        if leaf == node:
            target = local[:, b : b + room]
        else:
            seen_from(place, b, e, centres[node], seen)
            seen[0, n:room] = BEYOND
            target = seen[:, :room]
        act_one_way(rule, source, surface, target, sums[b : b + room], n, parameter, met)


@njit(nogil=True, cache=True)
def gradients_from_surfaces(
    rule, pairs, first, last, place, local, begin, end, centres, level, rings, density, surface,
    sums, most, parameter,
):  # fmt: skip
    """Like :func:`from_surfaces`; ``sums`` (4, slots): potentials and gradients, unscaled."""
    lanes = VECTOR_BYTES // local.itemsize
    seen = np.zeros((4, most), local.dtype)
    source = np.zeros((4, rings.shape[2]), local.dtype)
    met = np.zeros((2, lanes), local.dtype)
    for i in range(first, last):
        leaf, node = pairs[i]
        b, e = begin[leaf], end[leaf]
        n = e - b
        room = (n + lanes - 1) // lanes * lanes
        _place_surface(rings[level[node]], density[node], source)
        seen_from(place, b, e, centres[node], seen)
        seen[0, n:room] = BEYOND
        act_with_gradient(rule, source, surface, seen, sums[:, b : b + room], n, parameter, met)
