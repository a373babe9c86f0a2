"""``gpu_stencil`` on a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kernels.cuda.device import Gpu, Launch
from kernels.cuda.program import compile_program
from kernels.cuda.stencils.prisms import (
    FUNCTION,
    GpuStencilParams,
    count_prisms,
    launches,
    line_numbers,
    prism_source,
    refusal,
    shared_bytes,
)
from kernels.host.ranks import Team
from kernels.kernel import Counts, KernelError, ResultError
from kernels.stencils.kernel import plain_steps, probed
from kernels.stencils.stencils import next_step

FILLED_BYTES = 1 << 26
"""So many bytes of values are drawn, and repeated in a larger grid."""


def iteration(params: GpuStencilParams, function: Any, grids: Sequence[Any]) -> list[Launch]:
    """All wavefronts of an iteration that begins with the first of the two ``grids``."""
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
    """The kernel with its two grids on the GPU. An iteration goes on from where the last ended."""

    def __init__(self, params: GpuStencilParams, team: Team) -> None:
        """Values in [0, 1), the same for the same arguments. Runs one iteration, so that nothing is
        loaded while the kernel is measured."""
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
            # An odd number of steps ends in the other grid, where the next iteration begins.
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
        """All steps, ``iterations`` times: graphs of two iterations, and of one before and after
        them where these are needed."""
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
        """Registers of a thread, and how many blocks each processor runs at a time."""
        return {"registers": self._registers, "resident_blocks": self._resident_blocks}

    def check(self) -> None:
        """Run once more, and compare a region bit for bit with the plain loop on what it depends
        on, whose last step is by NumPy."""
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
