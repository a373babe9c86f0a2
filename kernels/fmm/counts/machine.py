"""The machine for which operations are counted: its vectors and caches."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MachineModel:
    """The properties of a machine on which the counts depend.

    ``vector_bytes``: bytes of a vector; ``registers``: number of vector registers, which determines
    the loops' tiles; ``estimate_bits``: bits of the estimate of 1 / sqrt(x) in single and in double
    precision, 23 and 52 without an estimate; ``caches``: (class, bytes) of each cache that one
    thread uses, the smallest first. The defaults are AVX-512 and the private caches of a server's
    core.
    """

    vector_bytes: int = 64
    registers: int = 32
    estimate_bits: tuple[int, int] = (14, 14)
    caches: tuple[tuple[str, int], ...] = (("l1", 32 << 10), ("l2", 1 << 20))

    def estimate_flops(self, bits: int) -> int:
        """The flops of 1 / sqrt(x) before any Newton step."""
        return 1 if self.estimate_bits[bits == 64] < 23 else 2


DEFAULT_MACHINE = MachineModel()
"""The machine that a plan assumes, so that its counts are the same on every host."""


def host_machine() -> MachineModel:
    """This host with its caches, as Numba compiles for it.

    Raises:
        kernels.kernel.KernelError: the host's caches cannot be read.
    """
    from kernels.host.caches import read_caches  # noqa: PLC0415
    from kernels.host.vectors import HOST, estimate_bits  # noqa: PLC0415

    caches = tuple(
        (f"l{cache.level}", cache.size_bytes) for cache in read_caches() if cache.level <= 3
    )
    return MachineModel(HOST.bytes, HOST.registers, (estimate_bits(32), estimate_bits(64)), caches)
