"""A stencil over time on a GPU, in hexagonal tiles: parameters, counts and launches.

The tiles come from :mod:`kernels.stencils.shapes`: hexagons of time and the first axis, and
pieces of the second axis that are skewed against time (Grosser et al. 2014). A launch computes a
wavefront. A block of threads computes a prism: a hexagon along the whole second axis, whose pieces
run one after the other in shared memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator

from kernels.cuda.architectures import processor_of
from kernels.cuda.device import Gpu, Launch
from kernels.cuda.program import NEEDS, Source, compile_program
from kernels.host.ranks import Team
from kernels.kernel import (
    Counts,
    Kernel,
    KernelError,
    ParameterError,
    Params,
    ResultError,
    not_compiled,
)
from kernels.stencils.counts import (
    ITEM_BYTES,
    AlikeWavefronts,
    alike_wavefronts,
    count_stencil,
    inner_pieces,
    shared_points,
    stencil_metrics,
)
from kernels.stencils.params import StencilParams, axes_of, check_axes, check_hexagon
from kernels.stencils.shapes import HexagonRow, hexagon_rows
from kernels.stencils.stencils import next_step

SOURCE = Path(__file__).with_name("stencil.cu")
FUNCTION = "wavefront"
CODES = ("j1d", "j2d", "h2d", "l2d", "g2d")
"""The stencils in the order of the source's macro ``STENCIL``."""
MOST_THREADS = 1024
LINE_BYTES = 128
"""The lines of a grid begin at multiples of this address."""
FILLED_BYTES = 1 << 26
"""The number of bytes of random values; a larger grid repeats them."""


class GpuStencilParams(Params):
    """A stencil over time, its hexagonal tiles, and the threads that share a tile."""

    stencil: Literal["j1d", "j2d", "h2d", "l2d", "g2d"]
    """the stencil"""
    size_1: int = Field(ge=1, le=1 << 30)
    """points of the first axis, which hexagons divide"""
    size_2: int = Field(default=0, ge=0, le=1 << 30)
    """points of the second axis"""
    steps: int = Field(ge=1, le=1 << 16)
    """steps of time"""
    precision: Literal["single", "double"] = "single"
    """floating-point numbers of 32 or of 64 bits"""
    tile_t: int = Field(ge=2, le=1 << 15)
    """steps of a tile; even"""
    tile_1: int = Field(ge=1, le=1 << 15)
    """points of a tile's first row along the first axis"""
    tile_2: int = Field(default=0, ge=0, le=1 << 15)
    """points of a tile along the second axis; 0: all"""
    threads_1: int = Field(default=0, ge=0, le=MOST_THREADS)
    """threads of a block along the first axis; 0: 256, with two axes 8"""
    threads_2: int = Field(default=0, ge=0, le=MOST_THREADS)
    """threads of a block along the second axis; 0: 32"""

    @property
    def axes(self) -> int:
        """The number of axes of space."""
        return axes_of(self.stencil)

    @property
    def block(self) -> tuple[int, int]:
        """The number of threads of a block along the first and the second axis."""
        if self.axes == 1:
            return self.threads_1 or 256, 1
        return self.threads_1 or 8, self.threads_2 or 32

    def on_host(self) -> StencilParams:
        """The same problem and tiles as parameters of the kernel ``stencil``."""
        return StencilParams(
            tiling="hexagonal",
            **self.model_dump(exclude={"threads_1", "threads_2"}),
        )

    @model_validator(mode="after")
    def _can_be_run(self) -> GpuStencilParams:
        check_axes(self, self.stencil)
        check_hexagon(self.tile_t)
        if self.axes == 1 and self.threads_2:
            raise ParameterError(
                "threads_2",
                f"found {self.threads_2}, and stencil {self.stencil} has no second axis",
                "leave it out",
            )
        along_1, along_2 = self.block
        if along_1 * along_2 > MOST_THREADS:
            raise ParameterError(
                "threads_1",
                f"{along_1} x {along_2} threads, and a block has at most {MOST_THREADS}",
                "make threads_1 or threads_2 smaller",
            )
        return self


