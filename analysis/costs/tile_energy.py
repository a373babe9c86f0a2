"""The energy of a tile of a stencil on a GPU (Prajapati 2019, appendix B: sections B.6.1 to B.6.3).

A tile's energy is that of its words between memory and the processor's store, of its words between
that store and registers, and of its operations. A tile of ``sw`` has tS by tT cells with five
additions and maxima each (the thesis's count; the kernel ``stencil`` counts its loops), a tile of
``j1d`` is a parallelogram, and one of ``j2d`` is a hexagon along a range of the second axis.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from analysis.costs.stencil_time import PredictionError

NEEDED = {
    "sw": ("dram", "shared", "int_add", "int_max"),
    "j1d": ("dram", "shared", "sp_add", "sp_mul"),
    "j2d": ("dram", "shared", "sp_add", "sp_mul"),
}
"""Stencil -> the classes whose energies its model needs, J a word (of 4 bytes) or an operation."""
J2D_WORDS = 6
"""The words of a point between store and registers (mu_sr of B.6)."""


def tile_energy_j(
    stencil: str,
    energies: Mapping[str, float],
    tiles: ArrayLike,
    tile_t: ArrayLike,
    subtile: ArrayLike = 1,
) -> np.ndarray:
    """The dynamic energy of one tile in joules (B.2, B.6, and those of section B.6.2).

    Args:
        stencil: one of :data:`NEEDED`.
        energies: joules of a word or an operation, by class, as :data:`NEEDED` names them.
        tiles: points of a tile along each axis, the axes last: (..., 1), of ``j2d`` (..., 2).
        tile_t: steps of a tile.
        subtile: points of a subtile along the first axis (sS); not used by ``j2d``.

    Raises:
        PredictionError: an unknown stencil, or an energy is missing.
    """
    if stencil not in NEEDED:
        raise PredictionError(
            f"no energy model for stencil {stencil!r}: there is one for {', '.join(NEEDED)}"
        )
    if missing := [name for name in NEEDED[stencil] if name not in energies]:
        raise PredictionError(f"energies: {missing[0]} is missing; {stencil} needs it")
    tile, high = np.asarray(tiles, float), np.asarray(tile_t, float)
    wide, part = tile[..., 0], np.asarray(subtile, float)
    memory_j, store_j = energies["dram"], energies["shared"]
    volume = tile_points(stencil, tiles, tile_t)
    if stencil == "sw":
        operation_j = 5 * (energies["int_add"] + energies["int_max"])
        words, registers = 4.25 * (wide + high), volume + 5 * high * wide / part
    elif stencil == "j1d":
        operation_j = 2 * energies["sp_add"] + energies["sp_mul"]
        words, registers = 2 * (2 * high + wide), 4 * (2 * wide + 4 * high * wide / part)
    else:
        operation_j = 4 * energies["sp_add"] + energies["sp_mul"]
        words, registers = 2 * tile[..., 1] * (wide + 2 * high), J2D_WORDS * volume
    return np.asarray(words * memory_j + registers * store_j + volume * operation_j)


def tile_points(stencil: str, tiles: ArrayLike, tile_t: ArrayLike) -> np.ndarray:
    """V_tile, the points of a tile; for ``j2d`` B.4."""
    tile, high = np.asarray(tiles, float), np.asarray(tile_t, float)
    if stencil == "j2d":
        return np.asarray(tile[..., 1] * high * (2 * tile[..., 0] + high - 2) / 2)
    return np.asarray(tile[..., 0] * high)


def tile_count(
    stencil: str, sizes: ArrayLike, steps: ArrayLike, tiles: ArrayLike, tile_t: ArrayLike
) -> np.ndarray:
    """N_tile, the number of tiles, with fractions; for ``j2d`` B.5, else points over V_tile."""
    size, tile = np.asarray(sizes, float), np.asarray(tiles, float)
    step, high = np.asarray(steps, float), np.asarray(tile_t, float)
    if stencil == "j2d":
        pitch = 2 * tile[..., 0] + high - 2
        return np.asarray(
            2 * step * size[..., 0] * (size[..., 1] + high) / (high * tile[..., 1] * pitch)
        )
    return np.asarray(size[..., 0] * step / tile_points(stencil, tiles, tile_t))


def stencil_energy_j(
    stencil: str,
    energies: Mapping[str, float],
    static_w: float,
    time_s: ArrayLike,
    sizes: ArrayLike,
    steps: ArrayLike,
    tiles: ArrayLike,
    tile_t: ArrayLike,
    subtile: ArrayLike = 1,
) -> np.ndarray:
    """E_alg = P_stat T_alg + N_tile E_tile (section B.6.1), in joules."""
    tile_j = tile_energy_j(stencil, energies, tiles, tile_t, subtile)
    count = tile_count(stencil, sizes, steps, tiles, tile_t)
    return np.asarray(static_w * np.asarray(time_s, float) + count * tile_j)
