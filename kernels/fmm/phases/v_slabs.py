"""The spectra of the V phase: how many frequencies, and in which slabs they are made.

All spectra at once would be most of the method's memory. They are made, multiplied and taken back
in slabs of the frequency along z. Imports no Numba.
"""

from __future__ import annotations

from itertools import pairwise

from kernels.fmm.constants import CHILDREN

SLAB_BYTES = 32 << 20
"""What the spectra of a slab may take, sources and targets together, where one kz takes less."""


def plane_frequencies(order: int) -> int:
    """How many frequencies a spectrum has at one kz: (2p - 1)^2. There are p kz: input is real."""
    return (2 * order - 1) ** 2


def slabs(order: int, parents: int, itemsize: int) -> list[tuple[int, int]]:
    """First and last kz of each slab, for that many parents and numbers of ``itemsize`` bytes."""
    plane_bytes = 2 * plane_frequencies(order) * (parents + 1) * 2 * CHILDREN * itemsize
    count = -(-order // max(1, SLAB_BYTES // plane_bytes))
    return list(pairwise(order * i // count for i in range(count + 1)))
