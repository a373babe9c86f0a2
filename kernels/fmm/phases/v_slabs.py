"""The frequencies of the V phase, and the slabs in which they are processed.

All spectra at once would need most of the method's memory. They are computed, multiplied and
transformed back in slabs of the frequency along z (kz). Imports no Numba.
"""

from __future__ import annotations

from itertools import pairwise

from kernels.fmm.constants import CHILDREN

SLAB_BYTES = 32 << 20
"""The most bytes of a slab's spectra of sources and targets, unless it has only one kz."""


def plane_frequencies(order: int) -> int:
    """The frequencies of a spectrum at one kz: (2p - 1)^2. It has p kz, as the input is real."""
    return (2 * order - 1) ** 2


def slabs(order: int, parents: int, itemsize: int) -> list[tuple[int, int]]:
    """First and last kz of each slab, for ``parents`` spectra of ``itemsize``-byte numbers."""
    plane_bytes = 2 * plane_frequencies(order) * (parents + 1) * 2 * CHILDREN * itemsize
    count = -(-order // max(1, SLAB_BYTES // plane_bytes))
    return list(pairwise(order * i // count for i in range(count + 1)))
