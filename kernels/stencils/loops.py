"""The compiled loops over the rows of tiles.

Two grids hold all values: those of step t are in grid t modulo 2, with a border of fixed values
around them. A point overwrites the value of two steps before, which only its own inputs have used,
so that tiles of any order that respects the inputs can run in these grids. The same loop over a row
serves every tiling, without flags that allow other roundings, so that all give the same bits.

The grids are one array, and rows are places in it: unsigned numbers, because the compiler tests
signed ones for being negative, and slices take longer than a short row. A stencil is to the
compiler a type, see :mod:`kernels.host.static_type`.
"""

# Numba's extension points have untyped arguments.
# mypy: disable-error-code="no-untyped-def,call-arg,misc"

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numba.extending import overload

from kernels.host.static_type import static
from kernels.stencils.stencils import Stencil

static(Stencil)

ONE, TWO = np.uint64(1), np.uint64(2)


def j1d(v, out, middle, count):
    third = v.dtype.type(1.0 / 3.0)
    for i in range(count):
        v[out + i] = third * (v[middle + i] + v[middle + i + ONE] + v[middle + i + TWO])


def j2d(v, out, middle, north, south, count):
    fifth = v.dtype.type(0.2)
    for i in range(count):
        c, w, e = v[middle + i + ONE], v[middle + i], v[middle + i + TWO]
        v[out + i] = fifth * (c + v[north + i] + v[south + i] + w + e)


def h2d(v, out, middle, north, south, count):
    two, eighth = v.dtype.type(2.0), v.dtype.type(0.125)
    for i in range(count):
        c, w, e = v[middle + i + ONE], v[middle + i], v[middle + i + TWO]
        twice = two * c
        along_1 = v[north + i] - twice + v[south + i]
        along_2 = w - twice + e
        v[out + i] = c + eighth * along_1 + eighth * along_2


def l2d(v, out, middle, north, south, count):
    half, eighth = v.dtype.type(0.5), v.dtype.type(0.125)
    for i in range(count):
        c, w, e = v[middle + i + ONE], v[middle + i], v[middle + i + TWO]
        v[out + i] = half * c + eighth * ((v[north + i] + v[south + i]) + (w + e))


def g2d(v, out, middle, north, south, count):
    quarter, half, share = v.dtype.type(0.25), v.dtype.type(0.5), v.dtype.type(0.0625)
    for i in range(count):
        c = v[middle + i + ONE]
        n, s = v[north + i] - c, v[south + i] - c
        w, e = v[middle + i] - c, v[middle + i + TWO] - c
        v[out + i] = quarter + half * c + share * ((n * n + s * s) + (w * w + e * e))


def j3d(v, out, middle, north, south, front, back, count):
    seventh = v.dtype.type(1.0 / 7.0)
    for i in range(count):
        c, w, e = v[middle + i + ONE], v[middle + i], v[middle + i + TWO]
        around = (v[front + i] + v[back + i]) + (v[north + i] + v[south + i]) + (w + e)
        v[out + i] = seventh * (c + around)


def h3d(v, out, middle, north, south, front, back, count):
    two, eighth = v.dtype.type(2.0), v.dtype.type(0.125)
    for i in range(count):
        c, w, e = v[middle + i + ONE], v[middle + i], v[middle + i + TWO]
        twice = two * c
        along_1 = v[front + i] - twice + v[back + i]
        along_2 = v[north + i] - twice + v[south + i]
        along_3 = w - twice + e
        v[out + i] = c + eighth * along_1 + eighth * along_2 + eighth * along_3


def l3d(v, out, middle, north, south, front, back, count):
    half, twelfth = v.dtype.type(0.5), v.dtype.type(1.0 / 12.0)
    for i in range(count):
        c, w, e = v[middle + i + ONE], v[middle + i], v[middle + i + TWO]
        around = (v[front + i] + v[back + i]) + (v[north + i] + v[south + i]) + (w + e)
        v[out + i] = half * c + twelfth * around


ROWS = {row.__name__: row for row in (j1d, j2d, h2d, l2d, g2d, j3d, h3d, l3d)}
"""Stencil -> its loop over a row of ``count`` points of the grids ``v``: ``out`` is the place of
the row's first result, ``middle`` that of its western neighbour at the step before, the others
those of its neighbours in the rows beside."""


def _row(stencil, grids, out, middle, *others_and_count):
    raise NotImplementedError("compiled only")


@overload(_row)
def _row_of(stencil, grids, out, middle, *others_and_count):
    row = njit(ROWS[stencil.value.code])
    return lambda stencil, grids, out, middle, *others_and_count: row(
        grids, out, middle, *others_and_count
    )


@njit(nogil=True, cache=True)
def run_tiles_1d(stencil, grids, shape, parity, steps, lows, highs):
    """Run tiles of a wavefront. ``grids``: flat; ``shape``: of one grid with its border;
    ``parity``: step 0 is in this grid; the rest as in :class:`kernels.stencils.shapes.Wavefront`.
    """
    size = shape[0]
    for tile in range(steps.shape[0]):
        for row in range(steps.shape[1]):
            low, high = lows[tile, row], highs[tile, row]
            if low < high:
                step = steps[tile, row] + parity
                old, new = ((step + 1) & 1) * size, (step & 1) * size
                count = np.uint64(high - low)
                _row(stencil, grids, np.uint64(new + low + 1), np.uint64(old + low), count)


@njit(nogil=True, cache=True)
def run_tiles_2d(stencil, grids, shape, parity, steps, lows, highs, first_2, last_2):
    """As :func:`run_tiles_1d`. ``first_2``, ``last_2``: the points of each piece of the second axis
    at each row, (pieces, rows), as :func:`kernels.stencils.shapes.pieces` gives them."""
    size, line = shape[0] * shape[1], shape[1]
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
                            np.uint64(old + at + 1 - line),
                            np.uint64(old + at + 1 + line),
                            np.uint64(b - a),
                        )


@njit(nogil=True, cache=True)
def run_tiles_3d(
    stencil, grids, shape, parity, steps, lows, highs, first_2, last_2, first_3, last_3
):
    """As :func:`run_tiles_2d`, with pieces of the third axis, too."""
    plane, line = shape[1] * shape[2], shape[2]
    size = shape[0] * plane
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
                                    np.uint64(old + at + 1 - line),
                                    np.uint64(old + at + 1 + line),
                                    np.uint64(old + at + 1 - plane),
                                    np.uint64(old + at + 1 + plane),
                                    np.uint64(b - a),
                                )


RUN_TILES: dict[int, Any] = {1: run_tiles_1d, 2: run_tiles_2d, 3: run_tiles_3d}
"""Dimensions of space -> the loop over tiles."""
