"""The compiled loops of C = C + A B, one set for each register tile.

The layers come from Goto & van de Geijn (2008) and BLIS (Van Zee & van de Geijn 2015): a
panel of B and a block of A are packed into slivers, which the inner loop reads in order. All
matrices are stored by columns, as in BLAS. The compiler sees a variant as a type:
:mod:`kernels.host.static_type`.

Sums are fused multiply-adds in the order of k, without flags that assume finite numbers. Slivers
at an edge are padded with zeros. Their products go to a separate tile; only its part inside C is
added to C, so that 0 times infinity does not enter the result.
"""

# Numba's extension points have untyped arguments.
# mypy: disable-error-code="no-untyped-def,attr-defined,call-arg,misc,type-arg"

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from kernels.host.static_type import static
from kernels.host.vectors import INDEX, Vectors, lanes_of
from kernels.products.variants import Variant

static(Variant)

PACKED_COLUMNS = 8
LINE_NUMBERS = 8
"""Numbers in a cache line of 64 bytes."""


def lanes_for(rows: int) -> int:
    """Numbers in a vector: the most that the host has and that divide the rows of the tile."""
    lanes = lanes_of(8)
    while rows % lanes:
        lanes //= 2
    return lanes


class Tile:
    """Emits the inner loop of one tile of C."""

    def __init__(self, v: Vectors, variant: Variant) -> None:
        self.v, self.variant = v, variant
        self.vectors = variant.mr // v.lanes

    def emit(
        self, a: Any, b: Any, c: Any, ld: Any, depth: Any, *, ld_b: Any = None, first: Any = None
    ) -> None:
        """``a``, ``b``: slivers; ``c``: the tile's first number; ``ld``: distance of its columns.
        ``ld_b``: the distance of columns of B if B is not packed. ``first``: whether to set the
        tile to the product, not add to it.
        """
        v, builder, variant = self.v, self.v.builder, self.variant
        columns = [builder.gep(c, [builder.mul(ld, _index(j))]) for j in range(variant.nr)]
        sums = [[v.slot(v.constant(0.0)) for _ in range(self.vectors)] for _ in columns]
        passes = builder.udiv(depth, _index(variant.unroll))
        whole = builder.mul(passes, _index(variant.unroll))
        # Prefetch C's lines column by column during the first half: prefetched all at once, they
        # would delay the loads of A and B.
        part = builder.udiv(passes, _index(2 * variant.nr))
        with cgutils.for_range(builder, _index(variant.nr)) as parts:
            self._prefetch(builder.gep(c, [builder.mul(ld, parts.index)]))
            begin = builder.mul(part, parts.index)
            last = builder.icmp_unsigned("==", parts.index, _index(variant.nr - 1))
            end = builder.select(last, passes, builder.add(begin, part))
            with cgutils.for_range_slice(builder, begin, end, _index(1)) as (index, _):
                at = builder.mul(index, _index(variant.unroll))
                self._steps(a, (b, ld_b), at, variant.unroll, sums)
        if variant.unroll > 1:
            with cgutils.for_range(builder, builder.sub(depth, whole)) as loop:
                self._steps(a, (b, ld_b), builder.add(whole, loop.index), 1, sums)
        if first is None:
            self._store(columns, sums, adding=True)
            return
        with builder.if_else(first) as (setting, adding):
            with setting:
                self._store(columns, sums, adding=False)
            with adding:
                self._store(columns, sums, adding=True)

    def _store(self, columns: list[Any], sums: list[list[Any]], *, adding: bool) -> None:
        """Emit the stores of the sums in the tile, or their addition to it."""
        v = self.v
        for column, totals in zip(columns, sums, strict=True):
            for i, slot in enumerate(totals):
                at, total = _index(i * v.lanes), v.builder.load(slot)
                v.store(v.add(v.load(column, at), total) if adding else total, column, at)

    def _prefetch(self, column: Any) -> None:
        """Emit the prefetch, for writing, of the lines of a column of the tile."""
        builder, i32, byte = self.v.builder, ir.IntType(32), ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, i32, i32, i32])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        options = [ir.Constant(i32, option) for option in (1, 3, 1)]  # to write; into L1; data
        for row in (*range(0, self.variant.mr, LINE_NUMBERS), self.variant.mr - 1):
            pointer = builder.bitcast(builder.gep(column, [_index(row)]), byte)
            builder.call(function, [pointer, *options])

    def _steps(
        self, a: Any, b: tuple[Any, Any], first: Any, steps: int, sums: list[list[Any]]
    ) -> None:
        """Emit ``steps`` columns of the sliver of A times ``steps`` rows of B."""
        v, builder, variant = self.v, self.v.builder, self.variant
        v.stop_unrolling()
        a = builder.gep(a, [builder.mul(first, _index(variant.mr))])
        (start, ld), apart = b, 1
        # The first number of each column, and the distance between rows.
        if ld is None:
            apart = variant.nr
            start = builder.gep(start, [builder.mul(first, _index(apart))])
            heads = [builder.gep(start, [_index(j)]) for j in range(variant.nr)]
        else:
            places = [builder.add(first, builder.mul(ld, _index(j))) for j in range(variant.nr)]
            heads = [builder.gep(start, [place]) for place in places]
        for step in range(steps):
            at = step * variant.mr
            rows = [v.load(a, _index(at + i * v.lanes)) for i in range(self.vectors)]
            for head, totals in zip(heads, sums, strict=True):
                number = v.number(head, _index(step * apart))
                for row, total in zip(rows, totals, strict=True):
                    builder.store(v.fma(row, number, builder.load(total)), total)


