"""``gpu_gemm`` on a GPU, by the cuBLAS of nvmath-python or CuPy."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any

import numpy as np

from kernels.cuda.device import Gpu, explained
from kernels.cuda.products.gemm_counts import (
    CUBLAS_REMEDY,
    NUMBERS,
    GpuGemmParams,
    Number,
    count_gemm,
    in_double,
    random_matrix,
)
from kernels.host.ranks import Team
from kernels.kernel import Counts, KernelError, ResultError

NO_TRANSPOSE, DEFAULT_ALGORITHM = 0, -1
"""CUBLAS_OP_N and CUBLAS_GEMM_DEFAULT."""
CHECKED_ROWS = 4
TF32_OVERRIDE = "NVIDIA_TF32_OVERRIDE"

Multiply = Callable[[int, int, int], None]
"""Enqueue one product: the addresses of C, A and B."""


def open_cublas(gpu: Gpu, number: Number, n: int, stack: ExitStack) -> Multiply:
    """The product of ``number`` in the GPU's stream, by the library that is installed.

    Raises:
        KernelError: neither library can be opened.
    """
    gemm_ex, handle = _opened(gpu, stack)
    # cuBLAS takes both from the host, in the type of the sums.
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
    """The function of cublasGemmEx, and a handle whose stream is the GPU's."""
    missing = []
    try:
        from nvmath.bindings import cublas  # noqa: PLC0415

        handle = cublas.create()
    except Exception as error:  # each has errors of its own for a library that is not there
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
        # CuPy gives every call its current stream.
        stack.enter_context(cupy.cuda.ExternalStream(gpu.stream))
        return of_cupy.gemmEx, handle
    raise KernelError(f"gpu_gemm needs cuBLAS for Python ({'; '.join(missing)}): {CUBLAS_REMEDY}")


class GemmRun:
    """The product with its matrices on the GPU."""

    def __init__(self, params: GpuGemmParams, team: Team) -> None:
        """Multiplies once, so that cuBLAS has loaded its program before it is measured."""
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
        """Enqueue all products, which follow one another on the GPU, and wait for the last."""
        with explained("multiplying by cuBLAS"):
            for _ in range(iterations):
                self._multiply(*self._addresses)
        self._gpu.wait()

    def counts(self) -> Counts:
        """Operations and bytes of one product."""
        return count_gemm(self._params)

    def check(self) -> None:
        """Compare some rows of C with NumPy's, in double precision."""
        n = self._params.n
        rows = np.unique(np.linspace(0, n - 1, CHECKED_ROWS).astype(int))
        a, b, c = (matrix.reshape(n, n).T for matrix in self._matrices())
        check_rows(rows, in_double(a[rows]), b, c[rows].astype(np.float64), self._number.epsilon)

    def _matrices(self) -> tuple[np.ndarray[Any, Any], ...]:
        return self._a, self._b, self._gpu.copied(self._c, self._like_c)

    def close(self) -> None:
        """Release the library and the GPU's memory."""
        with suppress(Exception):  # what failed before is the error that counts
            self._stack.close()
        self._gpu.close()


def check_rows(
    rows: np.ndarray[Any, Any],
    a: np.ndarray[Any, Any],
    b: np.ndarray[Any, Any],
    c: np.ndarray[Any, Any],
    epsilon: float,
) -> None:
    """Compare rows of C, (rows, n), with those of A, (rows, n), times B, (n, n) as in memory.

    Raises:
        ResultError: with the first row that is off by more than n roundings of its sums' size.
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
