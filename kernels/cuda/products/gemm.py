"""``gpu_gemm``: the matrix product C = A B of NVIDIA's library cuBLAS, through nvmath-python or
CuPy.

The counts are 2 n^3 operations, and the least possible DRAM traffic: A and B read once, C written
once. cuBLAS chooses its program, whose tiles move more; traffic within the GPU is not counted.
Products of half and bf16 run on tensor cores, with sums in single precision. Double precision
always counts as ``dp``, although cuBLAS computes it on tensor cores if they can (A100, H100 and
B200). Single precision is not rounded to TF32.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from pydantic import Field

from kernels.cuda.device import Gpu, explained
from kernels.host.ranks import Team
from kernels.kernel import Counts, Kernel, KernelError, Params, ResultError

CUBLAS_REMEDY = (
    "pip install 'nvmath-python[cu13]' (drivers from 580.65 on) or 'nvmath-python[cu12]' "
    "(from 525.60 on), or CuPy: pip install cupy-cuda13x or cupy-cuda12x"
)
NO_TRANSPOSE, DEFAULT_ALGORITHM = 0, -1
"""The values of CUBLAS_OP_N and CUBLAS_GEMM_DEFAULT."""
CHECKED_ROWS = 4
TF32_OVERRIDE = "NVIDIA_TF32_OVERRIDE"

Multiply = Callable[[int, int, int], None]
"""A function that enqueues one product, from the addresses of C, A and B."""


@dataclass(frozen=True, kw_only=True)
class Number:
    """A number type of cuBLAS.

    ``counted_as``: its class; ``dtype``: of A and B in memory; ``type_code``, ``sum_code``: the
    cudaDataType_t of A and B, and of C; ``compute_code``: the cublasComputeType_t; ``sum_dtype``:
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
        """The relative rounding error of one addition to a sum."""
        return float(np.finfo(self.sum_dtype).eps)


SINGLE, DOUBLE = np.dtype(np.float32), np.dtype(np.float64)


def _summed_in_single(counted_as: str, dtype: type[Any], type_code: int) -> Number:
    """A number type with sums in single precision: CUDA_R_32F is 0, CUBLAS_COMPUTE_32F 68."""
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
    # NumPy has no bf16; uint16 holds its bits.
    "bf16": _summed_in_single("tc_half", np.uint16, 14),
}


class GpuGemmParams(Params):
    """Which numbers, and how large the matrices are."""

    number: Literal["sp", "dp", "half", "bf16"] = "dp"
    """half and bf16 have single-precision sums"""
    n: int = Field(ge=1, le=1 << 17)
    """rows and columns of A, B and C"""


def count_gemm(params: GpuGemmParams) -> Counts:
    """Operations and bytes of one product of one rank."""
    number, n = NUMBERS[params.number], float(params.n)
    item_bytes = 2 * number.dtype.itemsize + number.sum_dtype.itemsize
    return {number.counted_as: 2 * n**3, "dram": item_bytes * n**2}


def random_matrix(number: str, n: int, seed: int) -> np.ndarray[Any, Any]:
    """A random matrix of numbers between -1 and 1, by columns: (n * n,), of the dtype in memory."""
    drawn = np.random.default_rng(seed).random(n * n)
    np.subtract(2 * drawn, 1, out=drawn)
    return in_bf16(drawn) if number == "bf16" else drawn.astype(NUMBERS[number].dtype)


