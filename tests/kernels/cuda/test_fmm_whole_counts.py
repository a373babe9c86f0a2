"""The machine code of gpu_fmm executes what is counted, read without a GPU."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from kernels.cuda.fmm import direct
from kernels.cuda.fmm.evaluation import GpuFmmParams, count_evaluation, count_phases, plan_of
from kernels.cuda.fmm.hadamard import count_hadamard
from kernels.cuda.fmm.plan import DirectStep, Plan, ProductStep, SpectraStep, Step
from kernels.cuda.fmm.product import SHARED_BYTES, SIDE, THREADS, count_product, make_product
from kernels.cuda.fmm.run import source_of
from kernels.cuda.fmm.tiles import make_tiles
from kernels.cuda.listing import Function, disassemble, read_listing
from kernels.cuda.program import compile_program

ARCHITECTURES = ("sm_80", "sm_90", "sm_100", "sm_120")
LANES = 32


def drawn(count: int, seed: int) -> list[GpuFmmParams]:
    rng = random.Random(seed)
    return [
        GpuFmmParams(
            n=rng.randint(1, 900),
            q=rng.randint(10, 80),
            digits=rng.randint(3, 9),
            distribution=rng.choice(["uniform", "plummer", "sphere", "line"]),
            tile=2 ** (i % 4),
            threads=(64, 32, 128, 256)[i % 4],
            cells=(4, 1, 8, 2)[i % 4],
        )
        for i in range(count)
    ]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_machine_code_executes_what_is_counted(architecture: str) -> None:
    """Ten parameter sets each: instructions of all sources, times what the lists say."""
    sets = drawn(40, 5)[ARCHITECTURES.index(architecture) :: 4]
    code: dict[tuple, Function] = {}
    seen: set[str] = set()

    def function(step: Step, params: GpuFmmParams) -> Function:
        source, name = source_of(step, params)
        key = name, *source.macros.values()
        if key not in code:
            program = compile_program(source, architecture)
            assert program.functions[name].spilled_bytes == 0
            assert program.functions[name].shared_bytes == shared_bytes(step, params)
            code[key] = read_listing(disassemble(program.cubin))[name]
        return code[key]

    for params in sets:
        plan, done = plan_of(params), {}
        for step in plan.steps:
            total, compiled = done.setdefault(step.phase, Counter()), function(step, params)
            if isinstance(step, DirectStep):
                total.update(direct_done(compiled, step, params))
            elif isinstance(step, SpectraStep):
                total.update(spectra_done(compiled, step, plan))
            else:
                total.update(product_done(compiled, step, plan))
        seen |= set(done)
        counted = count_phases(params)
        assert list(counted) == list(done)
        for phase, counts in counted.items():
            for name in ("dp", "sfu", "int", "shared"):
                assert counts.get(name, 0) == done[phase][name], (params, phase, name)
            assert counts["l2"] + counts["dram"] == done[phase]["global"], (params, phase)
            assert counts["l2"] >= 0
        total = count_evaluation(params)
        assert total["dp"] == sum(counts["dp"] for counts in counted.values())
    assert seen >= {"up", "v", "down", "u"}


def shared_bytes(step: Step, params: GpuFmmParams) -> int:
    if isinstance(step, DirectStep):
        return direct.shared_bytes(params.direct)
    return 0 if isinstance(step, SpectraStep) else SHARED_BYTES


ADDED = {"DADD": 1, "DMUL": 1, "DFMA": 2}


def flops(executed: Counter[str]) -> int:
    return sum(executed[name] * each for name, each in ADDED.items())


def direct_done(function, step: DirectStep, params: GpuFmmParams) -> Counter[str]:
    """Operations and bytes of a step, job by job."""
    a_pass, a_chunk, once = (function.executed(*given) for given in ((2,), (1, [0]), (0, [0, 0])))
    done: Counter[str] = Counter()
    warps, tile, threads = params.threads // LANES, params.tile, params.threads
    assert flops(a_chunk) == 0
    # Added to what is there: one addition for each target.
    assert flops(once) == (tile if step.add else 0)
    assert once["LDG.E.64"] + once["LDG.E.64.CONSTANT"] == (tile if step.add else 0)
    assert once["STG.E.64"] == tile
    for _, held, _, chunks in step.jobs.jobs.astype(int):
        passes = -(-held // tile) * LANES * chunks * threads // params.direct.unroll
        done["dp"] += flops(a_pass) * passes + flops(once) // tile * held * LANES
        done["sfu"] += a_pass["MUFU.RSQ64H"] * passes
        done["int"] += (a_pass["ISETP.GE.AND"] + a_pass["SEL"]) * passes
        done["shared"] += (
            a_pass["LDS.128"] * 16 * passes + a_chunk["STS.128"] * 16 * threads * chunks
        )
        done["global"] += chunks * (a_chunk["LDG.E.128.STRONG.GPU"] * 16 * threads + 4 * warps)
        done["global"] += warps * (16 + tile * LANES * 24) + held * LANES * 8 * (1 + step.add)
    return done


def product_done(function, step: ProductStep, plan: Plan) -> Counter[str]:
    """Operations and bytes of a step, tile by tile."""
    a_pass, a_piece, an_entry, once = (
        function.executed(*given) for given in ((3,), (2, [0]), (1, [0, 0]), (0, [0, 0, 0]))
    )
    down, across = plan.width(step.source) // SIDE, plan.width(step.out) // SIDE
    warps = THREADS // LANES
    passes = SIDE // 8
    loads = a_pass["LDS.64"] * 8 + a_pass["LDS.128"] * 16
    assert flops(a_piece) == flops(an_entry) == 0
    assert a_piece["LDG.E.STRONG.GPU"] * warps == SIDE
    assert (an_entry["LDG.E.STRONG.GPU"], once["LDG.E.STRONG.GPU"]) == (1, 2 + 4)
    assert once["LDG.E.64.STRONG.GPU"] == 1 + 16 * step.add
    assert once["STG.E.64"] == 16
    done: Counter[str] = Counter()
    for entries in np.diff(step.product.tiles.begins.astype(int)).tolist():
        pieces = across * entries * down
        done["dp"] += THREADS * (pieces * passes * flops(a_pass) + across * flops(once))
        done["shared"] += THREADS * pieces * (passes * loads + a_piece["STS.64"] * 8)
        done["global"] += pieces * (a_piece["LDG.E.64.STRONG.GPU"] * 8 * THREADS + SIDE * 4)
        done["global"] += across * entries * warps * 4
        # Of lists: where entries begin and end, the scale, and 32 rows.
        done["global"] += across * (warps * (4 + 4 + 8) + SIDE * 4)
        done["global"] += across * SIDE * SIDE * 8 * (1 + step.add)
    return done


def spectra_done(function: Function, step: SpectraStep, plan: Plan) -> Counter[str]:
    """Operations and bytes of a step, tile by tile."""
    an_entry, once = function.executed(1), function.executed(0, (0,))
    cells, threads = step.tiles.rows_out.shape[1], plan.slabs.frequencies
    assert an_entry["LDG.E.128.STRONG.GPU"] == an_entry["LDG.E.STRONG.GPU"] == cells + 1
    assert an_entry["DFMA"] == 4 * cells
    assert flops(once) == once["LDG.E.128.STRONG.GPU"] == 0
    assert once["STG.E.128"] == cells
    # The first entry's numbers are loaded before the loop, and none in its last pass.
    assert once["LDG.E.STRONG.GPU"] == (cells + 1) + cells + 2
    done: Counter[str] = Counter()
    for entries in np.diff(step.tiles.begins.astype(int)).tolist():
        done["dp"] += threads * entries * flops(an_entry)
        done["global"] += threads * (entries * (cells + 1) + cells) * 16
        # Of lists, once a warp.
        done["global"] += threads // LANES * (entries * (cells + 1) + cells + 2) * 4
    return done


def test_counts_of_a_product_by_hand() -> None:
    """Two tiles of 64 columns; one has an entry of matrix 4, the other none."""
    made = make_product(
        np.array([3, 8]), np.array([0, 1]), np.array([1.0, 2.0]), np.array([[0, 4, 6]]), 9
    )
    counts = count_product(made, 96, 64, add=True)
    # Two parts of the result's columns, each of three pieces of 32.
    assert counts["dp"] == 2 * 3 * 2 * 32**3 + 2 * 2 * 2 * 32 * 32
    assert counts["shared"] == 6 * (2 * 8 * 32 * 32 + 8 * 8 * 32 * 64)
    lists = 2 * 32 * 4 + 3 * 4 + 4 + 32 * 4 + 2 * 8
    first = (2 * 96 * 8) + 96 * 64 * 8 + lists
    assert counts["dram"] == first + 4 * 32 * 32 * 8
    loaded = 6 * (2 * 8 * 32 * 32 + 32 * 4) + 2 * 2 * 4 + 4 * (2 * 16 + 32 * 4)
    assert counts["l2"] == loaded - first + 4 * 32 * 32 * 8


def test_counts_of_products_of_spectra_by_hand() -> None:
    """Two tiles of four rows of 128 frequencies; the first has the operators 4 and 5, of which the
    second row has one."""
    rows, terms = np.array([3, 8, 5]), np.array([[0, 4, 6], [0, 5, 7], [1, 5, 6]])
    made = make_tiles(rows, np.array([0, 0, 1]), terms, 9, 4)
    counts = count_hadamard(made, 128)
    assert counts["dp"] == 2 * 4 * 128 * 8
    lists = 2 * 4 * 4 + 3 * 4 + 2 * 4 + 2 * 4 * 4
    # Rows 6 and 7, that of zeros, and two operators.
    first = (3 + 2) * 128 * 16 + lists
    assert counts["dram"] == first + 2 * 4 * 128 * 16
    loaded = 2 * (1 + 4) * 128 * 16 + 4 * 4 * (2 * (1 + 4) + 2 * (2 + 4))
    assert counts["l2"] == loaded - first
