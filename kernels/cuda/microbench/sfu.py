"""Special functions on a GPU, with a chosen number of multiply-adds for each.

A chain of reciprocal square roots alone would settle at 1. With multiply-adds, x becomes
p / sqrt|x| + q, a chaotic map: its values keep changing, differ between chains, and stay finite,
because p and q are such that no x in single precision makes 0. The further multiply-adds alternate
between two that cancel each other. Without multiply-adds the chains are reciprocals, which go back
and forth between x and 1 / x.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from kernels.cuda.microbench.chunks import CHUNKS, THREADS, Work
from kernels.cuda.program import Source
from kernels.kernel import Counts, Params

SOURCE = Path(__file__).with_name("sfu.cu")
FUNCTION = "special_functions"
CHAINS = 8
"""Of a thread, as in the source."""
WORK = Work(CHUNKS, 64)
"""Of one iteration, the same on every GPU."""
RESTART = (np.float32(1.1), np.float32(-1.2787023))
"""p and q. In units of p^(2/3) the map is 1 / sqrt|x| - 1.2: between 0.63 and 1.89 it has no stable
fixed point."""
BACK_AND_FORTH = (np.float32(-1.618034), np.float32(0.0011780972))
FACTORS = (
    RESTART,
    BACK_AND_FORTH,
    (np.float32(1 / BACK_AND_FORTH[0]), np.float32(-BACK_AND_FORTH[1] / BACK_AND_FORTH[0])),
)
"""Factor and term of the first multiply-add after a value, and of the further ones by turns."""
ROUNDING = 2.0**-20
"""How far off an instruction may be, as a share of its result: a special function of the GPU is
within 2^-22 (NVIDIA's PTX ISA)."""


class GpuSfuParams(Params):
    """How much is computed with each value of a special function."""

    ops_per_value: int = Field(default=1, ge=0, le=64)
    """single-precision multiply-adds for each value of a special function. The function is a
    reciprocal square root; without multiply-adds a reciprocal, as a chain of the former would
    settle at 1"""


def values_per_trip(params: GpuSfuParams) -> int:
    """Special functions of one chain in one trip; a single reciprocal, since the compiler leaves
    out two that follow one another."""
    return 2 if params.ops_per_value else 1


def count_values(params: GpuSfuParams) -> Counts:
    """Operations of one iteration of one rank, which has a GPU of its own. A special function is
    one operation, a multiply-add two."""
    trips = float(WORK.chunks * WORK.trips * THREADS)
    values = CHAINS * values_per_trip(params) * trips
    counts = {"sfu": values}
    if params.ops_per_value:
        counts["sp"] = 2.0 * params.ops_per_value * values
    return counts


def sfu_source(params: GpuSfuParams) -> Source:
    """The source with the parameters' macros."""
    return Source(
        path=SOURCE, macros={"OPS": params.ops_per_value, "VALUES": values_per_trip(params)}
    )


def first_values(threads: int, seed: int) -> np.ndarray[Any, Any]:
    """Where the chains begin: float32 (threads, CHAINS), between 0.5 and 2."""
    rng = np.random.default_rng(seed)
    return rng.uniform(0.5, 2.0, (threads, CHAINS)).astype(np.float32)


def expected(
    params: GpuSfuParams, start: np.ndarray[Any, Any], blocks: int, work: Work
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The chains' ends by NumPy, and how far off they may be: float64 (blocks * THREADS, CHAINS).

    The map is chaotic: an error grows with the slope of each step, so it is followed along.
    """
    x = start.reshape(blocks, THREADS, CHAINS).astype(np.float64)
    off = np.zeros_like(x)
    for block in range(blocks):
        y, error = x[block], off[block]
        trips = len(work.chunks_of(block, blocks)) * work.trips
        for _ in range(trips * values_per_trip(params)):
            if params.ops_per_value == 0:
                error = error / y**2
                y = 1.0 / y
            else:
                error = 0.5 * error * np.abs(y) ** -1.5
                y = 1.0 / np.sqrt(np.abs(y))
            error = error + ROUNDING * np.abs(y)
            for i in range(params.ops_per_value):
                factor, term = map(float, FACTORS[0 if i == 0 else 2 - i % 2])
                y = factor * y + term
                error = abs(factor) * error + ROUNDING * (np.abs(y) + abs(term))
        x[block], off[block] = y, error
    return x.reshape(-1, CHAINS), off.reshape(-1, CHAINS)
