"""Sums of rows, each times an operator, divided into tiles of rows that share their operators.

A row of the result is the sum of rows of the input, each times an operator. A fixed number of rows
of the result is a tile. A tile has an entry for each operator that one of its rows needs; a row
that does not need the operator has a row of zeros there. So rows of a tile should need about the
same operators.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Tiles:
    """The rows and operators to multiply, and the rows of the result.

    ``rows_out``: uint32 (tiles, side); ``begins``: uint32 (tiles + 1), the begin of each tile's
    entries; ``operator_of``: uint32 (entries,); ``rows_in``: uint32 (entries, side).
    """

    rows_out: np.ndarray
    begins: np.ndarray
    operator_of: np.ndarray
    rows_in: np.ndarray

    @property
    def lists(self) -> tuple[np.ndarray, ...]:
        """The arrays in the order of the sources' arguments."""
        return self.rows_out, self.begins, self.operator_of, self.rows_in


def make_tiles(
    rows: np.ndarray, kinds: np.ndarray, terms: np.ndarray, empty: int, side: int
) -> Tiles:
    """The tiles, of ``side`` rows, of a result.

    ``rows``: int64 (n,), the rows of the result; ``kinds``: int64 (n,), equal for rows that can
    share a tile. ``terms``: int64 (m, 3), the position in ``rows``, the operator, and the row of
    the input; no two have the same position and operator. ``empty``: the index of a row of zeros in
    the input, and of an unused row in the result.
    """
    order = np.argsort(kinds, kind="stable")
    _, first, counts = np.unique(kinds[order], return_index=True, return_counts=True)
    of_kind = -(-counts // side)
    within = np.arange(len(rows)) - np.repeat(first, counts)
    tile, lane = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
    tile[order] = np.repeat(np.cumsum(of_kind) - of_kind, counts) + within // side
    lane[order] = within % side
    tiles = int(of_kind.sum())
    rows_out = np.full((tiles, side), empty, np.uint32)
    rows_out[tile, lane] = rows
    at, operator, source = terms.T
    operators = int(operator.max(initial=0)) + 1
    entries, entry = np.unique(tile[at] * operators + operator, return_inverse=True)
    rows_in = np.full((len(entries), side), empty, np.uint32)
    rows_in[entry, lane[at]] = source
    return Tiles(
        rows_out=rows_out,
        begins=np.searchsorted(entries // operators, np.arange(tiles + 1)).astype(np.uint32),
        operator_of=(entries % operators).astype(np.uint32),
        rows_in=rows_in,
    )
