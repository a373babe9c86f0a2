"""gpu_gemm without a GPU: its counts, its numbers, how it calls cuBLAS, and its check."""

from __future__ import annotations

import builtins
import ctypes
import sys
from contextlib import ExitStack
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from kernels.cuda.products.gemm import (
    NUMBERS,
    GpuGemmParams,
    check_rows,
    count_gemm,
    gpu_gemm,
    in_bf16,
    in_double,
    open_cublas,
    random_matrix,
)
from kernels.host.ranks import Team
from kernels.kernel import KernelError, ResultError


def test_counts_by_hand() -> None:
    n = 1000
    counted = {name: count_gemm(GpuGemmParams(number=name, n=n)) for name in NUMBERS}
    assert counted == {
        "sp": {"sp": 2e9, "dram": 12e6},
        "dp": {"dp": 2e9, "dram": 24e6},
        "half": {"tc_half": 2e9, "dram": 8e6},
        "bf16": {"tc_half": 2e9, "dram": 8e6},
    }


def test_bf16_is_the_nearest_with_ties_to_even() -> None:
    """Against all values with 8 bits: the nearest by distance, of two the one with an even bit."""
    every = (np.arange(0x3F00, 0x4080, dtype=np.uint32) << 16).view(np.float32).astype(float)
    rng = np.random.default_rng(1)
    middles = (every[:-1] + every[1:]) / 2
    for value in np.float32([*rng.uniform(0.51, 3.9, 200), *middles[:50], *every[:50]]):
        nearest = np.flatnonzero(np.abs(every - value) == np.abs(every - value).min())
        expected = next(i for i in nearest if len(nearest) == 1 or i % 2 == 0)
        for sign in (1.0, -1.0):
            bits = in_bf16(np.array([sign * value]))
            assert in_double(bits)[0] == sign * every[expected]


@pytest.mark.parametrize("number", NUMBERS)
def test_matrices_are_random_numbers_of_their_kind(number: str) -> None:
    first, second = (random_matrix(number, 64, seed) for seed in (1, 2))
    assert first.dtype == NUMBERS[number].dtype
    values = in_double(first)
    assert np.abs(values).max() <= 1.0
    assert values.mean() == pytest.approx(0.0, abs=0.05)
    assert (first != second).mean() > 0.9
    assert (first == random_matrix(number, 64, 1)).all()


LIBRARY_TYPES = {0: "f4", 1: "f8", 2: "f2", 14: "u2"}
"""cudaDataType_t: CUDA_R_32F, CUDA_R_64F, CUDA_R_16F, CUDA_R_16BF."""


def gemm_ex(
    handle, transa, transb, m, n, k, alpha, a, a_type, lda, b, b_type, ldb, beta, c, c_type, ldc,
    compute_type, algo,
) -> None:  # fmt: skip
    """cublasGemmEx as NVIDIA's documentation has it, in the host's memory."""
    assert (handle, transa, transb, algo) == (7, 0, 0, -1)
    scalar = {68: ctypes.c_float, 70: ctypes.c_double}[compute_type]
    assert c_type == {68: 0, 70: 1}[compute_type]

    def matrix(address: int, code: int, leading: int, rows: int, columns: int) -> np.ndarray:
        dtype = np.dtype(LIBRARY_TYPES[code])
        raw = (ctypes.c_char * (leading * columns * dtype.itemsize)).from_address(address)
        return np.frombuffer(raw, dtype).reshape(columns, leading).T[:rows]

    product = in_double(matrix(a, a_type, lda, m, k)) @ in_double(matrix(b, b_type, ldb, k, n))
    of_c = matrix(c, c_type, ldc, m, n)
    factor, of_before = (scalar.from_address(address).value for address in (alpha, beta))
    of_c[...] = factor * product + of_before * of_c


@pytest.mark.parametrize("number", NUMBERS)
def test_cublas_is_asked_for_a_times_b(number: str, monkeypatch) -> None:
    """nvmath-python's interface, carried out on the host, and the check of some rows."""
    asked: list[tuple] = []
    library = ModuleType("nvmath.bindings.cublas")
    library.create = lambda: 7
    library.destroy = lambda handle: asked.append(("destroy", handle))
    library.set_stream = lambda handle, stream: asked.append(("stream", handle, stream))
    library.gemm_ex = gemm_ex
    bindings = ModuleType("nvmath.bindings")
    bindings.cublas = library
    monkeypatch.setitem(sys.modules, "nvmath", ModuleType("nvmath"))
    monkeypatch.setitem(sys.modules, "nvmath.bindings", bindings)
    n, kind = 37, NUMBERS[number]
    a, b = random_matrix(number, n, 1), random_matrix(number, n, 2)
    c = np.full(n * n, 5.0, kind.sum_dtype)
    with ExitStack() as stack:
        multiply = open_cublas(SimpleNamespace(stream=99), kind, n, stack)
        multiply(*(matrix.ctypes.data for matrix in (c, a, b)))
    assert asked == [("stream", 7, 99), ("destroy", 7)]
    by_rows_a, by_rows_b, by_rows_c = (matrix.reshape(n, n).T for matrix in (a, b, c))
    right = in_double(by_rows_a) @ in_double(by_rows_b)
    np.testing.assert_allclose(by_rows_c, right, rtol=0, atol=1e-4)
    rows = np.array([0, 12, 36])
    of_a, of_c = in_double(by_rows_a[rows]), by_rows_c[rows].astype(float)
    check_rows(rows, of_a, by_rows_b, of_c, kind.epsilon)
    for wrong in (of_c[1, 3] + 2 * n * n * kind.epsilon, np.nan):
        off = of_c.copy()
        off[1, 3] = wrong
        with pytest.raises(ResultError, match="row 12 of C is not that of A B: column 3 is"):
            check_rows(rows, of_a, by_rows_b, off, kind.epsilon)


def test_without_cublas_it_says_what_to_install(monkeypatch) -> None:
    imported = builtins.__import__

    def without(name, *more):
        if name.startswith(("nvmath", "cupy")):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return imported(name, *more)

    monkeypatch.setattr(builtins, "__import__", without)
    with ExitStack() as stack, pytest.raises(KernelError) as refused:
        open_cublas(SimpleNamespace(stream=0), NUMBERS["dp"], 8, stack)
    text = str(refused.value)
    assert "nvmath-python: No module named" in text
    assert "CuPy: No module named 'cupy'" in text
    assert "pip install 'nvmath-python[cu13]'" in text


def test_tf32_is_refused_for_single_precision(monkeypatch) -> None:
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "1")
    with pytest.raises(KernelError, match="NVIDIA_TF32_OVERRIDE=1 makes cuBLAS round"):
        gpu_gemm.prepare(GpuGemmParams(number="sp", n=8), Team())


def test_without_a_gpu_it_says_where_to_run() -> None:
    """Where there is one, the product is computed and checked, or cuBLAS is asked for."""
    try:
        prepared = gpu_gemm.prepare(GpuGemmParams(n=100), Team())
    except KernelError as error:
        assert str(error).startswith(("opening the GPU: ", "gpu_gemm needs cuBLAS"))
    else:
        prepared.run(3)
        prepared.check()
        prepared.close()
