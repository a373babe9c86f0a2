"""What the processors of a GPU's architecture hold, and how many blocks they run at a time.

From the table of technical specifications in NVIDIA's CUDA programming guide; the numbers of blocks
agree with NVIDIA's occupancy calculator (``cuda_occupancy.h`` of CUDA 13.0). All architectures here
have 65,536 registers of 32 bits in a processor, which are divided among its four schedulers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernels.cuda.processor import WARP
from kernels.kernel import KernelError

SCHEDULERS = 4
SCHEDULER_REGISTERS = 65536 // SCHEDULERS
REGISTER_STEP = 8
"""Registers of a thread are allotted in such steps."""
SHARED_STEP = 128
"""Bytes of shared memory of a block are allotted in such steps."""


@dataclass(frozen=True, kw_only=True)
class Processor:
    """One processor: at most ``threads`` in at most ``blocks``, with ``shared_bytes`` in all. A
    block has at most ``block_shared_bytes``, and takes ``reserved_shared_bytes`` more."""

    threads: int
    blocks: int
    shared_bytes: int
    block_shared_bytes: int
    reserved_shared_bytes: int = 1 << 10

    def resident_blocks(self, threads: int, registers: int, shared_bytes: int) -> int:
        """How many blocks it runs at a time, of so many threads, registers a thread, and bytes of
        shared memory."""
        if shared_bytes > self.block_shared_bytes:
            return 0
        warps = -(-threads // WARP)
        of_warp = -(-registers // REGISTER_STEP) * REGISTER_STEP * WARP
        shared = -(-(shared_bytes + self.reserved_shared_bytes) // SHARED_STEP) * SHARED_STEP
        return min(
            self.blocks,
            self.threads // (warps * WARP),
            SCHEDULER_REGISTERS // of_warp * SCHEDULERS // warps,
            self.shared_bytes // shared,
        )


def _processor(threads: int, blocks: int, shared_kib: int, block_shared_kib: int) -> Processor:
    return Processor(
        threads=threads,
        blocks=blocks,
        shared_bytes=shared_kib << 10,
        block_shared_bytes=block_shared_kib << 10,
    )


PROCESSORS: Mapping[str, Processor] = {
    "sm_80": _processor(2048, 32, 164, 163),
    "sm_86": _processor(1536, 16, 100, 99),
    "sm_87": _processor(1536, 16, 164, 163),
    "sm_89": _processor(1536, 24, 100, 99),
    "sm_90": _processor(2048, 32, 228, 227),
    "sm_100": _processor(2048, 32, 228, 227),
    "sm_103": _processor(2048, 32, 228, 227),
    "sm_120": _processor(1536, 24, 100, 99),
    "sm_121": _processor(1536, 24, 100, 99),
}
MOST_BLOCK_SHARED_BYTES = max(one.block_shared_bytes for one in PROCESSORS.values())


def processor_of(architecture: str) -> Processor:
    """The processor of an architecture, such as ``sm_90``.

    Raises:
        KernelError: it is not in the table.
    """
    if architecture not in PROCESSORS:
        raise KernelError(
            f"no limits are known of {architecture}, only of {', '.join(PROCESSORS)}: name one of "
            f"these, or run on the GPU itself"
        )
    return PROCESSORS[architecture]
