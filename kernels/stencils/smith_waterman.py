"""The compiled loops of Smith-Waterman's recurrence, local alignment of two sequences.

H[t, i] = max(0, H[t-1, i-1] + score, H[t-1, i] + GAP, H[t, i-1] + GAP), zero for t or i of 0, in
int32 (Prajapati 2019, section B.3.1). A tile needs the row above it, the column to its left and the
value at the corner between them, and overwrites them with its last row and column.

Within a tile, ``subtile`` rows are computed together, along the diagonals: the values of a diagonal
do not depend on each other. ``work`` holds the last three diagonals, each with the value from the
row above at index 0.
"""

# mypy: disable-error-code="no-untyped-def,call-overload"

from __future__ import annotations

import numpy as np
from numba import njit

from kernels.stencils.stencils import GAP, MATCH, MISMATCH

ONE = np.uint64(1)
_MATCH, _MISMATCH, _GAP, _ZERO = (np.int32(score) for score in (MATCH, MISMATCH, GAP, 0))


@njit(nogil=True, cache=True)
def run_rows(first, second, row, column):
    """Compute the whole table, row by row, in a plain loop. ``first``, ``second``: the sequences;
    ``row``, ``column``: as in :func:`run_tiles`.

    Returns the greatest value.
    """
    best = _ZERO
    row[:] = 0
    for t in range(len(second)):
        corner = left = _ZERO
        for i in range(len(first)):
            score = _MATCH if first[i] == second[t] else _MISMATCH
            above = row[i]
            value = max(_ZERO, np.int32(corner + score))
            value = max(value, np.int32(above + _GAP))
            left = max(value, np.int32(left + _GAP))
            corner = above
            row[i] = left
            best = max(best, left)
        column[t] = left
    return best


@njit(nogil=True, cache=True)
def run_tiles(backwards, second, row, column, corners, tiles, wavefront, work, best):
    """Compute the tiles of a wavefront in a range of rows of tiles.

    Args:
        backwards: the sequence along i, from its end; int32 (S,).
        second: the sequence along t; int32 (T,).
        row: H of the row above each column of tiles; overwritten with their last rows; int32 (S,).
        column: H of the column to the left of each row of tiles; overwritten with their last
            columns; int32 (T,).
        corners: H above and to the left of the next tile of each row of tiles; int32 (rows,).
        tiles: points of a tile along i and along t, and rows that are computed together.
        wavefront: its number, the first row of tiles, and the row of tiles after the last.
        work: int32 (rows, 3 * (rows together + 1)), or wider.
        best: the greatest values so far; int32 (rows, rows together), or wider.
    """
    wide, high, subtile = tiles
    number, first, last = wavefront
    for later in range(first, last):
        i0, t0 = (number - later) * wide, later * high
        i1, t1 = min(i0 + wide, len(row)), min(t0 + high, len(column))
        corner, corners[later] = corners[later], row[i1 - 1]
        for t in range(t0, t1, subtile):
            end = min(t + subtile, t1)
            below = column[end - 1]
            tile = (i0, i1, t, end)
            _run_subtile(backwards, second, row, column, corner, tile, work[later], best[later])
            corner = below


@njit(nogil=True, cache=True)
def _run_subtile(backwards, second, row, column, corner, tile, work, best):
    i0, i1, t0, t1 = tile
    height, width, length = t1 - t0, i1 - i0, len(work) // 3
    older, old, new = 0, length, 2 * length
    work[older], work[old] = corner, row[i0]
    for diagonal in range(width + height - 1):
        if diagonal < height:
            work[old + diagonal + 1] = column[t0 + diagonal]
        if diagonal + 1 < width:
            work[new] = row[i0 + diagonal + 1]
        first, last = max(0, diagonal - width + 1), min(height, diagonal + 1)
        letters = len(backwards) - 1 - i0 - diagonal + first
        _run_diagonal(
            backwards,
            second,
            work,
            best,
            np.uint64(letters),
            np.uint64(t0 + first),
            np.uint64(older + first),
            np.uint64(old + first),
            np.uint64(new + first + 1),
            np.uint64(first),
            np.uint64(last - first),
        )
        if diagonal >= width - 1:
            column[t0 + first] = work[new + first + 1]
        if diagonal >= height - 1:
            row[i0 + diagonal - height + 1] = work[new + height]
        older, old, new = old, new, older


@njit(nogil=True, cache=True)
def _run_diagonal(a, b, work, best, in_a, in_b, older, old, new, in_best, count):
    for k in range(count):
        score = _MATCH if a[in_a + k] == b[in_b + k] else _MISMATCH
        along, above = np.int32(work[older + k] + score), np.int32(work[old + k] + _GAP)
        left = np.int32(work[old + k + ONE] + _GAP)
        value = max(along, above, left, _ZERO)
        work[new + k] = value
        best[in_best + k] = max(best[in_best + k], value)
