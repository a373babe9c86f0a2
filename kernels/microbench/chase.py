"""Pointer chase: dependent loads through a random cycle of 64-byte lines.

Each line holds the address of the next one, so that a hop takes one latency and nothing can be
prefetched. The counts are the bytes that the level transfers for a hop: a line of 64 bytes, or from
L1, which transfers words to the core, the 8 bytes of the address. Loop instructions are not
counted.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from pydantic import Field

from kernels.host.caches import Level, memory_bytes, read_caches, working_set_bytes
from kernels.host.memory import paged_array
from kernels.host.prepared import PreparedParts, parts_on_node
from kernels.host.ranks import Team
from kernels.kernel import Counts, Kernel, KernelError, Params, Prepared, ResultError
from kernels.microbench.compiled import compiled_loops

LINE_BYTES = 64
HOPS: dict[Level, int] = {"l1": 1 << 20, "l2": 1 << 19, "l3": 1 << 16, "dram": 1 << 16}
"""Hops of one thread in one iteration; they take some milliseconds at each level."""
BYTES_PER_HOP: dict[Level, int] = {"l1": 8, "l2": LINE_BYTES, "l3": LINE_BYTES, "dram": LINE_BYTES}


class ChaseParams(Params):
    """The level of the lines, and the threads."""

    level: Level
    """level that serves the loads"""
    threads: int = Field(default=1, ge=1)
    """threads of one rank, each with its own cycle of lines"""


def count_hops(params: ChaseParams) -> Counts:
    """Bytes of one iteration of one rank."""
    bytes_ = HOPS[params.level] * BYTES_PER_HOP[params.level] * params.threads
    return {params.level: float(bytes_)}


class Cycle:
    """The cycle of lines of one thread, and its current position.

    Attributes:
        links: the lines as rows of 64-bit words; the first word is the address of the next line.
    """

    def __init__(self, size_bytes: int, hops: int, seed: int) -> None:
        self._loops = compiled_loops()
        self._hops = hops
        words = LINE_BYTES // 8
        self.links = paged_array(size_bytes // 8, np.dtype(np.int64)).reshape(-1, words)
        self._base = self.links.ctypes.data
        # A random order closed to a ring is a uniform random cyclic permutation, as from Sattolo's
        # algorithm; a permutation with short cycles would stay in a smaller cache.
        self._order = np.random.default_rng(seed).permutation(len(self.links))
        self.links[:] = 0
        self.links[self._order, 0] = self._base + LINE_BYTES * np.roll(self._order, -1)
        self._place = 0
        self._address = self._base + LINE_BYTES * int(self._order[0])

    def run(self, iterations: int) -> None:
        """Follow ``hops`` addresses in each iteration, from the end of the last run on."""
        self._address = self._loops.chase(self._address, self._hops, iterations)
        self._place = (self._place + self._hops * iterations) % len(self._order)

    def check(self) -> None:
        """Check that all lines form one cycle, and that the chase ended at the right line."""
        lines = len(self._order)
        if not np.array_equal(np.bincount(self._order, minlength=lines), np.ones(lines)):
            raise ResultError("the order of the lines is not a permutation")
        along = self.links[self._order, 0] - self._base
        if not np.array_equal(along, LINE_BYTES * np.roll(self._order, -1)):
            raise ResultError(f"the links do not form one cycle of {lines} lines")
        right = int(self._order[self._place])
        reached = (self._address - self._base) // LINE_BYTES
        if reached != right:
            raise ResultError(f"the chase ended at line {reached}, not {right} of {lines}")


def _prepare(params: ChaseParams, team: Team) -> Prepared:
    """Raises :class:`KernelError` if the node lacks the level, or has lines of a different size."""
    caches = read_caches()
    other = {c.line_bytes for c in caches} - {LINE_BYTES}
    sizes = ", ".join(map(str, sorted(other)))
    if other and params.level != "l1":
        raise KernelError(f"the node's cache lines have {sizes} bytes; chase counts {LINE_BYTES}")
    size = working_set_bytes(
        params.level, caches, memory_bytes(), parts_on_node(params.threads, team)
    )
    hops = HOPS[params.level]
    seeds = [team.rank * params.threads + thread for thread in range(params.threads)]
    return PreparedParts([partial(Cycle, size, hops, seed) for seed in seeds], count_hops(params))


chase = Kernel(
    name="chase",
    summary="pointer chase through 64-byte lines in one level of memory",
    counted="bytes of dependent loads: 64 a line, 8 from l1",
    classes=("l1", "l2", "l3", "dram"),
    params=ChaseParams,
    counts=count_hops,
    prepare=_prepare,
    imports=("kernels.microbench.loops",),
)
