"""Products of matrices stored by rows, single or two fused, in tiles that stay on chip.

The loops come from Prajapati 2019, algorithms 5 and 9, over the inner loop of
:mod:`kernels.products.loops`. The inner loop works on columns: a product by rows is the product of
the transposed matrices by columns, with the right operand packed. The left operand is not packed:
the inner loop reads consecutive single numbers of its rows.

Matrices are flat arrays. A place is the position of a matrix's first number and the distance
between its rows; the distance is 0 for a packed matrix: consecutive stripes of mr columns, each by
rows.
"""

# Numba's extension points have untyped arguments.
# mypy: disable-error-code="no-untyped-def,attr-defined,call-arg"

from __future__ import annotations

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from kernels.host.vectors import Vectors
from kernels.products.loops import Tile, lanes_for, pack_block, pointers

_BIT = ir.IntType(1)


@intrinsic
def _set_tile(typing, variant, packed, rows, tile, ld_tile, depth, ld_rows, first):
    """Set a tile from a packed sliver of the right operand and rows of the left one, or add to it.
    The arguments are addresses."""

    def emit(context, builder, signature, arguments):
        _, packed, rows, tile, ld_tile, depth, ld_rows, first = arguments
        v = Vectors(context, builder, 64, lanes_for(variant.value.mr))
        first = builder.trunc(first, _BIT)
        packed, rows, tile = pointers(v, packed, rows, tile)
        Tile(v, variant.value).emit(packed, rows, tile, ld_tile, depth, ld_b=ld_rows, first=first)
        return context.get_dummy_value()

    return types.void(variant, *[types.int64] * 7), emit


@njit(nogil=True, cache=True)
def _copy_rows(left, at, ld, rows, nr, depth, buffer):
    """Copy ``rows`` rows, fewer than nr, and fill the rest of the buffer (nr, depth) with zeros."""
    buffer[: nr * depth] = 0.0
    for i in range(rows):
        for k in range(depth):
            buffer[i * depth + k] = left[at + i * ld + k]


@njit(nogil=True, cache=True)
def _copy_tile(tile, mr, rows, columns, out, at, ld, first):
    """Set the part of a tile inside the matrix in ``out``, or add to it."""
    for i in range(rows):
        for j in range(columns):
            before = 0.0 if first else out[at + i * ld + j]
            out[at + i * ld + j] = before + tile[i * mr + j]


