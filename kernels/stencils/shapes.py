"""The tiles of time and the first axis of space, and the order in which they run.

Steps count from 1 to T, points from 0 to S - 1. A point at a step needs points of the previous
step, at a distance of at most one. A wavefront is a set of tiles that do not depend on each other.

A hexagon (Prajapati 2019, section A.4.1; Grosser et al. 2014) has rows of tile_1, tile_1 + 2, ...,
tile_1 + tile_t - 2 points, and then the same in reverse order. Hexagons of two colours alternate:
the second colour is half a tile later. In a row of one colour they are 2 tile_1 + tile_t - 2 apart.
A skewed tile (section B.4.2) is a rectangle in (i + t, t).

In further axes of space, a tile is a range of s + t (time skewing): :func:`pieces`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Wavefront:
    """Tiles that do not depend on each other.

    ``steps``: (tiles, rows), int64, the step of each row of a tile, in order; ``lows``, ``highs``:
    the points of the row, from ``lows`` up to, not including, ``highs``; equal in a row without
    points.
    """

    steps: np.ndarray
    lows: np.ndarray
    highs: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        """The number of points of each row."""
        return np.asarray(self.highs - self.lows)


Divide = Callable[..., Iterator[Wavefront]]
"""(size, steps, tile_1, tile_t) -> the wavefronts, in order."""


def untiled(size: int, steps: int, tile_1: int = 0, tile_t: int = 0) -> Iterator[Wavefront]:
    """The steps in order, each as one tile of the whole grid."""
    del tile_1, tile_t
    for step in range(1, steps + 1):
        yield _clipped(np.array([[step]]), np.array([[0]]), np.array([[size]]), size, steps)


@dataclass(frozen=True)
class HexagonRow:
    """A wavefront of ``tiles`` hexagons, which may extend beyond the grid: their ``first`` step,
    and ``base``, the first point of the first row of the first hexagon. Neighbours are
    2 tile_1 + tile_t - 2 points apart."""

    first: int
    base: int
    tiles: int


def hexagon_rows(size: int, steps: int, tile_1: int, tile_t: int) -> Iterator[HexagonRow]:
    """The rows of hexagons; the two colours alternate. ``tile_t`` is even.

    There are 2 ceil(T / tile_t) rows, plus one unless 0 < T mod tile_t <= tile_t / 2 (A.3).
    """
    half = tile_t // 2
    pitch = 2 * tile_1 + tile_t - 2
    first, number = 1 - half, 0
    while first <= steps:
        base = 0 if number % 2 else tile_1 + half - 1
        tiles = -(-(size - base + half - 1) // pitch)
        if tiles > 0:
            yield HexagonRow(first, base, tiles)
        first, number = first + half, number + 1


def hexagonal(size: int, steps: int, tile_1: int, tile_t: int) -> Iterator[Wavefront]:
    """The wavefronts of :func:`hexagon_rows`, clipped to the grid."""
    row = np.arange(tile_t)
    out = np.minimum(row, row[::-1])
    pitch = 2 * tile_1 + tile_t - 2
    for own in hexagon_rows(size, steps, tile_1, tile_t):
        left = own.base + np.arange(own.tiles)[:, None] * pitch - out
        step = np.broadcast_to(own.first + row, left.shape)
        yield _clipped(step, left, left + tile_1 + 2 * out, size, steps)


def skewed(size: int, steps: int, tile_1: int, tile_t: int) -> Iterator[Wavefront]:
    """The wavefronts of skewed tiles: diagonals of parallelograms, in order."""
    across, up = -(-(size + steps - 1) // tile_1), -(-steps // tile_t)
    for wavefront in range(across + up - 1):
        later = np.arange(max(0, wavefront - across + 1), min(up, wavefront + 1))[:, None]
        step = later * tile_t + np.arange(1, tile_t + 1)
        left = (wavefront - later) * tile_1 - (step - 1)
        clipped = _clipped(step, left, left + tile_1, size, steps)
        if clipped.lengths.any():
            yield clipped


def _clipped(
    step: np.ndarray, low: np.ndarray, high: np.ndarray, size: int, steps: int
) -> Wavefront:
    """The rows clipped to the grid; rows of steps outside 1 to T have no points."""
    inside = (step >= 1) & (step <= steps)
    lows = np.clip(low, 0, size)
    highs = np.where(inside, np.clip(high, 0, size), lows)
    return Wavefront(
        np.array(step, np.int64), lows.astype(np.int64), np.maximum(highs, lows).astype(np.int64)
    )


def subdivided(wavefront: Wavefront, subtile: int) -> Wavefront:
    """Skewed tiles divided into subtiles of ``subtile`` points in i + t: each runs through all
    steps of the tile before the next one begins."""
    first = wavefront.steps[:, :1]
    skew = wavefront.steps - first
    widest = int((wavefront.highs + skew).max() - (wavefront.lows + skew).min())
    begin = (wavefront.lows + skew).min(axis=1, keepdims=True)
    part = np.arange(-(-widest // subtile))[None, :, None]
    left = (begin - skew)[:, None, :] + part * subtile
    lows = np.clip(left, wavefront.lows[:, None, :], wavefront.highs[:, None, :])
    highs = np.clip(left + subtile, lows, wavefront.highs[:, None, :])
    steps = np.broadcast_to(wavefront.steps[:, None, :], lows.shape)
    tiles = len(lows)
    return Wavefront(*(column.reshape(tiles, -1) for column in (steps, lows, highs)))


def pieces(size: int, tile: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """An inner axis of ``size`` points, divided into ranges of ``tile`` points in s + row: the
    first point and the point after the last, for each piece and row, (pieces, rows), clipped."""
    count = -(-(size + rows - 1) // tile)
    left = np.arange(count)[:, None] * tile - np.arange(rows)
    lows = np.clip(left, 0, size)
    return lows, np.clip(left + tile, lows, size)


DIVISIONS: dict[str, Divide] = {"untiled": untiled, "hexagonal": hexagonal, "skewed": skewed}
"""Tiling -> its wavefronts."""
