"""The U phase: the points of leaves that touch act on each other directly (P2P).

Pairs of leaves with points that nearly coincide are computed again in double precision, from the
input coordinates: the rounding error of a coordinate in its leaf, up to 6e-8 of a leaf's side in
single precision and 1e-16 in double, must be small compared with the distance.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np
from numba import njit

from kernels.fmm.constants import BOTH_WAYS, ITSELF
from kernels.fmm.phases.pair_loops import (
    NONE_MET,
    act_both_ways,
    act_on_itself,
    act_one_way_masked,
    act_with_gradient,
)
from kernels.fmm.tree.layout import BEYOND, copy, seen_from
from kernels.host.vectors import HOST

VECTOR_BYTES = HOST.bytes


@njit(nogil=True, cache=True)
def act_on_pairs(
    rule, exact_rule, pairs, centres, nearest, unit, exact_unit, place, local, begin, end, sums,
    target_place, target_local, target_begin, target_end, target_sums, most, parameter,
    exact_parameter,
):  # fmt: skip
    """Add the potentials of pairs of leaves at each other.

    Args:
        rule: the loops' rule; ``exact_rule``: the rule of the computation in double precision.
        pairs: int32 (n, 3), target leaf, source leaf, and their interaction: ``ONE_WAY``,
            ``BOTH_WAYS`` or ``ITSELF``.
        centres: float64 (nodes, 3).
        nearest: float64 (nodes,), by source leaf: pairs up to this distance are computed again.
        unit, exact_unit: of the rules.
        place, local, begin, end: the sources' :class:`kernels.fmm.tree.layout.PointLayout`.
        sums: (slots,), of the type of ``local``: potentials at the sources, times ``unit``.
        target_place, ...: the same for the targets; the sources' arrays where the targets are the
            sources.
        most: slots of the largest leaf.
        parameter, exact_parameter: of the interaction, in both types.
    """
    lanes = VECTOR_BYTES // local.itemsize
    seen = np.zeros((4, most), local.dtype)
    from_s, from_t = np.zeros(most, local.dtype), np.zeros(most, local.dtype)
    met = np.zeros((2, lanes), local.dtype)
    for i in range(len(pairs)):
        b, a, what = pairs[i]
        s0, s1, t0, t1 = begin[a], end[a], target_begin[b], target_end[b]
        ns, nt = s1 - s0, t1 - t0
        room_s, room_t = (ns + lanes - 1) // lanes * lanes, (nt + lanes - 1) // lanes * lanes
        source = local[:, s0 : s0 + room_s]
        met[0], met[1] = NONE_MET, 0
        from_s[:room_t] = 0
        limit = nearest[a] ** 2
        if what == ITSELF:
            act_on_itself(rule, source, from_s, ns, parameter, met)
            least, coincident = _met(met)
            again = least <= limit or coincident > ns
        else:
            seen_from(target_place, t0, t1, centres[a], seen)
            if what == BOTH_WAYS:
                copy(target_local[3, t0:t1], seen[3])
                from_t[:room_s] = 0
                act_both_ways(rule, source, from_t, 0, ns, seen, from_s, 0, nt, parameter, met)
                again = _met(met)[0] <= limit
            else:
                seen[0, nt:room_t] = BEYOND
                act_one_way_masked(rule, source, ns, seen, from_s, nt, parameter, met)
                least, coincident = _met(met)
                again = limit > 0 and (least <= limit or coincident > 0)
        if again:
            factor = unit / exact_unit
            _exactly(
                exact_rule, place[:, s0:s1], local[3, s0:s1], target_place[:, t0:t1],
                from_s, factor, exact_parameter,
            )  # fmt: skip
            if what == BOTH_WAYS:
                _exactly(
                    exact_rule, target_place[:, t0:t1], target_local[3, t0:t1], place[:, s0:s1],
                    from_t, factor, exact_parameter,
                )  # fmt: skip
        to = target_sums[t0:t1]
        for k in range(nt):
            to[k] += from_s[k]
        if what == BOTH_WAYS:
            back = sums[s0:s1]
            for k in range(ns):
                back[k] += from_t[k]


@njit(nogil=True, cache=True)
def _met(met):
    """The smallest r^2, and the number of pairs at r = 0."""
    least, coincident = met[0, 0], met[1, 0]
    for lane in range(1, met.shape[1]):
        least = min(least, met[0, lane])
        coincident += met[1, lane]
    return least, coincident


@njit(nogil=True, cache=True)
def _in_double(place, charges, target_place):
    """Sources (4, n) and targets (4, room) in double precision and in the coordinates of
    ``place``, so that the distances of near points are exact."""
    lanes = VECTOR_BYTES // 8
    ns, nt = place.shape[1], target_place.shape[1]
    s, t = np.zeros((4, ns)), np.full((4, (nt + 4 * lanes) // lanes * lanes), BEYOND)
    for axis in range(3):
        copy(place[axis], s[axis])
        copy(target_place[axis], t[axis])
    copy(charges, s[3])
    return s, t


@njit(nogil=True, cache=True)
def _exactly(rule, place, charges, target_place, into, factor, parameter):
    """Write the sums of a leaf's sources at another's targets, computed in double precision."""
    ns, nt = place.shape[1], target_place.shape[1]
    s, t = _in_double(place, charges, target_place)
    sums, met = np.zeros(t.shape[1]), np.zeros((2, VECTOR_BYTES // 8))
    act_one_way_masked(rule, s, ns, t, sums, nt, parameter, met)
    for k in range(nt):
        into[k] = sums[k] * factor


@njit(nogil=True, cache=True)
def gradients_on_pairs(
    rule, exact_rule, pairs, centres, nearest, place, local, begin, end,
    target_place, target_begin, target_end, sums, most, parameter, exact_parameter,
):  # fmt: skip
    """Add potentials and gradients; a pair that interacts both ways is computed in two steps.

    Args: as for :func:`act_on_pairs`. ``sums``: (4, slots), of the targets, unscaled.
    """
    lanes = VECTOR_BYTES // local.itemsize
    seen = np.zeros((4, most), local.dtype)
    leaf_sums = np.zeros((4, most), local.dtype)
    met = np.zeros((2, lanes), local.dtype)
    for i in range(len(pairs)):
        what = pairs[i, 2]
        for way in range(2 if what == BOTH_WAYS else 1):
            b, a = pairs[i, way], pairs[i, 1 - way]
            s0, s1, t0, t1 = begin[a], end[a], target_begin[b], target_end[b]
            ns, nt = s1 - s0, t1 - t0
            seen_from(target_place, t0, t1, centres[a], seen)
            seen[0, nt : nt + lanes] = BEYOND
            leaf_sums[:, :nt] = 0
            met[0], met[1] = NONE_MET, 0
            act_with_gradient(rule, local[:, s0:s1], ns, seen, leaf_sums, nt, parameter, met)
            limit = nearest[a] ** 2
            expected = nt if what == ITSELF else 0
            least, coincident = _met(met)
            if limit > 0 and (least <= limit or coincident > expected):
                _exact_gradients(
                    exact_rule, place[:, s0:s1], local[3, s0:s1], target_place[:, t0:t1],
                    leaf_sums, exact_parameter,
                )  # fmt: skip
            for row in range(4):
                to, of = sums[row, t0:t1], leaf_sums[row, :nt]
                for k in range(nt):
                    to[k] += of[k]


@njit(nogil=True, cache=True)
def _exact_gradients(rule, place, charges, target_place, into, parameter):
    """Like :func:`_exactly`, with the gradient."""
    ns, nt = place.shape[1], target_place.shape[1]
    s, t = _in_double(place, charges, target_place)
    sums, met = np.zeros((4, t.shape[1])), np.zeros((2, VECTOR_BYTES // 8))
    act_with_gradient(rule, s, ns, t, sums, nt, parameter, met)
    for row in range(4):
        copy(sums[row, :nt], into[row])
