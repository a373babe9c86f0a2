"""What the microbenchmarks have in common when they run on a GPU."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np

from kernels.cuda.device import Gpu
from kernels.cuda.microbench.chunks import THREADS, Work
from kernels.cuda.program import Source, compile_program
from kernels.host.ranks import Team
from kernels.kernel import Counts, ResultError

FILLED_BYTES = 1 << 26
"""So many bytes of words are drawn, and repeated in a larger array."""
CHECKED_BLOCKS, CHECKED_CHUNKS = 2, 3


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
