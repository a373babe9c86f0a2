"""Execution of a planned chain of products, one by one or two fused."""

from __future__ import annotations

import math
import operator
import threading
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np

from kernels.products.chain_plan import (
    PARENT,
    Node,
    Rates,
    best_choice,
    checked_sizes,
    planned_nodes,
)
from kernels.products.movement import LEFT, LEFT_OPERAND, OUTPUT, RIGHT, RIGHT_OPERAND, TILES
from kernels.products.variants import Variant

Shape = tuple[int, int, int, int, bool]
"""The argument ``shape`` of :func:`kernels.products.fused.multiply`."""
FASTEST = Variant(mr=24, nr=8, unroll=4)
NARROWER = Variant(mr=16, nr=12, unroll=4, mc=480)
LINE_WIDE = Variant(mr=8, nr=24, unroll=4, mc=480)
TILES_IN_REGISTERS = (FASTEST, NARROWER, LINE_WIDE)
"""Tiles of a result in registers: the fastest, one for few columns, and one with which the fewest
numbers stream past a kept left operand."""
WIDE, DEEP = 240, 384
"""Columns and rows of the right operand that are packed at a time; multiples of the rows and
columns of all register tiles."""
WIDEST_TILE = max(own.mr for own in TILES_IN_REGISTERS)
KEPT = (OUTPUT, LEFT_OPERAND, RIGHT_OPERAND)
"""The kept matrices in the order of their numbers in the compiled loops."""
LINE = 8
"""Numbers in a cache line."""
OUTPUT_SHARE, LEFT_SHARE = 2 / 3, 0.75
"""The share of the on-chip memory for a kept tile of the output, or of the left operand, together
with the numbers that stream past it."""
FEW_ROWS = 64
"""Rows that are packed at a time with a kept tile of the left operand."""
_OF_THREAD = threading.local()
SMALL_OPS = 50_000_000
"""NumPy multiplies chains of fewer multiply-adds: planning would cost more than it saves."""
FEWEST_RESULT_ROWS = 64
"""NumPy also multiplies chains whose result has fewer rows: packed numbers have too few uses."""
RATES = Rates(ops_per_s=4e10, words_per_s=8e8)
"""Round rates of a processor core. Only their ratio matters: fusing pays for products with fewer
than fifty multiply-adds for each word from memory."""


@dataclass(frozen=True)
class Buffers:
    """Memory that all products reuse.

    ``packed``: the packed part of the right operand; ``tile``, ``rows``: for the edges;
    ``between``: the tile between two fused products.
    """

    packed: np.ndarray
    tile: np.ndarray
    rows: np.ndarray
    between: np.ndarray

    @classmethod
    def of(cls, packed: int, deep: int, between: int) -> Buffers:
        """Buffers of ``packed`` and ``between`` numbers, and rows of ``deep`` numbers."""
        tile = max(own.mr * own.nr for own in TILES_IN_REGISTERS)
        rows = max(own.nr for own in TILES_IN_REGISTERS) * deep
        return cls(np.zeros(packed), np.zeros(tile), np.zeros(rows), np.zeros(between))


def needed_numbers(nodes: Sequence[Node]) -> tuple[int, int, int]:
    """The arguments of :meth:`Buffers.of` for these products."""
    packed, deep, between = WIDE * DEEP, DEEP, 0
    for node in nodes:
        rows, columns = int(node.tile_x or 0), int(node.tile_y or 0)
        whole = rows * (columns + WIDEST_TILE)
        if node.fused:
            between = max(between, whole)
        elif node.kept == RIGHT_OPERAND:
            packed = max(packed, whole)
        if node.fused == RIGHT or node.kept == RIGHT_OPERAND:
            deep = max(deep, rows)
    return packed, deep, between


def inner_split(nodes: Sequence[Node], node: Node) -> int:
    """The matrix after which the product fused into ``node`` splits; ``node.split`` without one."""
    part = (node.first, node.split) if node.fused == LEFT else (node.split + 1, node.last)
    inner = (own.split for own in nodes if node.fused and (own.first, own.last) == part)
    return next(inner, node.split)


