"""``gpu_fma`` on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.cuda.device import Gpu
from kernels.cuda.microbench.chains import (
    FUNCTION,
    NUMBERS,
    THREADS,
    VECTOR_BYTES,
    GpuFmaParams,
    Work,
    array_vectors,
    chains,
    count_multiply_adds,
    expected,
    filled,
    fma_source,
    iteration_work,
)
from kernels.cuda.program import compile_program
from kernels.host.ranks import Team
from kernels.kernel import Counts, WrongResult

FILLED_BYTES = 1 << 26
"""So many bytes of words are drawn, and repeated in a larger array."""
CHECKED_BLOCKS, CHECKED_CHUNKS = 2, 3


class FmaRun:
    """The kernel with its arrays on the GPU."""

    def __init__(self, params: GpuFmaParams, team: Team) -> None:
        self._params, self._number = params, NUMBERS[params.number]
        self._work = iteration_work(params)
        self._gpu = Gpu(team)
        try:
            program = compile_program(fma_source(params), self._gpu.architecture)
            self._function = self._gpu.function(program, FUNCTION)
            self._blocks = self._gpu.resident_blocks(self._function, THREADS)
            self._n_vectors = array_vectors(params, self._blocks, self._gpu.l2_bytes)
            size_bytes = self._n_vectors * VECTOR_BYTES
            drawn = min(size_bytes, FILLED_BYTES) // VECTOR_BYTES * self._number.width
            self._words = filled(self._number, drawn, params.data, team.rank)
            n_chains = self._blocks * THREADS * chains(params)
            self._start = filled(self._number, n_chains, "random", team.rank + 1)
            self._on_gpu = [
                self._gpu.array(self._start),
                self._gpu.array(self._start),
                self._gpu.array(self._words, size_bytes),
            ]
            self.run(1)
        except BaseException:
            self._gpu.close()
            raise

    def run(self, iterations: int) -> None:
        """All iterations in one launch: as many times the chunks."""
        self._launch(self._blocks, Work(iterations * self._work.chunks, self._work.trips))

    def _launch(self, blocks: int, work: Work) -> None:
        constants = [self._argument(value) for value in self._number.constants]
        self._gpu.run(
            self._function,
            blocks,
            THREADS,
            *self._on_gpu,
            np.int64(self._n_vectors),
            *constants,
            np.int64(work.chunks),
            np.int32(work.trips),
        )

    def _argument(self, value: Any) -> Any:
        """A constant as the kernel takes it: both lanes of two halves are one word."""
        if self._number.lanes == 1:
            return value
        return np.array([value] * self._number.lanes, self._number.dtype).view(np.uint32)[0]

    def counts(self) -> Counts:
        """Operations and bytes of one iteration."""
        return count_multiply_adds(self._params)

    def check(self) -> None:
        """Compare a few chunks with NumPy, of the first words of the array."""
        work = Work(CHECKED_CHUNKS, self._work.trips)
        self._launch(CHECKED_BLOCKS, work)
        rows = CHECKED_BLOCKS * THREADS
        shape = (rows, chains(self._params), self._number.lanes)
        start = self._start[: rows * chains(self._params)].reshape(shape)
        computed = self._gpu.copied(self._on_gpu[0], start)
        right = expected(self._params, start, self._words, CHECKED_BLOCKS, work)
        largest = float(np.abs(right.astype(np.float64)).max())
        worst = float(np.abs(computed.astype(np.float64) - right.astype(np.float64)).max())
        if not worst <= self._number.tolerance * largest:
            raise WrongResult(
                f"chains of {self._params.number} are {worst:.3g} off, of at most {largest:.3g}"
            )

    def close(self) -> None:
        """Release the GPU's memory."""
        self._gpu.close()
