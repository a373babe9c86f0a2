"""``gpu_sfu`` on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.cuda.microbench.chunks import THREADS, Work
from kernels.cuda.microbench.run import CHECKED_BLOCKS, CHECKED_CHUNKS, ChunkRun
from kernels.cuda.microbench.sfu import (
    FACTORS,
    FUNCTION,
    WORK,
    GpuSfuParams,
    count_values,
    expected,
    first_values,
    sfu_source,
)
from kernels.cuda.program import Source
from kernels.host.ranks import Team
from kernels.kernel import ResultError


class SfuRun(ChunkRun):
    """The kernel with its arrays on the GPU."""

    function = FUNCTION

    def __init__(self, params: GpuSfuParams, team: Team) -> None:
        self._params = params
        super().__init__(team, count_values(params), WORK)

    def source(self, architecture: str) -> Source:
        """See :class:`ChunkRun`."""
        return sfu_source(self._params)

    def arguments(self, seed: int) -> tuple[Any, ...]:
        """See :class:`ChunkRun`."""
        self._start = first_values(self.blocks * THREADS, seed)
        out, start = self.gpu.array(self._start), self.gpu.array(self._start)
        return (out, start, *(value for pair in FACTORS for value in pair))

    def check(self) -> None:
        """Compare a few values of the chains with NumPy: an error grows from each to the next."""
        work = Work(CHECKED_CHUNKS, 1)
        self.launch(CHECKED_BLOCKS, work, self.on_gpu)
        start = self._start[: CHECKED_BLOCKS * THREADS]
        computed = self.gpu.copied(self.on_gpu[0], start)
        right, tolerance = expected(self._params, start, CHECKED_BLOCKS, work)
        wrong = int((~(np.abs(computed - right) <= tolerance)).sum())
        if wrong:
            raise ResultError(f"{wrong} of {right.size} chains of special functions are wrong")
