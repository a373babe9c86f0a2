"""Pointer chase on a GPU: dependent loads through random cycles of 128-byte lines.

Each line holds the place of the next one, so that a hop takes one latency and nothing can be loaded
ahead. One thread of a block follows one chain; a single chain shows the latency, many at a time
show the energy. Counted are the bytes that the level transfers for a hop: a sector of 32 bytes from
the second cache and from main memory, the 4 bytes of the place from shared memory and from the
first cache, which transfer words to the core. A memory that fetches two sectors for one (64 bytes)
moves twice what is counted for ``dram``. Address and loop instructions are not counted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from kernels.cuda.microbench.chunks import ON_PROCESSOR, source_level, working_set_bytes
from kernels.cuda.program import Source
from kernels.kernel import Counts, Params

SOURCE = Path(__file__).with_name("chase.cu")
LINK, CHASE = "link_lines", "chase"
THREADS, LINE_BYTES, HOPS_PER_TRIP = 32, 128, 16
"""As in the source."""
PLACE = np.dtype(np.uint32)
HOPS = {"shared": 1 << 17, "l1": 1 << 17, "l2": 1 << 14, "dram": 1 << 13}
"""Hops of one chain in one iteration: some milliseconds at each level's latency."""
BYTES_PER_HOP = {"shared": 4, "l1": 4, "l2": 32, "dram": 32}
NEAR_LINES = 63
"""Lines of a chain in shared memory or the first cache. The number of lines is odd at every level,
so that no iteration ends where it began."""
L1_CHAINS = 8
"""Chains of one processor whose lines fit into its first cache: 63 KiB."""


class GpuChaseParams(Params):
    """Where the lines are, and how many chains are followed."""

    level: Literal["shared", "l1", "l2", "dram"]
    """level of the memory hierarchy that serves the loads"""
    chains: int = Field(default=1, ge=1, le=1 << 16)
    """chains that are followed at the same time, each by a block of its own"""


def count_hops(params: GpuChaseParams) -> Counts:
    """Bytes of one iteration of one rank, which has a GPU of its own."""
    bytes_ = HOPS[params.level] * BYTES_PER_HOP[params.level] * params.chains
    return {params.level: float(bytes_)}


def chase_source(params: GpuChaseParams) -> Source:
    """The source with the parameters' macros."""
    return Source(path=SOURCE, macros={"LEVEL": source_level(params.level), "LINES": NEAR_LINES})


def chain_lines(params: GpuChaseParams, l2_bytes: int) -> int:
    """Lines of each chain, on a GPU with so many bytes of second cache; an odd number, and fewer
    than :data:`NEAR_LINES` where the level is too small for so many chains."""
    if params.level in ON_PROCESSOR:
        return NEAR_LINES
    lines = working_set_bytes(params.level, l2_bytes) // LINE_BYTES // params.chains
    return lines - (lines + 1) % 2


def random_orders(chains: int, lines: int, seed: int) -> np.ndarray[Any, Any]:
    """The order in which each chain visits its lines: uint32 (chains, lines). A random order closed
    to a ring is a uniform random cyclic permutation, as Sattolo's algorithm gives."""
    rng = np.random.default_rng(seed)
    return np.stack([rng.permutation(lines).astype(PLACE) for _ in range(chains)])


def expected(orders: np.ndarray[Any, Any], hops: int) -> np.ndarray[Any, Any]:
    """Where the chains are after so many hops from the first lines of their orders: uint32
    (chains,), in bytes."""
    return orders[:, hops % orders.shape[1]] * PLACE.type(LINE_BYTES)
