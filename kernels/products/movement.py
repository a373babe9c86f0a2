"""Words that one product, or two fused ones, move between main memory and on-chip memory.

Prajapati 2019, appendix D. A product R = A1 A2, of sizes (P0, P1) and (P1, P2), keeps a tile of one
of its three matrices on chip while the others stream past. Two products fuse if the matrix T
between them is made and used tile by tile and never written: (A1 A2) A3 fuses left, A1 (A2 A3)
right. Each of the five cases is a :class:`Movement`: the kept matrix is divided into blocks of rows
and of columns; each block of rows moves a fixed number of words, so does each block of columns, and
some words move once. The closed forms allow any real tile that fills the on-chip memory; as
printed, also one larger than the matrix, whose words may be negative. :func:`whole_tiles` counts
the words of integer tiles, clipped to the matrix.

Capacities are numbers, not bytes. Imports no Numba.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

OUTPUT, LEFT_OPERAND, RIGHT_OPERAND = "output", "left operand", "right operand"
LEFT, RIGHT = "left", "right"
PRINTED, CORRECTED, TILES = "printed", "corrected", "tiles"
FORMS = (CORRECTED, PRINTED, TILES)
KEPT_SHARE = 0.7
"""The share of the on-chip memory that a whole tile may fill; the rest is for streams
(benchmarks/products_cachegrind.py)."""


@dataclass(frozen=True)
class Movement:
    """Words = ``per_rows`` * blocks of rows + ``per_columns`` * blocks of columns + ``once``, of a
    kept matrix with ``rows`` and ``columns``."""

    rows: int
    columns: int
    per_rows: int
    per_columns: int
    once: int

    def of_tile(self, tile_x: float, tile_y: float) -> float:
        """The closed form for a tile of ``tile_x`` rows and ``tile_y`` columns, real numbers: D.2,
        D.4, D.7 and D.11."""
        moved = self.per_rows * self.rows / tile_x + self.per_columns * self.columns / tile_y
        return moved + self.once

    def best_tile(self, on_chip: float, form: str = CORRECTED) -> tuple[float, float]:
        """The real tile of ``on_chip`` numbers that moves the fewest words; in the form
        ``corrected`` no larger than the matrix."""
        ratio = (self.per_rows * self.rows) / (self.per_columns * self.columns)
        tile_x = math.sqrt(on_chip * ratio)
        if form == PRINTED:
            return tile_x, on_chip / tile_x
        tile_x = min(max(tile_x, on_chip / self.columns), self.rows)
        return tile_x, min(on_chip / tile_x, self.columns)

    def least(self, on_chip: float, form: str = CORRECTED) -> float:
        """The words of that tile: D.3, D.5, D.6, D.10 and D.14, the last with beta = P0 / P2."""
        return self.of_tile(*self.best_tile(on_chip, form))

    def counted(self, tile_x: int, tile_y: int) -> int:
        """The words of whole tiles, clipped at the edges."""
        row_blocks, column_blocks = -(-self.rows // tile_x), -(-self.columns // tile_y)
        return self.per_rows * row_blocks + self.per_columns * column_blocks + self.once


def product(p0: int, p1: int, p2: int, kept: str = OUTPUT) -> Movement:
    """The movement of one product, which keeps ``kept`` on chip.

    The other matrices are read once for each block that uses them. A streaming output is also read
    before each addition, except the first.
    """
    if kept == OUTPUT:
        return Movement(p0, p2, p1 * p2, p0 * p1, p0 * p2)
    if kept == LEFT_OPERAND:
        return Movement(p0, p1, p1 * p2, 2 * p0 * p2, p0 * p1 - p0 * p2)
    return Movement(p1, p2, 2 * p0 * p2, p0 * p1, p1 * p2 - p0 * p2)


def fused(p0: int, p1: int, p2: int, p3: int, side: str) -> Movement:
    """The movement of two fused products of (P0, P1), (P1, P2), (P2, P3), inner result on chip."""
    if side == LEFT:
        return Movement(p0, p2, p2 * (p1 + p3), p0 * (p1 + 2 * p3), -p0 * p3)
    return Movement(p1, p3, p3 * (p2 + 2 * p0), p1 * (p2 + p0), -p0 * p3)


def printed_right(p0: int, p1: int, p2: int, p3: int, on_chip: float) -> float:
    """D.14 as printed, with beta = P0 / P1; D.11 requires P0 / P2."""
    beta = p0 / p1
    least = 2.0 * p1 * p2 * p3 * math.sqrt((1.0 + beta) * (1.0 + 2.0 * beta) / on_chip)
    return least - p0 * p3


def printed_right_tile(p0: int, p1: int, on_chip: float) -> tuple[float, float]:
    """The tile of D.14 as printed."""
    ratio = (1.0 + 2.0 * p0 / p1) / (1.0 + p0 / p1)
    return math.sqrt(on_chip * ratio), math.sqrt(on_chip / ratio)


def kept_numbers(on_chip: int) -> int:
    """The size of the largest whole tile, if ``on_chip`` numbers fit on chip."""
    return max(int(on_chip * KEPT_SHARE), 1)


def whole_tiles(
    rows: int, columns: int, per_rows: int, per_columns: int, kept: int
) -> tuple[int, int, int]:
    """The whole tile of at most ``kept`` numbers that moves the fewest words.

    Returns:
        The rows and columns of the tile, and the words of all blocks.
    """
    best_x, best_y, best = 1, 1, per_rows * rows + per_columns * columns
    row_blocks = 1
    while row_blocks <= rows and per_rows * row_blocks + per_columns < best:
        tile_x = -(-rows // row_blocks)
        tile_y = min(kept // tile_x, columns)
        if tile_y > 0:
            column_blocks = -(-columns // tile_y)
            words = per_rows * -(-rows // tile_x) + per_columns * column_blocks
            if words < best:
                best_x, best_y, best = tile_x, -(-columns // column_blocks), words
        row_blocks += 1
    return best_x, best_y, best


def best_kept(p0: int, p1: int, p2: int, on_chip: int) -> tuple[str, int, int, int]:
    """The operand of one product to keep, its whole tile, and all words."""
    choices = []
    for kept in (OUTPUT, LEFT_OPERAND, RIGHT_OPERAND):
        own = product(p0, p1, p2, kept)
        tile_x, tile_y, words = whole_tiles(
            own.rows, own.columns, own.per_rows, own.per_columns, kept_numbers(on_chip)
        )
        choices.append((words + own.once, kept, tile_x, tile_y))
    words, kept, tile_x, tile_y = min(choices, key=lambda choice: choice[0])
    return kept, tile_x, tile_y, words


def best_fused(p0: int, p1: int, p2: int, p3: int, side: str, on_chip: int) -> tuple[int, int, int]:
    """The whole tile of the matrix between two fused products, and all words."""
    own = fused(p0, p1, p2, p3, side)
    tile_x, tile_y, words = whole_tiles(
        own.rows, own.columns, own.per_rows, own.per_columns, kept_numbers(on_chip)
    )
    return tile_x, tile_y, words + own.once
