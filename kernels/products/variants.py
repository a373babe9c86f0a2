"""The variants of the matrix product: register tile, unrolling, and blocks for the caches.

Imports no Numba, so that a plan can list variants and count their operations.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import isqrt

from pydantic import Field, model_validator

from kernels.kernel import ParameterError, Params

NARROWEST = 4
"""The numbers in the narrowest vector for the rows of a tile: 256 bits."""
MOST_STEPS = 4096
"""The most multiply-adds in one pass of the inner loop, so that a variant compiles in seconds."""


class Variant(Params):
    """One way to block the product."""

    mr: int = Field(default=24, ge=NARROWEST, le=256)
    """rows of the tile of C in registers, a multiple of 4; vectors of 8 where 8 divides it and the
    node has them"""
    nr: int = Field(default=8, ge=1, le=64)
    """columns of the tile of C in registers"""
    unroll: int = Field(default=4, ge=1, le=16)
    """columns of A, with rows of B, in one pass of the inner loop"""
    mc: int = Field(default=480, ge=NARROWEST, le=1 << 20)
    """rows of the packed block of A, a multiple of mr"""
    kc: int = Field(default=256, ge=1, le=1 << 20)
    """columns of the packed block of A, and rows of the packed panel of B"""
    nc: int | None = Field(default=None, ge=1, le=1 << 20)
    """columns of the packed panel of B, a multiple of nr; default: all"""

    @model_validator(mode="after")
    def _can_be_built(self) -> Variant:
        _must_divide("mr", self.mr, NARROWEST, f"{NARROWEST}, the numbers in a 256-bit vector")
        _must_divide("mc", self.mc, self.mr, f"mr, {self.mr}")
        if self.nc is not None:
            _must_divide("nc", self.nc, self.nr, f"nr, {self.nr}")
        if (steps := self.mr * self.nr * self.unroll) > MOST_STEPS:
            raise ParameterError(
                "mr",
                f"mr {self.mr}, nr {self.nr} and unroll {self.unroll} make {steps} multiply-adds "
                f"in one pass of the inner loop, and at most {MOST_STEPS} are compiled",
                "make one of them smaller",
            )
        return self

    def name(self) -> str:
        """One word for all parameters that the compiled loops depend on."""
        return f"{self.mr}x{self.nr}x{self.unroll}"


def _must_divide(name: str, value: int, by: int, words: str) -> None:
    if value % by:
        below, above = value // by * by, (value // by + 1) * by
        use = f"{below} or {above}" if below else f"{above}"
        raise ParameterError(name, f"found {value}, not a multiple of {words}", f"use {use}")


@dataclass(frozen=True)
class Block:
    """The rows and columns of C of one thread: first and end."""

    row: int
    last_row: int
    column: int
    last_column: int

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.last_row - self.row

    @property
    def columns(self) -> int:
        """The number of columns."""
        return self.last_column - self.column


def blocks(n: int, threads: int, variant: Variant) -> list[Block]:
    """The blocks of C, of order n, for the threads: whole tiles, as square as possible.

    Each thread packs the rows of A and columns of B of its block; they are fewest for a square.
    """
    down = next(d for d in range(isqrt(threads), 0, -1) if threads % d == 0)
    rows = _cuts(n, variant.mr, down)
    columns = _cuts(n, variant.nr, threads // down)
    return [Block(*i, *j) for i in pairwise(rows) for j in pairwise(columns)]


def _cuts(n: int, tile: int, parts: int) -> list[int]:
    tiles = -(-n // tile)
    return [min(tiles * part // parts * tile, n) for part in range(parts + 1)]
