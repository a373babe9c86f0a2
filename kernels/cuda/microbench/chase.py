"""``gpu_chase``: a pointer chase on a GPU, dependent loads through random cycles of 128-byte lines.

Each line holds the position of the next one, so that a hop takes one latency and nothing can be
prefetched. One thread of a block follows one chain; a single chain shows the latency, many
concurrent chains show the energy. The counts are the bytes that the level transfers for a hop: a
sector of 32 bytes from L2 and from main memory; the 4 bytes of the position from shared memory and
from L1, which transfer words to the core. A memory that fetches two sectors for one (64 bytes)
moves twice the count of ``dram``. Address and loop instructions are not counted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from kernels.cuda.microbench.chunks import (
    FILLED_BYTES,
    ON_PROCESSOR,
    GpuRun,
    source_level,
    working_set_bytes,
)
from kernels.cuda.program import NEEDS, Source, compile_program
from kernels.host.ranks import Team
from kernels.kernel import Counts, Kernel, KernelError, Params, ResultError

SOURCE = Path(__file__).with_name("chase.cu")
LINK, CHASE = "link_lines", "chase"
THREADS, LINE_BYTES, HOPS_PER_TRIP = 32, 128, 16
"""As in the source."""
PLACE = np.dtype(np.uint32)
HOPS = {"shared": 1 << 17, "l1": 1 << 17, "l2": 1 << 14, "dram": 1 << 13}
"""Hops of one chain in one iteration; they take some milliseconds at each level."""
BYTES_PER_HOP = {"shared": 4, "l1": 4, "l2": 32, "dram": 32}
NEAR_LINES = 63
"""Lines of a chain in shared memory or L1. The number of lines is odd at every level, so that no
iteration ends where it began."""
L1_CHAINS = 8
"""The most chains of a processor whose lines fit into its L1: 63 KiB."""
LINK_THREADS = 256


class GpuChaseParams(Params):
    """The level of the lines, and the number of chains."""

    level: Literal["shared", "l1", "l2", "dram"]
    """level that serves the loads"""
    chains: int = Field(default=1, ge=1, le=1 << 16)
    """chains followed at the same time, each by a block"""


def count_hops(params: GpuChaseParams) -> Counts:
    """Bytes of one iteration of one rank, which does not share its GPU."""
    bytes_ = HOPS[params.level] * BYTES_PER_HOP[params.level] * params.chains
    return {params.level: float(bytes_)}


def chase_source(params: GpuChaseParams) -> Source:
    """The source with the parameters' macros."""
    return Source(path=SOURCE, macros={"LEVEL": source_level(params.level), "LINES": NEAR_LINES})


def chain_lines(params: GpuChaseParams, l2_bytes: int) -> int:
    """The number of lines of each chain, on a GPU with ``l2_bytes`` of L2 cache; odd, and less
    than :data:`NEAR_LINES` if the level is too small for all chains."""
    if params.level in ON_PROCESSOR:
        return NEAR_LINES
    lines = working_set_bytes(params.level, l2_bytes) // LINE_BYTES // params.chains
    return lines - (lines + 1) % 2


def random_orders(chains: int, lines: int, seed: int) -> np.ndarray[Any, Any]:
    """The order in which each chain visits its lines: uint32 (chains, lines). A random order closed
    to a ring is a uniform random cyclic permutation, as from Sattolo's algorithm."""
    rng = np.random.default_rng(seed)
    return np.stack([rng.permutation(lines).astype(PLACE) for _ in range(chains)])


def expected(orders: np.ndarray[Any, Any], hops: int) -> np.ndarray[Any, Any]:
    """The positions of the chains after ``hops`` hops from the first lines of their orders: uint32
    (chains,), in bytes."""
    return orders[:, hops % orders.shape[1]] * PLACE.type(LINE_BYTES)


class ChaseRun(GpuRun):
    """The chains on the GPU, and the number of hops so far."""

    def __init__(self, params: GpuChaseParams, team: Team) -> None:
        self._params, self._hops = params, 0
        super().__init__(team, count_hops(params))

    def prepare(self, seed: int) -> None:
        """Lay out the chains; raises :class:`KernelError` if there are too many."""
        level, chains = self._params.level, self._params.chains
        program = compile_program(chase_source(self._params), self.gpu.architecture)
        self._chase = self.gpu.function(program, CHASE)
        most = self.gpu.resident_blocks(self._chase, THREADS)
        if level == "l1":
            most = min(most, L1_CHAINS * self.gpu.processors)
        self._lines = chain_lines(self._params, self.gpu.l2_bytes)
        if self._lines < NEAR_LINES:
            most = min(most, chains * max(self._lines, 1) // NEAR_LINES)
        if chains > most:
            raise KernelError(
                f"chains: found {chains}, and this GPU follows at most {most} at a time at level "
                f"{level!r}; choose fewer"
            )
        self._orders = random_orders(chains, self._lines, seed)
        places = expected(self._orders, 0)
        self._places = self.gpu.array(places)
        size_bytes = chains * self._lines * LINE_BYTES
        zeros = np.zeros(min(size_bytes, FILLED_BYTES) // PLACE.itemsize, PLACE)
        self._links = self.gpu.array(zeros, size_bytes)
        self.gpu.run(
            self.gpu.function(program, LINK),
            min(-(-self._orders.size // LINK_THREADS), 1 << 16),
            LINK_THREADS,
            self._links,
            self.gpu.array(self._orders),
            np.int32(self._lines),
            np.int32(chains),
        )

    def run(self, iterations: int) -> None:
        """Follow the chains from the end of the last run, in one launch."""
        hops = HOPS[self._params.level] * iterations
        self.gpu.run(
            self._chase,
            self._params.chains,
            THREADS,
            self._places,
            self._links,
            np.int32(self._lines),
            np.int64(hops // HOPS_PER_TRIP),
        )
        self._hops += hops

    def check(self) -> None:
        """Check the position of every chain after all hops."""
        right = expected(self._orders, self._hops)
        reached = self.gpu.copied(self._places, right)
        wrong = np.flatnonzero(reached != right)
        if wrong.size:
            chain = int(wrong[0])
            raise ResultError(
                f"{wrong.size} of {right.size} chains end at a wrong line: chain {chain} at line "
                f"{reached[chain] // LINE_BYTES}, not {right[chain] // LINE_BYTES}"
            )


gpu_chase = Kernel(
    name="gpu_chase",
    summary="pointer chases through 128-byte lines in one level of a GPU's memory",
    counted="bytes of dependent loads: 32 a line from l2 and dram, 4 from shared and l1",
    classes=("shared", "l1", "l2", "dram"),
    params=GpuChaseParams,
    counts=count_hops,
    prepare=ChaseRun,
    needs=NEEDS,
)