def columns_held(params: GpuStencilParams) -> int:
    """The number of columns that a block has in shared memory, fixed ones included: a piece's,
    and as many of the previous piece as its rows need; or all of the grid."""
    if params.axes == 1:
        return 1
    whole = params.size_2 + 2
    return min(params.tile_2 + params.tile_t + 1, whole) if params.tile_2 else whole


def shared_bytes(params: GpuStencilParams) -> int:
    """The bytes of shared memory of a block: two steps of a tile's widest row, with a neighbour at
    each side, times :func:`columns_held`. (Prajapati 2019, A.20, has one point more.)"""
    item_bytes = ITEM_BYTES[params.precision]
    return 2 * item_bytes * (params.tile_1 + params.tile_t) * columns_held(params)


def refusal(params: GpuStencilParams, block_shared_bytes: int) -> str:
    """Why a variant cannot run on a GPU whose blocks have at most ``block_shared_bytes``; empty if
    it can."""
    needed = shared_bytes(params)
    if needed <= block_shared_bytes:
        return ""
    tiles = "tile_t or tile_1" if params.axes == 1 else "tile_t, tile_1 or tile_2"
    whole = params.axes == 2 and not params.tile_2
    remedy = "set tile_2, which is 0 for whole lines" if whole else f"make {tiles} smaller"
    return (
        f"a block needs {needed:,} bytes of shared memory, and this GPU's have at most "
        f"{block_shared_bytes:,}; {remedy}"
    )


def count_prisms(params: GpuStencilParams) -> dict[str, float]:
    """Class -> operations of one iteration of one rank, which does not share its GPU.

    Operations, barriers of a block, and launches are counted by
    :func:`kernels.stencils.counts.count_stencil`. Two classes include more:

    - ``dram``, bytes of global memory, includes the fixed border values that a prism needs, once
      for each of the two steps that shared memory holds.
    - ``shared`` includes all transfers from global into shared memory, and back.
    """
    item_bytes = ITEM_BYTES[params.precision]
    counts = count_stencil(params.on_host())
    read, written, fixed, _ = _sums(params)
    shared = counts.pop("l1") + item_bytes * (read + fixed + written)
    return counts | {"shared": shared, "dram": counts["dram"] + item_bytes * fixed}


def prism_metrics(params: GpuStencilParams) -> dict[str, float]:
    """``tiles``; ``trips``: passes of a block's threads through the loop over the points of a row,
    added over all rows (Prajapati 2019, A.16); ``shared_bytes`` of a block."""
    *_, trips = _sums(params)
    return {
        "tiles": stencil_metrics(params.on_host())["tiles"],
        "trips": float(trips),
        "shared_bytes": float(shared_bytes(params)),
    }


@lru_cache(maxsize=1 << 14)  # a plan, a search and a prediction ask for the same variants
def _sums(params: GpuStencilParams) -> tuple[int, int, int, int]:
    """The numbers of grid points read, grid points written, fixed points read, and trips."""
    host = params.on_host()
    sums = np.zeros(4, np.int64)
    for alike in alike_wavefronts(host):
        sums += alike.number * _sums_of(params, host, alike)
    read, written, fixed, trips = sums.tolist()
    return read, written, fixed, trips


