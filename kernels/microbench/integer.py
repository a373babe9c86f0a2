"""Multiply-adds of 32-bit integers, with a chosen number per loaded word.

32 bits, because every vector unit multiplies these in one instruction. One multiply-add is two
operations (most processors need two instructions for it); address and loop instructions are not
counted. Results are modulo 2^32, so the check is exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.microbench.chains import Arithmetic, chain_kernel


def _fill(array: np.ndarray[Any, Any], seed: int) -> None:
    """Fill an array with uniform random words."""
    info = np.iinfo(array.dtype)
    array[:] = np.random.default_rng(seed).integers(
        info.min, info.max, array.size, array.dtype, endpoint=True
    )


# Odd factors: a step loses no bit of its input.
INT32 = Arithmetic(
    dtype=np.dtype(np.int32),
    constants=(np.int32(1664525), np.int32(1013904223), np.int32(22695477), np.int32(907633385)),
    fill=_fill,
    exact_dtype=np.dtype(np.uint32),
    tolerance=0.0,
)


int_mad = chain_kernel(
    "int_mad",
    INT32,
    "int",
    "multiply-adds of 32-bit integers",
    "operations (int), two a multiply-add",
)
