"""Morton keys, which order an octree's points along the Z curve.

A key interleaves the bits of a cell's three integer coordinates, x lowest. Points sorted by the
keys of their cells at the finest level are contiguous for every cell of every level (Warren and
Salmon, Supercomputing 1993).
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np
from numba import njit

MAX_LEVEL = 20
"""The finest level: three coordinates of 20 bits in one 64-bit key."""
DIGIT_BITS = 10


@njit(nogil=True, cache=True, inline="always")
def spread_bits(value):
    """The low 20 bits of ``value``, with two zeros between adjacent bits."""
    x = np.uint64(value)
    x = (x | (x << np.uint64(32))) & np.uint64(0x1F00000000FFFF)
    x = (x | (x << np.uint64(16))) & np.uint64(0x1F0000FF0000FF)
    x = (x | (x << np.uint64(8))) & np.uint64(0x100F00F00F00F00F)
    x = (x | (x << np.uint64(4))) & np.uint64(0x10C30C30C30C30C3)
    return (x | (x << np.uint64(2))) & np.uint64(0x1249249249249249)


@njit(nogil=True, cache=True)
def morton_keys(points, corner, size):
    """The keys of points at the finest level: uint64 (n,).

    Args:
        points: float64 (n, 3).
        corner, size: of the cube that contains them, float64 (3,) and a number.
    """
    n = len(points)
    keys = np.empty(n, np.uint64)
    scale = (1 << MAX_LEVEL) / size
    last = (1 << MAX_LEVEL) - 1
    for i in range(n):
        x = min(max(int((points[i, 0] - corner[0]) * scale), 0), last)
        y = min(max(int((points[i, 1] - corner[1]) * scale), 0), last)
        z = min(max(int((points[i, 2] - corner[2]) * scale), 0), last)
        keys[i] = (
            spread_bits(x) | (spread_bits(y) << np.uint64(1)) | (spread_bits(z) << np.uint64(2))
        )
    return keys


@njit(nogil=True, cache=True)
def sorted_order(keys):
    """Sort keys in place; returns the order: int64 (n,), each key's previous index.

    A radix sort from the lowest digit on. It skips digits that are equal in all keys.
    """
    n = len(keys)
    order = np.arange(n)
    other_keys, other_order = np.empty_like(keys), np.empty_like(order)
    here, there, at, to = keys, other_keys, order, other_order
    buckets = 1 << DIGIT_BITS
    mask = np.uint64(buckets - 1)
    for digit in range((3 * MAX_LEVEL + DIGIT_BITS - 1) // DIGIT_BITS):
        shift = np.uint64(digit * DIGIT_BITS)
        count = np.zeros(buckets + 1, np.int64)
        for i in range(n):
            count[((here[i] >> shift) & mask) + np.uint64(1)] += 1
        if count.max() == n:
            continue
        for b in range(buckets):
            count[b + 1] += count[b]
        for i in range(n):
            b = (here[i] >> shift) & mask
            place = count[b]
            count[b] += 1
            there[place] = here[i]
            to[place] = at[i]
        here, there, at, to = there, here, to, at
    for i in range(n):
        keys[i] = here[i]
    return at
