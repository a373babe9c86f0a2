"""Fused multiply-adds in single and double precision, with a chosen number per word loaded.

The intensity microbenchmark of Choi et al. (2013, section 4.2). One multiply-add is two
flops; address and loop instructions are not counted. Where the processor has no fused
multiply-add, it is a multiplication and an addition.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.host.ranks import Team
from kernels.kernel import Counts, Kernel, Prepared
from kernels.microbench.chains import Arithmetic, ChainParams, chain_counts, prepare_chains


def _fill(array: np.ndarray[Any, Any], seed: int) -> None:
    """Uniform random words between -1 and 1, in place."""
    np.random.default_rng(seed).random(out=array, dtype=array.dtype)
    array *= 2
    array -= 1


def _arithmetic(dtype: np.dtype[Any], tolerance: float) -> Arithmetic:
    """Factors whose product is 1 - 2^-17, and terms that cancel, so that the fixed point is near 0.

    At another fixed point a step would be smaller than its rounding, and values would not change.
    """
    shrink = 2.0**-17
    p, q = dtype.type(-1.6180339887498949), dtype.type(0.0011780972450961724)
    r = dtype.type((1 - shrink) / p.item())
    s = dtype.type(-r.item() * q.item())
    return Arithmetic(dtype, (p, q, r, s), _fill, np.dtype(np.float64), tolerance)


# Rounding errors of the last 2^17 steps, after which a chain has forgotten earlier ones; errors
# up to 1e-4 and 6e-12 were measured.
SINGLE = _arithmetic(np.dtype(np.float32), 1e-3)
DOUBLE = _arithmetic(np.dtype(np.float64), 1e-10)


def count_single(params: ChainParams) -> Counts:
    """Flops, class ``sp``, and bytes, 4 a word, of one iteration of one rank."""
    return chain_counts(params, "sp", 4)


def count_double(params: ChainParams) -> Counts:
    """Flops, class ``dp``, and bytes, 8 a word, of one iteration of one rank."""
    return chain_counts(params, "dp", 8)


def _prepare_single(params: ChainParams, team: Team) -> Prepared:
    return prepare_chains(params, team, SINGLE, count_single(params))


def _prepare_double(params: ChainParams, team: Team) -> Prepared:
    return prepare_chains(params, team, DOUBLE, count_double(params))


sp_fma = Kernel(
    name="sp_fma",
    summary="single-precision fused multiply-adds, any number per word loaded from one level",
    counted="flops (sp); 4 bytes a word at the serving level",
    classes=("sp", "l1", "l2", "l3", "dram"),
    params=ChainParams,
    counts=count_single,
    prepare=_prepare_single,
    imports=("kernels.microbench.loops",),
)
dp_fma = Kernel(
    name="dp_fma",
    summary="double-precision fused multiply-adds, any number per word loaded from one level",
    counted="flops (dp); 8 bytes a word at the serving level",
    classes=("dp", "l1", "l2", "l3", "dram"),
    params=ChainParams,
    counts=count_double,
    prepare=_prepare_double,
    imports=("kernels.microbench.loops",),
)
