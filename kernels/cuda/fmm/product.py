"""Products of rows with matrices on a GPU, gathered and added up: tiles and counts.

A row of the result is the sum of rows of the input, each times a matrix: the translations and
solutions of a kernel-independent FMM, with a node's densities or potentials in a row. 32 rows of
the result are a tile. A tile has an entry for each matrix that one of its rows needs, with a row of
zeros where another needs it not, so that rows of a tile should need about the same matrices.

How operations are counted, of padded rows too: ``dp``: flops as executed; a multiply-add is two.
``shared``: bytes that threads store and load. Bytes of global memory, all of which is accessed
beyond the first cache: ``dram``: every row and matrix that is used, the lists, and the result once,
as from a cold cache; ``l2``: all other loads, and where the result is added to, its stores. Numbers
of the lists that several lanes of a warp load from one address are loaded once a warp. What
addresses and loops need is not counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kernels.cuda.processor import WARP
from kernels.cuda.program import Source

SOURCE = Path(__file__).with_name("product.cu")
FUNCTION = "products"
SIDE, THREADS, PART = 32, 64, 4
"""As in the source: of a tile, of a block, and of a thread's part of a tile."""
SHARED_BYTES = 8 * SIDE * (SIDE + 1 + SIDE)
_WARPS = THREADS // WARP
_ITEM, _INDEX = 8, 4


@dataclass(frozen=True, kw_only=True)
class Product:
    """Which rows are multiplied with which matrices, and where the result goes.

    ``rows_out``: uint32 (tiles, 32); ``begins``: uint32 (tiles + 1), where each tile's entries
    begin; ``matrix_of``: uint32 (entries,); ``rows_in``: uint32 (entries, 32); ``scales``: float64
    (tiles,), with what the result is multiplied.
    """

    rows_out: np.ndarray
    begins: np.ndarray
    matrix_of: np.ndarray
    rows_in: np.ndarray
    scales: np.ndarray


def product_source(add: bool) -> Source:
    """The source; ``add``: whether the result is added to what is there."""
    return Source(path=SOURCE, macros={"ADD": int(add)})


def make_product(
    rows: np.ndarray, kinds: np.ndarray, scales: np.ndarray, terms: np.ndarray, empty: int
) -> Product:
    """The tiles of a result.

    ``rows``: int64 (n,), the rows of the result; ``kinds``: int64 (n,), equal for rows that share a
    tile; ``scales``: float64 (n,), one for each kind. ``terms``: int64 (m, 3), the position in
    ``rows``, the matrix, and the row of the input; no two have the same position and matrix.
    ``empty``: a row of zeros in the input, whose like in the result is not used.
    """
    order = np.argsort(kinds, kind="stable")
    _, first, counts = np.unique(kinds[order], return_index=True, return_counts=True)
    of_kind = -(-counts // SIDE)
    within = np.arange(len(rows)) - np.repeat(first, counts)
    tile, lane = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
    tile[order] = np.repeat(np.cumsum(of_kind) - of_kind, counts) + within // SIDE
    lane[order] = within % SIDE
    tiles = int(of_kind.sum())
    rows_out = np.full((tiles, SIDE), empty, np.uint32)
    rows_out[tile, lane] = rows
    of_tile = np.zeros(tiles)
    of_tile[tile] = scales
    at, matrix, source = terms.T
    matrices = int(matrix.max(initial=0)) + 1
    entries, entry = np.unique(tile[at] * matrices + matrix, return_inverse=True)
    rows_in = np.full((len(entries), SIDE), empty, np.uint32)
    rows_in[entry, lane[at]] = source
    return Product(
        rows_out=rows_out,
        begins=np.searchsorted(entries // matrices, np.arange(tiles + 1)).astype(np.uint32),
        matrix_of=(entries % matrices).astype(np.uint32),
        rows_in=rows_in,
        scales=of_tile,
    )


def count_product(product: Product, columns: int, add: bool) -> dict[str, float]:
    """Operations and bytes; ``columns``: of rows and matrices, a multiple of 32."""
    across = columns // SIDE
    entries, blocks = len(product.matrix_of) * across, len(product.rows_out) * across
    pieces = entries * across
    piece_bytes = 2 * SIDE * SIDE * _ITEM
    results = blocks * SIDE * SIDE
    passing = SIDE * THREADS * 2 * PART * _ITEM
    loaded = pieces * (piece_bytes + SIDE * _INDEX) + entries * _WARPS * _INDEX
    loaded += blocks * (_WARPS * (2 * _INDEX + _ITEM) + SIDE * _INDEX)
    once = len(np.unique(product.rows_in)) * columns * _ITEM
    once += len(np.unique(product.matrix_of)) * columns**2 * _ITEM
    once += product.scales.nbytes + sum(
        a.nbytes for a in (product.rows_out, product.begins, product.matrix_of, product.rows_in)
    )
    return {
        "dp": float(2 * pieces * SIDE**3 + results * (2 if add else 1)),
        "shared": float(pieces * (piece_bytes + passing)),
        "l2": float(loaded - once + add * results * _ITEM),
        "dram": float(once + results * _ITEM),
    }
