"""Matrix products of a GPU's tensor cores, without loads of their operands in the loop.

In each trip every block adds the product A B to its sums D. The second half of K cancels the first:
A's numbers are repeated and B's are negated, so that the sums keep changing and stay as large as
one product. Only the operations of the tensor cores are counted: what ``wgmma`` reads of shared
memory in each instruction is a part of its operations' energy.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import model_validator

from kernels.cuda.microbench.chunks import CHUNKS, Work
from kernels.cuda.microbench.data import Data, filled
from kernels.cuda.microbench.tensor_numbers import TENSOR_NUMBERS
from kernels.cuda.program import Source
from kernels.kernel import Counts, KernelError, Params

FUNCTION = "products"
SOURCES = {
    "mma": Path(__file__).with_name("mma.cu"),
    "wgmma": Path(__file__).with_name("wgmma.cu"),
}
TRIPS = {"mma": 256, "wgmma": 64}
SLICE_BYTES = 32
"""What an instruction takes of a row of A or a column of B; of doubles, 128 bytes."""
QMMA = ("sm_89", "sm_120", "sm_121")
"""The architectures whose mma multiplies 8-bit numbers. Others convert them to halves first."""


class GpuMmaParams(Params):
    """Which numbers, and by which instruction."""

    number: Literal["dp", "half", "bf16", "fp8"] = "half"
    """double precision; half precision or bf16 with single-precision sums; or 8-bit numbers (e4m3)
    with single-precision sums: by wgmma on sm_90, by mma on sm_89, sm_120 and sm_121"""
    instruction: Literal["mma", "wgmma"] = "mma"
    """mma: a warp's instruction, operands in registers; wgmma: an instruction of four warps,
    operands in shared memory, on sm_90 alone"""
    data: Data = "random"
    """the operands' values: zeros, ones, random numbers between -1 and 1, or a normal distribution;
    half of them negated, so that sums stay bounded"""

    @model_validator(mode="after")
    def _wgmma_has_no_doubles(self) -> GpuMmaParams:
        if self.instruction == "wgmma" and self.number == "dp":
            raise ValueError("instruction 'wgmma' has no double precision: choose 'mma'")
        return self


@dataclass(frozen=True)
class Shape:
    """A product of m x k numbers and k x n numbers."""

    m: int
    n: int
    k: int


def block_shape(params: GpuMmaParams) -> Shape:
    """What a block multiplies in one trip."""
    if params.number == "dp":
        return Shape(256, 16, 32)
    slices, m, n = (2, 256, 32) if params.instruction == "mma" else (4, 128, 256)
    return Shape(m, n, slices * SLICE_BYTES // TENSOR_NUMBERS[params.number].dtype.itemsize)


def iteration_work(params: GpuMmaParams) -> Work:
    """The work of one iteration, the same on every GPU."""
    return Work(CHUNKS, TRIPS[params.instruction])


def count_products(params: GpuMmaParams) -> Counts:
    """Operations of one iteration of one rank, which has a GPU of its own: two a multiply-add."""
    work, shape = iteration_work(params), block_shape(params)
    flops = 2.0 * shape.m * shape.n * shape.k * work.trips * work.chunks
    return {TENSOR_NUMBERS[params.number].counted_as: flops}


def mma_source(params: GpuMmaParams, architecture: str) -> Source:
    """The source with the parameters' macros.

    Raises:
        KernelError: the architecture has no such instruction; the text says what to choose.
    """
    capability = int(architecture.removeprefix("sm_"))
    if params.instruction == "wgmma" and capability != 90:
        raise KernelError(
            f"instruction 'wgmma' is of sm_90 alone, and this GPU is {architecture}: choose 'mma'"
        )
    if capability < 80:
        raise KernelError(
            f"gpu_mma needs the tensor cores of sm_80 or later, and this GPU is {architecture}"
        )
    if params.instruction == "mma" and params.number == "fp8" and architecture not in QMMA:
        other = "instruction 'wgmma'" if capability == 90 else "another number"
        raise KernelError(
            f"instruction 'mma' multiplies no 8-bit numbers on {architecture}, only on "
            f"{', '.join(QMMA)}: choose {other}"
        )
    return Source(
        path=SOURCES[params.instruction],
        macros={"NUMBER": TENSOR_NUMBERS[params.number].code},
        specific=params.instruction == "wgmma",
    )


@dataclass(frozen=True)
class Operands:
    """The bits of A, (m, k), and of B by its columns, (n, k)."""

    a: np.ndarray[Any, Any]
    b: np.ndarray[Any, Any]


def drawn(params: GpuMmaParams, data: Data, seed: int) -> Operands:
    """Operands that do not cancel."""
    shape, number = block_shape(params), TENSOR_NUMBERS[params.number]
    a = filled((shape.m, shape.k), np.dtype(np.float64), data, 2 * seed)
    b = filled((shape.n, shape.k), np.dtype(np.float64), data, 2 * seed + 1)
    return Operands(number.encode(a), number.encode(b))


def cancelling(params: GpuMmaParams, seed: int) -> Operands:
    """Operands of the parameters' data whose product is 0: the second half of k cancels the first.
    Zeros keep their sign."""
    number, operands = TENSOR_NUMBERS[params.number], drawn(params, params.data, seed)
    half = block_shape(params).k // 2
    a, b = operands.a[:, :half], operands.b[:, :half]
    negated = number.encode(0.0 - number.decode(b))
    return Operands(np.hstack([a, a]), np.hstack([b, negated]))


def expected(
    params: GpuMmaParams, operands: Operands, blocks: int, work: Work
) -> np.ndarray[Any, Any]:
    """The blocks' sums by NumPy: float64 (blocks, m, n)."""
    number = TENSOR_NUMBERS[params.number]
    product = number.decode(operands.a) @ number.decode(operands.b).T
    trips = [len(work.chunks_of(block, blocks)) * work.trips for block in range(blocks)]
    return np.stack([product * count for count in trips])
