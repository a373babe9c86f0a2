"""``gpu_mma``: matrix products of a GPU's tensor cores, whose operands are not loaded in the loop.

In each trip every block adds the product A B to its sums D. The second half of K cancels the first:
it repeats A's numbers and negates B's, so that the sums keep changing and do not exceed one
product. Only the operations of the tensor cores are counted: the energy of an operation of
``wgmma`` includes its reads of shared memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import model_validator

from kernels.cuda.microbench.chunks import (
    CHECKED_BLOCKS,
    CHECKED_CHUNKS,
    CHUNKS,
    ChunkRun,
    Data,
    Work,
    compare,
    filled,
)
from kernels.cuda.program import NEEDS, Source
from kernels.host.ranks import Team
from kernels.kernel import Counts, Kernel, KernelError, Params

Array = np.ndarray[Any, Any]
E4M3_BIAS, E4M3_LARGEST = 7, 448.0
SINGLE, DOUBLE = np.dtype(np.float32), np.dtype(np.float64)
FUNCTION = "products"
SOURCES = {
    "mma": Path(__file__).with_name("mma.cu"),
    "wgmma": Path(__file__).with_name("wgmma.cu"),
}
TRIPS = {"mma": 256, "wgmma": 64}
SLICE_BYTES = 32
"""The bytes of a row of A, or a column of B, in one instruction; 128 for doubles."""
QMMA = ("sm_89", "sm_120", "sm_121")
"""The architectures whose mma multiplies 8-bit numbers; others convert these to halves first."""
CHECKED_TRIPS = 3


@dataclass(frozen=True, kw_only=True)
class TensorNumber:
    """A number type that tensor cores multiply.

    ``code``: the sources' ``NUMBER``; ``dtype``: of its bits; :attr:`encode` makes the bits of the
    nearest number from float64, and :attr:`decode` converts them back; ``sums``: the dtype of sums;
    ``counted_as``: its class; ``tolerance``: of sums, relative to the largest. Some tensor cores
    keep only about 14 bits in the sums of 8-bit numbers (DeepSeek-AI 2024).
    """

    code: int
    dtype: np.dtype[Any]
    encode: Callable[[Array], Array]
    decode: Callable[[Array], Array]
    counted_as: str
    tolerance: float
    sums: np.dtype[Any] = SINGLE


def bf16_from(values: Array) -> Array:
    """The bits of the nearest bf16 numbers, the upper halves of float32: uint16."""
    bits = values.astype(np.float32).view(np.uint32)
    half_up = 0x7FFF + ((bits >> np.uint32(16)) & np.uint32(1))
    return ((bits + half_up) >> np.uint32(16)).astype(np.uint16)


def bf16_values(bits: Array) -> Array:
    """The values of bf16 numbers: float64."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)


def e4m3_values(bits: Array) -> Array:
    """The values of 8-bit numbers with 4 bits of exponent and 3 bits of mantissa: float64; NaN for
    0x7f and 0xff (Micikevicius et al. 2022)."""
    exponent = ((bits >> 3) & 15).astype(np.int64)
    mantissa = (bits & 7) / 8.0
    scale = np.exp2(np.maximum(exponent, 1) - E4M3_BIAS)
    size = np.where(exponent > 0, 1.0 + mantissa, mantissa) * scale
    size = np.where((bits & 127) == 127, np.nan, size)
    return np.where(bits >> 7, -size, size)


def e4m3_from(values: Array) -> Array:
    """The bits of the nearest e4m3 numbers, at most 448: uint8."""
    size = np.minimum(np.abs(values), E4M3_LARGEST)
    lowest = 1 - E4M3_BIAS
    exponent = np.floor(np.log2(np.maximum(size, 2.0**lowest))).astype(np.int64)
    step = np.exp2(exponent - 3)
    eighths = np.rint(size / step).astype(np.int64)
    # 16 eighths are the first number of the next exponent; below 8 the number is subnormal.
    bits = np.where(eighths >= 8, (exponent - lowest) * 8 + eighths, eighths)
    return (bits | np.where(np.signbit(values), 128, 0)).astype(np.uint8)


def _half_from(values: Array) -> Array:
    return values.astype(np.float16).view(np.uint16)


def _half_values(bits: Array) -> Array:
    return bits.view(np.float16).astype(np.float64)


def _same(values: Array) -> Array:
    return values


TENSOR_NUMBERS = {
    "dp": TensorNumber(
        code=0,
        dtype=DOUBLE,
        encode=_same,
        decode=_same,
        counted_as="tc_dp",
        tolerance=1e-13,
        sums=DOUBLE,
    ),
    "half": TensorNumber(
        code=1,
        dtype=np.dtype(np.uint16),
        encode=_half_from,
        decode=_half_values,
        counted_as="tc_half",
        tolerance=1e-4,
    ),
    "bf16": TensorNumber(
        code=2,
        dtype=np.dtype(np.uint16),
        encode=bf16_from,
        decode=bf16_values,
        counted_as="tc_half",
        tolerance=1e-4,
    ),
    "fp8": TensorNumber(
        code=3,
        dtype=np.dtype(np.uint8),
        encode=e4m3_from,
        decode=e4m3_values,
        counted_as="tc_fp8",
        tolerance=0.01,
    ),
}