def register_tile(*columns: int) -> Variant:
    """The register tile for results with these columns: the fastest, unless it computes more than a
    twentieth more columns than the narrower one, because its edge tiles exceed the results."""

    def computed(own: Variant) -> int:
        return sum(-(-width // own.mr) * own.mr for width in columns)

    return FASTEST if computed(FASTEST) <= 1.05 * computed(NARROWER) else NARROWER


def tile_and_shape(
    kept: str, tile: tuple[int, int], depth: int, columns: tuple[int, ...], on_chip: int
) -> tuple[Variant, Shape]:
    """The register tile, and the part of the right operand to pack at a time, if a ``tile`` of
    ``kept`` stays on chip.

    The part that streams past a tile of the output, or of the left operand, is so small that both
    fit into ``on_chip`` numbers (at least a cache line of each row, and a register tile). A tile of
    the right operand is packed as a whole. ``on_chip`` 0: the fastest size. ``columns``: of the
    results.
    """
    variant = register_tile(*columns)
    deep, wide, rows_first = min(DEEP, depth), WIDE, kept == LEFT_OPERAND
    if kept == RIGHT_OPERAND:
        deep, wide = tile[0], -(-tile[1] // variant.mr) * variant.mr
    elif on_chip and kept == OUTPUT:
        room = int(OUTPUT_SHARE * on_chip) - tile[0] * tile[1]
        deep = min(max(room // (tile[0] + 2 * tile[1]) // LINE * LINE, LINE), deep)
    elif on_chip:
        variant = LINE_WIDE
        deep = min(deep, FEW_ROWS)
        room = int(LEFT_SHARE * on_chip) - tile[0] * tile[1]
        wide = min(max(room // (sum(tile) + deep) // variant.mr, 1) * variant.mr, wide)
    return variant, (variant.mr, variant.nr, wide, deep, rows_first)


def fused_shapes(
    side: str, sizes: tuple[int, ...], tile: tuple[int, int], on_chip: int
) -> tuple[tuple[Variant, Variant], tuple[Shape, Shape]]:
    """The register tiles and shapes of two fused products with ``sizes`` P0 to P3: first of the
    product that makes the tile between them, then of the product that uses it; ``on_chip`` as in
    :func:`tile_and_shape`."""
    if side == LEFT:
        columns: tuple[int, ...] = (tile[1], sizes[3])
        used, depth = LEFT_OPERAND, sizes[1]
    else:
        columns = (tile[1],)
        used, depth = RIGHT_OPERAND, sizes[2]
    one = tile_and_shape(OUTPUT, tile, depth, columns, on_chip)
    other = tile_and_shape(used, tile, tile[1], columns, on_chip)
    return (one[0], other[0]), (one[1], other[1])


def run_nodes(
    matrices: Sequence[np.ndarray],
    nodes: Sequence[Node],
    on_chip: int,
    buffers: Buffers,
    results: MutableMapping[tuple[int, int], np.ndarray] | None = None,
    *,
    tiled: bool = True,
) -> np.ndarray:
    """Multiply matrices, float64 and stored by rows, as planned with whole tiles.

    ``results``: arrays for the products, by first and last matrix, which the next run overwrites;
    new arrays by default. ``tiled``: unfused products also keep a tile and pack little; otherwise
    they pack the part that is fastest when operations take longer than words.
    """
    from kernels.products import fused  # noqa: PLC0415  (a plan must not import Numba)

    sizes = [len(matrices[0]), *(matrix.shape[1] for matrix in matrices)]
    values = {(place, place): matrix.reshape(-1) for place, matrix in enumerate(matrices, 1)}
    results = {} if results is None else results
    scratch = buffers.packed, buffers.tile, buffers.rows
    for node in nodes:
        if node.fused == PARENT:
            continue
        key = node.first, node.last
        rows, columns = sizes[node.first - 1], sizes[node.last]
        if key not in results:
            results[key] = np.empty((rows, columns))
        out = results[key].reshape(-1)
        tile = (int(node.tile_x or 0), int(node.tile_y or 0))
        room = on_chip if tiled else 0
        if node.fused is None:
            depth = sizes[node.split]
            left, right = values[node.first, node.split], values[node.split + 1, node.last]
            kept = (node.kept or OUTPUT) if tiled else OUTPUT
            tile = tile if tiled else (rows, columns)
            own = tile[1] if kept != LEFT_OPERAND else columns
            variant, shape = tile_and_shape(kept, tile, depth, (own,), room)
            places = (left, 0, depth), (right, 0, columns), (out, 0, columns)
            three = (rows, depth, columns)
            place = KEPT.index(kept)
            fused.multiply_tiled(variant, *places, three, place, tile, shape, scratch)
        else:
            cuts = sorted((node.first - 1, node.split, inner_split(nodes, node), node.last))
            operands = tuple(values[a + 1, b] for a, b in pairwise(cuts))
            four = tuple(sizes[cut] for cut in cuts)
            variants, shapes = fused_shapes(node.fused, four, tile, room)
            by_side = {LEFT: fused.multiply_fused_left, RIGHT: fused.multiply_fused_right}
            by_side[node.fused](
                variants, operands, out, four, tile, buffers.between, shapes, scratch
            )
        values[key] = out
    return results[1, len(matrices)]


@cache
def second_cache_numbers() -> int:
    """The number of float64 numbers that fit in the L2 cache, or without one in L1."""
    from kernels.host.caches import read_caches  # noqa: PLC0415

    known = [cache for cache in read_caches() if cache.level <= 2]
    return known[-1].size_bytes // 8


def _own_buffers(nodes: Sequence[Node]) -> Buffers:
    """The buffers of this thread, reused because new memory costs more time than small chains."""
    # Unfused products keep no tile here.
    needed = needed_numbers([node for node in nodes if node.fused])
    before: tuple[tuple[int, int, int], Buffers] | None = getattr(_OF_THREAD, "buffers", None)
    if before is not None and all(map(operator.ge, before[0], needed)):
        return before[1]
    buffers = Buffers.of(*needed)
    _OF_THREAD.buffers = needed, buffers
    return buffers


def _by_numpy(arrays: list[np.ndarray]) -> np.ndarray:
    product: np.ndarray = np.linalg.multi_dot(arrays)
    return product


def multiply_chain(matrices: Sequence[np.ndarray], on_chip: int | None = None) -> np.ndarray:
    """The product of matrices, in the order and with the fusing of the least estimated time.

    Args:
        matrices: as for :func:`numpy.linalg.multi_dot`. Chains of two-dimensional float64 matrices
            are planned and multiplied here, on one thread; matrices that are not stored by rows are
            copied. NumPy multiplies all other chains, and those that are empty, small or have few
            rows.
        on_chip: numbers that fit in the on-chip memory; by default those that fit in L2.

    Returns:
        The product; a new array, with the same dtype as from NumPy.

    Raises:
        ValueError: fewer than two matrices, or shapes that do not fit, as in NumPy.
    """
    arrays = [np.asanyarray(matrix) for matrix in matrices]
    ours = all(type(own) is np.ndarray and own.dtype == np.float64 for own in arrays)
    if len(arrays) < 2 or not ours or any(own.ndim != 2 for own in arrays):
        return _by_numpy(arrays)
    sizes = [len(arrays[0]), *(own.shape[1] for own in arrays)]
    fits = all(len(own) == size for own, size in zip(arrays, sizes, strict=False))
    if not fits or math.prod(sizes) == 0 or sizes[0] < FEWEST_RESULT_ROWS:
        return _by_numpy(arrays)
    numbers = on_chip or second_cache_numbers()
    checked = checked_sizes(sizes, numbers, RATES, TILES)
    choice, ops, _ = best_choice(checked, numbers, RATES, TILES)
    if ops < SMALL_OPS:
        return _by_numpy(arrays)
    nodes = planned_nodes(checked, numbers, TILES, choice)
    rows = [np.ascontiguousarray(own) for own in arrays]
    return run_nodes(rows, nodes, numbers, _own_buffers(nodes), tiled=False)
