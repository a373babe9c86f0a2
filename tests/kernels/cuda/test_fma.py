"""gpu_fma without a GPU: its machine code counted, its arithmetic compiled for the host."""

from __future__ import annotations

import ctypes
import itertools
import random
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from kernels.cuda.microbench.chunks import (
    CHUNKS,
    LEVELS,
    REGION_VECTORS,
    THREADS,
    VECTOR_BYTES,
    Work,
    array_vectors,
    filled,
    loaded_vectors,
    region_trips,
)
from kernels.cuda.microbench.fma import (
    BLOCK_STEPS,
    FUNCTION,
    NUMBERS,
    VECTORS,
    GpuFmaParams,
    chains,
    count_multiply_adds,
    expected,
    fma_source,
    iteration_work,
)
from tests.kernels.cuda.on_host import ARCHITECTURES, compiled_together, host_library

LOADS = {"shared": "LDS.128", "l1": "LDG.E.128", "l2": "LDG.E.128", "dram": "LDG.E.128"}


def drawn(count: int, seed: int) -> list[GpuFmaParams]:
    """Random parameter sets, every number and level among them."""
    rng = random.Random(seed)
    pairs = list(itertools.product(NUMBERS, LEVELS))
    rng.shuffle(pairs)
    sets = []
    for number, level in itertools.islice(itertools.cycle(pairs), count):
        ops = None if level == "register" else rng.choice([1, 2, 3, 8, 16, 17, 32, 33, 49, 64, 200])
        sets.append(GpuFmaParams(number=number, level=level, ops_per_word=ops))
    return sets


def inner_trips(params: GpuFmaParams) -> int:
    """The number of passes of each loop within a trip; 1 if there are none."""
    after_word = (params.ops_per_word or 1) - 1
    return after_word // BLOCK_STEPS if after_word >= 2 * BLOCK_STEPS else 1


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_machine_code_executes_what_is_counted(architecture: str, tmp_path: Path) -> None:
    """Ten parameter sets each: instructions in the loop of trips, times trips, threads, chunks."""
    sets = drawn(40, 7)[ARCHITECTURES.index(architecture) :: 4]
    functions = [(fma_source(params), FUNCTION) for params in sets]
    code = compiled_together(functions, architecture, tmp_path)
    for params, (function, use) in zip(sets, code, strict=True):
        assert use.spilled_bytes == 0, params
        assert use.shared_bytes == REGION_VECTORS * VECTOR_BYTES * (params.level == "shared")
        executed = function.executed(2, [inner_trips(params)])
        number, work = NUMBERS[params.number], iteration_work(params)
        trips = work.chunks * work.trips * THREADS
        counted = count_multiply_adds(params)
        done = sum(executed[name] for name in number.instructions)
        assert done * 2 * number.lanes * trips == counted.pop(number.counted_as), params
        if params.level != "register":
            loads = {k: n for k, n in executed.items() if k.startswith(LOADS[params.level])}
            assert sum(loads.values()) * 16 * trips == counted.pop(params.level), params
            assert ("STRONG.GPU" in "".join(loads)) == (params.level in ("l2", "dram")), loads
        assert counted == {}
        others = [k for k in executed if k.startswith(("LD", "ST")) and "128" in k]
        assert len(others) <= 1


@pytest.mark.parametrize(
    ("number", "level", "ops"),
    [
        ("sp", "register", None),
        ("dp", "register", None),
        ("half", "register", None),
        ("int", "register", None),
        ("sp", "dram", 1),
        ("sp", "shared", 2),
        ("dp", "l2", 3),
        ("dp", "l1", 40),
        ("half", "dram", 35),
        ("int", "l1", 7),
        ("int", "dram", 50),
    ],
)
def test_the_chains_are_those_of_numpy(
    host_folder: Path, number: str, level: str, ops: int | None
) -> None:
    """Three chunks on two blocks, so that one block has one more; 5 trips."""
    params = GpuFmaParams(number=number, level=level, ops_per_word=ops)
    kind, work, blocks = NUMBERS[number], Work(3, 5), 2
    region = 3 if level in ("l2", "dram") else 2
    n_vectors = blocks * region * VECTORS * THREADS
    words = filled((n_vectors * kind.width, kind.lanes), kind.dtype, "random", 1)
    rows = blocks * THREADS
    start = filled((rows, chains(params), kind.lanes), kind.dtype, "random", 2)
    end = np.zeros_like(start)
    constants = np.repeat(np.array(kind.constants, kind.dtype), kind.lanes)
    host_library(fma_source(params), "fma_host.cpp", host_folder).on_host(
        ctypes.c_uint(blocks), *(ctypes.c_void_p(a.ctypes.data) for a in (end, start, words)),
        ctypes.c_int(region), ctypes.c_void_p(constants.ctypes.data),
        ctypes.c_longlong(work.chunks), ctypes.c_int(work.trips),
    )  # fmt: skip
    right = expected(params, start, words, region, blocks, work)
    largest = np.abs(right.astype(np.float64)).max()
    worst = np.abs(end.astype(np.float64) - right.astype(np.float64)).max()
    assert worst <= kind.tolerance * largest
    assert np.isfinite(end.astype(np.float64)).all()
    assert len(np.unique(end)) > 100, "the chains differ"
    off = expected(params, start, words, region, blocks, Work(work.chunks - 1, work.trips))
    assert np.abs(off.astype(np.float64) - right.astype(np.float64)).max() > 2 * worst


