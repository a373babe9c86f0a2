"""gpu_sfu without a GPU: its machine code counted, its chains compiled for the host."""

from __future__ import annotations

import ctypes
import random
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from kernels.cuda.microbench.chunks import CHUNKS, THREADS, Work
from kernels.cuda.microbench.sfu import (
    FACTORS,
    FUNCTION,
    WORK,
    GpuSfuParams,
    count_values,
    expected,
    first_values,
    sfu_source,
)
from tests.kernels.cuda.on_host import ARCHITECTURES, compiled_together, host_library


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_machine_code_executes_what_is_counted(architecture: str, tmp_path: Path) -> None:
    """None, one, and eight random numbers of multiply-adds."""
    rng = random.Random(ARCHITECTURES.index(architecture))
    sets = [GpuSfuParams(ops_per_value=ops) for ops in (0, 1, *rng.sample(range(2, 65), 8))]
    functions = [(sfu_source(params), FUNCTION) for params in sets]
    code = compiled_together(functions, architecture, tmp_path)
    for params, (function, use) in zip(sets, code, strict=True):
        assert (use.spilled_bytes, use.shared_bytes) == (0, 0)
        executed = function.executed(2)
        trips = WORK.chunks * WORK.trips * THREADS
        counted = dict(count_values(params))
        kind = "MUFU.RSQ" if params.ops_per_value else "MUFU.RCP"
        assert executed[kind] * trips == counted.pop("sfu")
        assert executed["FFMA"] * 2 * trips == counted.pop("sp", 0.0)
        assert counted == {}
        assert (
            sum(n for name, n in executed.items() if name.startswith("MUFU")) * trips
            == (count_values(params)["sfu"])
        )
        assert not {"FADD", "FMUL"} & executed.keys()


def ends(params: GpuSfuParams, start: np.ndarray, blocks: int, work: Work, folder: Path):
    """The chains' ends by the source on the host."""
    end = np.zeros_like(start)
    factors = np.array([value for pair in FACTORS for value in pair], np.float32)
    host_library(sfu_source(params), "sfu_host.cpp", folder).on_host(
        ctypes.c_uint(blocks),
        *(ctypes.c_void_p(a.ctypes.data) for a in (end, start, factors)),
        ctypes.c_longlong(work.chunks), ctypes.c_int(work.trips),
    )  # fmt: skip
    return end


@pytest.mark.parametrize("ops", [0, 1, 2, 7])
def test_the_chains_are_those_of_numpy(host_folder: Path, ops: int) -> None:
    """As the check on a GPU does: three chunks on two blocks, one trip."""
    params, blocks, work = GpuSfuParams(ops_per_value=ops), 2, Work(3, 1)
    start = first_values(blocks * THREADS, 3)
    end = ends(params, start, blocks, work, host_folder)
    right, off = expected(params, start, blocks, work)
    assert (np.abs(end - right) <= off).all()
    assert np.median(off / np.abs(right)) < 1e-4, "the check would find an error"
    other, _ = expected(params, start, blocks, Work(2, 1))
    assert (np.abs(end - other) > off)[:THREADS].mean() > 0.99


@pytest.mark.parametrize("ops", [0, 1, 2, 5])
def test_values_stay_finite_differ_and_keep_changing(host_folder: Path, ops: int) -> None:
    params = GpuSfuParams(ops_per_value=ops)
    start = first_values(THREADS, 5)
    long, longer = (ends(params, start, 1, Work(1, trips), host_folder) for trips in (3000, 3001))
    assert np.isfinite(long).all()
    assert 1e-3 < np.abs(long).mean() < 1e3
    assert len(np.unique(np.abs(long))) > 0.5 * long.size
    assert (long != longer).mean() > 0.99


def test_no_number_makes_a_zero() -> None:
    """f x + t = 0 only for x = -t / f, which must not be a number of 24 bits."""
    for factor, term in FACTORS:
        root = -Fraction(float(term)) / Fraction(float(factor))
        odd = root.denominator // (root.denominator & -root.denominator)
        assert odd > 1


def test_counts_by_hand() -> None:
    assert count_values(GpuSfuParams()) == {
        "sfu": 16.0 * 256 * 64 * CHUNKS,
        "sp": 32.0 * 256 * 64 * CHUNKS,
    }
    assert count_values(GpuSfuParams(ops_per_value=0)) == {"sfu": 8.0 * 256 * 64 * CHUNKS}


def test_wrong_parameters_are_refused() -> None:
    for ops in (-1, 65):
        with pytest.raises(ValidationError, match="ops_per_value"):
            GpuSfuParams(ops_per_value=ops)
