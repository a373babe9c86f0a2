"""Aligned arrays for streaming, on huge pages where the system has them."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np

from kernels.kernel import KernelError

HUGE_PAGE_BYTES = 1 << 21
"""The alignment: a huge page of x86-64, and of aarch64 with 4 KiB pages."""


def paged_array(words: int, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """An array that starts at a huge page's boundary, with untouched pages.

    The caller must write every word: until then all pages map to one page of zeros, and a cache
    serves the loads. The thread that first writes a page decides its NUMA node. The memory is
    released with the last view of the array.

    Args:
        words: length of the array.
        dtype: type of a word.

    Raises:
        KernelError: there is too little memory.
    """
    size = words * dtype.itemsize
    try:
        # One more huge page than needed, so that a boundary lies inside.
        length = (-(-size // HUGE_PAGE_BYTES) + 1) * HUGE_PAGE_BYTES
        # Private: Linux puts shared memory, Python's default, on ordinary pages.
        pages = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            _advise_huge(pages)
        raw = np.frombuffer(pages, dtype=np.uint8)
    except (OSError, ValueError, OverflowError, MemoryError) as error:
        raise KernelError(f"cannot allocate {size} bytes for the working set: {error}") from error
    offset = -raw.ctypes.data % HUGE_PAGE_BYTES
    return raw[offset : offset + size].view(dtype)


def _advise_huge(pages: mmap.mmap) -> None:
    """Request huge pages. A system without them refuses, and the pages stay ordinary."""
    try:
        pages.madvise(mmap.MADV_HUGEPAGE)
    except OSError:
        return
