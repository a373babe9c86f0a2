"""Products of rows with matrices on a GPU, gathered and added up: source and counts.

They are the translations, solutions and transforms of a kernel-independent FMM. A row has the
densities, potentials or spectrum of a node.

Operation counts include padded rows. ``sp``, ``dp``: executed flops; a multiply-add is two.
``shared``: bytes that threads store and load. All accesses to global memory bypass L1. ``dram``:
every used row and matrix, the lists, and the result once, as from a cold cache; ``l2``: all other
loads, and the stores of a result that is added to. Numbers of the lists that several lanes of a
warp load from one address count once for each warp. Instructions for addresses and loops are not
counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kernels.cuda.fmm.tiles import Tiles, make_tiles
from kernels.cuda.processor import WARP
from kernels.cuda.program import Source

SOURCE = Path(__file__).with_name("product.cu")
FUNCTION = "products"
SIDE, THREADS, PART, UNROLL = 32, 64, 4, 8
"""As in the source: rows or columns of a tile, threads of a block, rows or columns of a tile that a
thread computes, and steps in one pass of the inner loop."""
_PAD_BYTES = 8
"""Padding after each staged row of the input, so that the rows of a warp lie in different banks."""
_WARPS = THREADS // WARP
_INDEX = 4


@dataclass(frozen=True, kw_only=True)
class Product:
    """``tiles`` of 32 rows, whose operators are matrices. ``scales``: (tiles,), the factors of the
    result, of the dtype of all numbers."""

    tiles: Tiles
    scales: np.ndarray

    @property
    def item(self) -> int:
        """Bytes of a number."""
        return self.scales.itemsize


def product_source(add: bool, item: int) -> Source:
    """The source with its macros. ``add``: whether to add to the existing result; ``item``: bytes
    of a number."""
    return Source(path=SOURCE, macros={"ADD": int(add), "DOUBLE": int(item == 8)})


def shared_bytes(item: int) -> int:
    """The bytes of shared memory of a block."""
    return SIDE * (2 * SIDE * item + _PAD_BYTES)


def make_product(
    rows: np.ndarray, kinds: np.ndarray, scales: np.ndarray, terms: np.ndarray, empty: int
) -> Product:
    """The tiles of a result: see :func:`kernels.cuda.fmm.tiles.make_tiles`. ``scales``: (n,), the
    same for all rows of a kind, of the dtype of all numbers."""
    tiles = make_tiles(rows, kinds, terms, empty, SIDE)
    of_row = np.zeros(empty + 1, scales.dtype)
    of_row[rows] = scales
    return Product(tiles=tiles, scales=of_row[tiles.rows_out[:, 0]])


def count_product(product: Product, inner: int, columns: int, add: bool) -> dict[str, float]:
    """Operations and bytes. Matrices have ``inner`` rows, as the input has columns, and ``columns``
    columns, as the result; both are multiples of 32."""
    tiles, across, item = product.tiles, columns // SIDE, product.item
    entries, blocks = len(tiles.operator_of) * across, len(tiles.rows_out) * across
    pieces = entries * (inner // SIDE)
    piece_bytes = 2 * SIDE * SIDE * item
    results = blocks * SIDE * SIDE
    passing = SIDE * THREADS * 2 * PART * item
    loaded = pieces * (piece_bytes + SIDE * _INDEX) + entries * _WARPS * _INDEX
    loaded += blocks * (_WARPS * (2 * _INDEX + item) + SIDE * _INDEX)
    once = len(np.unique(tiles.rows_in)) * inner * item
    once += len(np.unique(tiles.operator_of)) * inner * columns * item
    once += product.scales.nbytes + sum(a.nbytes for a in tiles.lists)
    return {
        "sp" if item == 4 else "dp": float(2 * pieces * SIDE**3 + results * (2 if add else 1)),
        "shared": float(pieces * (piece_bytes + passing)),
        "l2": float(loaded - once + add * results * item),
        "dram": float(once + results * item),
    }
