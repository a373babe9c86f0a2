"""The compiled loops over the rows of tiles.

Two grids hold all values: the values of step t are in grid t modulo 2, with a border of fixed
values around them. A point overwrites the value of two steps before, which only the inputs of the
point have used, so tiles can run in these grids in any order that respects the inputs. The same
loop over a row serves every tiling, without flags that allow different rounding, so that all give
the same bits.

The grids are one array, and rows are positions in it: slices take longer than a short row. A row is
computed in vectors of the host's width, which are emitted here, because the compiler prefers 256
bits on processors that have 512. The compiler sees a stencil as a type:
:mod:`kernels.host.static_type`.
"""

# Numba's extension points have untyped arguments.
# mypy: disable-error-code="no-untyped-def,call-arg,misc"

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from kernels.host.static_type import static
from kernels.host.vectors import INDEX, Vectors, lanes_of
from kernels.stencils.stencils import Stencil

static(Stencil)

AHEAD_BYTES = 4096
"""The prefetch distance in a row that comes from memory: the processor's prefetcher stops at the
end of each page of 4 KiB."""


def _j1d(o: Vectors, c: Any, w: Any, e: Any) -> Any:
    return o.mul(o.constant(1 / 3), o.add(o.add(w, c), e))


def _j2d(o: Vectors, c: Any, w: Any, e: Any, n: Any, s: Any) -> Any:
    return o.mul(o.constant(0.2), o.add(o.add(o.add(o.add(c, n), s), w), e))


def _heat(o: Vectors, c: Any, *sides: Any) -> Any:
    twice, eighth = o.mul(o.constant(2.0), c), o.constant(0.125)
    result = c
    for low, high in _along_axes(sides):
        result = o.add(result, o.mul(eighth, o.add(o.sub(low, twice), high)))
    return result


def _l2d(o: Vectors, c: Any, w: Any, e: Any, n: Any, s: Any) -> Any:
    around = o.add(o.add(n, s), o.add(w, e))
    return o.add(o.mul(o.constant(0.5), c), o.mul(o.constant(0.125), around))


def _g2d(o: Vectors, c: Any, w: Any, e: Any, n: Any, s: Any) -> Any:
    differences = [o.sub(side, c) for side in (n, s, w, e)]
    n2, s2, w2, e2 = (o.mul(own, own) for own in differences)
    squares = o.mul(o.constant(0.0625), o.add(o.add(n2, s2), o.add(w2, e2)))
    return o.add(o.add(o.constant(0.25), o.mul(o.constant(0.5), c)), squares)


def _j3d(o: Vectors, c: Any, *sides: Any) -> Any:
    return o.mul(o.constant(1 / 7), o.add(c, _six(o, *sides)))


def _l3d(o: Vectors, c: Any, *sides: Any) -> Any:
    return o.add(o.mul(o.constant(0.5), c), o.mul(o.constant(1 / 12), _six(o, *sides)))


def _six(o: Vectors, w: Any, e: Any, n: Any, s: Any, f: Any, b: Any) -> Any:
    return o.add(o.add(o.add(f, b), o.add(n, s)), o.add(w, e))


def _along_axes(sides: tuple[Any, ...]) -> list[tuple[Any, Any]]:
    """The pairs of neighbours, the first axis first."""
    return [sides[place : place + 2] for place in range(len(sides) - 2, -1, -2)]


FORMULAS: dict[str, Callable[..., Any]] = {
    "j1d": _j1d,
    "j2d": _j2d,
    "h2d": _heat,
    "l2d": _l2d,
    "g2d": _g2d,
    "j3d": _j3d,
    "h3d": _heat,
    "l3d": _l3d,
}
"""Stencil -> a function that emits its formula for a point and its neighbours along the last axis,
the axis before it and so on (:data:`kernels.stencils.stencils.STENCILS`)."""


