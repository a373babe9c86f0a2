"""The resources of a GPU's processor, and the number of blocks that it runs concurrently."""

from __future__ import annotations

from dataclasses import dataclass

WARP = 32
"""The number of threads that execute an instruction together."""


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """A GPU with ``processors`` equal processors. Each has ``registers`` of 32 bits and
    ``shared_bytes``, and runs at most ``threads`` in at most ``blocks``. A thread has at most
    ``thread_registers``, in multiples of ``register_step``; a block at most ``block_threads``. In a
    cycle a processor does ``dp_flops`` in double precision, and moves ``shared_bytes_moved`` from
    or to shared memory."""

    processors: int
    registers: int
    shared_bytes: int
    threads: int
    blocks: int
    block_threads: int
    thread_registers: int
    register_step: int
    dp_flops: int
    shared_bytes_moved: int

    def resident_blocks(self, threads: int, registers: int, shared_bytes: int) -> int:
        """The number of blocks that a processor runs concurrently, each with ``threads`` threads of
        ``registers`` registers, and ``shared_bytes`` bytes of shared memory."""
        return min(
            self.blocks,
            self.threads // threads,
            self.registers // (registers * threads),
            self.shared_bytes // shared_bytes,
        )


TESLA_K20X = Gpu(
    processors=14,
    registers=65536,
    shared_bytes=49152,
    threads=2048,
    blocks=16,
    block_threads=1024,
    thread_registers=255,
    register_step=8,
    dp_flops=128,
    shared_bytes_moved=256,
)
"""Compute capability 3.5: 14 processors, each with 64 double-precision units, and shared memory
with banks of 8 bytes (NVIDIA 2012, Kepler GK110 white paper; CUDA C Programming Guide, table of
compute capabilities)."""
