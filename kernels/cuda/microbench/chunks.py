"""What the microbenchmarks of a GPU share: their work, their data, and how they run.

Work cut into chunks, which the blocks of a GPU share, and the arrays that they load from.

A chunk is as many trips through a kernel's inner loop. Block b of n takes the chunks b, b + n,
b + 2 n and so on, so that the work is the same on every GPU. Words are loaded as vectors of 16
bytes, by neighbouring threads from neighbouring addresses.

A processor's power depends on the values that it computes with (arXiv 2212.08805: up to 67 % on an
A100), so ``data`` is a parameter, and kernels with other data are other kernels.
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
"""As in the sources: threads of a block; bytes of a load; the vectors that a block goes through
again and again where they stay on its processor."""
CHUNKS = 1 << 14
LEVELS = ("register", "shared", "l1", "l2", "dram")
"""In the order of the sources' ``LEVEL``."""
ON_PROCESSOR = ("shared", "l1")
"""The levels of which each processor has its own."""
PAST_L1 = 3
DRAM_BYTES = 1 << 30
Data = Literal["zeros", "ones", "random", "normal"]
FILLED_BYTES = 1 << 26
"""So many bytes of words are drawn, and repeated in a larger array."""
CHECKED_BLOCKS, CHECKED_CHUNKS = 2, 3


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


def filled(
    shape: tuple[int, ...], dtype: np.dtype[Any], data: Data, seed: int
) -> np.ndarray[Any, Any]:
    """An array of such values. Integers (uint32) are random in all bits, or a rounded normal
    distribution of standard deviation 10^6; other numbers are between -1 and 1, or of standard
    deviation 1."""
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
    """A GPU with a kernel's arrays: prepared, run once, and closed if any of it fails."""

    def __init__(self, team: Team, counts: Counts) -> None:
        """Raises :class:`kernels.kernel.KernelError` where the GPU cannot run it."""
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
        blocks: as many as run at a time.
        on_gpu: the arguments of the kernel before its chunks and trips, the results first.
    """

    function: ClassVar[str]
    """The kernel's name in its source."""
    on_gpu: tuple[Any, ...]

    def __init__(self, team: Team, counts: Counts, work: Work) -> None:
        """Raises :class:`kernels.kernel.KernelError` where the GPU cannot run it."""
        self._work = work
        super().__init__(team, counts)

    @abstractmethod
    def source(self, architecture: str) -> Source:
        """What is compiled; raises :class:`kernels.kernel.KernelError` where the architecture
        lacks its instructions."""

    @abstractmethod
    def arguments(self, seed: int) -> tuple[Any, ...]:
        """What becomes :attr:`on_gpu`."""

    def prepare(self, seed: int) -> None:
        """Compile the kernel, see how many blocks fit, and put its arrays on the GPU."""
        architecture = self.gpu.architecture
        program = compile_program(self.source(architecture), architecture)
        self._compiled = self.gpu.function(program, self.function)
        self.blocks = self.gpu.resident_blocks(self._compiled, THREADS)
        self.on_gpu = self.arguments(seed)

    def run(self, iterations: int) -> None:
        """All iterations in one launch: as many times the chunks."""
        work = Work(iterations * self._work.chunks, self._work.trips)
        self.launch(self.blocks, work, self.on_gpu)

    def launch(self, blocks: int, work: Work, arguments: tuple[Any, ...]) -> None:
        """Run so many blocks, and wait until they have ended."""
        counts = (np.int64(work.chunks), np.int32(work.trips))
        self.gpu.run(self._compiled, blocks, THREADS, *arguments, *counts)


def compare(
    what: str,
    computed: np.ndarray[Any, Any],
    right: np.ndarray[Any, Any],
    tolerance: float,
) -> None:
    """Raise :class:`ResultError` where results are further off than ``tolerance``, a share of the
    largest."""
    exact = right.astype(np.float64)
    largest = float(np.abs(exact).max())
    worst = float(np.abs(computed.astype(np.float64) - exact).max())
    if not worst <= tolerance * largest:
        raise ResultError(f"{what} are {worst:.3g} off, of at most {largest:.3g}")
