"""``gpu_fma`` on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.cuda.microbench.chains import (
    FUNCTION,
    NUMBERS,
    VECTORS,
    GpuFmaParams,
    chains,
    count_multiply_adds,
    expected,
    fma_source,
    iteration_work,
)
from kernels.cuda.microbench.chunks import (
    THREADS,
    VECTOR_BYTES,
    Work,
    array_vectors,
    region_trips,
)
from kernels.cuda.microbench.data import filled
from kernels.cuda.microbench.run import (
    CHECKED_BLOCKS,
    CHECKED_CHUNKS,
    FILLED_BYTES,
    ChunkRun,
    compare,
)
from kernels.cuda.program import Source
from kernels.host.ranks import Team


class FmaRun(ChunkRun):
    """The kernel with its arrays on the GPU."""

    function = FUNCTION

    def __init__(self, params: GpuFmaParams, team: Team) -> None:
        self._params, self._number = params, NUMBERS[params.number]
        super().__init__(team, count_multiply_adds(params), iteration_work(params))

    def source(self, architecture: str) -> Source:
        """See :class:`ChunkRun`."""
        return fma_source(self._params)

    def arguments(self, seed: int) -> tuple[Any, ...]:
        """See :class:`ChunkRun`."""
        number, level = self._number, self._params.level
        of_level = (level, VECTORS, self.blocks, self.gpu.l2_bytes)
        self._region = 1 if level == "register" else region_trips(*of_level)
        size_bytes = array_vectors(*of_level) * VECTOR_BYTES
        drawn = min(size_bytes, FILLED_BYTES) // VECTOR_BYTES * number.width
        self._words = filled((drawn, number.lanes), number.dtype, self._params.data, seed)
        n_chains = self.blocks * THREADS * chains(self._params)
        self._start = filled((n_chains, number.lanes), number.dtype, "random", seed + 1)
        return (
            self.gpu.array(self._start),
            self.gpu.array(self._start),
            self.gpu.array(self._words, size_bytes),
            np.int32(self._region),
            *(self._argument(value) for value in number.constants),
        )

    def _argument(self, value: Any) -> Any:
        """A constant as the kernel takes it: both lanes of two halves are one word."""
        if self._number.lanes == 1:
            return value
        return np.array([value] * self._number.lanes, self._number.dtype).view(np.uint32)[0]

    def check(self) -> None:
        """Compare a few chunks with NumPy, of the first words of the array."""
        work = Work(CHECKED_CHUNKS, self._work.trips)
        self.launch(CHECKED_BLOCKS, work, self.on_gpu)
        rows = CHECKED_BLOCKS * THREADS
        shape = (rows, chains(self._params), self._number.lanes)
        start = self._start[: rows * chains(self._params)].reshape(shape)
        computed = self.gpu.copied(self.on_gpu[0], start)
        right = expected(self._params, start, self._words, self._region, CHECKED_BLOCKS, work)
        compare(f"chains of {self._params.number}", computed, right, self._number.tolerance)
