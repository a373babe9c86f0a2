"""Loads from one level: the sum of an array of 8-byte integers.

Integers, because additions of 512-bit floating-point vectors lower the clock of many processors
and would hide a sixth of L1's bandwidth. Each word counts as 8 bytes and one addition, class
``int``; address and loop instructions are not counted.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from pydantic import Field

from kernels.host.caches import Level, memory_bytes, read_caches, working_set_bytes
from kernels.host.memory import paged_array
from kernels.host.prepared import PreparedParts, parts_on_node
from kernels.host.ranks import Team
from kernels.kernel import Counts, Kernel, Params, Prepared, ResultError
from kernels.microbench.compiled import compiled_loops

WORDS = 1 << 24
"""Words that one thread loads in one iteration."""
WORD = np.dtype(np.int64)


class LoadParams(Params):
    """The level of the words, and the threads."""

    level: Level
    """level that serves the loads"""
    threads: int = Field(default=1, ge=1)
    """threads of one rank, each with its own data"""


def count_loads(params: LoadParams) -> Counts:
    """Additions and bytes of one iteration of one rank."""
    words = WORDS * params.threads
    return {"int": float(words), params.level: float(words * WORD.itemsize)}


class Sum:
    """The array of one thread, and its sum."""

    def __init__(self, size_bytes: int, seed: int) -> None:
        self._loops = compiled_loops()
        self._next = 0
        lanes = self._loops.stream_lanes(WORD)
        self.data = paged_array(size_bytes // WORD.itemsize, WORD)
        self._start = paged_array(lanes, WORD)
        self.end = paged_array(lanes, WORD)
        # Both 32-bit halves of a word are random; a view avoids a copy of a large array.
        view = self.data.view(np.float64)
        np.random.default_rng(seed).random(out=view)
        self._start[:] = 0
        self.end[:] = 0

    def run(self, iterations: int) -> None:
        """Add up :data:`WORDS` words in each iteration, from the end of the last one on."""
        self._next = self._loops.total(
            self.data, self._next, WORDS, self._start, self.end, iterations
        )

    def check(self) -> None:
        """Compare the sum of the last iteration, modulo 2^64, with the sum by NumPy."""
        span = min(WORDS, self.data.size)
        first = (self._next - WORDS) % self.data.size
        words = self.data[first : first + span].view(np.uint64)
        right = int(words.sum()) * (WORDS // span) % 2**64
        computed = int(self.end.view(np.uint64).sum())
        if computed != right:
            raise ResultError(f"sum of {WORDS} words is {computed} modulo 2^64, not {right}")


def _prepare(params: LoadParams, team: Team) -> Prepared:
    """Raises :class:`kernels.kernel.KernelError` if the node lacks the level."""
    size = working_set_bytes(
        params.level, read_caches(), memory_bytes(), parts_on_node(params.threads, team)
    )
    seeds = [team.rank * params.threads + thread for thread in range(params.threads)]
    return PreparedParts([partial(Sum, size, seed) for seed in seeds], count_loads(params))


load = Kernel(
    name="load",
    summary="sum of an array of 8-byte integers in one level of memory",
    counted="8 bytes a word at the level; one addition (int) a word",
    classes=("int", "l1", "l2", "l3", "dram"),
    params=LoadParams,
    counts=count_loads,
    prepare=_prepare,
    imports=("kernels.microbench.loops",),
)
