"""``gpu_load``: loads from one level of a GPU's memory, as sums of words of 32 bits.

Each word counts as 4 bytes and one addition, class ``int``, as in the kernel ``load`` on the host.
Each word of a trip has a separate sum, because otherwise an instruction that adds three numbers
would add two words to one sum. Address and loop instructions are not counted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np

from kernels.cuda.microbench.chunks import (
    CHECKED_BLOCKS,
    CHECKED_CHUNKS,
    CHUNKS,
    FILLED_BYTES,
    THREADS,
    VECTOR_BYTES,
    ChunkRun,
    Data,
    Work,
    array_vectors,
    compare,
    filled,
    loaded_vectors,
    region_trips,
    source_level,
)
from kernels.cuda.program import NEEDS, Source
from kernels.host.ranks import Team
from kernels.kernel import Counts, Kernel, Params

SOURCE = Path(__file__).with_name("load.cu")
FUNCTION = "sums"
WORD = np.dtype(np.uint32)
VECTOR_WORDS = VECTOR_BYTES // WORD.itemsize
NEAR_VECTORS, FAR_VECTORS = 2, 4
"""Loads of a thread in a trip, from shared memory and caches, and from main memory. In the latter
the compiler starts three or four loads before the first addition, so that the warps of a processor
wait for 64 KiB or more: at a latency of a microsecond 65 GB/s for each processor, 8.6 TB/s for
132."""
WORK = Work(CHUNKS, 32)
"""The work of one iteration, the same on every GPU."""


class GpuLoadParams(Params):
    """The level and the values of the words."""

    level: Literal["shared", "l1", "l2", "dram"]
    """level that serves the loads"""
    data: Data = "random"
    """the words' values: zeros, ones, random bits, or a normal distribution"""


def vectors(params: GpuLoadParams) -> int:
    """The number of 16-byte loads of one thread in one trip."""
    return FAR_VECTORS if params.level == "dram" else NEAR_VECTORS


def count_loads(params: GpuLoadParams) -> Counts:
    """Additions and bytes of one iteration of one rank, which does not share its GPU."""
    loads = float(vectors(params) * THREADS * WORK.trips * WORK.chunks)
    return {"int": VECTOR_WORDS * loads, params.level: VECTOR_BYTES * loads}


def load_source(params: GpuLoadParams) -> Source:
    """The source with the parameters' macros."""
    macros = {"LEVEL": source_level(params.level), "VECTORS": vectors(params)}
    return Source(path=SOURCE, macros=macros)


def expected(
    params: GpuLoadParams, words: np.ndarray[Any, Any], region: int, blocks: int, work: Work
) -> np.ndarray[Any, Any]:
    """The sums modulo 2^32, by NumPy: uint32 (blocks * THREADS, sums of a thread).

    ``words``: uint32 (vectors, 4), repeated if the kernel loads more; ``region``: the number of
    trips after which a block loads the same words again.
    """
    each = vectors(params)
    sums = np.zeros((blocks, THREADS, each * VECTOR_WORDS), WORD)
    for block in range(blocks):
        for trip in range(len(work.chunks_of(block, blocks)) * work.trips):
            rows = loaded_vectors(params.level, each, block, trip, region)
            sums[block] += words[rows % len(words)].reshape(THREADS, -1)
    return sums.reshape(blocks * THREADS, -1)


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
        """Compare a few chunks, of the first words of the array, with NumPy."""
        work = Work(CHECKED_CHUNKS, self._work.trips)
        self.launch(CHECKED_BLOCKS, work, self.on_gpu)
        right = expected(self._params, self._words, self._region, CHECKED_BLOCKS, work)
        compare("sums of words", self.gpu.copied(self.on_gpu[0], right), right, 0.0)


gpu_load = Kernel(
    name="gpu_load",
    summary="sums of 4-byte integers in one level of a GPU's memory",
    counted="16-byte loads at the level; one addition (int) a word",
    classes=("int", "shared", "l1", "l2", "dram"),
    params=GpuLoadParams,
    counts=count_loads,
    prepare=LoadRun,
    needs=NEEDS,
)
