"""gpu_dgemm without a GPU: its machine code counted, its arithmetic compiled for the host."""

from __future__ import annotations

import ctypes
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from kernels.cuda.listing import Function
from kernels.cuda.products.dgemm import (
    FUNCTION,
    GpuDgemmParams,
    count_product,
    dgemm_source,
    gpu_dgemm,
    padded,
)
from kernels.products.kernel import Matrices
from tests.kernels.cuda.on_host import ARCHITECTURES, compiled_together, host_library
from tests.kernels.cuda.products.variants import drawn, drawn_with

MULTIPLY_ADDS = {"884": 256, "8x8x4": 256, "16x8x4": 512, "16x8x8": 1024, "16x8x16": 2048}
"""Of a warp's instruction DMMA."""


OTHERS = ("DFMA", "DADD", "DMUL", "STS", "LDL", "STL")
"""Instructions that would compute or move what tensor cores' variants do not count."""


def moved_bytes(executed: Counter[str], opcode: str) -> int:
    """Bytes that one thread moves by instructions such as LDS.64; 4 where none is named."""
    total = 0
    for name, times in executed.items():
        first, *modifiers = name.split(".")
        if first == opcode:
            total += times * next((int(m) // 8 for m in modifiers if m in ("64", "128")), 4)
    return total


def multiply_adds(executed: Counter[str]) -> int:
    """Of one warp, by tensor cores."""
    kinds = ((name.split("."), times) for name, times in executed.items())
    return sum(MULTIPLY_ADDS[kind[1]] * times for kind, times in kinds if kind[0] == "DMMA")


def offsets_of_operands(function: Function) -> list[tuple[list[int], list[int]]]:
    """Of each DMMA the places in shared memory from which its numbers of A and of B were loaded, in
    bytes from the first of them."""
    loaded: dict[int, tuple[str, int]] = {}
    found = []
    for one in function.instructions:
        if one.opcode == "LDS" and not one.never_runs:
            place = re.match(r"R(\d+), \[(.+?)(?:\+(0x[0-9a-f]+))?\]", one.operands)
            assert place is not None
            loaded[int(place[1])] = place[2], int(place[3] or "0", 16)
        elif one.opcode == "DMMA":
            m, n, k = (int(size) for size in one.modifiers[0].split("x"))
            first = [int(register) for register in re.findall(r"\bR(\d+)", one.operands)[1:3]]
            operands = []
            for register, numbers in zip(first, (m * k // 32, n * k // 32), strict=True):
                places = [loaded[register + 2 * i] for i in range(numbers)]
                assert len({base for base, _ in places}) == 1
                operands.append([offset - places[0][1] for _, offset in places])
            found.append((operands[0], operands[1]))
    return found


def before_and_after(function: Function) -> Counter[str]:
    """Instructions outside all loops."""
    return Counter(
        one.name for one in function.instructions if not (function.depth(one) or one.never_runs)
    )


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_machine_code_executes_what_is_counted(architecture: str, tmp_path: Path) -> None:
    """Ten variants each: the instructions of a step, times steps, threads and blocks."""
    variants = drawn(40, 3)[ARCHITECTURES.index(architecture) :: 4]
    functions = [(dgemm_source(params), FUNCTION) for params in variants]
    code = compiled_together(functions, architecture, tmp_path)
    for params, (function, use) in zip(variants, code, strict=True):
        assert use.spilled_bytes == 0, params
        assert use.shared_bytes == 0, "all of it is asked for at launch"
        step = function.executed(1, [params.blk_k // params.steps()])
        outside = before_and_after(function)
        rows, columns, depth = params.padded()
        threads = rows // params.blk_m * (columns // params.blk_n) * params.threads()
        of_steps = threads * (depth // params.blk_k)
        counted = count_product(params, at_a_time=264, l2_bytes=1 << 25)
        assert step["DFMA"] * 2 * of_steps == counted["dp"], params
        assert (moved_bytes(step, "LDS") + moved_bytes(step, "STS")) * of_steps == counted["shared"]
        global_bytes = moved_bytes(step, "LDG") * of_steps + threads * (
            moved_bytes(outside, "LDG") + moved_bytes(outside, "STG")
        )
        assert global_bytes == counted["l2"] + counted["dram"], params
        assert not any(
            name.startswith(("DFMA", "DADD", "DMUL", "LDS", "STS")) for name in outside
        ), outside
        assert not any(
            name.startswith(("DADD", "DMUL", "STG", "LDL", "STL", "LDGSTS")) for name in step
        ), step
        # In pairs where the variant says so, and past the first cache.
        width = ".128" if params.simd else ".64"
        loads = [name for name in step if name.startswith("LDG")]
        assert all(width in name and "STRONG.GPU" in name for name in loads), loads
        assert sum(times for name, times in step.items() if name.startswith("BAR")) == 2


@pytest.mark.parametrize(
    ("architecture", "shapes"),
    [
        ("sm_80", ("m8n8k4", "m8n8k4")),
        ("sm_90", ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16")),
        ("sm_100", ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16")),
        ("sm_120", ("m8n8k4",)),
    ],
)
def test_tensor_cores_execute_what_is_counted(
    architecture: str, shapes: tuple[str, ...], tmp_path: Path
) -> None:
    """As above. Stripes are copied while others are multiplied: the first before the loop, and in
    each step but the last ones one more."""
    variants = [drawn_with(shape, seed) for seed, shape in enumerate(shapes)]
    functions = [(dgemm_source(params), FUNCTION) for params in variants]
    code = compiled_together(functions, architecture, tmp_path)
    for params, (function, use) in zip(variants, code, strict=True):
        assert use.spilled_bytes == 0, params
        assert use.shared_bytes == 0, "all of it is asked for at launch"
        step, outside = function.executed(1), before_and_after(function)
        rows, columns, depth = params.padded()
        threads = rows // params.blk_m * (columns // params.blk_n) * params.threads()
        steps = depth // params.blk_k
        counted = count_product(params, at_a_time=264, l2_bytes=1 << 25)
        assert set(counted) == {"tc_dp", "shared", "l2", "dram"}
        assert 2 * multiply_adds(step) * threads / 32 * steps == counted["tc_dp"], params
        stripe = moved_bytes(step, "LDGSTS")
        assert moved_bytes(outside, "LDGSTS") == (params.stages - 1) * stripe
        # A step loads all slices but the next step's first, and that: the last step has no next.
        in_loop, first = moved_bytes(step, "LDS"), moved_bytes(outside, "LDS")
        assert first * (params.blk_k // params.mma_shape()[1]) == in_loop
        assert (in_loop + stripe) * steps * threads == counted["shared"], params
        of_c = moved_bytes(outside, "LDG") + moved_bytes(outside, "STG")
        assert (stripe * steps + of_c) * threads == counted["l2"] + counted["dram"], params
        copies = [name for name in step if name.startswith("LDGSTS")]
        assert copies == ["LDGSTS.E.BYPASS.128"], "past the first cache"
        every = step + outside
        assert not [name for name in every if name.split(".")[0] in OTHERS], every
        assert not multiply_adds(outside)
        assert sum(times for name, times in step.items() if name.startswith("BAR")) == 1
        if architecture == "sm_90":
            # As PTX assigns them: of A rows g and g + 8 of columns t, t + 4 and so on, of B rows t,
            # t + 4 and so on. A column of A is blk_m + 4 numbers after the one before it.
            m, k = params.mma_shape()
            of_a = [8 * (row + column * (params.blk_m + 4)) for column in range(0, k, 4)
                    for row in range(0, m, 8)]  # fmt: skip
            of_b = [8 * row for row in range(0, k, 4)]
            offsets = offsets_of_operands(function)
            assert offsets == [(of_a, of_b)] * len(offsets)
            assert offsets


def on_host(params: GpuDgemmParams, folder: Path) -> ctypes.CDLL:
    """A variant's source compiled for the host."""
    shared = params.shared_bytes() // 8
    source = dgemm_source(params)
    return host_library(source, "products/dgemm_host.cpp", folder, SHARED_NUMBERS=shared)


ON_HOST = [
    *drawn(4, 177, most_threads=96),
    *(
        GpuDgemmParams(
            n=1, dim_m=8, dim_n=8, blk_m=32, blk_n=16, blk_k=k, m_a=16, n_a=4, m_b=m_b,
            n_b=64 // m_b, simd=1, mma=mma, stages=stages, band=band,
        )
        for mma, k, m_b, stages, band in (
            ("m8n8k4", 8, 4, 2, 0), ("m16n8k4", 24, 4, 3, 2), ("m16n8k8", 16, 8, 4, 0),
            ("m16n8k16", 32, 16, 2, 1),
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize("place", range(len(ON_HOST)))
@pytest.mark.parametrize("n", [1, 37, 75])
def test_the_product_is_that_of_numpy(host_folder: Path, place: int, n: int) -> None:
    """Variants whose tiles divide no n, with simd and without; twice, so that C is read again. By
    tensor cores, no load of a warp asks a bank of shared memory twice, and what is copied and
    loaded is what is counted."""
    variant = ON_HOST[place].model_copy(update={"n": n})
    matrices = Matrices.random(n, place)
    a, b, c = matrices.square()
    rows, columns, depth = variant.padded()
    moved = [padded(c, rows, columns), padded(a, rows, depth), padded(b, depth, columns)]
    program = on_host(variant, host_folder)
    for times in (1, 2):
        wrong = program.on_host(
            ctypes.c_uint(variant.blocks()),
            *(ctypes.c_void_p(matrix.ctypes.data) for matrix in moved),
            ctypes.c_longlong(rows),
            ctypes.c_longlong(depth),
        )
        assert wrong == 0, "the stripes are all of the shared memory, and nothing else is written"
        computed = moved[0].T
        np.testing.assert_allclose(computed[:n, :n], c + times * (a @ b), rtol=0, atol=1e-12)
        assert not computed[n:].any()
        assert not computed[:, n:].any()
    if variant.mma == "none":
        assert variant.shared_bytes() == 8 * variant.blk_k * (variant.blk_m + variant.blk_n)
        return
    assert program.bank_conflicts() == 0
    counted = count_product(variant, at_a_time=1, l2_bytes=0)
    moved_numbers = program.moved_numbers
    moved_numbers.restype, moved_numbers.argtypes = ctypes.c_longlong, [ctypes.c_bool]
    copied, loaded = moved_numbers(True), moved_numbers(False)
    assert 8 * (copied + loaded) == counted["shared"]
    assert 8 * copied + 16 * rows * columns == counted["l2"] + counted["dram"]


def test_bytes_are_those_of_loops_over_rounds_blocks_and_steps() -> None:
    """Rows and columns that a round's blocks share are read from DRAM once."""
    for i, params in enumerate(drawn(40, 9)):
        small = params.model_copy(update={"n": params.n % 700 + 1, "band": i // 2 % 4})
        rows, columns, depth = small.padded()
        m, w, k = small.blk_m, small.blk_n, small.blk_k
        high = m * small.band if small.band else rows
        bands = [range(top, min(top + high, rows), m) for top in range(0, rows, high)]
        tiles = [(i, j) for band in bands for j in range(0, columns, w) for i in band]
        assert small.blocks() == len(tiles)
        loaded = sum(8 * k * (m + w) for _ in tiles for _ in range(0, depth, k))
        for at_a_time in (1, 5, 264):
            rounds = [tiles[i : i + at_a_time] for i in range(0, len(tiles), at_a_time)]
            read = sum(
                8 * depth * (m * len({i for i, _ in some}) + w * len({j for _, j in some}))
                for some in rounds
            )
            counts = count_product(small, at_a_time, 0)
            assert counts["dram"] == read + 16 * rows * columns
            assert counts["l2"] == loaded - read
        once = count_product(small, 1, 1 << 40)
        assert once["dram"] == 8 * depth * (rows + columns) + 16 * rows * columns
        assert once["l2"] + once["dram"] == counts["l2"] + counts["dram"]


def test_counts_by_hand() -> None:
    """The default variant at n = 192: three by two tiles, twelve steps."""
    params = GpuDgemmParams(n=192)
    assert params.padded() == (192, 192, 192)
    counts = count_product(params, at_a_time=6, l2_bytes=0)
    assert counts["dp"] == 2 * 192**3
    assert counts["shared"] == 8 * 6 * 12 * 16 * (64 + 96 + 256 * (4 + 6))
    assert counts["dram"] == 8 * 192 * (192 + 192) + 16 * 192**2
    assert counts["l2"] == 8 * 6 * 12 * 16 * (64 + 96) - 8 * 192 * (192 + 192)
    assert gpu_dgemm.counts(params)["dp"] == counts["dp"]
    assert gpu_dgemm.metrics(params) == {"shared_bytes": 20480, "warps": 8}
    assert params.steps() == 8
