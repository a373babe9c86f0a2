"""The common parts of the GPU microbenchmarks: work in chunks, arrays of words, and runs.

A chunk is a fixed number of trips through a kernel's inner loop. Block b of n takes the chunks b,
b + n, b + 2 n and so on, so that the work is the same on every GPU. Neighbouring threads load words
from neighbouring addresses, as vectors of 16 bytes.

A processor's power depends on the values of its operands (arXiv 2212.08805: up to 67 % on an A100),
so ``data`` is a parameter, and kernels with different data are different kernels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from kernels.cuda.device import Gpu
from kernels.cuda.program import Source, compile_program
from kernels.host.ranks import Team
from kernels.kernel import Counts, ResultError

THREADS, VECTOR_BYTES, REGION_VECTORS = 256, 16, 1024
"""As in the sources: threads of a block; bytes of a load; the vectors that a block loads repeatedly
from the memory of its processor."""
CHUNKS = 1 << 14
LEVELS = ("register", "shared", "l1", "l2", "dram")
"""The levels in the order of the sources' macro ``LEVEL``."""
ON_PROCESSOR = ("shared", "l1")
"""The levels that each processor has for itself."""
PAST_L1 = 3
DRAM_BYTES = 1 << 30
Data = Literal["zeros", "ones", "random", "normal"]
FILLED_BYTES = 1 << 26
"""The number of bytes of random words; a larger array repeats them."""
CHECKED_BLOCKS, CHECKED_CHUNKS = 2, 3


def source_level(level: str) -> int:
    """The value of the sources' macro ``LEVEL``, the same for L2 and main memory: only the size of
    the array decides which of them serves the loads."""
    return min(LEVELS.index(level), PAST_L1)


@dataclass(frozen=True)
class Work:
    """The work of one iteration: ``chunks`` of ``trips`` each, which the blocks share."""

    chunks: int
    trips: int

    def chunks_of(self, block: int, blocks: int) -> range:
        """The chunks of a block."""
        return range(block, self.chunks, blocks)


def working_set_bytes(level: str, l2_bytes: int) -> int:
    """The size of the array that all blocks together load: a quarter of the L2 cache; for main
    memory four times the L2 cache, and at least 1 GiB."""
    return l2_bytes // 4 if level == "l2" else max(4 * l2_bytes, DRAM_BYTES)


