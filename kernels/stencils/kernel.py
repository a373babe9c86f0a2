"""The kernel ``stencil``: a stencil over time on the host, in tiles of space and time.

All variants of a problem compute the same bits. See :mod:`kernels.stencils.shapes` for the tiles,
:mod:`kernels.stencils.counts` for the operation counts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.host.memory import paged_array
from kernels.host.ranks import Team
from kernels.host.worker_threads import WorkerThreads
from kernels.kernel import Counts, Kernel, Prepared, ResultError, not_compiled
from kernels.stencils.counts import count_stencil, inner_pieces, stencil_metrics, wavefronts
from kernels.stencils.params import StencilParams
from kernels.stencils.shapes import Wavefront, subdivided, untiled
from kernels.stencils.stencils import SMITH_WATERMAN, STENCILS, next_step

CACHE_LINE_BYTES = 64
PROBE = 4
"""The size of the checked region along each axis, in points."""
LETTERS = 4
APART = 32
"""Padding, in numbers, between the values that two threads write, to avoid shared cache lines."""


class PreparedStencil:
    """Two grids and the tiles. An iteration continues the previous one."""

    def __init__(self, params: StencilParams, seed: int = 0) -> None:
        """Fill the grids with values in [0, 1), the same for the same arguments. Run one iteration,
        so that nothing is compiled while the kernel is measured.

        Raises:
            kernels.kernel.KernelError: there is too little memory.
        """
        self._params, self._stencil = params, STENCILS[params.stencil]
        self._wavefronts = [
            subdivided(own, params.subtile) if params.subtile else own for own in wavefronts(params)
        ]
        if params.tiling == "untiled" and params.threads > 1:
            self._wavefronts = [_shared_out(own, params.threads) for own in self._wavefronts]
        rows = self._wavefronts[0].steps.shape[1]
        self._inner = [side for pair in inner_pieces(params, rows) for side in pair]
        dtype: Any = np.dtype(np.float32 if params.precision == "single" else np.float64)
        *across, along = (size + 2 for size in params.sizes)
        self._shape = (*across, padded(along, dtype.itemsize))
        one = int(np.prod(self._shape))
        self._flat = paged_array(2 * one, dtype)
        np.random.default_rng(seed).random(out=self._flat[:one], dtype=dtype)
        self._flat[one:] = self._flat[:one]
        self._parity = 0
        self._threads = WorkerThreads(params.threads)
        self._probes = np.random.default_rng(seed + 1)
        self.run(1)

    @property
    def grid(self) -> np.ndarray:
        """The current values, with their fixed border: a view of shape (size + 2 for each axis)."""
        return np.asarray(self._grids()[self._parity])

    def _grids(self) -> np.ndarray:
        """Both grids, with the last step and the step before it, without padding."""
        return self._flat.reshape(2, *self._shape)[..., : self._params.sizes[-1] + 2]

    def run(self, iterations: int) -> None:
        """Run all steps, ``iterations`` times."""
        with self._threads.awake():
            for _ in range(iterations):
                for wavefront in self._wavefronts:
                    self._run_wavefront(wavefront)
                self._parity = (self._parity + self._params.steps) % 2

    def _run_wavefront(self, wavefront: Wavefront) -> None:
        from kernels.stencils.loops import RUN_TILES  # noqa: PLC0415  (a plan must not import it)

        loop = RUN_TILES[self._params.dimensions]
        columns = (wavefront.steps, wavefront.lows, wavefront.highs)

        def work(first: int, last: int) -> None:
            own = (column[first:last] for column in columns)
            loop(self._stencil, self._flat, self._shape, self._parity, *own, *self._inner)

        self._threads.share(len(wavefront.steps), work)

    def counts(self) -> Counts:
        """Operations of one iteration."""
        return count_stencil(self._params)

    def check(self) -> None:
        """Run once more, and compare a region with the plain loop over the values that it depends
        on, and its last step with NumPy."""
        params = self._params
        box = [probed(size, self._probes) for size in params.sizes]
        wide = [
            slice(max(low - params.steps, 0), min(high + params.steps, size) + 2)
            for (low, high), size in zip(box, params.sizes, strict=True)
        ]
        plain = np.stack([self.grid[tuple(wide)]] * 2)
        self.run(1)
        right = plain_steps(params.stencil, plain, params.steps)
        inside = [
            slice(low + 1 - wider.start, high + 1 - wider.start)
            for (low, high), wider in zip(box, wide, strict=True)
        ]
        now = self.grid[tuple(slice(low + 1, high + 1) for low, high in box)]
        if not np.array_equal(right[tuple(inside)], now, equal_nan=True):
            raise ResultError(f"{params.stencil}: another result than untiled, near {box}")
        before = self._grids()[1 - self._parity]
        around = before[tuple(slice(low, high + 2) for low, high in box)]
        if not np.array_equal(next_step(params.stencil, around), now, equal_nan=True):
            raise ResultError(f"{params.stencil}: another last step than by NumPy, near {box}")

    def close(self) -> None:
        """Release the grids."""
        self._flat = np.zeros(0, self._flat.dtype)


def probed(size: int, random: np.random.Generator) -> tuple[int, int]:
    """The first point of a random checked region along an axis, and the point after its last."""
    low = int(random.integers(max(size - PROBE, 0) + 1))
    return low, min(low + PROBE, size)


def padded(numbers: int, item_bytes: int) -> int:
    """The length in memory of a row of ``numbers``: whole cache lines, so that all rows have the
    same alignment; an odd number of lines, so that neighbouring rows use different cache sets."""
    lines = -(-numbers * item_bytes // CACHE_LINE_BYTES) | 1
    return lines * CACHE_LINE_BYTES // item_bytes


def plain_steps(stencil: str, grids: np.ndarray, steps: int) -> np.ndarray:
    """Run steps without tiles from two equal ``grids``, (2, ...), and return the grid of the last
    step, with its border."""
    from kernels.stencils.loops import RUN_TILES  # noqa: PLC0415  (a plan must not import it)

    flat, shape = grids.reshape(-1), grids.shape[1:]
    inner = [
        side
        for size in shape[1:]
        for side in (np.zeros((1, 1), np.int64), np.full((1, 1), size - 2))
    ]
    loop = RUN_TILES[len(shape)]
    for wavefront in untiled(shape[0] - 2, steps):
        columns = (wavefront.steps, wavefront.lows, wavefront.highs)
        loop(STENCILS[stencil], flat, shape, 0, *columns, *inner)
    return np.asarray(flat.reshape(grids.shape)[steps % 2])


def _shared_out(wavefront: Wavefront, threads: int) -> Wavefront:
    """A step of the whole grid, divided into a tile for each thread."""
    size = int(wavefront.highs[0, 0])
    cuts = np.linspace(0, size, min(threads, size) + 1).astype(np.int64)[:, None]
    steps = np.repeat(wavefront.steps, len(cuts) - 1, axis=0)
    return Wavefront(steps, cuts[:-1], cuts[1:])


class PreparedTable:
    """Two sequences of letters, and the borders of the tiles of the table."""

    def __init__(self, params: StencilParams, seed: int = 0) -> None:
        """Draw random letters, the same for the same arguments, and run one iteration."""
        rng = np.random.default_rng(seed)
        sequences = (rng.integers(0, LETTERS, n, np.int32) for n in (params.size_1, params.steps))
        self._params = params
        self._first, self._second = sequences
        self._threads = WorkerThreads(params.threads)
        self.run(1)

    def run(self, iterations: int) -> None:
        """Compute the whole table, ``iterations`` times."""
        with self._threads.awake():
            for _ in range(iterations):
                self.result = align(self._first, self._second, self._params, self._threads)

    def counts(self) -> Counts:
        """Operations of one table."""
        return count_stencil(self._params)

    def check(self) -> None:
        """Compare the table with the plain loop by rows."""
        from kernels.stencils.smith_waterman import run_rows  # noqa: PLC0415

        row = np.zeros(len(self._first), np.int32)
        column = np.zeros(len(self._second), np.int32)
        best = run_rows(self._first, self._second, row, column)
        own_row, own_column, own_best = self.result
        if not (
            np.array_equal(row, own_row) and np.array_equal(column, own_column) and best == own_best
        ):
            raise ResultError("sw: another result than row by row")

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def align(
    first: np.ndarray, second: np.ndarray, params: StencilParams, threads: WorkerThreads
) -> tuple[np.ndarray, np.ndarray, int]:
    """The last row of the table (len(first),), its last column (len(second),), both int32, and its
    greatest value. ``first``, ``second``: int32, of any length; ``params`` only sets the tiling."""
    from kernels.stencils.smith_waterman import run_rows, run_tiles  # noqa: PLC0415

    size, steps = len(first), len(second)
    row, column = np.zeros(size, np.int32), np.zeros(steps, np.int32)
    if params.tiling == "untiled":
        return row, column, int(run_rows(first, second, row, column))
    wide, high = params.tile_1, params.tile_t
    subtile = min(params.subtile or high, high)
    backwards = first[::-1].copy()
    across, up = -(-size // wide), -(-steps // high)
    corners = np.zeros(up, np.int32)
    best = np.zeros((up, subtile + APART), np.int32)
    work = np.zeros((up, 3 * (subtile + 1 + APART)), np.int32)

    for wavefront in range(across + up - 1 if size and steps else 0):
        lowest = max(0, wavefront - across + 1)

        def work_on(begin: int, end: int, wavefront: int = wavefront, low: int = lowest) -> None:
            tiles, part = (wide, high, subtile), (wavefront, low + begin, low + end)
            run_tiles(backwards, second, row, column, corners, tiles, part, work, best)

        threads.share(min(up, wavefront + 1) - lowest, work_on)
    return row, column, int(best.max(initial=0))


def _prepare(params: StencilParams, team: Team) -> Prepared:
    """Raises :class:`kernels.kernel.KernelError` if compilation fails, or memory is too small."""
    try:
        import kernels.stencils.loops  # noqa: F401, PLC0415  (a plan must not import Numba)
    except (ImportError, RuntimeError) as error:
        raise not_compiled(error) from error
    if params.stencil == SMITH_WATERMAN:
        return PreparedTable(params, team.rank)
    return PreparedStencil(params, team.rank)


stencil = Kernel(
    name="stencil",
    imports=("kernels.stencils.loops", "kernels.stencils.smith_waterman"),
    summary="a stencil over time (one to three dimensions) or sequence alignment (sw), in tiles",
    counted="additions, multiplications, maxima; bytes to and from a tile's store; barriers, "
    "launches; exact",
    classes=(
        *("sp_add", "sp_mul", "dp_add", "dp_mul", "int_add", "int_max"),
        *("l1", "dram", "barrier", "launch"),
    ),
    params=StencilParams,
    counts=count_stencil,
    metrics=stencil_metrics,
    timed=("tiles", "loops"),
    prepare=_prepare,
)
