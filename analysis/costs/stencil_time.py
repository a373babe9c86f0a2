"""The time of a stencil in hexagonal tiles (Prajapati 2019, appendix A: equations A.2 to A.32).

There are two forms. ``printed`` is that of the thesis. ``corrected`` differs in two places:

- the distance of tiles in a wavefront is 2 tS1 + tT - 2, as in appendix B. A.5 adds 2, which omits
  a share of 2 / (2 tS1 + tT) of all work, and A.23, in three dimensions, has tS1 once;
- ``seconds_per_word`` is that of the whole device, but A.9 grants it to each processor: a wavefront
  takes at least the time to move all of its words.

Both forms keep the following as printed: the words that leave a tile, tS1 + 2 tT in A.8, are 2 more
than those of a hexagon; the last of k tiles counts once in one dimension (A.13) and not separately
in two and three (A.17, A.30). Registers, which A.12 names and does not model, do not limit k.

Lengths are in points, times in seconds, words in numbers of 4 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

WORD_BYTES = 4
Form = Literal["corrected", "printed"]
NEAR = 0.10
"""The fraction above the least cost within which a variant counts as near it."""


class PredictionError(ValueError):
    """The equations cannot be applied; the message has the reason and the remedy."""


@dataclass(frozen=True, kw_only=True)
class Constants:
    """The constants of devices of every size: the seconds of a word to or from memory, of a barrier
    in a block, and of a wavefront's launch (L, tau_sync and T_sync of Table A.1); the most bytes of
    a block of threads, and the most blocks on a processor at a time."""

    seconds_per_word: float
    barrier_s: float
    launch_s: float
    block_bytes: float
    blocks: int


@dataclass(frozen=True, kw_only=True)
class Machine(Constants):
    """A device: ``processors`` with ``lanes`` vector units and ``on_chip_bytes`` of memory each."""

    processors: int
    lanes: int
    on_chip_bytes: float


@dataclass(frozen=True, kw_only=True)
class StencilTime:
    """The parts of the predicted time, float64 arrays of one shape: the numbers of ``wavefronts``
    (A.3), ``tiles`` in each (A.6) and ``subtiles`` of each tile (A.17, A.24); the seconds of a
    subtile's transfers (m', A.9) and computation (c, A.10), and its ``words`` in and out (m_io);
    and the total ``time_s``."""

    wavefronts: np.ndarray
    tiles: np.ndarray
    subtiles: np.ndarray
    words: np.ndarray
    transfer_s: np.ndarray
    compute_s: np.ndarray
    time_s: np.ndarray


def stencil_time(
    machine: Machine,
    iteration_s: ArrayLike,
    sizes: ArrayLike,
    steps: ArrayLike,
    tiles: ArrayLike,
    tile_t: ArrayLike,
    k: ArrayLike = 1,
    form: Form = "corrected",
) -> StencilTime:
    """The predicted time and its parts.

    Args:
        machine: the device.
        iteration_s: seconds of one point on one vector unit (C_iter).
        sizes: points of each axis, the axes (one to three) last: (..., axes).
        steps: steps of time (T).
        tiles: points of a tile along each axis: (..., axes).
        tile_t: steps of a tile, even.
        k: tiles on a processor at a time (hyperthreading).
        form: that of the equations.

    All arguments but ``machine`` and ``form`` are broadcast together, without the axes.

    Raises:
        PredictionError: a length below 1, or an odd ``tile_t``.
    """
    size, tile = np.asarray(sizes, float), np.asarray(tiles, float)
    axes = size.shape[-1]
    step, high, threads = (np.asarray(values, float) for values in (steps, tile_t, k))
    for name, values in (("sizes", size), ("steps", step), ("tiles", tile), ("tile_t", high)):
        if not (values >= 1).all():
            raise PredictionError(f"{name}: found {values.min():g}, and each must be at least 1")
    if (high % 2 != 0).any():
        raise PredictionError(
            f"tile_t: found {high[high % 2 != 0][0]:g}, and hexagons need an even one"
        )
    wide = tile[..., 0]
    inner = np.prod(tile[..., 1:], axis=-1)
    pitch = 2 * wide + high - 2
    if form == "printed":
        pitch = wide + high if axes == 3 else 2 * wide + high
    across = np.ceil(size[..., 0] / pitch)
    wavefronts = 2 * np.ceil(step / high)
    subtiles = np.ceil(np.prod((size[..., 1:] + high[..., None]) / tile[..., 1:], axis=-1))
    words = 2 * inner * (wide + 2 * high)
    transfer_s = words * machine.seconds_per_word + 2 * machine.barrier_s
    iterations = _rows(wide, inner, high, machine.lanes)
    compute_s = 2 * np.asarray(iteration_s, float) * iterations + high * machine.barrier_s
    longer_s = np.maximum(transfer_s, compute_s)
    alone_s = transfer_s + compute_s
    if axes == 1:
        prism_s = alone_s + (threads - 1) * longer_s
    else:
        prism_s = np.where(
            threads == 1, alone_s * subtiles, transfer_s + threads * longer_s * subtiles
        )
    wavefront_s = np.ceil(np.ceil(across / threads) / machine.processors) * prism_s
    if form == "corrected":
        wavefront_s = np.maximum(wavefront_s, across * subtiles * words * machine.seconds_per_word)
    time_s = wavefronts * (wavefront_s + machine.launch_s)
    parts = np.broadcast_arrays(wavefronts, across, subtiles, words, transfer_s, compute_s, time_s)
    names = ("wavefronts", "tiles", "subtiles", "words", "transfer_s", "compute_s", "time_s")
    return StencilTime(**dict(zip(names, parts, strict=True)))


def _rows(wide: np.ndarray, inner: np.ndarray, high: np.ndarray, lanes: int) -> np.ndarray:
    """The sum of ceil(points of a row / lanes) over half a tile's rows (A.10, A.16, A.28)."""
    wide, inner, high = np.broadcast_arrays(wide, inner, high)
    total = np.zeros(wide.shape)
    for row in range(int(high.max(initial=0)) // 2):
        total += np.where(2 * row < high, np.ceil((wide + 2 * row) * inner / lanes), 0.0)
    return total


def tile_bytes(tiles: ArrayLike, tile_t: ArrayLike) -> np.ndarray:
    """The bytes of a tile's store: 2 (tS + tT) words in one dimension, A.20 in two, and its
    extension to three, which the thesis does not print. ``tiles``: (..., axes)."""
    tile, high = np.asarray(tiles, float), np.asarray(tile_t, float)
    if tile.shape[-1] == 1:
        size: np.ndarray = 2.0 * WORD_BYTES * (tile[..., 0] + high)
    else:
        size = 2.0 * WORD_BYTES * np.prod(tile + high[..., None] + 1, axis=-1)
    return size


def fits(machine: Machine, tiles: ArrayLike, tile_t: ArrayLike, k: ArrayLike = 1) -> np.ndarray:
    """bool: whether ``k`` tiles fit on a processor (the conditions of A.32)."""
    needed, threads = tile_bytes(tiles, tile_t), np.asarray(k, float)
    return np.asarray(
        (needed <= machine.block_bytes)
        & (threads <= machine.blocks)
        & (threads * needed <= machine.on_chip_bytes)
    )


def overhead_s(
    machine: Machine,
    iteration_s: ArrayLike,
    sizes: ArrayLike,
    steps: ArrayLike,
    tiles: ArrayLike,
    tile_t: ArrayLike,
    form: Form = "corrected",
) -> np.ndarray:
    """The time that rounding up to whole vectors adds, in two dimensions (8.5), s. ``printed``
    lacks the factor S2 / (tS2 processors), which follows from the equations behind 8.5."""
    size, tile = np.asarray(sizes, float), np.asarray(tiles, float)
    printed = np.asarray(iteration_s, float) * size[..., 0] * np.asarray(steps, float)
    printed = printed / (tile[..., 0] + np.asarray(tile_t, float) / 2)
    if form == "printed":
        return np.asarray(printed)
    return np.asarray(printed * size[..., 1] / (tile[..., 1] * machine.processors))


def near_least(predicted: ArrayLike) -> np.ndarray:
    """The indices of finite values of ``predicted`` (n,) at most a fraction :data:`NEAR` above the
    least, the least first: the variants that section A.5 measures."""
    costs = np.asarray(predicted, float)
    if not np.isfinite(costs).any():
        return np.empty(0, np.int64)
    rows = np.flatnonzero(costs <= np.nanmin(costs) * (1 + NEAR))
    return rows[np.argsort(costs[rows], kind="stable")]