@intrinsic
def _row(typing, stencil, grids, out, middle, beside, count, streams):
    """Compute ``count`` points of a row of the flat ``grids``. ``out``: the position of the first
    result; ``middle``: of its western neighbour at the previous step; ``beside``: of its neighbours
    in adjacent rows.

    It uses vectors of the host's width: a first one, then vectors that begin at a multiple of the
    width, then one that ends with the row. They overlap; a point in two of them gets the same value
    twice, because no point of a row reads results of the row. A row shorter than a vector uses
    shorter ones, or single points. ``streams``: the row comes from memory, and is prefetched.
    """
    formula, neighbours = FORMULAS[stencil.value.code], len(beside)

    def emit(context, builder, signature, arguments):
        _, array, out, middle, beside, count, streams = arguments
        bits = signature.args[1].dtype.bitwidth
        full = lanes_of(bits // 8)
        sides = [builder.extract_value(beside, place) for place in range(neighbours)]
        west_to_east = [builder.add(middle, ir.Constant(INDEX, shift)) for shift in (1, 0, 2)]

        def compute(o: Vectors, data: Any, at: Any) -> None:
            """Emit the vector of the points from ``at`` on."""
            values = [o.load(data, builder.add(place, at)) for place in (*west_to_east, *sides)]
            o.store(formula(o, *values), data, builder.add(out, at))

        def vectors(o: Vectors, data: Any, begin: Any, end: Any, ahead: int = 0) -> Any:
            """Emit the whole vectors between ``begin`` and ``end``, and return the begin of the
            next. ``ahead``: prefetch distance in points; 0 for none."""
            none = builder.icmp_unsigned("<=", end, begin)
            points = builder.select(none, ir.Constant(INDEX, 0), builder.sub(end, begin))
            width = ir.Constant(INDEX, o.lanes)
            number = builder.udiv(points, width)
            with cgutils.for_range(builder, number) as loop:
                o.stop_unrolling()
                at = builder.add(begin, builder.mul(loop.index, width))
                compute(o, data, at)
                if ahead:
                    later = builder.add(at, ir.Constant(INDEX, ahead))
                    o.prefetch(data, builder.add([middle, *sides][-1], later))
                    o.prefetch(data, builder.add(out, later), write=True)
            return builder.add(begin, builder.mul(number, width))

        def row(lanes: int, *narrower: int) -> None:
            """Emit the row in vectors of ``lanes``, or of ``narrower`` if it is shorter."""
            o, width = Vectors(context, builder, bits, lanes), ir.Constant(INDEX, lanes)
            data = o.data(signature.args[1], array)
            if not narrower:
                vectors(o, data, ir.Constant(INDEX, 0), count)
                return
            with builder.if_else(builder.icmp_unsigned(">=", count, width)) as (long, short):
                with long:
                    compute(o, data, ir.Constant(INDEX, 0))
                    begin = builder.sub(width, builder.and_(out, ir.Constant(INDEX, lanes - 1)))
                    begin = vectors(o, data, begin, prefetched, ahead)
                    vectors(o, data, begin, count)
                    compute(o, data, builder.sub(count, width))
                with short:
                    row(*narrower)

        ahead = AHEAD_BYTES * 8 // bits
        beyond = ir.Constant(INDEX, ahead)
        long_row = builder.and_(streams, builder.icmp_unsigned(">", count, beyond))
        prefetched = builder.select(long_row, builder.sub(count, beyond), ir.Constant(INDEX, 0))
        row(*(lanes for lanes in (full, full // 4) if lanes > 1), 1)
        return context.get_dummy_value()

    return types.void(stencil, grids, out, middle, beside, count, types.boolean), emit


@njit(nogil=True, cache=True)
def run_tiles_1d(stencil, grids, shape, parity, steps, lows, highs):
    """Run tiles of a wavefront. ``grids``: flat; ``shape``: of one grid with its border;
    ``parity``: the grid of step 0; the others as in :class:`kernels.stencils.shapes.Wavefront`.
    """
    size = shape[0]
    streams = steps.shape[1] == 1  # a tile of one step is the whole grid
    for tile in range(steps.shape[0]):
        for row in range(steps.shape[1]):
            low, high = lows[tile, row], highs[tile, row]
            if low < high:
                step = steps[tile, row] + parity
                old, new = ((step + 1) & 1) * size, (step & 1) * size
                count = np.uint64(high - low)
                _row(
                    stencil,
                    grids,
                    np.uint64(new + low + 1),
                    np.uint64(old + low),
                    (),
                    count,
                    streams,
                )


@njit(nogil=True, cache=True)
def run_tiles_2d(stencil, grids, shape, parity, steps, lows, highs, first_2, last_2):
    """As :func:`run_tiles_1d`. ``first_2``, ``last_2``: the points of each piece of the second axis
    at each row, (pieces, rows), from :func:`kernels.stencils.shapes.pieces`."""
    size, line = shape[0] * shape[1], shape[1]
    streams = steps.shape[1] == 1  # a tile of one step is the whole grid
    for tile in range(steps.shape[0]):
        for piece in range(first_2.shape[0]):
            for row in range(steps.shape[1]):
                a, b = first_2[piece, row], last_2[piece, row]
                if a < b:
                    step = steps[tile, row] + parity
                    old, new = ((step + 1) & 1) * size, (step & 1) * size
                    for i in range(lows[tile, row], highs[tile, row]):
                        at = (i + 1) * line + a
                        _row(
                            stencil,
                            grids,
                            np.uint64(new + at + 1),
                            np.uint64(old + at),
                            (np.uint64(old + at + 1 - line), np.uint64(old + at + 1 + line)),
                            np.uint64(b - a),
                            streams,
                        )


@njit(nogil=True, cache=True)
def run_tiles_3d(
    stencil, grids, shape, parity, steps, lows, highs, first_2, last_2, first_3, last_3
):
    """As :func:`run_tiles_2d`, also with pieces of the third axis."""
    plane, line = shape[1] * shape[2], shape[2]
    size = shape[0] * plane
    streams = steps.shape[1] == 1  # a tile of one step is the whole grid
    for tile in range(steps.shape[0]):
        for piece in range(first_2.shape[0]):
            for inner in range(first_3.shape[0]):
                for row in range(steps.shape[1]):
                    a, b = first_3[inner, row], last_3[inner, row]
                    if a < b:
                        step = steps[tile, row] + parity
                        old, new = ((step + 1) & 1) * size, (step & 1) * size
                        for i in range(lows[tile, row], highs[tile, row]):
                            for j in range(first_2[piece, row], last_2[piece, row]):
                                at = (i + 1) * plane + (j + 1) * line + a
                                _row(
                                    stencil,
                                    grids,
                                    np.uint64(new + at + 1),
                                    np.uint64(old + at),
                                    (
                                        np.uint64(old + at + 1 - line),
                                        np.uint64(old + at + 1 + line),
                                        np.uint64(old + at + 1 - plane),
                                        np.uint64(old + at + 1 + plane),
                                    ),
                                    np.uint64(b - a),
                                    streams,
                                )


RUN_TILES: dict[int, Any] = {1: run_tiles_1d, 2: run_tiles_2d, 3: run_tiles_3d}
"""Number of space dimensions -> the loop over tiles."""
