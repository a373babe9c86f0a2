"""The loops over pairs of points, for P2P, P2M, M2P, P2L and L2P.

There are two kinds of loop. :func:`act_both_ways` computes the potentials of two sets of points at
each other, each distance once (Newton's third law): a tile of targets stays in registers while the
loop passes over vectors of sources, and loads and stores the sources' sums. :func:`act_one_way`
holds vectors of targets in registers and passes over single sources, which is fast for few sources
too.

Coordinates are relative to the centre of a nearby cell, so that single precision suffices for few
digits. It does not suffice for two points that nearly coincide: the loops return the smallest r^2,
and the caller computes such a pair of leaves again in double precision.

Arrays, all of one type: ``s`` (4, room) and ``t`` (4, room) hold x, y, z and charge. They are read
in whole vectors (``t`` of the one-way loops in blocks of vectors), also after the last point, where
charges are 0. ``sum_s``, ``sum_t`` (room,) are added to: potentials times
:func:`kernels.fmm.operators.interaction_kernels.unit_of`. ``met`` (2, lanes): the smallest r^2,
and the number of pairs at r = 0 where a loop omits them.
"""

# mypy: disable-error-code="no-untyped-def,attr-defined,call-arg"

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from kernels.fmm.constants import blocking
from kernels.fmm.operators.interaction_kernels import emit_value_and_slope, emit_values
from kernels.host.vectors import HOST, INDEX, Vectors

TILE, BLOCK, GRADIENT_BLOCK, _ = blocking(HOST.registers)
NONE_MET = 1e30
"""The initial value of the smallest r^2."""


def _at(builder: ir.IRBuilder, start: Any, offset: int) -> Any:
    return builder.add(start, ir.Constant(INDEX, offset))


def _squares(v: Vectors, held: list[list[Any]], source: list[Any]) -> list[Any]:
    """r^2 of a source and each target in ``held``; each operation is emitted for all targets."""
    # From z to x, so that z is the innermost term of the sum.
    apart = [v.sub(target[2], source[2]) for target in held]
    r2s = [v.mul(d, d) for d in apart]
    for axis in (1, 0):
        apart = [v.sub(target[axis], source[axis]) for target in held]
        r2s = [v.fma(d, d, r2) for d, r2 in zip(apart, r2s, strict=True)]
    return r2s


def _tile(count: int) -> Any:
    """A loop: ``count`` targets from ``t0`` on, ``vectors`` vectors of sources from ``s0`` on."""

    @intrinsic
    def tile(typing, rule, s, sum_s, s0, vectors, t, sum_t, t0, parameter, met):
        def emit(context, builder, signature, arguments):
            kinds = signature.args
            _, s, sum_s, s0, vectors, t, sum_t, t0, parameter, met = arguments
            v = Vectors(context, builder, kinds[1].dtype.bitwidth)
            lam = v.spread(parameter)
            sx, sy, sz, sq = v.rows(kinds[1], s, 4)
            tx, ty, tz, tq = v.rows(kinds[5], t, 4)
            sums_s, sums_t = v.data(kinds[2], sum_s), v.data(kinds[6], sum_t)
            smallest = v.data(kinds[9], met)
            targets = [_at(builder, t0, i) for i in range(count)]
            held = [[v.number(p, i) for p in (tx, ty, tz, tq)] for i in targets]
            sums = [v.slot(v.constant(0.0)) for _ in targets]
            zero = ir.Constant(INDEX, 0)
            least = v.slot(v.load(smallest, zero))
            with cgutils.for_range(builder, vectors) as loop:
                at = builder.add(s0, builder.mul(loop.index, ir.Constant(INDEX, v.lanes)))
                *place, q = (v.load(p, at) for p in (sx, sy, sz, sq))
                r2s = _squares(v, held, place)
                values = emit_values(v, rule.value, r2s, lam)
                for r2 in r2s:
                    builder.store(v.min(r2, builder.load(least)), least)
                for value, slot in zip(values, sums, strict=True):
                    builder.store(v.fma(value, q, builder.load(slot)), slot)
                total = v.load(sums_s, at)
                for value, (*_, charge) in zip(values, held, strict=True):
                    total = v.fma(value, charge, total)
                v.store(total, sums_s, at)
            v.store(builder.load(least), smallest, zero)
            for i, slot in zip(targets, sums, strict=True):
                to = builder.gep(sums_t, [i])
                builder.store(builder.fadd(builder.load(to), v.total(builder.load(slot))), to)
            return context.get_dummy_value()

        return types.void(rule, s, sum_s, s0, vectors, t, sum_t, t0, parameter, met), emit

    return tile


