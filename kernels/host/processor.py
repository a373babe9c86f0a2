"""The host's vectors: their width, registers, and the instructions that the loops depend on."""

# Numba's configuration gets its names when it is imported.
# mypy: disable-error-code="attr-defined"

from __future__ import annotations

import platform
from dataclasses import dataclass

import llvmlite.binding as llvm
from numba.core import config


@dataclass(frozen=True)
class HostVectors:
    """The vectors that Numba compiles for on this host.

    ``bytes``: bytes of a vector; ``registers``: number of vector registers; ``fused``: whether the
    host has a fused multiply-add; ``estimate``: its instruction set for an estimate of
    1 / sqrt(x): avx512, avx, sse, neon, or empty.
    """

    bytes: int
    registers: int
    fused: bool
    estimate: str


def host_vectors() -> HostVectors:
    """The host's vectors, from the features that Numba compiles for."""
    listed = config.CPU_FEATURES  # an empty text: no features
    if listed is None:
        listed = llvm.get_host_cpu_features().flatten()
    features = set(listed.split(","))
    if "+avx512f" in features:
        return HostVectors(64, 32, True, "avx512")
    if "+avx" in features:
        return HostVectors(32, 16, "+fma" in features, "avx")
    if platform.machine() in {"aarch64", "arm64"}:
        return HostVectors(16, 32, True, "neon")
    return HostVectors(16, 16, False, "sse" if "+sse" in features else "")
