"""``gpu_gemm``: parameters, numbers and operation counts of cuBLAS's matrix product, C = A B.

Counted are 2 n^3 operations, and of DRAM what no program can avoid: A and B read once, C written
once. cuBLAS chooses its own program, whose tiles move more than that; what it moves within the GPU
is not counted. Products of half and bf16 are those of tensor cores, with sums in single precision.
Double precision counts as ``dp`` whichever units compute it: where tensor cores can (A100, H100 and
B200), cuBLAS uses them. Single precision is not rounded to TF32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from pydantic import Field

from kernels.kernel import Counts, Params

CUBLAS_REMEDY = (
    "pip install 'nvmath-python[cu13]' (drivers from 580.65 on) or 'nvmath-python[cu12]' "
    "(from 525.60 on), or CuPy: pip install cupy-cuda13x or cupy-cuda12x"
)


@dataclass(frozen=True, kw_only=True)
class Number:
    """How cuBLAS multiplies a kind of number.

    ``counted_as``: its class; ``dtype``: of A and B in memory; ``type_code``, ``sum_code``: of
    cudaDataType_t, for A and B and for C; ``compute_code``: of cublasComputeType_t; ``sum_dtype``:
    of C.
    """

    counted_as: str
    dtype: np.dtype[Any]
    type_code: int
    sum_dtype: np.dtype[Any]
    sum_code: int
    compute_code: int

    @property
    def epsilon(self) -> float:
        """The rounding of one addition of the sums, relative."""
        return float(np.finfo(self.sum_dtype).eps)


SINGLE, DOUBLE = np.dtype(np.float32), np.dtype(np.float64)


def _summed_in_single(counted_as: str, dtype: type[Any], type_code: int) -> Number:
    """CUDA_R_32F is 0, CUBLAS_COMPUTE_32F 68."""
    return Number(
        counted_as=counted_as,
        dtype=np.dtype(dtype),
        type_code=type_code,
        sum_dtype=SINGLE,
        sum_code=0,
        compute_code=68,
    )


NUMBERS: Mapping[str, Number] = {
    "sp": _summed_in_single("sp", np.float32, 0),
    "dp": Number(
        counted_as="dp",
        dtype=DOUBLE,
        type_code=1,
        sum_dtype=DOUBLE,
        sum_code=1,
        compute_code=70,
    ),
    "half": _summed_in_single("tc_half", np.float16, 2),
    # NumPy has no bf16: its bits.
    "bf16": _summed_in_single("tc_half", np.uint16, 14),
}


class GpuGemmParams(Params):
    """Which numbers, and how large the matrices are."""

    number: Literal["sp", "dp", "half", "bf16"] = "dp"
    """single or double precision; half or bf16, whose products are added in single precision"""
    n: int = Field(ge=1, le=1 << 17)
    """rows and columns of A, B and C"""


def count_gemm(params: GpuGemmParams) -> Counts:
    """Operations and bytes of one product of one rank."""
    number, n = NUMBERS[params.number], float(params.n)
    item_bytes = 2 * number.dtype.itemsize + number.sum_dtype.itemsize
    return {number.counted_as: 2 * n**3, "dram": item_bytes * n**2}


def random_matrix(number: str, n: int, seed: int) -> np.ndarray[Any, Any]:
    """Numbers between -1 and 1, by columns: (n * n,), of the number's type in memory."""
    drawn = np.random.default_rng(seed).random(n * n)
    np.subtract(2 * drawn, 1, out=drawn)
    return in_bf16(drawn) if number == "bf16" else drawn.astype(NUMBERS[number].dtype)


def in_bf16(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The bits of the nearest bf16, uint16; of two, the even one. ``values``: finite."""
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def in_double(matrix: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The numbers of an array as they are in memory, float64."""
    if matrix.dtype == np.uint16:
        return (matrix.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return matrix.astype(np.float64)
