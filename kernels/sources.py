"""The version of a kernel's source: a hash of the files that it is made of."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

from kernels.registry import KERNELS

SHARED = ("host",)
"""The folders that kernels of every package use."""
USED = {
    "cuda": ("fmm", "fmm_u", "products", "stencils"),
    "fmm_u": ("fmm",),
    "products": ("fmm",),
}
"""Package -> others that it takes trees, tiles or checks from."""
HASH_CHARS = 12


@functools.cache
def source_hash(name: str) -> str:
    """SHA-256 of the files of a registered kernel's package, of those that it uses, and of what
    all kernels share, as :data:`HASH_CHARS` hex digits. A change to any of them may change what
    the kernel does.

    Raises:
        KeyError: there is no such kernel.
    """
    root = Path(__file__).parent
    package, *inside = KERNELS[name].partition(":")[0].split(".")[1:]
    own = root / package if inside else root / f"{package}.py"
    digest = hashlib.sha256()
    for part in (own, *(root / folder for folder in (*USED.get(package, ()), *SHARED))):
        for path in sorted(part.rglob("*")) if part.is_dir() else [part]:
            if path.is_file() and "__pycache__" not in path.parts:
                data = path.read_bytes()
                digest.update(f"{path.relative_to(root)}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()[:HASH_CHARS]