def _index(number: int) -> Any:
    return ir.Constant(INDEX, number)


def pointers(v: Vectors, *addresses: Any) -> list[Any]:
    return [v.builder.inttoptr(address, v.scalar.as_pointer()) for address in addresses]


@intrinsic
def _add_tile(typing, variant, a, b, c, ld, depth):
    """Add a sliver of A times a sliver of B to a tile; a, b, c are addresses."""

    def emit(context, builder, signature, arguments):
        _, a, b, c, ld, depth = arguments
        v = Vectors(context, builder, 64, lanes_for(variant.value.mr))
        Tile(v, variant.value).emit(*pointers(v, a, b, c), ld, depth)
        return context.get_dummy_value()

    return types.void(variant, *[types.int64] * 5), emit


def _packing(copy: Any) -> Any:
    """The function that packs a sliver of ``depth`` steps by ``copy``; the others are addresses."""

    @intrinsic
    def pack(typing, variant, source, ld, sliver, depth):
        def emit(context, builder, signature, arguments):
            _, source, ld, sliver, depth = arguments
            v = Vectors(context, builder, 64, lanes_for(variant.value.mr))
            with cgutils.for_range(builder, depth) as loop:
                v.stop_unrolling()
                copy(v, variant.value, *pointers(v, source, sliver), ld, loop.index)
            return context.get_dummy_value()

        return types.void(variant, *[types.int64] * 4), emit

    return pack


def _copy_column(
    v: Vectors, variant: Variant, source: Any, sliver: Any, ld: Any, step: Any
) -> None:
    """Copy mr numbers of a column of A."""
    column = v.builder.gep(source, [v.builder.mul(step, ld)])
    to = v.builder.gep(sliver, [v.builder.mul(step, _index(variant.mr))])
    for i in range(0, variant.mr, v.lanes):
        v.store(v.load(column, _index(i)), to, _index(i))


def _copy_row(v: Vectors, variant: Variant, source: Any, sliver: Any, ld: Any, step: Any) -> None:
    """Copy nr numbers of a row of B, one from each column."""
    builder = v.builder
    to = builder.gep(sliver, [builder.mul(step, _index(variant.nr))])
    for j in range(variant.nr):
        column = builder.gep(source, [builder.mul(ld, _index(j))])
        number = builder.load(builder.gep(column, [step]))
        builder.store(number, builder.gep(to, [_index(j)]))


_copy_columns, _copy_rows = _packing(_copy_column), _packing(_copy_row)


@njit(nogil=True, cache=True)
def pack_edge(matrix, first, inner, outer, width, used, depth, packed, at):
    """Pack a sliver of ``width``, of which ``used`` are in the matrix, padded with zeros."""
    for k in range(depth):
        for i in range(used):
            packed[at + k * width + i] = matrix[first + i * inner + k * outer]
        for i in range(used, width):
            packed[at + k * width + i] = 0.0


