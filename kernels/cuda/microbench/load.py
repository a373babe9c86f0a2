"""Loads from one level of a GPU's memory: sums of words of 32 bits.

One addition, class ``int``, is counted for each word, in addition to its 4 bytes, as the kernel
``load`` does on the host. Each word of a trip has a sum of its own, because an instruction that
adds three numbers would take two words of one sum. Address and loop instructions are not counted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np

from kernels.cuda.microbench.chunks import (
    CHUNKS,
    THREADS,
    VECTOR_BYTES,
    Work,
    loaded_vectors,
    source_level,
)
from kernels.cuda.microbench.data import Data
from kernels.cuda.program import Source
from kernels.kernel import Counts, Params

SOURCE = Path(__file__).with_name("load.cu")
FUNCTION = "sums"
WORD = np.dtype(np.uint32)
VECTOR_WORDS = VECTOR_BYTES // WORD.itemsize
NEAR_VECTORS, FAR_VECTORS = 2, 4
"""Loads of a thread in a trip, from caches and from main memory. Of the latter the compiler lets
three or four begin before the first addition, so that the warps of a processor wait for 64 KiB or
more: at a latency of a microsecond 65 GB/s for each processor, 8.6 TB/s for 132."""
WORK = Work(CHUNKS, 32)
"""Of one iteration, the same on every GPU."""


class GpuLoadParams(Params):
    """Where the words come from, and what they are."""

    level: Literal["shared", "l1", "l2", "dram"]
    """level of the memory hierarchy that serves the loads"""
    data: Data = "random"
    """the words' values: zeros, ones, random bits, or a normal distribution"""


def vectors(params: GpuLoadParams) -> int:
    """Loads of 16 bytes of one thread in one trip."""
    return FAR_VECTORS if params.level == "dram" else NEAR_VECTORS


def count_loads(params: GpuLoadParams) -> Counts:
    """Additions and bytes of one iteration of one rank, which has a GPU of its own."""
    loads = float(vectors(params) * THREADS * WORK.trips * WORK.chunks)
    return {"int": VECTOR_WORDS * loads, params.level: VECTOR_BYTES * loads}


def load_source(params: GpuLoadParams) -> Source:
    """The source with the parameters' macros."""
    macros = {"LEVEL": source_level(params.level), "VECTORS": vectors(params)}
    return Source(path=SOURCE, macros=macros)


def expected(
    params: GpuLoadParams, words: np.ndarray[Any, Any], region: int, blocks: int, work: Work
) -> np.ndarray[Any, Any]:
    """The sums modulo 2^32 by NumPy: uint32 (blocks * THREADS, sums of a thread).

    ``words``: uint32 (vectors, 4), repeated where there are more; ``region``: after how many trips
    a block loads the same again.
    """
    each = vectors(params)
    sums = np.zeros((blocks, THREADS, each * VECTOR_WORDS), WORD)
    for block in range(blocks):
        for trip in range(len(work.chunks_of(block, blocks)) * work.trips):
            rows = loaded_vectors(params.level, each, block, trip, region)
            sums[block] += words[rows % len(words)].reshape(THREADS, -1)
    return sums.reshape(blocks * THREADS, -1)
