"""gpu_mma without a GPU: its machine code counted, its products compiled for the host."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from kernels.cuda.microbench.chunks import CHUNKS, THREADS, Work
from kernels.cuda.microbench.mma import (
    FUNCTION,
    TENSOR_NUMBERS,
    GpuMmaParams,
    Operands,
    bf16_from,
    bf16_values,
    block_shape,
    cancelling,
    count_products,
    drawn,
    e4m3_from,
    e4m3_values,
    expected,
    iteration_work,
    mma_source,
)
from kernels.cuda.program import Source
from kernels.kernel import KernelError
from tests.kernels.cuda.on_host import ARCHITECTURES, compiled, compiled_together, host_library

MULTIPLY_ADDS = {
    "DMMA.884": 8 * 8 * 4,
    "DMMA.8x8x4": 8 * 8 * 4,
    "DMMA.16x8x16": 16 * 8 * 16,
    "HMMA.16816.F32": 16 * 8 * 16,
    "HMMA.16816.F32.BF16": 16 * 8 * 16,
    "QMMA.16832.F32.E4M3.E4M3": 16 * 8 * 32,
    "HGMMA.64x256x16.F32": 64 * 256 * 16,
    "HGMMA.64x256x16.F32.BF16": 64 * 256 * 16,
    "QGMMA.64x256x32.F32.E4M3.E4M3": 64 * 256 * 32,
}
"""Of one instruction; by a warp, or by four warps of wgmma."""
ALL = [
    GpuMmaParams(number=number, instruction=instruction)
    for instruction in ("mma", "wgmma")
    for number in TENSOR_NUMBERS
    if (number, instruction) != ("dp", "wgmma")
]


def name(params: GpuMmaParams) -> str:
    return f"{params.number} {params.instruction}"


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_machine_code_executes_what_is_counted(architecture: str, tmp_path: Path) -> None:
    """All numbers and instructions that the architecture has."""
    code = {}
    for instruction in ("mma", "wgmma"):
        functions = {}
        for params in ALL:
            if params.instruction == instruction:
                with suppress(KernelError):
                    functions[params] = mma_source(params, architecture), FUNCTION
        if functions:
            found = compiled_together([*functions.values()], architecture, tmp_path)
            code |= dict(zip(functions, found, strict=True))
    for params, (function, use) in code.items():
        assert use.spilled_bytes == 0
        shape, work = block_shape(params), iteration_work(params)
        warpgroups = params.instruction == "wgmma"
        operand_bytes = (shape.m + shape.n) * shape.k * TENSOR_NUMBERS[params.number].dtype.itemsize
        assert use.shared_bytes == operand_bytes * warpgroups
        executed = function.executed(2)
        multiply_adds = sum(
            n * MULTIPLY_ADDS[one] for one, n in executed.items() if "MMA" in one.split(".")[0]
        )
        teams = THREADS // (128 if warpgroups else 32)
        flops = 2.0 * multiply_adds * teams * work.trips * work.chunks
        assert list(count_products(params).values()) == [flops]
        assert not [one for one in executed if one.startswith(("LDG", "LDS", "FADD", "F2F"))]
        # The compiler makes wgmma wait after each where it finds the registers in use.
        waits = sum(n for one, n in executed.items() if one.startswith("WARPGROUP.DEPBAR"))
        assert waits == warpgroups
    done = {name(params) for params in code}
    both = {"dp mma", "half mma", "bf16 mma"}
    more = {"sm_90": {"half wgmma", "bf16 wgmma", "fp8 wgmma"}, "sm_120": {"fp8 mma"}}
    assert done == both | more.get(architecture, set())


@pytest.mark.parametrize(
    ("architecture", "kind"),
    [("sm_89", "QMMA"), ("sm_90", "HMMA"), ("sm_100", "HMMA"), ("sm_121", "QMMA")],
)
def test_fp8_is_refused_where_the_compiler_makes_halves_of_it(architecture: str, kind: str) -> None:
    params = GpuMmaParams(number="fp8")
    function, _ = compiled(mma_source(params, "sm_120"), FUNCTION, architecture)
    assert {one.split(".")[0] for one in function.executed(2) if "MMA" in one} == {kind}
    if kind == "QMMA":
        mma_source(params, architecture)
    else:
        with pytest.raises(KernelError, match=f"no 8-bit numbers on {architecture}, only on sm_8"):
            mma_source(params, architecture)


@pytest.mark.parametrize(
    ("params", "architecture", "text"),
    [
        ({"instruction": "wgmma"}, "sm_80", "is of sm_90 alone, and this GPU is sm_80: choose"),
        ({"instruction": "wgmma"}, "sm_100", "is of sm_90 alone"),
        ({"number": "fp8"}, "sm_90", "choose instruction 'wgmma'"),
        ({"number": "fp8"}, "sm_80", "choose another number"),
        ({"number": "half"}, "sm_75", "needs the tensor cores of sm_80 or later, and this GPU is"),
    ],
)
def test_what_an_architecture_lacks_is_said(params: dict, architecture: str, text: str) -> None:
    with pytest.raises(KernelError, match=text):
        mma_source(GpuMmaParams(**params), architecture)


def host_sums(params: GpuMmaParams, operands: Operands, blocks: int, work: Work, folder: Path):
    """The source's sums on the host."""
    shape, number = block_shape(params), TENSOR_NUMBERS[params.number]
    source = mma_source(params, "sm_90" if params.instruction == "wgmma" else "sm_120")
    sums = np.full((blocks, shape.m, shape.n), np.nan, number.sums)
    arrays = (sums, np.ascontiguousarray(operands.a), np.ascontiguousarray(operands.b))
    host_library(source, f"{params.instruction}_host.cpp", folder).on_host(
        ctypes.c_uint(blocks), *(ctypes.c_void_p(a.ctypes.data) for a in arrays),
        ctypes.c_longlong(work.chunks), ctypes.c_int(work.trips),
    )  # fmt: skip
    return sums