@njit(nogil=True, cache=True)
def _add_part(c, at, n, tile, mr, rows, columns):
    """Add the first rows and columns of a tile to C."""
    for j in range(columns):
        for i in range(rows):
            c[at + j * n + i] += tile[j * mr + i]


@njit(nogil=True, cache=True)
def pack_block(variant, a, n, mr, rows, columns, block):
    """Pack rows (first, end) and columns (first, count) of A into slivers of mr rows.

    It packs a few columns of all slivers at a time, because columns lie on different pages.
    """
    i0, i1 = rows
    k0, depth = columns
    edge = i0 + (i1 - i0) // mr * mr
    for k in range(0, depth, PACKED_COLUMNS):
        count = min(PACKED_COLUMNS, depth - k)
        for i in range(i0, edge, mr):
            column = a.ctypes.data + 8 * (i + (k0 + k) * n)
            sliver = block.ctypes.data + 8 * ((i - i0) * depth + k * mr)
            _copy_columns(variant, column, n, sliver, count)
    if edge < i1:
        at = (edge - i0) * depth
        pack_edge(a, edge + k0 * n, 1, n, mr, i1 - edge, depth, block, at)


@njit(nogil=True, cache=True)
def _pack_panel(variant, b, n, nr, rows, columns, panel):
    """Pack rows (first, count) and columns (first, end) of B into slivers of nr columns."""
    k0, depth = rows
    j0, j1 = columns
    for j in range(j0, j1, nr):
        at, first = (j - j0) * depth, k0 + j * n
        if j + nr <= j1:
            from_b, to_b = b.ctypes.data + 8 * first, panel.ctypes.data + 8 * at
            _copy_rows(variant, from_b, n, to_b, depth)
        else:
            pack_edge(b, first, n, 1, nr, j1 - j, depth, panel, at)


@njit(nogil=True, cache=True)
def _add_block(variant, c, n, tile_sizes, depth, rows, columns, packed):
    """Add a packed block of A times a packed panel of B to rows and columns (first, end) of C."""
    (mr, nr), (i0, i1), (j0, j1) = tile_sizes, rows, columns
    block, panel, tile = packed
    for j in range(j0, j1, nr):
        sliver_b = panel.ctypes.data + 8 * (j - j0) * depth
        for i in range(i0, i1, mr):
            sliver_a = block.ctypes.data + 8 * (i - i0) * depth
            at = i + j * n
            inside = i + mr <= i1 and j + nr <= j1
            where, ld = c.ctypes.data + 8 * at, n
            if not inside:
                tile[:] = 0.0
                where, ld = tile.ctypes.data, mr
            # One call for both cases, because its loop takes long to compile.
            _add_tile(variant, sliver_a, sliver_b, where, ld, depth)
            if not inside:
                _add_part(c, at, n, tile, mr, min(mr, i1 - i), min(nr, j1 - j))


@njit(nogil=True, cache=True)
def add_product(variant, matrices, n, block, sizes, packed, iterations):
    """Add A B to a block of C, ``iterations`` times.

    Args:
        variant: a :class:`kernels.products.variants.Variant`.
        matrices: A, B, C: float64 (n * n,), by columns.
        n: the order of the matrices.
        block: first row, end, first column, end.
        sizes: mr, nr, mc, kc, nc.
        packed: float64: a block of A (mc * kc,), a panel of B (nc * kc,), a tile (mr * nr,).
    """
    a, b, c = matrices
    row, last_row, column, last_column = block
    mr, nr, mc, kc, nc = sizes
    for _ in range(iterations):
        for j0 in range(column, last_column, nc):
            columns = j0, min(j0 + nc, last_column)
            for k0 in range(0, n, kc):
                depth = min(kc, n - k0)
                _pack_panel(variant, b, n, nr, (k0, depth), columns, packed[1])
                for i0 in range(row, last_row, mc):
                    rows = i0, min(i0 + mc, last_row)
                    pack_block(variant, a, n, mr, rows, (k0, depth), packed[0])
                    _add_block(variant, c, n, (mr, nr), depth, rows, columns, packed)