def test_counts_by_hand() -> None:
    register = count_multiply_adds(GpuFmaParams())
    assert register == {"sp": 2.0 * 512 * 64 * 256 * CHUNKS}
    # A thread loads 32 bytes a trip: 8 words of 4 bytes, or 4 of 8.
    dp = count_multiply_adds(GpuFmaParams(number="dp", level="dram", ops_per_word=3))
    bytes_ = 32.0 * 256 * 32 * CHUNKS
    assert dp == {"dp": bytes_ / 8 * 3 * 2, "dram": bytes_}
    half = count_multiply_adds(GpuFmaParams(number="half", level="shared", ops_per_word=5))
    assert half == {"half": bytes_ / 4 * 5 * 4, "shared": bytes_}


def test_every_block_has_words_of_its_own_in_an_array_of_the_level() -> None:
    l2, of_trip = 50 << 20, VECTORS * THREADS
    sizes = {level: array_vectors(level, VECTORS, 264, l2) for level in LEVELS[1:]}
    assert sizes["shared"] == REGION_VECTORS
    assert sizes["l1"] == 264 * REGION_VECTORS
    assert 0.6 * l2 / 4 < sizes["l2"] * VECTOR_BYTES <= l2 / 4
    assert 0.99 * (1 << 30) < sizes["dram"] * VECTOR_BYTES <= 1 << 30
    big = array_vectors("dram", VECTORS, 264, 1 << 29)
    assert 0.99 * (1 << 31) < big * VECTOR_BYTES <= 1 << 31
    assert array_vectors("l2", VECTORS, 3, 1000) == 3 * of_trip, "one trip at least"
    for level in LEVELS[2:]:
        trips = region_trips(level, VECTORS, 264, l2)
        own = [
            np.concatenate(
                [loaded_vectors(level, VECTORS, b, t, trips).ravel() for t in range(trips)]
            )
            for b in (0, 1, 263)
        ]
        assert len(np.unique(own)) == 3 * trips * of_trip, "no two share any"
        assert np.max(own) == sizes[level] - 1
        again = loaded_vectors(level, VECTORS, 1, trips, trips)
        assert (again == loaded_vectors(level, VECTORS, 1, 0, trips)).all()


@pytest.mark.parametrize("number", NUMBERS)
def test_data_are_what_they_are_called(number: str) -> None:
    kind = NUMBERS[number]
    shape = (1 << 14, kind.lanes)
    assert not filled(shape, kind.dtype, "zeros", 1).any()
    assert (filled(shape, kind.dtype, "ones", 1) == 1).all()
    for data in ("random", "normal"):
        values = filled(shape, kind.dtype, data, 1)
        assert values.shape == shape
        assert values.dtype == kind.dtype
        assert (values == filled(shape, kind.dtype, data, 1)).all()
        assert (values != filled(shape, kind.dtype, data, 2)).mean() > 0.9
    bits = filled(shape, kind.dtype, "random", 3)
    if number == "int":
        ones = np.unpackbits(bits.view(np.uint8)).mean()
        assert ones == pytest.approx(0.5, abs=0.01)
    else:
        assert np.abs(bits.astype(float)).max() <= 1.0
        assert filled(shape, kind.dtype, "normal", 3).astype(float).std() == pytest.approx(
            1.0, abs=0.03
        )


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"ops_per_word": 2}, "level 'register' loads no words: leave ops_per_word out"),
        ({"level": "l2"}, "level 'l2' needs ops_per_word, multiply-adds per word"),
        ({"level": "l3", "ops_per_word": 1}, "level"),
        ({"number": "fp8"}, "number"),
        ({"level": "dram", "ops_per_word": 5000}, "4096"),
    ],
)
def test_wrong_parameters_are_refused(params: dict, text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        GpuFmaParams(**params)
