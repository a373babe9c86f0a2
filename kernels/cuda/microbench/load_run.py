"""``gpu_load`` on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.cuda.microbench.chunks import (
    THREADS,
    VECTOR_BYTES,
    Work,
    array_vectors,
    region_trips,
)
from kernels.cuda.microbench.data import filled
from kernels.cuda.microbench.load import (
    FUNCTION,
    VECTOR_WORDS,
    WORD,
    WORK,
    GpuLoadParams,
    count_loads,
    expected,
    load_source,
    vectors,
)
from kernels.cuda.microbench.run import (
    CHECKED_BLOCKS,
    CHECKED_CHUNKS,
    FILLED_BYTES,
    ChunkRun,
    compare,
)
from kernels.cuda.program import Source
from kernels.host.ranks import Team


class LoadRun(ChunkRun):
    """The kernel with its array on the GPU."""

    function = FUNCTION

    def __init__(self, params: GpuLoadParams, team: Team) -> None:
        self._params = params
        super().__init__(team, count_loads(params), WORK)

    def source(self, architecture: str) -> Source:
        """See :class:`ChunkRun`."""
        return load_source(self._params)

    def arguments(self, seed: int) -> tuple[Any, ...]:
        """See :class:`ChunkRun`."""
        each = vectors(self._params)
        of_level = (self._params.level, each, self.blocks, self.gpu.l2_bytes)
        self._region = region_trips(*of_level)
        size_bytes = array_vectors(*of_level) * VECTOR_BYTES
        drawn = min(size_bytes, FILLED_BYTES) // VECTOR_BYTES
        self._words = filled((drawn, VECTOR_WORDS), WORD, self._params.data, seed)
        sums = np.zeros((self.blocks * THREADS, each * VECTOR_WORDS), WORD)
        words = self.gpu.array(self._words, size_bytes)
        return (self.gpu.array(sums), words, np.int32(self._region))

    def check(self) -> None:
        """Compare a few chunks with NumPy, of the first words of the array."""
        work = Work(CHECKED_CHUNKS, self._work.trips)
        self.launch(CHECKED_BLOCKS, work, self.on_gpu)
        right = expected(self._params, self._words, self._region, CHECKED_BLOCKS, work)
        compare("sums of words", self.gpu.copied(self.on_gpu[0], right), right, 0.0)