def in_bf16(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The bits of the nearest bf16, ties to even: uint16. ``values``: finite."""
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def in_double(matrix: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The numbers of an array in its memory format, as float64."""
    if matrix.dtype == np.uint16:
        return (matrix.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return matrix.astype(np.float64)


def open_cublas(gpu: Gpu, number: Number, n: int, stack: ExitStack) -> Multiply:
    """The function that multiplies matrices of ``number`` in the GPU's stream, by the installed
    library.

    Raises:
        KernelError: neither library can be opened.
    """
    gemm_ex, handle = _opened(gpu, stack)
    # cuBLAS reads both factors from host memory, in the dtype of the sums.
    one, zero = np.ones(1, number.sum_dtype), np.zeros(1, number.sum_dtype)

    def multiply(c: int, a: int, b: int) -> None:
        gemm_ex(
            handle,
            *(NO_TRANSPOSE, NO_TRANSPOSE),
            *(n, n, n),
            one.ctypes.data,
            *(a, number.type_code, n),
            *(b, number.type_code, n),
            zero.ctypes.data,
            *(c, number.sum_code, n),
            number.compute_code,
            DEFAULT_ALGORITHM,
        )

    return multiply


def _opened(gpu: Gpu, stack: ExitStack) -> tuple[Callable[..., Any], int]:
    """The function cublasGemmEx, and a handle with the GPU's stream."""
    missing = []
    try:
        from nvmath.bindings import cublas  # noqa: PLC0415

        handle = cublas.create()
    except Exception as error:  # each package has different errors for a missing library
        missing.append(f"nvmath-python: {error}")
    else:
        stack.callback(cublas.destroy, handle)
        cublas.set_stream(handle, gpu.stream)
        return cublas.gemm_ex, handle
    try:
        import cupy  # noqa: PLC0415
        from cupy_backends.cuda.libs import cublas as of_cupy  # noqa: PLC0415

        handle = of_cupy.create()
    except Exception as error:
        missing.append(f"CuPy: {error}")
    else:
        stack.callback(of_cupy.destroy, handle)
        # CuPy runs every call in its current stream.
        stack.enter_context(cupy.cuda.ExternalStream(gpu.stream))
        return of_cupy.gemmEx, handle
    raise KernelError(f"gpu_gemm needs cuBLAS for Python ({'; '.join(missing)}): {CUBLAS_REMEDY}")


class GemmRun:
    """The product with its matrices on the GPU."""

    def __init__(self, params: GpuGemmParams, team: Team) -> None:
        """Multiply once, so that cuBLAS loads its program before the measurement."""
        if params.number == "sp" and os.environ.get(TF32_OVERRIDE) == "1":
            raise KernelError(
                f"{TF32_OVERRIDE}=1 makes cuBLAS round single precision to TF32: unset it"
            )
        self._params, self._number = params, NUMBERS[params.number]
        self._gpu, self._stack = Gpu(team), ExitStack()
        try:
            n = params.n
            self._a, self._b = (random_matrix(params.number, n, 2 * team.rank + i) for i in (0, 1))
            self._like_c = np.zeros(n * n, self._number.sum_dtype)
            self._c = self._gpu.array(self._like_c)
            self._on_gpu = [self._c, self._gpu.array(self._a), self._gpu.array(self._b)]
            self._addresses = [int(buffer.handle) for buffer in self._on_gpu]
            with explained("opening cuBLAS"):
                self._multiply = open_cublas(self._gpu, self._number, n, self._stack)
            self.run(1)
        except BaseException:
            self.close()
            raise

    def run(self, iterations: int) -> None:
        """Enqueue all products, which the GPU runs one by one, and wait for the last."""
        with explained("multiplying by cuBLAS"):
            for _ in range(iterations):
                self._multiply(*self._addresses)
        self._gpu.wait()

    def counts(self) -> Counts:
        """Operations and bytes of one product."""
        return count_gemm(self._params)

    def check(self) -> None:
        """Compare some rows of C with products by NumPy in double precision."""
        n = self._params.n
        rows = np.unique(np.linspace(0, n - 1, CHECKED_ROWS).astype(int))
        a, b, c = (matrix.reshape(n, n).T for matrix in self._matrices())
        check_rows(rows, in_double(a[rows]), b, c[rows].astype(np.float64), self._number.epsilon)

    def _matrices(self) -> tuple[np.ndarray[Any, Any], ...]:
        return self._a, self._b, self._gpu.copied(self._c, self._like_c)

    def close(self) -> None:
        """Release the library and the GPU's memory."""
        with suppress(Exception):  # an earlier error matters more
            self._stack.close()
        self._gpu.close()


def check_rows(
    rows: np.ndarray[Any, Any],
    a: np.ndarray[Any, Any],
    b: np.ndarray[Any, Any],
    c: np.ndarray[Any, Any],
    epsilon: float,
) -> None:
    """Compare rows of C, (rows, n), with rows of A, (rows, n), times B, (n, n), as in memory.

    Raises:
        ResultError: names the first row with an error above n roundings of the size of its sums.
    """
    b = in_double(b)
    allowed = b.shape[0] * epsilon * (np.abs(a) @ np.abs(b))
    off = ~(np.abs(c - a @ b) <= allowed)
    if off.any():
        i, j = np.argwhere(off)[0]
        raise ResultError(
            f"row {rows[i]} of C is not that of A B: column {j} is {c[i, j]:.6g}, and should be "
            f"{a[i] @ b[:, j]:.6g}"
        )


gpu_gemm = Kernel(
    name="gpu_gemm",
    summary="the matrix product of cuBLAS, C = A B, to compare gpu_dgemm with",
    counted="flops, 2 n^3 (sp, dp, tc_half); the bytes that DRAM must move",
    classes=("sp", "dp", "tc_half", "dram"),
    params=GpuGemmParams,
    counts=count_gemm,
    prepare=GemmRun,
    needs=(f"an NVIDIA GPU, and cuBLAS: {CUBLAS_REMEDY}",),
)
