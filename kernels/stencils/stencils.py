"""The stencils: the inputs and the operations of a point.

``j1d``, ``j2d`` and ``sw`` come from Prajapati 2019; it names the others without formulas, so this
project defines theirs. All are of first order: a point at step t needs itself and its neighbours
along each axis at step t - 1. Values that start in [0, 1) stay in [0, 1] and do not decay to
denormal numbers, which processors compute slowly. ``c`` is the point; ``w`` and ``e`` its
neighbours along the last axis, ``n`` and ``s`` along the axis before it, ``f`` and ``b`` along the
first of three.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Stencil:
    """A stencil: ``dimensions`` of space; additions and multiplications of a point (a subtraction
    is an addition); ``formula``, as text for users."""

    code: str
    dimensions: int
    additions: int
    multiplications: int
    formula: str

    @property
    def loads(self) -> int:
        """The number of inputs of a point."""
        return 2 * self.dimensions + 1

    def name(self) -> str:
        """The name by which the compiled loops differ."""
        return self.code


STENCILS = {
    stencil.code: stencil
    for stencil in (
        Stencil("j1d", 1, 2, 1, "(w + c + e) / 3"),
        Stencil("j2d", 2, 4, 1, "0.2 (c + n + s + w + e)"),
        Stencil("h2d", 2, 6, 3, "c + (n - 2c + s) / 8 + (w - 2c + e) / 8"),
        Stencil("l2d", 2, 4, 2, "c / 2 + (n + s + w + e) / 8"),
        Stencil(
            "g2d", 2, 9, 6, "1/4 + c / 2 + ((n - c)^2 + (s - c)^2 + (w - c)^2 + (e - c)^2) / 16"
        ),
        Stencil("j3d", 3, 6, 1, "(c + f + b + n + s + w + e) / 7"),
        Stencil("h3d", 3, 9, 4, "c + ((f - 2c + b) + (n - 2c + s) + (w - 2c + e)) / 8, each apart"),
        Stencil("l3d", 3, 6, 2, "c / 2 + (f + b + n + s + w + e) / 12"),
    )
}
"""Name -> stencil, without Smith-Waterman's recurrence."""
SMITH_WATERMAN = "sw"
MATCH, MISMATCH, GAP = 2, -1, -1
"""Scores of :data:`SMITH_WATERMAN`: two equal letters, two different letters, and a gap."""
CELL_ADDITIONS = CELL_MAXIMA = 3
"""In a cell: max(0, H[t-1, i-1] + score, H[t-1, i] + GAP, H[t, i-1] + GAP). The greatest value of
the table needs one more maximum."""


def next_step(stencil: str, grid: np.ndarray) -> np.ndarray:
    """The inner points of ``grid``, one smaller at each side, after a step, by NumPy. They are
    rounded as in the compiled loops, so that the bits are the same."""
    number, inside = grid.dtype.type, [slice(1, -1)] * grid.ndim
    c = grid[tuple(inside)]
    pairs = []
    for axis in range(grid.ndim):
        beside = [
            grid[(*inside[:axis], side, *inside[axis + 1 :])]
            for side in (slice(None, -2), slice(2, None))
        ]
        pairs.append(beside)
    w, e = pairs[-1]
    others = pairs[:-1]
    match stencil:
        case "j1d":
            return np.asarray(number(1 / 3) * (w + c + e))
        case "j2d":
            ((n, s),) = others
            return np.asarray(number(0.2) * (c + n + s + w + e))
        case "h2d" | "h3d":
            result, twice = c, number(2) * c
            for low, high in pairs:
                result = result + number(0.125) * (low - twice + high)
            return result
        case "g2d":
            ((n, s),) = others
            squares = (n - c) ** 2 + (s - c) ** 2 + ((w - c) ** 2 + (e - c) ** 2)
            return np.asarray(number(0.25) + number(0.5) * c + number(0.0625) * squares)
        case _:
            around = sum((low + high for low, high in others[1:]), others[0][0] + others[0][1])
            around = around + (w + e)
            if stencil == "j3d":
                return np.asarray(number(1 / 7) * (c + around))
            share = number(0.125 if stencil == "l2d" else 1 / 12)
            return np.asarray(number(0.5) * c + share * around)