def _block(count: int, masked: bool, watched: bool) -> Any:
    """A loop: the sources ``s0`` to ``s0 + n`` on ``count`` vectors of targets from ``t0`` on.

    ``masked``: a pair at r = 0 adds nothing, and is counted. ``watched``: the smallest r^2 is
    stored; with ``masked``, the smallest r^2 > 0.
    """

    @intrinsic
    def block(typing, rule, s, s0, n, t, sum_t, t0, parameter, met):
        def emit(context, builder, signature, arguments):
            kinds = signature.args
            _, s, s0, n, t, sum_t, t0, parameter, met = arguments
            v = Vectors(context, builder, kinds[1].dtype.bitwidth)
            lam = v.spread(parameter)
            sx, sy, sz, sq = v.rows(kinds[1], s, 4)
            tx, ty, tz = v.rows(kinds[4], t, 3)
            sums_t, smallest = v.data(kinds[5], sum_t), v.data(kinds[8], met)
            targets = [_at(builder, t0, i * v.lanes) for i in range(count)]
            held = [[v.load(p, i) for p in (tx, ty, tz)] for i in targets]
            sums = [v.slot(v.load(sums_t, i)) for i in targets]
            first, second = ir.Constant(INDEX, 0), ir.Constant(INDEX, v.lanes)
            least, met_zero = v.slot(v.load(smallest, first)), v.slot(v.load(smallest, second))
            with cgutils.for_range(builder, n) as loop:
                at = builder.add(s0, loop.index)
                *place, q = (v.number(p, at) for p in (sx, sy, sz, sq))
                r2s = _squares(v, held, place)
                values = emit_values(v, rule.value, r2s, lam)
                for r2, value, slot in zip(r2s, values, sums, strict=True):
                    seen, counted = r2, value
                    if masked:
                        counted = v.where_positive(r2, value)
                        seen = v.where_positive(r2, r2, NONE_MET)
                        here = v.where_positive(r2, v.constant(0.0), 1.0)
                        builder.store(v.add(builder.load(met_zero), here), met_zero)
                    if watched:
                        builder.store(v.min(seen, builder.load(least)), least)
                    builder.store(v.fma(counted, q, builder.load(slot)), slot)
            v.store(builder.load(least), smallest, first)
            v.store(builder.load(met_zero), smallest, second)
            for i, slot in zip(targets, sums, strict=True):
                v.store(builder.load(slot), sums_t, i)
            return context.get_dummy_value()

        return types.void(rule, s, s0, n, t, sum_t, t0, parameter, met), emit

    return block


def _gradient_block(count: int) -> Any:
    """Like :func:`_block`, masked and watched, with the gradient.

    ``sums`` (4, room): the potentials and their derivatives by x, y and z, unscaled.
    """

    @intrinsic
    def block(typing, rule, s, n, t, sums, t0, parameter, met):
        def emit(context, builder, signature, arguments):
            kinds = signature.args
            _, s, n, t, sums, t0, parameter, met = arguments
            v = Vectors(context, builder, kinds[1].dtype.bitwidth)
            lam = v.spread(parameter)
            sx, sy, sz, sq = v.rows(kinds[1], s, 4)
            rows = v.rows(kinds[4], sums, 4)
            smallest = v.data(kinds[7], met)
            targets = [_at(builder, t0, i * v.lanes) for i in range(count)]
            held = [[v.load(p, i) for p in v.rows(kinds[3], t, 3)] for i in targets]
            slots = [[v.slot(v.load(row, i)) for row in rows] for i in targets]
            first, second = ir.Constant(INDEX, 0), ir.Constant(INDEX, v.lanes)
            least, met_zero = v.slot(v.load(smallest, first)), v.slot(v.load(smallest, second))
            with cgutils.for_range(builder, n) as loop:
                x, y, z, q = (v.number(p, loop.index) for p in (sx, sy, sz, sq))
                for (hx, hy, hz), mine in zip(held, slots, strict=True):
                    apart = [v.sub(hx, x), v.sub(hy, y), v.sub(hz, z)]
                    dx, dy, dz = apart
                    r2 = v.fma(dx, dx, v.fma(dy, dy, v.mul(dz, dz)))
                    value, slope = emit_value_and_slope(v, rule.value, r2, lam)
                    seen = v.where_positive(r2, r2, NONE_MET)
                    here = v.where_positive(r2, v.constant(0.0), 1.0)
                    builder.store(v.add(builder.load(met_zero), here), met_zero)
                    builder.store(v.min(seen, builder.load(least)), least)
                    value, slope = (v.where_positive(r2, term) for term in (value, slope))
                    builder.store(v.fma(value, q, builder.load(mine[0])), mine[0])
                    pull = v.mul(slope, q)
                    for d, slot in zip(apart, mine[1:], strict=True):
                        builder.store(v.fma(pull, d, builder.load(slot)), slot)
            v.store(builder.load(least), smallest, first)
            v.store(builder.load(met_zero), smallest, second)
            for i, mine in zip(targets, slots, strict=True):
                for row, slot in zip(rows, mine, strict=True):
                    v.store(builder.load(slot), row, i)
            return context.get_dummy_value()

        return types.void(rule, s, n, t, sums, t0, parameter, met), emit

    return block