@njit(nogil=True, cache=True)
def multiply(variant, left, right, out, sizes, first, shape, buffers):
    """Set ``out`` to ``left`` times ``right``, or add the product to it.

    Args:
        variant: a :class:`kernels.products.variants.Variant`.
        left, right, out: each a flat float64 array, the position of the matrix's first number, and
            the distance between rows. ``right`` may be packed if ``shape`` takes it as a whole;
            ``out`` may be packed.
        sizes: rows of ``left``, columns of ``left``, columns of ``right``; none is 0.
        first: whether to set ``out``, not add to it.
        shape: mr, nr, columns (a multiple of mr) and rows of ``right`` that are packed at a time,
            and whether packing goes down the rows first: then the columns of ``out`` are finished
            part by part, otherwise all grow together.
        buffers: float64: the packed part, a tile (mr * nr,), and nr rows of ``left``.
    """
    (a, a_at, a_ld), (b, b_at, b_ld), (c, c_at, c_ld) = left, right, out
    rows, depth, columns = sizes
    mr, nr, wide, deep, rows_first = shape
    block, tile, edge = buffers
    high, across = -(-depth // deep), -(-columns // wide)
    for part in range(high * across):
        k0 = deep * (part % high if rows_first else part // across)
        j0 = wide * (part // high if rows_first else part % across)
        k, j1 = min(deep, depth - k0), min(j0 + wide, columns)
        setting = first and k0 == 0
        if b_ld:
            pack_block(variant, b, b_ld, mr, (b_at + j0, b_at + j1), (k0, k), block)
        packed = block if b_ld else b
        for i in range(0, rows, nr):
            taken, ld_taken = a.ctypes.data + 8 * (a_at + i * a_ld + k0), a_ld
            used = min(nr, rows - i)
            if used < nr:
                _copy_rows(a, a_at + i * a_ld + k0, a_ld, used, nr, k, edge)
                taken, ld_taken = edge.ctypes.data, k
            for j in range(j0, j1, mr):
                sliver = packed.ctypes.data + 8 * (j - j0) * k
                at, ld_out = c_at + i * c_ld + j, c_ld
                if not c_ld:
                    at, ld_out = c_at + j * rows + i * mr, mr
                inside = used == nr and j + mr <= j1
                where, ld = (c.ctypes.data + 8 * at, ld_out) if inside else (tile.ctypes.data, mr)
                _set_tile(variant, sliver, taken, where, ld, k, ld_taken, setting or not inside)
                if not inside:
                    _copy_tile(tile, mr, used, min(mr, j1 - j), c, at, ld_out, setting)


@njit(nogil=True, cache=True)
def multiply_tiled(variant, left, right, out, sizes, kept, tile, shape, buffers):
    """Set ``out`` as :func:`multiply` does, tile by tile of the matrix that stays on chip.

    Args:
        kept: 0 ``out``, 1 ``left``, 2 ``right``.
        tile: its rows and columns.
    """
    (a, a_at, a_ld), (b, b_at, b_ld), (c, c_at, c_ld) = left, right, out
    p0, p1, p2 = sizes
    steps = (tile[0], p1, tile[1])
    if kept == 1:
        steps = (tile[0], tile[1], p2)
    elif kept == 2:
        steps = (p0, tile[0], tile[1])
    for i in range(0, p0, steps[0]):
        rows = min(steps[0], p0 - i)
        for j in range(0, p2, steps[2]):
            columns = min(steps[2], p2 - j)
            for k in range(0, p1, steps[1]):
                depth = min(steps[1], p1 - k)
                own_a, own_b = (a, a_at + i * a_ld + k, a_ld), (b, b_at + k * b_ld + j, b_ld)
                own_c = (c, c_at + i * c_ld + j, c_ld)
                own_sizes = (rows, depth, columns)
                multiply(variant, own_a, own_b, own_c, own_sizes, k == 0, shape, buffers)


@njit(nogil=True, cache=True)
def multiply_fused_left(variants, matrices, out, sizes, tile, between, shapes, buffers):
    """Set ``out`` (P0, P3) to (A1 A2) A3: algorithm 5, fused.

    Args:
        variants: of the product that makes the tile, and of the product that uses it.
        matrices: A1, A2, A3: flat.
        sizes: P0 to P3.
        tile: rows and columns of the tile of A1 A2.
        between: float64: that tile, with room for rows of whole register tiles.
        shapes: of the same two products.
    """
    (a1, a2, a3), (p0, p1, p2, p3) = matrices, sizes
    for i in range(0, p0, tile[0]):
        x = min(tile[0], p0 - i)
        for j in range(0, p2, tile[1]):
            y = min(tile[1], p2 - j)
            inner = (between, 0, y)
            own = (a1, i * p1, p1), (a2, j, p2), inner
            multiply(variants[0], *own, (x, p1, y), True, shapes[0], buffers)
            last = inner, (a3, j * p3, p3), (out, i * p3, p3)
            multiply(variants[1], *last, (x, y, p3), j == 0, shapes[1], buffers)


@njit(nogil=True, cache=True)
def multiply_fused_right(variants, matrices, out, sizes, tile, between, shapes, buffers):
    """As :func:`multiply_fused_left`, for A1 (A2 A3): algorithm 9, fused. ``tile``: of A2 A3, which
    the first product writes packed; both variants have the same mr."""
    (a1, a2, a3), (p0, p1, p2, p3) = matrices, sizes
    for i in range(0, p1, tile[0]):
        x = min(tile[0], p1 - i)
        for j in range(0, p3, tile[1]):
            y = min(tile[1], p3 - j)
            inner = (between, 0, 0)
            own = (a2, i * p2, p2), (a3, j, p3), inner
            multiply(variants[0], *own, (x, p2, y), True, shapes[0], buffers)
            last = (a1, i, p1), inner, (out, j, p3)
            multiply(variants[1], *last, (p0, x, y), i == 0, shapes[1], buffers)
