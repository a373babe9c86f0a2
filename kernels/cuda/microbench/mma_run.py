"""``gpu_mma`` on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.cuda.microbench.chunks import Work
from kernels.cuda.microbench.mma import (
    FUNCTION,
    GpuMmaParams,
    block_shape,
    cancelling,
    count_products,
    drawn,
    expected,
    iteration_work,
    mma_source,
)
from kernels.cuda.microbench.run import CHECKED_BLOCKS, CHECKED_CHUNKS, ChunkRun, compare
from kernels.cuda.microbench.tensor_numbers import TENSOR_NUMBERS
from kernels.cuda.program import Source
from kernels.host.ranks import Team

CHECKED_TRIPS = 3


class MmaRun(ChunkRun):
    """The kernel with its operands on the GPU."""

    function = FUNCTION

    def __init__(self, params: GpuMmaParams, team: Team) -> None:
        self._params, self._number = params, TENSOR_NUMBERS[params.number]
        super().__init__(team, count_products(params), iteration_work(params))

    def source(self, architecture: str) -> Source:
        """See :class:`ChunkRun`."""
        return mma_source(self._params, architecture)

    def arguments(self, seed: int) -> tuple[Any, ...]:
        """See :class:`ChunkRun`."""
        shape, operands = block_shape(self._params), cancelling(self._params, seed)
        sums = np.zeros((self.blocks, shape.m, shape.n), self._number.sums)
        self._checked = drawn(self._params, "random", seed)
        self._checked_on_gpu = (
            self.gpu.array(self._checked.a),
            self.gpu.array(self._checked.b),
        )
        return (self.gpu.array(sums), self.gpu.array(operands.a), self.gpu.array(operands.b))

    def check(self) -> None:
        """Compare a few products of operands that do not cancel with NumPy."""
        work = Work(CHECKED_CHUNKS, CHECKED_TRIPS)
        self.launch(CHECKED_BLOCKS, work, (self.on_gpu[0], *self._checked_on_gpu))
        right = expected(self._params, self._checked, CHECKED_BLOCKS, work)
        computed = self.gpu.copied(self.on_gpu[0], right.astype(self._number.sums))
        what = f"products of {self._params.number} by {self._params.instruction}"
        compare(what, computed, right, self._number.tolerance)