def _sums_of(params: GpuStencilParams, host: StencilParams, alike: AlikeWavefronts) -> np.ndarray:
    """As :func:`_sums`, for one wavefront: int64 (4,)."""
    wavefront, along = alike.wavefront, params.size_2 or 1
    lengths, rows = wavefront.lengths, wavefront.lengths.shape[1]
    full = lengths > 0
    at_borders = np.stack([full & (wavefront.lows == 0), full & (wavefront.highs == params.size_1)])
    fixed = along * int((at_borders & ~_two_rows_before(at_borders)).sum())
    across = np.ones((1, rows), np.int64)
    if params.axes == 2:
        older = (_two_rows_before(side) for side in (wavefront.lows, wavefront.highs))
        there = shared_points(wavefront.lows, wavefront.highs, *older)
        fixed += 2 * int((lengths - there).sum())
        ((lows, highs),) = inner_pieces(host, rows)
        across = highs - lows
    of_rows = [
        (-(-points // threads)).sum(axis=0)
        for points, threads in zip((lengths, across), params.block, strict=True)
    ]
    return np.array([alike.read * along, alike.written * along, fixed, of_rows[0] @ of_rows[1]])


def _two_rows_before(of_rows: np.ndarray) -> np.ndarray:
    """The values of each tile's rows (..., rows), moved two rows later; the first two are 0."""
    return np.concatenate([np.zeros_like(of_rows[..., :2]), of_rows[..., :-2]], axis=-1)


def line_numbers(params: GpuStencilParams) -> int:
    """The distance in memory, in numbers, between neighbouring points along the first axis."""
    if params.axes == 1:
        return 1
    item_bytes = ITEM_BYTES[params.precision]
    return -(-(params.size_2 + 2) * item_bytes // LINE_BYTES) * LINE_BYTES // item_bytes


def launches(params: GpuStencilParams) -> Iterator[HexagonRow]:
    """The wavefronts of one iteration, in order."""
    return hexagon_rows(params.size_1, params.steps, params.tile_1, params.tile_t)


def prism_source(params: GpuStencilParams) -> Source:
    """The source with the parameters' macros."""
    held, (threads_1, threads_2) = columns_held(params), params.block
    return Source(
        path=SOURCE,
        macros={
            "STENCIL": CODES.index(params.stencil),
            "DOUBLE": int(params.precision == "double"),
            "TILE_T": params.tile_t,
            "TILE_1": params.tile_1,
            "TILE_2": params.tile_2 or (params.size_2 or 1) + params.tile_t,
            "WIDTH": held,
            "WRAPS": int(params.axes == 2 and held < params.size_2 + 2),
            "THREADS_1": threads_1,
            "THREADS_2": threads_2,
        },
    )


def iteration(params: GpuStencilParams, function: Any, grids: Sequence[Any]) -> list[Launch]:
    """The launches of all wavefronts of an iteration that begins with the first of ``grids``."""
    threads_1, threads_2 = params.block
    return [
        Launch(
            function=function,
            blocks=row.tiles,
            threads=(threads_2, threads_1),
            arguments=(
                *grids,
                np.int32(params.size_1),
                np.int32(params.size_2 or 1),
                np.int64(line_numbers(params)),
                np.int32(params.steps),
                np.int32(row.first),
                np.int32(row.base),
            ),
            shared_bytes=shared_bytes(params),
        )
        for row in launches(params)
    ]


class StencilRun:
    """The kernel with its two grids on the GPU. An iteration continues the previous one."""

    def __init__(self, params: GpuStencilParams, team: Team) -> None:
        """Fill the grids with values in [0, 1), the same for the same arguments. Run one iteration,
        so that nothing is loaded while the kernel is measured."""
        try:
            import kernels.stencils.loops  # noqa: F401, PLC0415  (a plan must not import Numba)
        except (ImportError, RuntimeError) as error:
            raise not_compiled(error) from error
        self._params, self._gpu = params, Gpu(team)
        try:
            if why := refusal(params, self._gpu.block_shared_bytes):
                raise KernelError(f"this variant cannot run on {self._gpu.architecture}: {why}")
            program = compile_program(prism_source(params), self._gpu.architecture)
            function = self._gpu.function(program, FUNCTION, shared_bytes(params))
            self._registers = program.functions[FUNCTION].registers
            threads = params.block[0] * params.block[1]
            resident = self._gpu.resident_blocks(function, threads, shared_bytes(params))
            self._resident_blocks = resident // self._gpu.processors
            self._dtype: Any = np.dtype(np.float32 if params.precision == "single" else np.float64)
            size_bytes = (params.size_1 + 2) * line_numbers(params) * self._dtype.itemsize
            drawn = min(size_bytes, FILLED_BYTES) // self._dtype.itemsize
            values = np.random.default_rng(team.rank).random(drawn, self._dtype)
            self._grids = [self._gpu.array(values, size_bytes) for _ in range(2)]
            self._probes = np.random.default_rng(team.rank + 1)
            self._parity = 0
            # After an odd number of steps the next iteration begins in the other grid.
            odd = params.steps % 2
            from_each = [
                iteration(params, function, grids) for grids in (self._grids, self._grids[::-1])
            ]
            self._single = [self._gpu.recorded(own) for own in from_each[: 1 + odd]]
            self._pair = self._gpu.recorded(from_each[0] + from_each[odd])
            self.run(1)
        except BaseException:
            self._gpu.close()
            raise

    def run(self, iterations: int) -> None:
        """Run all steps, ``iterations`` times: by graphs of two iterations, with a graph of one
        before and after them if needed."""
        if self._parity and iterations:
            self._replay_one()
            iterations -= 1
        pairs, rest = divmod(iterations, 2)
        self._gpu.replay(self._pair, pairs)
        if rest:
            self._replay_one()

    def _replay_one(self) -> None:
        self._gpu.replay(self._single[self._parity], 1)
        self._parity = (self._parity + self._params.steps) % 2

    def counts(self) -> Counts:
        """Operations of one iteration."""
        return count_prisms(self._params)

    def metrics(self) -> Mapping[str, float]:
        """The registers of a thread, and the blocks that each processor runs concurrently."""
        return {"registers": self._registers, "resident_blocks": self._resident_blocks}

    def check(self) -> None:
        """Run once more, and compare a region bit for bit with the plain loop over the values that
        it depends on; NumPy computes the last step."""
        from kernels.stencils.kernel import plain_steps, probed  # noqa: PLC0415

        params, steps = self._params, self._params.steps
        sizes = (params.size_1, params.size_2)[: params.axes]
        box = [probed(size, self._probes) for size in sizes]
        wide = [
            slice(max(low - steps, 0), min(high + steps, size) + 2)
            for (low, high), size in zip(box, sizes, strict=True)
        ]
        begin = self._region(wide)
        self.run(1)
        now = self._region([slice(low + 1, high + 1) for low, high in box])
        before = plain_steps(params.stencil, np.stack([begin] * 2), steps - 1)
        around = tuple(
            slice(low - wider.start, high + 2 - wider.start)
            for (low, high), wider in zip(box, wide, strict=True)
        )
        if not np.array_equal(next_step(params.stencil, before[around]), now, equal_nan=True):
            raise ResultError(f"{params.stencil}: another result than untiled, near {box}")

    def _region(self, where: list[slice]) -> np.ndarray:
        """A part of the current grid, with its fixed border."""
        rows, *across = where
        line = line_numbers(self._params)
        like = np.empty((rows.stop - rows.start, line), self._dtype)
        begin_bytes = rows.start * line * self._dtype.itemsize
        lines = self._gpu.copied(self._grids[self._parity], like, begin_bytes)
        return lines[:, across[0]] if across else lines[:, 0]

    def close(self) -> None:
        """Release the GPU's memory."""
        self._gpu.close()


def _refused_on(params: GpuStencilParams, architecture: str) -> str:
    return refusal(params, processor_of(architecture).block_shared_bytes)


gpu_stencil = Kernel(
    name="gpu_stencil",
    imports=("kernels.stencils.loops",),
    summary="a stencil over time (one or two dimensions) on a GPU, in hexagonal tiles",
    counted="additions, multiplications; bytes of shared and global memory (dram); barriers, "
    "launches; exact",
    classes=("sp_add", "sp_mul", "dp_add", "dp_mul", "shared", "dram", "barrier", "launch"),
    params=GpuStencilParams,
    counts=count_prisms,
    metrics=prism_metrics,
    timed=("tiles", "trips"),
    prepare=StencilRun,
    needs=NEEDS,
    refused_on=_refused_on,
)
