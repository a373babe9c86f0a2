"""Chains of multiply-adds on a GPU: parameters, counts, and what NumPy computes.

Chains alternate between two steps, as those of :mod:`kernels.microbench.chains` do. A processor's
power depends on the values that it computes with (arXiv 2212.08805: up to 67 % on an A100), so
``data`` is a parameter, and kernels with other data are other kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator

from kernels.cuda.program import Source
from kernels.kernel import Params

Level = Literal["register", "shared", "l1", "l2", "dram"]
Data = Literal["zeros", "ones", "random", "normal"]
SOURCE = Path(__file__).with_name("fma.cu")
FUNCTION = "multiply_adds"
LEVELS = ("register", "shared", "l1", "l2", "dram")
"""In the order of the source's ``LEVEL``."""
THREADS, VECTORS, VECTOR_BYTES, REGISTER_CHAINS, BLOCK_STEPS = 256, 2, 16, 8, 16
"""As in the source."""
REGION_VECTORS = 2 * VECTORS * THREADS
CHUNKS = 1 << 14
TRIPS, REGISTER_TRIPS = 32, 256
"""Of one iteration: some milliseconds on a GPU of a computing centre."""


@dataclass(frozen=True, kw_only=True)
class Number:
    """How a kind of number is computed with.

    ``code``: the source's ``NUMBER``; ``dtype``: of a word; ``lanes``: numbers in a word;
    ``counted_as``: its class; ``instructions``: the names of a multiply-add in machine code;
    ``constants``: p, q, r, s of one lane; ``exact``: the type that a check computes in;
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
        """Words in a vector."""
        return VECTOR_BYTES // (self.dtype.itemsize * self.lanes)


def _float(code: int, dtype: type[Any], shrink: float, **more: Any) -> Number:
    """Factors whose product is 1 - shrink, and terms that cancel, so that values stay near 0 and
    keep changing."""
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
    """Which numbers, where the words come from, and how much is computed with each."""

    number: Literal["sp", "dp", "half", "int"] = "sp"
    """single or double precision, two halves in a word, or integers of 32 bits"""
    level: Level = "register"
    """level of the memory hierarchy that serves the loads; register: no loads"""
    ops_per_word: int | None = Field(default=None, ge=1, le=4096)
    """multiply-adds per word loaded; required unless the level is register"""
    data: Data = "random"
    """the words' values: zeros, ones, random bits that make numbers between -1 and 1 (any integer),
    or a normal distribution"""

    @model_validator(mode="after")
    def _words_have_ops(self) -> GpuFmaParams:
        if self.level == "register" and self.ops_per_word is not None:
            raise ValueError("level 'register' loads no words: leave ops_per_word out")
        if self.level != "register" and self.ops_per_word is None:
            raise ValueError(f"level {self.level!r} needs ops_per_word, multiply-adds per word")
        return self


@dataclass(frozen=True)
class Work:
    """How the work of one iteration is cut: every block takes chunks of ``trips``."""

    chunks: int
    trips: int


def iteration_work(params: GpuFmaParams) -> Work:
    """The work of one iteration, the same on every GPU."""
    return Work(CHUNKS, REGISTER_TRIPS if params.level == "register" else TRIPS)


def steps_per_trip(params: GpuFmaParams) -> int:
    """Multiply-adds, of words, that one thread executes in one trip."""
    if params.ops_per_word is None:
        return REGISTER_CHAINS * BLOCK_STEPS
    return words_per_trip(params) * params.ops_per_word


def words_per_trip(params: GpuFmaParams) -> int:
    """Words that one thread loads in one trip."""
    return 0 if params.level == "register" else VECTORS * NUMBERS[params.number].width


def inner_trips(params: GpuFmaParams) -> int:
    """How often the loops within a trip run; 1 where there are none."""
    after_word = (params.ops_per_word or 1) - 1
    return after_word // BLOCK_STEPS if after_word >= 2 * BLOCK_STEPS else 1


def count_multiply_adds(params: GpuFmaParams) -> dict[str, float]:
    """Operations and bytes of one iteration of one rank, which has a GPU of its own.

    A multiply-add of one number is two operations. Address and loop instructions are not counted,
    nor what a block does before its first chunk and after its last.
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
    """Chains of one thread."""
    return REGISTER_CHAINS if params.level == "register" else words_per_trip(params) // 2


