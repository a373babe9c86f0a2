"""Operations, bytes, barriers and launches of one iteration, as the loops execute them.

- Additions and multiplications (``sp_add``, ``sp_mul``, ``dp_add``, ``dp_mul``) of every point; a
  subtraction counts as an addition. For a cell of ``sw``, additions and maxima (``int_add``,
  ``int_max``), including the maximum that finds the table's greatest value.
- ``dram``: bytes between memory and a tile's store. Every tile, clipped at the borders, reads the
  points that it needs and does not compute, and writes the points that other tiles need or that
  belong to the last step (Prajapati 2019, section A.4.1). Along further axes, neighbouring tiles in
  the same prism use the data in the store (A.14, A.25), which must be large enough. Fixed values
  outside the grid are not counted.
- ``l1``: bytes between the store and registers: for a point its inputs and its result; for a cell
  of ``sw`` three neighbours, two letters, the greatest value so far, and two results. The borders
  of its tiles are not counted.
- ``barrier``: rows of a tile, which must run in order, and two for the tile's transfers (A.9,
  A.10); in ``sw`` diagonals instead of rows.
- ``launch``: wavefronts.

An untiled stencil has one tile per step, for any number of threads.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from kernels.stencils.params import StencilParams
from kernels.stencils.shapes import DIVISIONS, Wavefront, pieces, subdivided
from kernels.stencils.stencils import CELL_ADDITIONS, CELL_MAXIMA, SMITH_WATERMAN, STENCILS

ITEM_BYTES = {"single": 4, "double": 8}
CELL_BYTES = 4
CELL_WORDS = 8
"""Numbers that a cell of ``sw`` moves between store and registers, computed in diagonals."""
FEWEST_PERIODS = 3
"""The number of periods that contain all different wavefronts."""
ROW_WORDS = 3
"""The same, computed row by row: above, letter, result; the left neighbour is in a register."""


@dataclass(frozen=True)
class AlikeWavefronts:
    """Wavefronts that differ only in position: one of them, and their number. ``read``,
    ``written``: points of the first axis that its tiles read from outside, and that they write for
    other tiles."""

    wavefront: Wavefront
    read: int
    written: int
    number: int


@dataclass(frozen=True)
class TileTotals:
    """Sums over the tiles of a wavefront: ``words`` into and out of a tile's store, of the first
    axis; ``rows``, which must run in order; ``loops`` over rows of points; ``tiles``."""

    words: int
    rows: int
    loops: int
    tiles: int


def wavefronts(params: StencilParams) -> Iterator[Wavefront]:
    """The wavefronts, of whole tiles, of a stencil other than ``sw``."""
    divide = DIVISIONS[params.tiling]
    return divide(params.size_1, params.steps, params.tile_1, params.tile_t)


def inner_pieces(params: StencilParams, rows: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """The pieces of the second and third axis, if present: (pieces, rows) each."""
    inner = ((params.size_2, params.tile_2), (params.size_3, params.tile_3))
    return [pieces(size, tile or size + rows, rows) for size, tile in inner if size]


def count_stencil(params: StencilParams) -> dict[str, float]:
    """Class -> operations of one iteration of one rank."""
    if params.stencil == SMITH_WATERMAN:
        return _count_cells(params)
    stencil = STENCILS[params.stencil]
    inner = (params.size_2 or 1) * (params.size_3 or 1)
    points = params.size_1 * inner * params.steps
    item_bytes = ITEM_BYTES[params.precision]
    kind = "sp" if params.precision == "single" else "dp"
    launches, totals = _totals(params)
    return {
        f"{kind}_add": float(points * stencil.additions),
        f"{kind}_mul": float(points * stencil.multiplications),
        "l1": float(points * (stencil.loads + 1) * item_bytes),
        "dram": float(totals.words * inner * item_bytes),
        "barrier": float(totals.rows + 2 * totals.tiles),
        "launch": float(launches),
    }


def stencil_metrics(params: StencilParams) -> dict[str, float]:
    """``tiles``; ``loops``: inner loops over a row of points; ``tile_bytes``: size of a tile's
    store (Prajapati 2019, A.20, and its equivalent in one and three dimensions)."""
    if params.stencil == SMITH_WATERMAN:
        across, up = _tiles_of_cells(params)
        counts = _count_cells(params)
        loops = params.steps if params.tiling == "untiled" else counts["barrier"] - 2 * across * up
        tile_bytes = CELL_BYTES * 2 * (params.tile_1 + params.tile_t)
        return {"tiles": float(across * up), "loops": float(loops), "tile_bytes": tile_bytes}
    _, totals = _totals(params)
    store = 2 * ITEM_BYTES[params.precision]
    sizes = (params.size_1, params.size_2, params.size_3)
    tiles = (params.tile_1, params.tile_2, params.tile_3)
    for size, tile in zip(sizes, tiles, strict=True):
        if size:
            store *= (tile or size) + params.tile_t + 1
    return {
        "tiles": float(totals.tiles),
        "loops": float(totals.loops),
        "tile_bytes": float(store),
    }


@lru_cache(maxsize=1 << 14)  # a plan, a search and a prediction use the same variants
def _totals(params: StencilParams) -> tuple[int, TileTotals]:
    """The number of wavefronts, and the sums over them."""
    distinct = alike_wavefronts(params)
    sums = np.zeros(4, np.int64)
    for alike in distinct:
        own = _totals_of(params, alike.wavefront, alike.read + alike.written)
        sums += np.array((own.words, own.rows, own.loops, own.tiles)) * alike.number
    return sum(alike.number for alike in distinct), TileTotals(*sums.tolist())


def alike_wavefronts(params: StencilParams) -> list[AlikeWavefronts]:
    """The wavefronts of a stencil other than ``sw``, grouped if they differ only in position."""
    return _alike_wavefronts(
        params.tiling, params.size_1, params.steps, params.tile_1, params.tile_t
    )


@lru_cache(maxsize=4)  # variants that differ only in the inner axes have the same wavefronts
def _alike_wavefronts(
    tiling: str, size: int, steps: int, tile_1: int, tile_t: int
) -> list[AlikeWavefronts]:
    # Untiled and in hexagons, wavefronts away from the first and the last steps are periodic.
    period = {"untiled": 1, "hexagonal": tile_t}.get(tiling)
    repeats = max((steps - FEWEST_PERIODS * period) // period, 0) if period else 0
    shown = steps - repeats * (period or 0)
    kinds: dict[bytes, Wavefront] = {}
    number: Counter[bytes] = Counter()
    between: set[bytes] = set()
    for wavefront in DIVISIONS[tiling](size, shown, tile_1, tile_t):
        last, lows, highs = wavefront.steps == shown, wavefront.lows, wavefront.highs
        if lows.min() > 0 and highs.max() < size:  # away from the borders only shapes differ
            lows, highs = lows - lows.min(), highs - lows.min()
        digest = hashlib.sha256(b"".join(part.tobytes() for part in (lows, highs, last))).digest()
        kinds.setdefault(digest, wavefront)
        number[digest] += 1
        if wavefront.steps.min() > 0 and wavefront.steps.max() < shown:
            between.add(digest)
    return [
        AlikeWavefronts(
            own,
            _words_read(own, size),
            _words_written(own, own.steps == shown, size),
            number[digest] + repeats * (digest in between),
        )
        for digest, own in kinds.items()
    ]


def _totals_of(params: StencilParams, wavefront: Wavefront, words: int) -> TileTotals:
    lengths = wavefront.lengths
    inner = inner_pieces(params, lengths.shape[1])
    run = lengths
    if params.subtile:
        run = subdivided(wavefront, params.subtile).lengths
        inner = inner_pieces(params, run.shape[1])
    full = (run > 0).astype(np.int64)
    there = [(highs > lows).astype(np.int64) for lows, highs in inner]
    if len(there) == 2:
        prisms = (there[0][:, None] * there[1][None]).reshape(-1, run.shape[1])
        loops = int((run.sum(axis=0) * params.size_2 * there[1].sum(axis=0)).sum())
    elif there:
        prisms = there[0]
        loops = int((run.sum(axis=0) * prisms.sum(axis=0)).sum())
    else:
        prisms = np.ones((1, run.shape[1]), np.int64)
        loops = int(full.sum())
    rows = full @ prisms.T
    return TileTotals(
        words=words,
        rows=int(rows.sum()),
        loops=loops,
        tiles=int((rows > 0).sum()),
    )


def _words_read(wavefront: Wavefront, size: int) -> int:
    """The number of points of the first axis that tiles read from outside."""
    lows, highs, full = wavefront.lows, wavefront.highs, wavefront.lengths > 0
    none = np.zeros((len(lows), 1), np.int64)
    before = [np.concatenate([none, side[:, :-1]], axis=1) for side in (lows, highs)]
    read_low, read_high = np.maximum(lows - 1, 0), np.minimum(highs + 1, size)
    read = np.where(full, read_high - read_low - shared_points(read_low, read_high, *before), 0)
    return int(read.sum())


def _words_written(wavefront: Wavefront, last: np.ndarray, size: int) -> int:
    """The number of points of the first axis that tiles write for others."""
    lows, highs = wavefront.lows, wavefront.highs
    none = np.zeros((len(lows), 1), np.int64)
    after_low, after_high = (np.concatenate([side[:, 1:], none], axis=1) for side in (lows, highs))
    # Points that only the next row of the same tile needs stay in its store.
    kept_low = np.where(after_low > 0, after_low + 1, 0)
    kept_high = np.where(after_high < size, after_high - 1, size)
    kept_high = np.where((after_high > after_low) & ~last, kept_high, kept_low)
    return int((wavefront.lengths - shared_points(lows, highs, kept_low, kept_high)).sum())


def shared_points(
    low: np.ndarray, high: np.ndarray, other_low: np.ndarray, other_high: np.ndarray
) -> np.ndarray:
    """The number of points in both ranges."""
    return np.asarray(np.maximum(np.minimum(high, other_high) - np.maximum(low, other_low), 0))


def _tiles_of_cells(params: StencilParams) -> tuple[int, int]:
    """The number of tiles of ``sw`` along i and along t."""
    if not params.size_1 or not params.steps:
        return 0, 0
    if params.tiling == "untiled":
        return 1, 1
    return -(-params.size_1 // params.tile_1), -(-params.steps // params.tile_t)


def _count_cells(params: StencilParams) -> dict[str, float]:
    size, steps = params.size_1, params.steps
    cells = size * steps
    across, up = _tiles_of_cells(params)
    words, barriers, cell_words = 3 * (size * up + steps * across) + across * up, 0, ROW_WORDS
    if params.tiling == "untiled":
        barriers = steps if cells else 0
    elif cells:
        cell_words = CELL_WORDS
        heights = [params.tile_t] * (up - 1) + [steps - (up - 1) * params.tile_t]
        height = params.subtile or params.tile_t
        subtiles = sum(-(-own // height) for own in heights)
        barriers = subtiles * size + (steps - subtiles) * across
    return {
        "int_add": float(cells * CELL_ADDITIONS),
        "int_max": float(cells * (CELL_MAXIMA + 1)),
        "l1": float(cells * cell_words * CELL_BYTES),
        "dram": float(words * CELL_BYTES),
        "barrier": float(barriers + 2 * across * up),
        "launch": float(across + up - 1 if cells else 0),
    }
