"""The parameters of the kernel ``stencil``: the problem and the variant."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from kernels.kernel import ParameterError, Params
from kernels.stencils.stencils import SMITH_WATERMAN, STENCILS

AXES = ("size_1", "size_2", "size_3")
MOST_POINTS = 1 << 36
TILINGS = {
    "j1d": ("untiled", "hexagonal", "skewed"),
    SMITH_WATERMAN: ("untiled", "orthogonal"),
}
"""Stencil -> its tilings; stencils that are not listed have the first two of ``j1d``."""
OF_TILES = ("tile_t", "tile_1", "tile_2", "tile_3", "subtile")


def check_hexagon(tile_t: int) -> None:
    """Refuse an odd number of steps of a hexagonal tile.

    Raises:
        ParameterError: ``tile_t`` is odd.
    """
    if tile_t % 2:
        even = max(2, tile_t - 1)
        raise ParameterError(
            "tile_t",
            f"found {tile_t}",
            f"with hexagonal tiling it must be even, such as {even} or {even + 2}",
        )


def axes_of(stencil: str) -> int:
    """The number of space axes of a stencil, or of Smith-Waterman's recurrence."""
    return 1 if stencil == SMITH_WATERMAN else STENCILS[stencil].dimensions


def check_axes(params: Params, stencil: str) -> None:
    """Refuse sizes and tiles that do not fit the axes of a stencil. ``params`` may lack some of
    :data:`AXES` and of their tiles.

    Raises:
        ParameterError: an axis of the stencil has no size, another axis has a size or tile, or
            there are too many points.
    """
    there, points = axes_of(stencil), 1
    for number, name in enumerate(AXES):
        size, tile = getattr(params, name, 0), getattr(params, f"tile_{number + 1}", 0)
        if number >= there and (size or tile):
            raise ParameterError(
                name if size else f"tile_{number + 1}",
                f"stencil {stencil} has no axis {number + 1}",
                f"leave out {name} and tile_{number + 1}",
            )
        if number < there:
            if not size:
                raise ParameterError(
                    name, f"0 or missing, and stencil {stencil} needs it", "give 1 or more"
                )
            points *= size
    if points > MOST_POINTS:
        raise ParameterError(
            "size_1", f"{points:,} points in all, more than 2^36", "make a size smaller"
        )


class StencilParams(Params):
    """A stencil over time, and its tiling."""

    stencil: Literal["j1d", "j2d", "h2d", "l2d", "g2d", "j3d", "h3d", "l3d", "sw"]
    """sw: Smith-Waterman's recurrence, in 32-bit integers"""
    size_1: int = Field(ge=1, le=1 << 30)
    """points of the first axis, which hexagons divide; sw: letters of the first sequence"""
    size_2: int = Field(default=0, ge=0, le=1 << 30)
    """points of the second axis"""
    size_3: int = Field(default=0, ge=0, le=1 << 30)
    """points of the third axis"""
    steps: int = Field(ge=1, le=1 << 30)
    """steps of time; sw: letters of the second sequence"""
    precision: Literal["single", "double"] = "single"
    """floating-point numbers of 32 or of 64 bits"""
    tiling: Literal["untiled", "hexagonal", "skewed", "orthogonal"] = "untiled"
    """hexagons or (j1d) parallelograms of time and first axis, or (sw) rectangles"""
    tile_t: int = Field(default=0, ge=0, le=1 << 20)
    """steps of a tile; even in hexagons"""
    tile_1: int = Field(default=0, ge=0, le=1 << 30)
    """points of a tile's first row along the first axis"""
    tile_2: int = Field(default=0, ge=0, le=1 << 30)
    """points of a tile along the second axis; 0: all"""
    tile_3: int = Field(default=0, ge=0, le=1 << 30)
    """points of a tile along the third axis; 0: all"""
    subtile: int = Field(default=0, ge=0, le=1 << 20)
    """skewed: points that run through all steps of a tile before the next; orthogonal: rows
    computed together; 0: all"""
    threads: int = Field(default=1, ge=1, le=4096)
    """threads of one rank, which share the tiles of a wavefront"""

    @property
    def dimensions(self) -> int:
        """The number of space axes."""
        return axes_of(self.stencil)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The points of each axis of the stencil."""
        return tuple(getattr(self, name) for name in AXES[: self.dimensions])

    @model_validator(mode="after")
    def _can_be_run(self) -> StencilParams:
        check_axes(self, self.stencil)
        tiled = self.tiling != "untiled"
        fitting = TILINGS.get(self.stencil, ("untiled", "hexagonal"))
        if self.tiling not in fitting:
            raise ParameterError(
                "tiling",
                f"found {self.tiling!r}, which stencil {self.stencil} does not have",
                f"use {' or '.join(fitting)}",
            )
        if self.stencil == SMITH_WATERMAN and self.precision != "single":
            raise ParameterError(
                "precision",
                f"found {self.precision!r}, and stencil sw has 32-bit integers",
                "leave it out",
            )
        for name in ("tile_t", "tile_1"):
            if tiled and not getattr(self, name):
                raise ParameterError(
                    name, f"0 or missing, and tiling {self.tiling!r} needs it", "give 1 or more"
                )
        if not tiled and (given := [name for name in OF_TILES if getattr(self, name)]):
            raise ParameterError(
                given[0],
                f"found {getattr(self, given[0])}, and tiling is 'untiled'",
                f"leave it out, or set tiling to {' or '.join(fitting[1:])}",
            )
        if self.tiling == "hexagonal":
            check_hexagon(self.tile_t)
            if self.subtile:
                raise ParameterError(
                    "subtile", f"found {self.subtile}, and hexagons have none", "leave it out"
                )
        return self
