"""gpu_load without a GPU: its machine code counted, its sums compiled for the host."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from kernels.cuda.listing import Function
from kernels.cuda.microbench.chunks import (
    CHUNKS,
    REGION_VECTORS,
    THREADS,
    VECTOR_BYTES,
    Work,
    filled,
)
from kernels.cuda.microbench.load import (
    FUNCTION,
    VECTOR_WORDS,
    WORD,
    WORK,
    GpuLoadParams,
    count_loads,
    expected,
    load_source,
    vectors,
)
from tests.kernels.cuda.on_host import ARCHITECTURES, compiled_together, host_library

LEVELS = ("shared", "l1", "l2", "dram")
ADDITIONS = ("IADD3", "IMAD.IADD", "IADD", "VIADD")
REGISTER = re.compile(r"\bR(\d+)\b")


def loads_and_sums(function: Function) -> tuple[list[str], int, int]:
    """The 16-byte loads in the loop of trips, how many loaded words are added to something, one
    each, and how many loads come before the first addition."""
    loads, added, ahead = [], 0, 0
    loaded: set[int] = set()
    for one in function.instructions:
        if function.depth(one) < 2:
            continue
        registers = [int(found) for found in REGISTER.findall(one.operands)]
        if one.opcode in ("LDG", "LDS") and "128" in one.modifiers:
            ahead += not added
            loads.append(one.name)
            loaded |= set(range(registers[0], registers[0] + 4))
            continue
        taken = [r for r in registers[1:] if r in loaded]
        if taken:
            # One loaded word and one sum; an operand more would be a second addition.
            assert one.name in ADDITIONS, one
            assert (len(taken), len(registers)) == (1, 3), one
            added += 1
        loaded -= set(registers[:1])
    return loads, added, ahead


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_machine_code_executes_what_is_counted(architecture: str, tmp_path: Path) -> None:
    sets = [GpuLoadParams(level=level) for level in LEVELS]
    functions = [(load_source(params), FUNCTION) for params in sets]
    code = compiled_together(functions, architecture, tmp_path)
    for level, params, (function, use) in zip(LEVELS, sets, code, strict=True):
        assert use.spilled_bytes == 0
        assert use.shared_bytes == REGION_VECTORS * VECTOR_BYTES * (level == "shared")
        loads, added, ahead = loads_and_sums(function)
        trips = WORK.chunks * WORK.trips * THREADS
        counted = {"int": float(added * trips), level: float(len(loads) * 16 * trips)}
        assert counted == count_loads(params)
        assert {name.split(".")[0] for name in loads} == {"LDS" if level == "shared" else "LDG"}
        assert all(("STRONG.GPU" in name) == (level in ("l2", "dram")) for name in loads)
        # What a processor waits for at a time, of 65,536 registers and 48 warps: enough for any
        # memory (see FAR_VECTORS), and for the second cache, which answers in less than half of
        # the time.
        threads = min(65536 // (-(-use.registers // 8) * 8) // THREADS * THREADS, 48 * 32)
        needed = {"l2": 32 << 10, "dram": 64 << 10}.get(level, 0)
        assert ahead * 16 * threads >= needed


@pytest.mark.parametrize("level", LEVELS)
def test_the_sums_are_those_of_numpy(host_folder: Path, level: str) -> None:
    """Three chunks on two blocks, so that one block has one more; regions of two or three trips."""
    params, work, blocks = GpuLoadParams(level=level), Work(3, 5), 2
    of_trip = vectors(params) * THREADS
    region = 3 if level in ("l2", "dram") else REGION_VECTORS // of_trip
    words = filled((blocks * region * of_trip, VECTOR_WORDS), WORD, "random", 1)
    sums = np.zeros((blocks * THREADS, vectors(params) * VECTOR_WORDS), WORD)
    host_library(load_source(params), "load_host.cpp", host_folder).on_host(
        ctypes.c_uint(blocks), *(ctypes.c_void_p(a.ctypes.data) for a in (sums, words)),
        ctypes.c_int(region), ctypes.c_longlong(work.chunks), ctypes.c_int(work.trips),
    )  # fmt: skip
    assert (sums == expected(params, words, region, blocks, work)).all()
    # By another way: blocks of ten and of five trips, each through its own region in order.
    if level in ("l2", "dram"):
        own = words.reshape(blocks, -1, VECTOR_WORDS)
        loaded = [np.tile(own[0], (4, 1))[: 10 * of_trip], np.tile(own[1], (4, 1))[: 5 * of_trip]]
        assert sums.sum(dtype=np.uint32) == np.concatenate(loaded).sum(dtype=np.uint32)
    assert len(np.unique(sums)) > 0.9 * sums.size


def test_counts_by_hand() -> None:
    near = count_loads(GpuLoadParams(level="shared", data="zeros"))
    assert near == {"int": 8.0 * 256 * 32 * CHUNKS, "shared": 32.0 * 256 * 32 * CHUNKS}
    far = count_loads(GpuLoadParams(level="dram"))
    assert far == {"int": 16.0 * 256 * 32 * CHUNKS, "dram": 64.0 * 256 * 32 * CHUNKS}


def test_wrong_parameters_are_refused() -> None:
    for level in ("register", "l3"):
        with pytest.raises(ValidationError, match="level"):
            GpuLoadParams(level=level)