def region_trips(level: str, vectors: int, blocks: int, l2_bytes: int) -> int:
    """The number of trips, of ``vectors`` per thread, after which a block loads the same words.

    Past L1 every block loads different words. If blocks loaded the same words, a block would find
    them in L2 after another; slower blocks would catch up, and main memory would seem three times
    as fast as it is (on an H100).
    """
    if level in ON_PROCESSOR:
        return REGION_VECTORS // (vectors * THREADS)
    own_bytes = working_set_bytes(level, l2_bytes) // blocks
    return max(own_bytes // (vectors * THREADS * VECTOR_BYTES), 1)


def array_vectors(level: str, vectors: int, blocks: int, l2_bytes: int) -> int:
    """The number of vectors of the array for a level, on a GPU with ``blocks`` resident blocks."""
    if level == "register":
        return 1
    of_block = region_trips(level, vectors, blocks, l2_bytes) * vectors * THREADS
    return of_block if level == "shared" else blocks * of_block


def loaded_vectors(
    level: str, vectors: int, block: int, trip: int, trips: int
) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """The indices of the vectors that each thread of a block loads in a trip: (THREADS, vectors).
    ``trip``: counted over all chunks; ``trips``: see :func:`region_trips`."""
    first = trip % trips + (block * trips if level != "shared" else 0)
    of_trip = np.arange(vectors) * THREADS + np.arange(THREADS)[:, None]
    return first * vectors * THREADS + of_trip


def filled(
    shape: tuple[int, ...], dtype: np.dtype[Any], data: Data, seed: int
) -> np.ndarray[Any, Any]:
    """An array filled as ``data`` says. Random integers (uint32) are random in all bits, other
    random numbers between -1 and 1. The normal distribution has standard deviation 10^6 for
    integers, which are rounded, and 1 for other numbers."""
    rng = np.random.default_rng(seed)
    if data == "zeros":
        return np.zeros(shape, dtype)
    if data == "ones":
        return np.ones(shape, dtype)
    if dtype.kind == "u":
        if data == "normal":
            return np.round(rng.normal(scale=1e6, size=shape)).astype(np.int32).view(np.uint32)
        return rng.integers(0, 2**32, shape, np.uint32)
    values = rng.normal(size=shape) if data == "normal" else rng.uniform(-1.0, 1.0, shape)
    return values.astype(dtype)


class GpuRun(ABC):
    """A GPU with a kernel's arrays: prepared and run once; closed if that fails."""

    def __init__(self, team: Team, counts: Counts) -> None:
        """Raises :class:`kernels.kernel.KernelError` if the GPU cannot run the kernel."""
        self._counts = counts
        self.gpu = Gpu(team)
        try:
            self.prepare(team.rank)
            self.run(1)
        except BaseException:
            self.gpu.close()
            raise

    @abstractmethod
    def prepare(self, seed: int) -> None:
        """Compile the kernel, and put its arrays on the GPU."""

    @abstractmethod
    def run(self, iterations: int) -> None:
        """See :class:`kernels.kernel.Prepared`."""

    @abstractmethod
    def check(self) -> None:
        """See :class:`kernels.kernel.Prepared`."""

    def counts(self) -> Counts:
        """Operations and bytes of one iteration."""
        return self._counts

    def close(self) -> None:
        """Release the GPU's memory."""
        self.gpu.close()


class ChunkRun(GpuRun):
    """A kernel whose blocks share the chunks of its work.

    Attributes:
        blocks: the number of blocks that run concurrently.
        on_gpu: the arguments of the kernel before its chunks and trips, the results first.
    """

    function: ClassVar[str]
    """The kernel's name in its source."""
    on_gpu: tuple[Any, ...]

    def __init__(self, team: Team, counts: Counts, work: Work) -> None:
        """Raises :class:`kernels.kernel.KernelError` if the GPU cannot run the kernel."""
        self._work = work
        super().__init__(team, counts)

    @abstractmethod
    def source(self, architecture: str) -> Source:
        """The source to compile; raises :class:`kernels.kernel.KernelError` if the architecture
        lacks its instructions."""

    @abstractmethod
    def arguments(self, seed: int) -> tuple[Any, ...]:
        """The values of :attr:`on_gpu`."""

    def prepare(self, seed: int) -> None:
        """Compile the kernel, set :attr:`blocks`, and put its arrays on the GPU."""
        architecture = self.gpu.architecture
        program = compile_program(self.source(architecture), architecture)
        self._compiled = self.gpu.function(program, self.function)
        self.blocks = self.gpu.resident_blocks(self._compiled, THREADS)
        self.on_gpu = self.arguments(seed)

    def run(self, iterations: int) -> None:
        """Run all iterations in one launch, by multiplying the number of chunks."""
        work = Work(iterations * self._work.chunks, self._work.trips)
        self.launch(self.blocks, work, self.on_gpu)

    def launch(self, blocks: int, work: Work, arguments: tuple[Any, ...]) -> None:
        """Run ``blocks`` blocks, and wait for their end."""
        counts = (np.int64(work.chunks), np.int32(work.trips))
        self.gpu.run(self._compiled, blocks, THREADS, *arguments, *counts)


def compare(
    what: str,
    computed: np.ndarray[Any, Any],
    right: np.ndarray[Any, Any],
    tolerance: float,
) -> None:
    """Raise :class:`ResultError` if a difference exceeds ``tolerance``, relative to the largest
    value."""
    exact = right.astype(np.float64)
    largest = float(np.abs(exact).max())
    worst = float(np.abs(computed.astype(np.float64) - exact).max())
    if not worst <= tolerance * largest:
        raise ResultError(f"{what} are {worst:.3g} off, of at most {largest:.3g}")
