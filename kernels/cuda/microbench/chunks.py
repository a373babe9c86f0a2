"""Work cut into chunks, which the blocks of a GPU share, and the arrays that they load from.

A chunk is as many trips through a kernel's inner loop. Block b of n takes the chunks b, b + n,
b + 2 n and so on, so that the work is the same on every GPU. Words are loaded as vectors of 16
bytes, by neighbouring threads from neighbouring addresses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

THREADS, VECTOR_BYTES, REGION_VECTORS = 256, 16, 1024
"""As in the sources: threads of a block; bytes of a load; the vectors that a block goes through
again and again where they stay on its processor."""
CHUNKS = 1 << 14
LEVELS = ("register", "shared", "l1", "l2", "dram")
"""In the order of the sources' ``LEVEL``."""
ON_PROCESSOR = ("shared", "l1")
"""The levels of which each processor has its own."""
PAST_L1 = 3
DRAM_BYTES = 1 << 30


def source_level(level: str) -> int:
    """The sources' ``LEVEL`` where the second cache and main memory are loaded from alike: only the
    array's size says which of them serves."""
    return min(LEVELS.index(level), PAST_L1)


@dataclass(frozen=True)
class Work:
    """How the work of one iteration is cut: every block takes chunks of ``trips``."""

    chunks: int
    trips: int

    def chunks_of(self, block: int, blocks: int) -> range:
        """The chunks that a block takes."""
        return range(block, self.chunks, blocks)


def working_set_bytes(level: str, l2_bytes: int) -> int:
    """What all blocks together load from the second cache, or from main memory: a quarter of the
    second cache; four times it, and 1 GiB at least."""
    return l2_bytes // 4 if level == "l2" else max(4 * l2_bytes, DRAM_BYTES)


def region_trips(level: str, vectors: int, blocks: int, l2_bytes: int) -> int:
    """After how many trips of so many ``vectors`` a thread a block loads the same words again.

    Past the first cache every block has words of its own. Blocks that load the same words find
    what another has just brought into the second cache; those behind catch up, and stay together:
    on an H100 main memory then seems three times as fast as it is.
    """
    if level in ON_PROCESSOR:
        return REGION_VECTORS // (vectors * THREADS)
    own_bytes = working_set_bytes(level, l2_bytes) // blocks
    return max(own_bytes // (vectors * THREADS * VECTOR_BYTES), 1)


def array_vectors(level: str, vectors: int, blocks: int, l2_bytes: int) -> int:
    """Vectors of the array that serves a level, on a GPU with so many resident blocks."""
    if level == "register":
        return 1
    of_block = region_trips(level, vectors, blocks, l2_bytes) * vectors * THREADS
    return of_block if level == "shared" else blocks * of_block


def loaded_vectors(
    level: str, vectors: int, block: int, trip: int, trips: int
) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Which vectors of the array each thread of a block loads in one of all its trips: (THREADS,
    vectors). ``trips``: see :func:`region_trips`."""
    first = trip % trips + (block * trips if level != "shared" else 0)
    of_trip = np.arange(vectors) * THREADS + np.arange(THREADS)[:, None]
    return first * vectors * THREADS + of_trip
