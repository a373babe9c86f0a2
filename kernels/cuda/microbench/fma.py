"""``gpu_fma``: chains of multiply-adds on a GPU, with a chosen number for each loaded word.

Chains alternate between two steps, as in :mod:`kernels.microbench.chains`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator

from kernels.cuda.microbench.chunks import (
    CHECKED_BLOCKS,
    CHECKED_CHUNKS,
    CHUNKS,
    FILLED_BYTES,
    LEVELS,
    THREADS,
    VECTOR_BYTES,
    ChunkRun,
    Data,
    Work,
    array_vectors,
    compare,
    filled,
    loaded_vectors,
    region_trips,
)
from kernels.cuda.program import NEEDS, Source
from kernels.host.ranks import Team
from kernels.kernel import Kernel, Params

Level = Literal["register", "shared", "l1", "l2", "dram"]
SOURCE = Path(__file__).with_name("fma.cu")
FUNCTION = "multiply_adds"
VECTORS, REGISTER_CHAINS, BLOCK_STEPS, REGISTER_STEPS = 2, 8, 16, 64
"""As in the source."""
TRIPS, REGISTER_TRIPS = 32, 64
"""Trips in a chunk: an iteration takes some milliseconds on a GPU of a computing centre."""


@dataclass(frozen=True, kw_only=True)
class Number:
    """A number type, and the constants of its chains.

    ``code``: the source's ``NUMBER``; ``dtype``: of a word; ``lanes``: numbers in a word;
    ``counted_as``: its class; ``instructions``: the names of a multiply-add in machine code;
    ``constants``: p, q, r, s of one lane; ``exact``: the dtype in which a check computes;
    ``tolerance``: of results, relative to the largest.
    """

    code: int
    dtype: np.dtype[Any]
    counted_as: str
    instructions: tuple[str, ...]
    constants: tuple[Any, ...]
    exact: np.dtype[Any]
    tolerance: float
    lanes: int = 1

    @property
    def width(self) -> int:
        """The number of words in a vector."""
        return VECTOR_BYTES // (self.dtype.itemsize * self.lanes)


def _float(code: int, dtype: type[Any], shrink: float, **more: Any) -> Number:
    """A number type whose factors have the product 1 - shrink, and whose terms cancel, so that
    values stay near 0 and keep changing."""
    p, q = dtype(-1.6180339887498949), dtype(0.0011780972450961724)
    r = dtype((1.0 - shrink) / float(p))
    s = dtype(-float(r) * float(q))
    exact = np.dtype(np.float64)
    return Number(code=code, dtype=np.dtype(dtype), constants=(p, q, r, s), exact=exact, **more)


NUMBERS = {
    "sp": _float(0, np.float32, 2.0**-17, counted_as="sp", instructions=("FFMA",), tolerance=1e-4),
    "dp": _float(1, np.float64, 2.0**-17, counted_as="dp", instructions=("DFMA",), tolerance=1e-11),
    "half": _float(
        2,
        np.float16,
        2.0**-8,
        lanes=2,
        counted_as="half",
        instructions=("HFMA2", "HFMA2.MMA"),
        tolerance=0.02,
    ),
    # Odd factors: a step loses no bit of its input.
    "int": Number(
        code=3,
        dtype=np.dtype(np.uint32),
        counted_as="int",
        instructions=("IMAD",),
        constants=tuple(map(np.uint32, (1664525, 1013904223, 22695477, 907633385))),
        exact=np.dtype(np.uint32),
        tolerance=0.0,
    ),
}


class GpuFmaParams(Params):
    """The number type, the level of the words, and the operations per word."""

    number: Literal["sp", "dp", "half", "int"] = "sp"
    """half: two in a word; int: 32 bits"""
    level: Level = "register"
    """level that serves the loads; register: no loads"""
    ops_per_word: int | None = Field(default=None, ge=1, le=4096)
    """multiply-adds per word loaded; required unless the level is register"""
    data: Data = "random"
    """the words' values: zeros, ones, random between -1 and 1 (any integer), or a normal
    distribution"""

    @model_validator(mode="after")
    def _words_have_ops(self) -> GpuFmaParams:
        if self.level == "register" and self.ops_per_word is not None:
            raise ValueError("level 'register' loads no words: leave ops_per_word out")
        if self.level != "register" and self.ops_per_word is None:
            raise ValueError(f"level {self.level!r} needs ops_per_word, multiply-adds per word")
        return self


def iteration_work(params: GpuFmaParams) -> Work:
    """The work of one iteration, the same on every GPU."""
    return Work(CHUNKS, REGISTER_TRIPS if params.level == "register" else TRIPS)


def steps_per_trip(params: GpuFmaParams) -> int:
    """The multiply-adds of words that one thread executes in one trip."""
    if params.ops_per_word is None:
        return REGISTER_CHAINS * REGISTER_STEPS
    return words_per_trip(params) * params.ops_per_word


def words_per_trip(params: GpuFmaParams) -> int:
    """The number of words that one thread loads in one trip."""
    return 0 if params.level == "register" else VECTORS * NUMBERS[params.number].width


def count_multiply_adds(params: GpuFmaParams) -> dict[str, float]:
    """Operations and bytes of one iteration of one rank, which does not share its GPU.

    A multiply-add of one number is two operations. Address and loop instructions are not counted,
    nor is the work of a block before its first chunk and after its last.
    """
    number, work = NUMBERS[params.number], iteration_work(params)
    trips = float(work.chunks * work.trips * THREADS)
    counts = {number.counted_as: 2.0 * number.lanes * steps_per_trip(params) * trips}
    if params.level != "register":
        counts[params.level] = VECTORS * VECTOR_BYTES * trips
    return counts


def fma_source(params: GpuFmaParams) -> Source:
    """The source with the parameters' macros."""
    return Source(
        path=SOURCE,
        macros={
            "NUMBER": NUMBERS[params.number].code,
            "LEVEL": LEVELS.index(params.level),
            "OPS": params.ops_per_word or 1,
        },
    )


