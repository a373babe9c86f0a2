"""The machine that operations are counted for: its vectors and its caches."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MachineModel:
    """The properties of a machine that the counts depend on.

    ``vector_bytes``: bytes of a vector; ``registers``: how many vector registers there are, which
    the loops' tiles depend on; ``estimate_bits``: bits of the estimate of 1 / sqrt(x) in single
    and in double precision, 23 and 52 where there is none; ``caches``: (class, bytes) of each
    cache that one thread has, the smallest first. The defaults are AVX-512 and the private caches
    of a server's core.
    """

    vector_bytes: int = 64
    registers: int = 32
    estimate_bits: tuple[int, int] = (14, 14)
    caches: tuple[tuple[str, int], ...] = (("l1", 32 << 10), ("l2", 1 << 20))

    def estimate_flops(self, bits: int) -> int:
        """Flops of 1 / sqrt(x) before any Newton step."""
        return 1 if self.estimate_bits[bits == 64] < 23 else 2


DEFAULT_MACHINE = MachineModel()
"""What a plan counts for, so that its counts are the same on every host."""


def host_machine() -> MachineModel:
    """The machine that Numba compiles for here, with its own caches.

    Raises:
        kernels.kernel.KernelError: its caches cannot be read.
    """
    from kernels.host.caches import read_caches  # noqa: PLC0415
    from kernels.host.vectors import HOST, estimate_bits  # noqa: PLC0415

    caches = tuple(
        (f"l{cache.level}", cache.size_bytes) for cache in read_caches() if cache.level <= 3
    )
    return MachineModel(HOST.bytes, HOST.registers, (estimate_bits(32), estimate_bits(64)), caches)