_tile_of_some, _tile_of_one = _tile(TILE), _tile(1)
_block_of_some, _block_of_one = _block(BLOCK, False, False), _block(1, False, False)
_gradient_of_some, _gradient_of_one = _gradient_block(GRADIENT_BLOCK), _gradient_block(1)
_masked_block, _masked_vector = _block(BLOCK, True, True), _block(1, True, True)


@njit(nogil=True, cache=True)
def act_both_ways(rule, s, sum_s, s0, s1, t, sum_t, t0, t1, parameter, met):
    """Let points ``s0`` to ``s1`` and points ``t0`` to ``t1`` act on each other.

    ``s0`` begins a vector. Where r = 0 the sums are not finite, and the smallest r^2 is 0.
    """
    lanes = met.shape[1]
    vectors = (s1 - s0 + lanes - 1) // lanes
    at = t0
    while at + TILE <= t1:
        _tile_of_some(rule, s, sum_s, s0, vectors, t, sum_t, at, parameter, met)
        at += TILE
    while at < t1:
        _tile_of_one(rule, s, sum_s, s0, vectors, t, sum_t, at, parameter, met)
        at += 1


@njit(nogil=True, cache=True)
def act_one_way(rule, s, n, t, sum_t, t1, parameter, met):
    """Let the first ``n`` sources act on the first ``t1`` targets; ``met`` does not change."""
    lanes = met.shape[1]
    at = 0
    while at + (BLOCK - 1) * lanes < t1:
        _block_of_some(rule, s, 0, n, t, sum_t, at, parameter, met)
        at += BLOCK * lanes
    while at < t1:
        _block_of_one(rule, s, 0, n, t, sum_t, at, parameter, met)
        at += lanes


@njit(nogil=True, cache=True)
def act_one_way_masked(rule, s, n, t, sum_t, t1, parameter, met):
    """Like :func:`act_one_way`, without pairs at r = 0; updates ``met``."""
    lanes = met.shape[1]
    at = 0
    while at + (BLOCK - 1) * lanes < t1:
        _masked_block(rule, s, 0, n, t, sum_t, at, parameter, met)
        at += BLOCK * lanes
    while at < t1:
        _masked_vector(rule, s, 0, n, t, sum_t, at, parameter, met)
        at += lanes


@njit(nogil=True, cache=True)
def act_on_itself(rule, s, sum_s, n, parameter, met):
    """Let ``n`` points act on each other, without a point's action on itself.

    Each vector of points acts one way on itself, which counts each point once at r = 0, and both
    ways with all following points.
    """
    lanes = met.shape[1]
    for at in range(0, n, lanes):
        to = min(at + lanes, n)
        _masked_vector(rule, s, at, to - at, s, sum_s, at, parameter, met)
        if to < n:
            act_both_ways(rule, s, sum_s, at + lanes, n, s, sum_s, at, to, parameter, met)


@njit(nogil=True, cache=True)
def act_with_gradient(rule, s, n, t, sums, t1, parameter, met):
    """Like :func:`act_one_way_masked`, with the gradient.

    ``sums`` (4, room), added to: potentials and their derivatives by x, y and z, unscaled.
    """
    lanes = met.shape[1]
    at = 0
    while at + (GRADIENT_BLOCK - 1) * lanes < t1:
        _gradient_of_some(rule, s, n, t, sums, at, parameter, met)
        at += GRADIENT_BLOCK * lanes
    while at < t1:
        _gradient_of_one(rule, s, n, t, sums, at, parameter, met)
        at += lanes
