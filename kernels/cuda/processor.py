"""What a GPU's processor holds, and how many blocks of threads it runs at a time."""

from __future__ import annotations

from dataclasses import dataclass

WARP = 32
"""Threads that execute an instruction together."""


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """``processors`` of one kind. What each has: ``registers`` of 32 bits, ``shared_bytes``, and at
    most ``threads`` in at most ``blocks``. A thread has at most ``thread_registers``, which are
    allotted in steps of ``register_step``; a block has at most ``block_threads``. A cycle of one
    processor: ``dp_flops`` in double precision, ``shared_bytes_moved`` from or to shared memory."""

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
        """How many blocks a processor runs at a time, of so many threads, registers a thread, and
        bytes of shared memory."""
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
"""Compute capability 3.5 with 14 processors of 64 units in double precision, and shared memory in
banks of 8 bytes (NVIDIA 2012, Kepler GK110 white paper; CUDA C Programming Guide, table of compute
capabilities)."""
