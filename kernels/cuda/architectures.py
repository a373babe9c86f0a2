"""The resources of a processor by GPU architecture, and the number of blocks it runs concurrently.

The values come from the technical specifications in NVIDIA's CUDA programming guide; the numbers of
blocks agree with NVIDIA's occupancy calculator (``cuda_occupancy.h`` of CUDA 13.0). On all
architectures here a processor has 65,536 32-bit registers, divided among its four schedulers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernels.cuda.processor import WARP
from kernels.kernel import KernelError

SCHEDULERS = 4
SCHEDULER_REGISTERS = 65536 // SCHEDULERS
REGISTER_STEP = 8
"""The number of registers of a thread is a multiple of this."""
SHARED_STEP = 128
"""The shared memory of a block, in bytes, is a multiple of this."""


@dataclass(frozen=True, kw_only=True)
class Processor:
    """The limits of a processor: ``threads``, ``blocks`` and ``shared_bytes``. A block can use
    ``block_shared_bytes``; the system reserves ``reserved_shared_bytes`` more for each block."""

    threads: int
    blocks: int
    shared_bytes: int
    block_shared_bytes: int
    reserved_shared_bytes: int = 1 << 10

    def resident_blocks(self, threads: int, registers: int, shared_bytes: int) -> int:
        """The number of blocks that run concurrently, each with ``threads`` threads of
        ``registers`` registers, and ``shared_bytes`` bytes of shared memory."""
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
        KernelError: the architecture is not in the table.
    """
    if architecture not in PROCESSORS:
        raise KernelError(
            f"no limits are known of {architecture}, only of {', '.join(PROCESSORS)}: name one of "
            f"these, or run on the GPU itself"
        )
    return PROCESSORS[architecture]