class GpuMmaParams(Params):
    """The number type and the instruction."""

    number: Literal["dp", "half", "bf16", "fp8"] = "half"
    """all but dp have single-precision sums; fp8 (e4m3) by wgmma on sm_90, by mma on sm_89, sm_120
    and sm_121"""
    instruction: Literal["mma", "wgmma"] = "mma"
    """mma: of a warp, operands in registers; wgmma: of four warps, operands in shared memory, sm_90
    only"""
    data: Data = "random"
    """the operands' values: zeros, ones, random between -1 and 1, or a normal distribution; half of
    them negated"""

    @model_validator(mode="after")
    def _wgmma_has_no_doubles(self) -> GpuMmaParams:
        if self.instruction == "wgmma" and self.number == "dp":
            raise ValueError("instruction 'wgmma' has no double precision: choose 'mma'")
        return self


@dataclass(frozen=True)
class Shape:
    """The shape of a product of an m x k and a k x n matrix."""

    m: int
    n: int
    k: int


def block_shape(params: GpuMmaParams) -> Shape:
    """The shape of the product of a block in one trip."""
    if params.number == "dp":
        return Shape(256, 16, 32)
    slices, m, n = (2, 256, 32) if params.instruction == "mma" else (4, 128, 256)
    return Shape(m, n, slices * SLICE_BYTES // TENSOR_NUMBERS[params.number].dtype.itemsize)


def iteration_work(params: GpuMmaParams) -> Work:
    """The work of one iteration, the same on every GPU."""
    return Work(CHUNKS, TRIPS[params.instruction])


def count_products(params: GpuMmaParams) -> Counts:
    """Operations of one iteration of one rank, which does not share its GPU; a multiply-add is
    two."""
    work, shape = iteration_work(params), block_shape(params)
    flops = 2.0 * shape.m * shape.n * shape.k * work.trips * work.chunks
    return {TENSOR_NUMBERS[params.number].counted_as: flops}


def mma_source(params: GpuMmaParams, architecture: str) -> Source:
    """The source with the parameters' macros.

    Raises:
        KernelError: the architecture lacks the instruction; the text has an alternative.
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
    """The bits of A, (m, k), and of B by columns, (n, k)."""

    a: np.ndarray[Any, Any]
    b: np.ndarray[Any, Any]


def drawn(params: GpuMmaParams, data: Data, seed: int) -> Operands:
    """Operands with values as ``data`` says, whose halves of k do not cancel."""
    shape, number = block_shape(params), TENSOR_NUMBERS[params.number]
    a = filled((shape.m, shape.k), np.dtype(np.float64), data, 2 * seed)
    b = filled((shape.n, shape.k), np.dtype(np.float64), data, 2 * seed + 1)
    return Operands(number.encode(a), number.encode(b))


def cancelling(params: GpuMmaParams, seed: int) -> Operands:
    """Operands of the parameters' data with the product 0: the second half of k cancels the first.
    Zeros are not negated."""
    number, operands = TENSOR_NUMBERS[params.number], drawn(params, params.data, seed)
    half = block_shape(params).k // 2
    a, b = operands.a[:, :half], operands.b[:, :half]
    negated = number.encode(0.0 - number.decode(b))
    return Operands(np.hstack([a, a]), np.hstack([b, negated]))


def expected(
    params: GpuMmaParams, operands: Operands, blocks: int, work: Work
) -> np.ndarray[Any, Any]:
    """The sums of the blocks, by NumPy: float64 (blocks, m, n)."""
    number = TENSOR_NUMBERS[params.number]
    product = number.decode(operands.a) @ number.decode(operands.b).T
    trips = [len(work.chunks_of(block, blocks)) * work.trips for block in range(blocks)]
    return np.stack([product * count for count in trips])


class MmaRun(ChunkRun):
    """The kernel with its operands on the GPU."""

    function = FUNCTION

    def __init__(self, params: GpuMmaParams, team: Team) -> None:
        self._params, self._number = params, TENSOR_NUMBERS[params.number]
        super().__init__(team, count_products(params), iteration_work(params))

    def source(self, architecture: str) -> Source:
        """See :class:`ChunkRun`."""
        return mma_source(self._params, architecture)

    def arguments(self, seed: int) -> tuple[Any, ...]:
        """See :class:`ChunkRun`."""
        shape, operands = block_shape(self._params), cancelling(self._params, seed)
        sums = np.zeros((self.blocks, shape.m, shape.n), self._number.sums)
        self._checked = drawn(self._params, "random", seed)
        self._checked_on_gpu = (
            self.gpu.array(self._checked.a),
            self.gpu.array(self._checked.b),
        )
        return (self.gpu.array(sums), self.gpu.array(operands.a), self.gpu.array(operands.b))

    def check(self) -> None:
        """Compare a few products, of operands that do not cancel, with NumPy."""
        work = Work(CHECKED_CHUNKS, CHECKED_TRIPS)
        self.launch(CHECKED_BLOCKS, work, (self.on_gpu[0], *self._checked_on_gpu))
        right = expected(self._params, self._checked, CHECKED_BLOCKS, work)
        computed = self.gpu.copied(self.on_gpu[0], right.astype(self._number.sums))
        what = f"products of {self._params.number} by {self._params.instruction}"
        compare(what, computed, right, self._number.tolerance)


gpu_mma = Kernel(
    name="gpu_mma",
    summary="matrix products of a GPU's tensor cores, from registers or from shared memory",
    counted="two operations a multiply-add (tc_dp, tc_half, tc_fp8)",
    classes=("tc_dp", "tc_half", "tc_fp8"),
    params=GpuMmaParams,
    counts=count_products,
    prepare=MmaRun,
    needs=NEEDS,
)