def filled(number: Number, words: int, data: Data, seed: int) -> np.ndarray[Any, Any]:
    """Words of the number's kind: (words, lanes)."""
    shape = (words, number.lanes)
    rng = np.random.default_rng(seed)
    if data == "zeros":
        return np.zeros(shape, number.dtype)
    if data == "ones":
        return np.ones(shape, number.dtype)
    if number.dtype.kind == "u":
        if data == "normal":
            return np.round(rng.normal(scale=1e6, size=shape)).astype(np.int32).view(np.uint32)
        return rng.integers(0, 2**32, shape, np.uint32)
    values = rng.normal(size=shape) if data == "normal" else rng.uniform(-1.0, 1.0, shape)
    return values.astype(number.dtype)


def expected(
    params: GpuFmaParams,
    start: np.ndarray[Any, Any],
    words: np.ndarray[Any, Any],
    blocks: int,
    work: Work,
) -> np.ndarray[Any, Any]:
    """What the kernel computes, by NumPy: the chains' ends.

    ``start``, and the result: (blocks * THREADS, chains, lanes); ``words``: (words, lanes).
    """
    number = NUMBERS[params.number]
    p, q, r, s = (value.astype(number.exact) for value in number.constants)
    vectors = words.reshape(-1, number.width, number.lanes)
    lane = np.arange(THREADS)
    end = start.copy()
    for block in range(blocks):
        x = start[block * THREADS : (block + 1) * THREADS].copy()

        def step(factor: Any, term: Any, x: np.ndarray[Any, Any] = x) -> None:
            # In place; rounded as one operation, but for single errors of the last bit.
            x[:] = (x.astype(number.exact) * factor + term).astype(number.dtype)

        def constant_steps(first: int, count: int) -> None:
            for i in range(first, first + count):
                step(*((r, s) if i % 2 else (p, q)))

        for chunk in range(block, work.chunks, blocks):
            of_chunk = work.trips * VECTORS * THREADS
            for trip in range(work.trips):
                if params.ops_per_word is None:
                    constant_steps(0, BLOCK_STEPS)
                    continue
                if params.level in ("l2", "dram"):
                    first = chunk % (len(vectors) // of_chunk) * of_chunk + trip * VECTORS * THREADS
                else:
                    first = trip % 2 * VECTORS * THREADS
                    first += block * REGION_VECTORS if params.level == "l1" else 0
                rows = first + np.arange(VECTORS)[:, None] * THREADS + lane
                loaded = vectors[rows].swapaxes(0, 1).reshape(THREADS, -1, number.lanes)
                loaded = loaded.astype(number.exact)
                ops = params.ops_per_word
                step(p, loaded[:, 0::2])
                constant_steps(1, ops - 1)
                step(r if ops % 2 else p, loaded[:, 1::2])
                constant_steps(ops + 1, ops - 1)
        end[block * THREADS : (block + 1) * THREADS] = x
    return end


def array_vectors(params: GpuFmaParams, blocks: int, l2_bytes: int) -> int:
    """How many vectors the words have, on a GPU with so many blocks and bytes of second cache."""
    of_chunk = iteration_work(params).trips * VECTORS * THREADS
    if params.level == "register":
        return 1
    if params.level == "shared":
        return REGION_VECTORS
    if params.level == "l1":
        return blocks * REGION_VECTORS
    wanted = l2_bytes // 4 if params.level == "l2" else max(4 * l2_bytes, 1 << 30)
    return max(wanted // VECTOR_BYTES // of_chunk, 1) * of_chunk
