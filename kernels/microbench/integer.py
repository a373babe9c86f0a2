"""Multiply-adds of 32-bit integers, with a chosen number per word loaded.

32 bits, because every vector unit multiplies those in one instruction. One multiply-add is two
operations (most processors need two instructions for it); address and loop instructions are not
counted. Results wrap modulo 2^32, so they are checked exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.host.ranks import Team
from kernels.kernel import Counts, Kernel, Prepared
from kernels.microbench.chains import Arithmetic, ChainParams, chain_counts, prepare_chains


def _fill(array: np.ndarray[Any, Any], seed: int) -> None:
    """Uniform random words, in place."""
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


def count_integer(params: ChainParams) -> Counts:
    """Integer operations, class ``int``, and bytes, 4 a word, of one iteration of one rank."""
    return chain_counts(params, "int", 4)


def _prepare(params: ChainParams, team: Team) -> Prepared:
    return prepare_chains(params, team, INT32, count_integer(params))


int_mad = Kernel(
    name="int_mad",
    summary="multiply-adds of 32-bit integers, any number per word loaded from one level",
    counted="operations (int), two a multiply-add; 4 bytes a word at the serving level",
    classes=("int", "l1", "l2", "l3", "dram"),
    params=ChainParams,
    counts=count_integer,
    prepare=_prepare,
    imports=("kernels.microbench.loops",),
)
