"""Fused multiply-adds in single and double precision, with a chosen number per loaded word.

The intensity microbenchmark of Choi et al. (2013, section 4.2). One multiply-add is two flops;
address and loop instructions are not counted. On a processor without fused multiply-adds, it is a
multiplication and an addition.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.microbench.chains import Arithmetic, chain_kernel


def _fill(array: np.ndarray[Any, Any], seed: int) -> None:
    """Fill an array with uniform random words between -1 and 1."""
    np.random.default_rng(seed).random(out=array, dtype=array.dtype)
    array *= 2
    array -= 1


def _arithmetic(dtype: np.dtype[Any], tolerance: float) -> Arithmetic:
    """A number type whose factors have the product 1 - 2^-17, and whose terms cancel, so that the
    fixed point is near 0.

    Near any other fixed point, steps would be smaller than their rounding, and values constant.
    """
    shrink = 2.0**-17
    p, q = dtype.type(-1.6180339887498949), dtype.type(0.0011780972450961724)
    r = dtype.type((1 - shrink) / p.item())
    s = dtype.type(-r.item() * q.item())
    return Arithmetic(dtype, (p, q, r, s), _fill, np.dtype(np.float64), tolerance)


# Bounds for the rounding errors of the last 2^17 steps; earlier ones have decayed. Errors up to
# 1e-4 and 6e-12 were measured.
SINGLE = _arithmetic(np.dtype(np.float32), 1e-3)
DOUBLE = _arithmetic(np.dtype(np.float64), 1e-10)


sp_fma = chain_kernel("sp_fma", SINGLE, "sp", "single-precision fused multiply-adds", "flops (sp)")
dp_fma = chain_kernel("dp_fma", DOUBLE, "dp", "double-precision fused multiply-adds", "flops (dp)")