@pytest.mark.parametrize("params", ALL, ids=name)
def test_the_sums_are_those_of_numpy(host_folder: Path, params: GpuMmaParams) -> None:
    """Three chunks on two blocks, so that one block has one more. Every number of A and B differs,
    so that a number in a wrong place shows."""
    blocks, work = 2, Work(3, 1)
    operands = drawn(params, "random", 3)
    sums = host_sums(params, operands, blocks, work, host_folder)
    right = expected(params, operands, blocks, work)
    tolerance = min(TENSOR_NUMBERS[params.number].tolerance, 1e-6)
    assert np.abs(sums - right).max() <= tolerance * np.abs(right).max()
    fewer = expected(params, operands, blocks, Work(2, 1))
    largest = np.abs(right).max()
    assert np.abs(sums - fewer).max() > 10 * TENSOR_NUMBERS[params.number].tolerance * largest


@pytest.mark.parametrize("params", ALL, ids=name)
def test_operands_of_a_run_cancel(params: GpuMmaParams) -> None:
    for data in ("zeros", "ones", "random", "normal"):
        chosen = params.model_copy(update={"data": data})
        number, operands = TENSOR_NUMBERS[params.number], cancelling(chosen, 5)
        a, b = number.decode(operands.a), number.decode(operands.b)
        half = a.shape[1] // 2
        assert not (a[:, :half] @ b[:, :half].T + a[:, half:] @ b[:, half:].T).any()
        assert np.isfinite(a).all()
        assert np.isfinite(b).all()
        if data == "zeros":
            assert not operands.a.view(np.uint8).any()
            assert not operands.b.view(np.uint8).any()
        elif data == "ones":
            assert (a == 1).all()
            assert (np.abs(b) == 1).all()
        else:
            assert np.abs(a[:, :half] @ b[:, :half].T).max() > 1
        assert expected(chosen, operands, 2, Work(3, 2)).shape == (2, len(a), len(b))


def test_small_numbers_are_those_of_their_formats() -> None:
    bits = np.arange(256, dtype=np.uint8)
    values = e4m3_values(bits)
    known = {0x38: 1.0, 0x7E: 448.0, 0x01: 2.0**-9, 0x07: 7 * 2.0**-9, 0x08: 2.0**-6, 0xC4: -3.0}
    assert {code: values[code] for code in known} == known
    assert np.isnan(values[[0x7F, 0xFF]]).all()
    finite = bits[np.isfinite(values)]
    assert (e4m3_from(e4m3_values(finite)) == finite).all()
    rng = np.random.default_rng(1)
    drawn_values = rng.normal(size=4000) * np.exp2(rng.uniform(-12, 7, 4000))
    nearest = np.abs(np.clip(drawn_values, -448, 448)[:, None] - values[finite]).min(axis=1)
    off = np.abs(np.clip(drawn_values, -448, 448) - e4m3_values(e4m3_from(drawn_values)))
    assert (off == nearest).all()
    # Between two, the one with an even last bit.
    assert e4m3_from(np.array([1.0625, 1.1875])).tolist() == [0x38, 0x3A]

    singles = rng.normal(size=4000).astype(np.float32)
    up, down = (
        (singles.view(np.uint32) + np.uint32(step) & 0xFFFF0000).view(np.float32)
        for step in (0x10000, 0)
    )
    best = np.minimum(np.abs(up - singles), np.abs(down - singles))
    assert (np.abs(bf16_values(bf16_from(singles)) - singles) == best).all()
    assert bf16_from(np.array([1.0, -2.0])).tolist() == [0x3F80, 0xC000]


def test_counts_by_hand() -> None:
    """A block's products of a trip: 256 x 32 x 32 halves, 128 x 256 x 128 numbers of 8 bits."""
    trips = 256.0 * CHUNKS
    assert count_products(GpuMmaParams()) == {"tc_half": 2 * 256 * 32 * 32 * trips}
    assert count_products(GpuMmaParams(number="dp")) == {"tc_dp": 2 * 256 * 16 * 32 * trips}
    wide = GpuMmaParams(number="fp8", instruction="wgmma")
    assert count_products(wide) == {"tc_fp8": 2 * 128 * 256 * 128 * trips / 4}


def test_wrong_parameters_are_refused() -> None:
    with pytest.raises(ValidationError, match="'wgmma' has no double precision: choose 'mma'"):
        GpuMmaParams(number="dp", instruction="wgmma")
    with pytest.raises(ValidationError, match="number"):
        GpuMmaParams(number="sp")


def test_a_specific_source_is_compiled_for_the_architectures_own_variant() -> None:
    source = mma_source(GpuMmaParams(instruction="wgmma"), "sm_90")
    assert source.specific
    with pytest.raises(KernelError, match="wgmma"):
        compiled(Source(path=source.path, macros=source.macros), FUNCTION, "sm_90")
