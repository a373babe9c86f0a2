"""``gpu_sfu``: special functions on a GPU, with a chosen number of multiply-adds for each.

A chain of reciprocal square roots alone would converge to 1. With multiply-adds, x becomes
p / sqrt|x| + q, a chaotic map: its values keep changing, differ between chains, and stay finite,
because with this p and q no x in single precision gives 0. The further multiply-adds alternate
between two that cancel each other. Without multiply-adds the chains are reciprocals, which
alternate between x and 1 / x.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from kernels.cuda.microbench.chunks import (
    CHECKED_BLOCKS,
    CHECKED_CHUNKS,
    CHUNKS,
    THREADS,
    ChunkRun,
    Work,
)
from kernels.cuda.program import NEEDS, Source
from kernels.host.ranks import Team
from kernels.kernel import Counts, Kernel, Params, ResultError

SOURCE = Path(__file__).with_name("sfu.cu")
FUNCTION = "special_functions"
CHAINS = 8
"""Chains of a thread, as in the source."""
WORK = Work(CHUNKS, 64)
"""The work of one iteration, the same on every GPU."""
RESTART = (np.float32(1.1), np.float32(-1.2787023))
"""p and q. In units of p^(2/3) the map is 1 / sqrt|x| - 1.2: between 0.63 and 1.89 it has no stable
fixed point."""
BACK_AND_FORTH = (np.float32(-1.618034), np.float32(0.0011780972))
FACTORS = (
    RESTART,
    BACK_AND_FORTH,
    (np.float32(1 / BACK_AND_FORTH[0]), np.float32(-BACK_AND_FORTH[1] / BACK_AND_FORTH[0])),
)
"""Factor and term of the first multiply-add after a value, and of the two that then alternate."""
ROUNDING = 2.0**-20
"""The allowed relative error of an instruction; the error of a special function of the GPU is at
most 2^-22 (NVIDIA's PTX ISA)."""


class GpuSfuParams(Params):
    """The multiply-adds for each value of a special function."""

    ops_per_value: int = Field(default=1, ge=0, le=64)
    """single-precision multiply-adds for each reciprocal square root; 0: reciprocals alone"""


def values_per_trip(params: GpuSfuParams) -> int:
    """The special functions of one chain in one trip. Only one reciprocal, because the compiler
    removes two in sequence."""
    return 2 if params.ops_per_value else 1


def count_values(params: GpuSfuParams) -> Counts:
    """Operations of one iteration of one rank, which does not share its GPU. A special function is
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
    """The start values of the chains: float32 (threads, CHAINS), between 0.5 and 2."""
    rng = np.random.default_rng(seed)
    return rng.uniform(0.5, 2.0, (threads, CHAINS)).astype(np.float32)


def expected(
    params: GpuSfuParams, start: np.ndarray[Any, Any], blocks: int, work: Work
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The end values of the chains, by NumPy, and their error bounds: each float64 (blocks *
    THREADS, CHAINS).

    The map is chaotic: an error grows with the slope of each step, so each step updates the bound.
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


class SfuRun(ChunkRun):
    """The kernel with its arrays on the GPU."""

    function = FUNCTION

    def __init__(self, params: GpuSfuParams, team: Team) -> None:
        self._params = params
        super().__init__(team, count_values(params), WORK)

    def source(self, architecture: str) -> Source:
        """See :class:`ChunkRun`."""
        return sfu_source(self._params)

    def arguments(self, seed: int) -> tuple[Any, ...]:
        """See :class:`ChunkRun`."""
        self._start = first_values(self.blocks * THREADS, seed)
        out, start = self.gpu.array(self._start), self.gpu.array(self._start)
        return (out, start, *(value for pair in FACTORS for value in pair))

    def check(self) -> None:
        """Compare with NumPy after a few values of each chain, because errors grow in each step."""
        work = Work(CHECKED_CHUNKS, 1)
        self.launch(CHECKED_BLOCKS, work, self.on_gpu)
        start = self._start[: CHECKED_BLOCKS * THREADS]
        computed = self.gpu.copied(self.on_gpu[0], start)
        right, tolerance = expected(self._params, start, CHECKED_BLOCKS, work)
        wrong = int((~(np.abs(computed - right) <= tolerance)).sum())
        if wrong:
            raise ResultError(f"{wrong} of {right.size} chains of special functions are wrong")


gpu_sfu = Kernel(
    name="gpu_sfu",
    summary="special functions on a GPU with a chosen number of multiply-adds for each",
    counted="one operation a special function (sfu), two a multiply-add (sp)",
    classes=("sfu", "sp"),
    params=GpuSfuParams,
    counts=count_values,
    prepare=SfuRun,
    needs=NEEDS,
)
