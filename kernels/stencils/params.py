"""The parameters of the kernel ``stencil``: what is computed, and the variant."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from kernels.kernel import Params
from kernels.stencils.stencils import SMITH_WATERMAN, STENCILS

AXES = ("size_1", "size_2", "size_3")
MOST_POINTS = 1 << 36
TILINGS = {
    "j1d": ("untiled", "hexagonal", "skewed"),
    SMITH_WATERMAN: ("untiled", "orthogonal"),
}
"""The tilings of a stencil; any other has the first two."""
OF_TILES = ("tile_t", "tile_1", "tile_2", "tile_3", "subtile")


class StencilParams(Params):
    """A stencil over time, and how it is tiled."""

    stencil: Literal["j1d", "j2d", "h2d", "l2d", "g2d", "j3d", "h3d", "l3d", "sw"]
    """the stencil, or sw: Smith-Waterman's recurrence, in 32-bit integers"""
    size_1: int = Field(ge=1, le=1 << 30)
    """points of the first axis, which hexagons divide; of sw: letters of the first sequence"""
    size_2: int = Field(default=0, ge=0, le=1 << 30)
    """points of the second axis, where there is one"""
    size_3: int = Field(default=0, ge=0, le=1 << 30)
    """points of the third axis, where there is one"""
    steps: int = Field(ge=1, le=1 << 30)
    """steps of time; of sw: letters of the second sequence"""
    precision: Literal["single", "double"] = "single"
    """floating-point numbers of 32 or of 64 bits"""
    tiling: Literal["untiled", "hexagonal", "skewed", "orthogonal"] = "untiled"
    """hexagonal: hexagons of time and first axis; skewed: parallelograms of these, of j1d;
    orthogonal: rectangles, of sw"""
    tile_t: int = Field(default=0, ge=0, le=1 << 20)
    """steps of a tile; even in hexagons"""
    tile_1: int = Field(default=0, ge=0, le=1 << 30)
    """points of a tile's first row along the first axis"""
    tile_2: int = Field(default=0, ge=0, le=1 << 30)
    """points of a tile along the second axis; 0: all"""
    tile_3: int = Field(default=0, ge=0, le=1 << 30)
    """points of a tile along the third axis; 0: all"""
    subtile: int = Field(default=0, ge=0, le=1 << 20)
    """skewed: points of a tile that run through all its steps before the next ones; orthogonal:
    rows that are computed together; 0: all"""
    threads: int = Field(default=1, ge=1, le=4096)
    """threads of one rank, which share the tiles of a wavefront"""

    @property
    def dimensions(self) -> int:
        """Axes of space."""
        return 1 if self.stencil == SMITH_WATERMAN else STENCILS[self.stencil].dimensions

    @property
    def sizes(self) -> tuple[int, ...]:
        """Points of each axis that there is."""
        return tuple(getattr(self, name) for name in AXES[: self.dimensions])

    @model_validator(mode="after")
    def _can_be_run(self) -> StencilParams:
        self._check_axes()
        tiled = self.tiling != "untiled"
        fitting = TILINGS.get(self.stencil, ("untiled", "hexagonal"))
        if self.tiling not in fitting:
            raise ValueError(
                f"tiling {self.tiling!r} is not for stencil {self.stencil}: use "
                f"{' or '.join(fitting)}"
            )
        if self.stencil == SMITH_WATERMAN and self.precision != "single":
            raise ValueError("sw has 32-bit integers: leave out precision")
        for name in ("tile_t", "tile_1"):
            if tiled and not getattr(self, name):
                raise ValueError(f"tiling {self.tiling!r} needs {name}: give it, 1 or more")
        if not tiled and (given := [name for name in OF_TILES if getattr(self, name)]):
            raise ValueError(f"{given[0]} is of a tile: leave it out, or choose another tiling")
        if self.tiling == "hexagonal":
            if self.tile_t % 2:
                raise ValueError(
                    f"tile_t must be even in hexagons: {self.tile_t - 1 or 2} or {self.tile_t + 1}"
                )
            if self.subtile:
                raise ValueError("hexagons have no subtile: leave it out")
        return self

    def _check_axes(self) -> None:
        there = self.dimensions
        for number, name in enumerate(AXES):
            if number < there and not getattr(self, name):
                raise ValueError(f"{self.stencil} needs {name}: give it, 1 or more")
            if number >= there and (getattr(self, name) or getattr(self, f"tile_{number + 1}")):
                raise ValueError(
                    f"{self.stencil} has no axis {number + 1}: leave out {name} and "
                    f"tile_{number + 1}"
                )
        points = 1
        for size in self.sizes:
            points *= size
        if points > MOST_POINTS:
            raise ValueError(f"{points} points; at most 2^36: make a size smaller")