def chains(params: GpuFmaParams) -> int:
    """The number of chains of one thread."""
    return REGISTER_CHAINS if params.level == "register" else words_per_trip(params) // 2


def expected(
    params: GpuFmaParams,
    start: np.ndarray[Any, Any],
    words: np.ndarray[Any, Any],
    region: int,
    blocks: int,
    work: Work,
) -> np.ndarray[Any, Any]:
    """The end values of the chains, computed by NumPy.

    ``start``, and the result: (blocks * THREADS, chains, lanes); ``words``: (words, lanes),
    repeated if the kernel loads more; ``region``: the number of trips after which a block loads the
    same words again.
    """
    number = NUMBERS[params.number]
    p, q, r, s = (value.astype(number.exact) for value in number.constants)
    vectors = words.reshape(-1, number.width, number.lanes)
    end = start.copy()
    for block in range(blocks):
        x = start[block * THREADS : (block + 1) * THREADS].copy()

        def step(factor: Any, term: Any, x: np.ndarray[Any, Any] = x) -> None:
            # In place; rounded like a fused operation, except for rare errors of the last bit.
            x[:] = (x.astype(number.exact) * factor + term).astype(number.dtype)

        def constant_steps(first: int, count: int) -> None:
            for i in range(first, first + count):
                step(*((r, s) if i % 2 else (p, q)))

        for trip in range(len(work.chunks_of(block, blocks)) * work.trips):
            if params.ops_per_word is None:
                constant_steps(0, REGISTER_STEPS)
                continue
            rows = loaded_vectors(params.level, VECTORS, block, trip, region)
            loaded = vectors[rows % len(vectors)].reshape(THREADS, -1, number.lanes)
            loaded = loaded.astype(number.exact)
            ops = params.ops_per_word
            step(p, loaded[:, 0::2])
            constant_steps(1, ops - 1)
            step(r if ops % 2 else p, loaded[:, 1::2])
            constant_steps(ops + 1, ops - 1)
        end[block * THREADS : (block + 1) * THREADS] = x
    return end


class FmaRun(ChunkRun):
    """The kernel with its arrays on the GPU."""

    function = FUNCTION

    def __init__(self, params: GpuFmaParams, team: Team) -> None:
        self._params, self._number = params, NUMBERS[params.number]
        super().__init__(team, count_multiply_adds(params), iteration_work(params))

    def source(self, architecture: str) -> Source:
        """See :class:`ChunkRun`."""
        return fma_source(self._params)

    def arguments(self, seed: int) -> tuple[Any, ...]:
        """See :class:`ChunkRun`."""
        number, level = self._number, self._params.level
        of_level = (level, VECTORS, self.blocks, self.gpu.l2_bytes)
        self._region = 1 if level == "register" else region_trips(*of_level)
        size_bytes = array_vectors(*of_level) * VECTOR_BYTES
        drawn = min(size_bytes, FILLED_BYTES) // VECTOR_BYTES * number.width
        self._words = filled((drawn, number.lanes), number.dtype, self._params.data, seed)
        n_chains = self.blocks * THREADS * chains(self._params)
        self._start = filled((n_chains, number.lanes), number.dtype, "random", seed + 1)
        return (
            self.gpu.array(self._start),
            self.gpu.array(self._start),
            self.gpu.array(self._words, size_bytes),
            np.int32(self._region),
            *(self._argument(value) for value in number.constants),
        )

    def _argument(self, value: Any) -> Any:
        """A constant as an argument of the kernel: a pair of halves is one word."""
        if self._number.lanes == 1:
            return value
        return np.array([value] * self._number.lanes, self._number.dtype).view(np.uint32)[0]

    def check(self) -> None:
        """Compare a few chunks, of the first words of the array, with NumPy."""
        work = Work(CHECKED_CHUNKS, self._work.trips)
        self.launch(CHECKED_BLOCKS, work, self.on_gpu)
        rows = CHECKED_BLOCKS * THREADS
        shape = (rows, chains(self._params), self._number.lanes)
        start = self._start[: rows * chains(self._params)].reshape(shape)
        computed = self.gpu.copied(self.on_gpu[0], start)
        right = expected(self._params, start, self._words, self._region, CHECKED_BLOCKS, work)
        compare(f"chains of {self._params.number}", computed, right, self._number.tolerance)


gpu_fma = Kernel(
    name="gpu_fma",
    summary="multiply-adds on a GPU with a chosen number for each word loaded",
    counted="two operations a multiply-add (sp, dp, half, int); 16-byte loads at the level",
    classes=("sp", "dp", "half", "int", "shared", "l1", "l2", "dram"),
    params=GpuFmaParams,
    counts=count_multiply_adds,
    prepare=FmaRun,
    needs=NEEDS,
)
