"""gpu_fmm without a GPU: its steps computed by NumPy and by the sources compiled for the host, its
machine code counted."""

from __future__ import annotations

import ctypes
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from kernels.cuda.fmm import direct
from kernels.cuda.fmm import product as products
from kernels.cuda.fmm.arrays import arrays_of, matrices_of, rows_within
from kernels.cuda.fmm.evaluation import (
    GpuFmmParams,
    count_evaluation,
    count_phases,
    plan_of,
)
from kernels.cuda.fmm.kernel import gpu_fmm
from kernels.cuda.fmm.plan import DirectStep, Plan, ProductStep, far_offsets, make_plan
from kernels.cuda.fmm.product import SIDE, THREADS, count_product, make_product, product_source
from kernels.cuda.fmm.run import check_potentials
from kernels.cuda.listing import disassemble, read_listing
from kernels.cuda.program import compile_program
from kernels.fmm.constants import PHASES
from kernels.fmm.interface import setup_for
from kernels.fmm.kernel import direct_sums
from kernels.fmm.method import prepare_method
from kernels.host.ranks import Team
from kernels.kernel import KernelFailed, WrongResult
from kernels.registry import find_kernel
from tests.kernels.cuda.compiled_for_host import compiled_for_host

ARCHITECTURES = ("sm_80", "sm_90", "sm_100", "sm_120")
LANES = 32


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """The products here are small: a BLAS's threads would mostly wait for each other."""
    with threadpool_limits(1, user_api="blas"):
        yield


Arrays = dict[str, np.ndarray]


def by_numpy(step: DirectStep | ProductStep, plan: Plan, arrays: Arrays, matrices: Arrays) -> None:
    """A step, from its lists."""
    if isinstance(step, DirectStep):
        targets, sources = (
            arrays[name].swapaxes(0, 1).reshape(-1, 4) for name in (step.targets, step.sources)
        )
        out, lanes = arrays[step.out].reshape(-1), np.arange(LANES)
        for first, held, begin, chunks in step.jobs.jobs.astype(int):
            t = np.arange(first * LANES, (first + held) * LANES)
            warps = 2  # of the variant
            groups = step.jobs.groups[begin : begin + chunks * warps].astype(int)
            s = (groups[:, None] * LANES + lanes).ravel()
            r = np.linalg.norm(targets[t, None, :3] - sources[s, :3], axis=2)
            inverse = np.divide(1.0, r, out=np.zeros_like(r), where=r > 0)
            out[t] = inverse @ sources[s, 3] + (out[t] if step.add else 0)
        return
    source, out = (rows(arrays, name, plan) for name in (step.source, step.out))
    lists = step.product
    for tile, to in enumerate(lists.rows_out.astype(int)):
        total = np.zeros((SIDE, plan.columns))
        for entry in range(lists.begins[tile], lists.begins[tile + 1]):
            matrix = matrices[step.matrices][lists.matrix_of[entry]]
            total += source[lists.rows_in[entry].astype(int)] @ matrix
        out[to] = lists.scales[tile] * total + (out[to] if step.add else 0)
    assert not out[-1].any(), "the row of zeros stays so"


def rows(arrays: Arrays, name: str, plan: Plan) -> np.ndarray:
    """An array of rows, or the densities among points: a view."""
    first, stride = rows_within(name, plan)
    shape, flat = (plan.rows, plan.columns), arrays[name].reshape(-1)
    return np.lib.stride_tricks.as_strided(
        flat[first:], shape, (8 * stride * plan.columns, 8 * stride)
    )


def evaluated(plan: Plan, params: GpuFmmParams, compute: Callable[..., None]) -> np.ndarray:
    """The sums of all slots."""
    arrays, matrices = arrays_of(plan, params.direct), matrices_of(plan)
    arrays["sums"][:] = arrays["up_check"][:-1] = arrays["down_check"][:-1] = np.nan
    for name in ("up_check", "down_check"):
        arrays[name][:-1][plan.tree.level < 2] = 0  # without surfaces
    for step in plan.steps:
        compute(step, plan, arrays, matrices)
    return arrays["sums"]


@pytest.mark.parametrize(
    ("n", "q", "digits", "distribution", "few"),
    [
        (1, 5, 3, "uniform", None),
        (40, 50, 5, "equal", None),
        (450, 30, 3, "plummer", 0),
        (600, 40, 5, "sphere", None),
        (500, 30, 3, "line", 0),
    ],
)
def test_the_steps_give_the_potentials(
    n: int, q: int, digits: int, distribution: str, few: int | None
) -> None:
    """To the digits, at all points; with ``few`` 0 there are W and X lists."""
    params = GpuFmmParams(n=n, q=q, digits=digits, distribution=distribution)
    plan = make_plan(n, q, digits, distribution, params.direct, few)
    sums = evaluated(plan, params, by_numpy)
    right = direct_sums(plan.places, plan.charges, plan.places)
    computed = sums[plan.slot] / (4 * np.pi)
    assert np.linalg.norm(computed - right) <= 10.0**-digits * np.linalg.norm(right)
    check_potentials(plan, sums, digits)
    if n > 300:
        with pytest.raises(WrongResult, match="differ from direct summation by"):
            check_potentials(plan, sums * (1 + 2 * 10.0**-digits), digits)
    phases = list(dict.fromkeys(step.phase for step in plan.steps))
    if few == 0:
        assert phases == list(PHASES)
    assert phases == [phase for phase in PHASES if phase in phases]


def test_the_steps_give_what_the_hosts_method_gives() -> None:
    """The same tree, surfaces and operators: the results differ by rounding alone, far less than
    the 6 digits asked for."""
    params = GpuFmmParams(n=700, q=40, digits=6, distribution="plummer")
    plan = plan_of(params)
    assert {step.phase for step in plan.steps} >= {"up", "v", "down", "u"}
    sums = evaluated(plan, params, by_numpy)
    # To all bits, as here; by default the host's method computes near pairs to the digits.
    setup = replace(setup_for(6, q=40, threads=1), steps=2)
    theirs = prepare_method(plan.places, None, setup).evaluate(plan.charges)
    right = direct_sums(plan.places, plan.charges, plan.places)
    size = np.linalg.norm(right)
    apart = np.linalg.norm(sums[plan.slot] / (4 * np.pi) - theirs) / size
    assert apart <= 1e-10
    assert np.linalg.norm(theirs - right) / size > 100 * apart


def on_host(folder: Path, params: GpuFmmParams) -> Callable[..., None]:
    """Computes a step by the sources compiled for the host."""

    def address(array: np.ndarray) -> ctypes.c_void_p:
        return ctypes.c_void_p(array.ctypes.data)

    def compute(
        step: DirectStep | ProductStep, plan: Plan, arrays: Arrays, matrices: Arrays
    ) -> None:
        if isinstance(step, DirectStep):
            source = direct.direct_source(params.direct, step.add)
            library = compiled_for_host(source, "fmm_direct_host.cpp", folder)
            of = [
                argument
                for name in (step.targets, step.sources)
                for argument in (address(arrays[name]), ctypes.c_longlong(arrays[name].shape[1]))
            ]
            jobs, out = step.jobs, arrays[step.out]
            library.on_host(len(jobs.jobs), address(out), *of, address(jobs.groups),
                            address(jobs.jobs))  # fmt: skip
            return
        library = compiled_for_host(product_source(step.add), "fmm_product_host.cpp", folder)
        of = []
        for name in (step.out, step.source):
            first, stride = rows_within(name, plan)
            of += [address(arrays[name]), ctypes.c_longlong(first), ctypes.c_int(stride)]
        lists = step.product
        library.on_host(
            len(lists.rows_out), *of, address(matrices[step.matrices]), plan.columns,
            *map(address, (lists.rows_out, lists.begins, lists.matrix_of, lists.rows_in)),
            address(lists.scales),
        )  # fmt: skip

    return compute


def test_the_sources_give_the_potentials(tmp_path: Path) -> None:
    """All phases, of two levels, by the sources; each step as NumPy computes it."""
    params = GpuFmmParams(n=90, q=12, digits=3, distribution="line")
    plan = make_plan(90, 12, 3, "line", params.direct, 0)
    assert list(dict.fromkeys(step.phase for step in plan.steps)) == list(PHASES)
    compute = on_host(tmp_path, params)

    def both(step, plan, arrays, matrices) -> None:
        before = {name: a.copy() for name, a in arrays.items()}
        compute(step, plan, arrays, matrices)
        by_numpy(step, plan, before, matrices)
        for name, array in arrays.items():
            scale = np.nan_to_num(np.abs(before[name])).max()
            np.testing.assert_allclose(array, before[name], rtol=1e-9, atol=1e-10 * scale)

    sums = evaluated(plan, params, both)
    check_potentials(plan, sums, params.digits)


def test_products_are_those_of_numpy() -> None:
    """Tiles, from a list of terms in any order: kinds of more and of fewer rows than a tile."""
    rng = np.random.default_rng(1)
    rows_ = rng.permutation(200)[:120]
    kinds = rng.choice([3, 5, 9], 120, p=[0.1, 0.5, 0.4])
    scales = 1.0 / kinds
    pairs = rng.permutation([(at, m) for at in range(120) for m in range(7) if rng.random() < 0.4])
    terms = np.column_stack([pairs, rng.integers(0, 200, len(pairs))])
    made = make_product(rows_, kinds, scales, terms, 200)
    assert made.rows_out.shape == (1 + 2 + 2, SIDE)
    matrices, given = rng.normal(size=(7, 4, 4)), rng.normal(size=(201, 4))
    given[200] = 0
    right = np.zeros((201, 4))
    for at, matrix, source in terms:
        right[rows_[at]] += scales[at] * given[source] @ matrices[matrix]
    computed = np.zeros((201, 4))
    for tile, to in enumerate(made.rows_out):
        for entry in range(made.begins[tile], made.begins[tile + 1]):
            computed[to] += (
                made.scales[tile] * given[made.rows_in[entry]] @ matrices[made.matrix_of[entry]]
            )
    np.testing.assert_allclose(computed, right, atol=1e-12)
    assert made.begins[-1] == len(made.matrix_of) == len(made.rows_in)


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
        )
        for i in range(count)
    ]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_machine_code_executes_what_is_counted(architecture: str) -> None:
    """Ten parameter sets each: instructions of both sources, times what the lists say."""
    sets = drawn(40, 5)[ARCHITECTURES.index(architecture) :: 4]
    variant = sets[0].direct
    code = {}
    for add in (False, True):
        for name, source, shared in (
            (direct.FUNCTION, direct.direct_source(variant, add), direct.shared_bytes(variant)),
            (products.FUNCTION, product_source(add), products.SHARED_BYTES),
        ):
            program = compile_program(source, architecture)
            assert program.functions[name].spilled_bytes == 0
            assert program.functions[name].shared_bytes == shared
            code[name, add] = read_listing(disassemble(program.cubin))[name]
    for params in sets:
        assert params.direct == variant
        plan, done = plan_of(params), {}
        for step in plan.steps:
            total = done.setdefault(step.phase, Counter())
            if isinstance(step, DirectStep):
                total.update(direct_done(code[direct.FUNCTION, step.add], step, params))
            else:
                total.update(product_done(code[products.FUNCTION, step.add], step, plan))
        counted = count_phases(params)
        assert list(counted) == list(done)
        for phase, counts in counted.items():
            for name in ("dp", "sfu", "int", "shared"):
                assert counts.get(name, 0) == done[phase][name], (params, phase, name)
            assert counts["l2"] + counts["dram"] == done[phase]["global"], (params, phase)
            assert counts["l2"] >= 0
        total = count_evaluation(params)
        assert total["dp"] == sum(counts["dp"] for counts in counted.values())


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
    across, warps = plan.columns // SIDE, THREADS // LANES
    passes = SIDE // 8
    loads = a_pass["LDS.64"] * 8 + a_pass["LDS.128"] * 16
    assert flops(a_piece) == flops(an_entry) == 0
    assert a_piece["LDG.E.STRONG.GPU"] * warps == SIDE
    assert (an_entry["LDG.E.STRONG.GPU"], once["LDG.E.STRONG.GPU"]) == (1, 2 + 4)
    assert once["LDG.E.64.STRONG.GPU"] == 1 + 16 * step.add
    assert once["STG.E.64"] == 16
    done: Counter[str] = Counter()
    for tile in range(len(step.product.rows_out)):
        entries = int(step.product.begins[tile + 1]) - int(step.product.begins[tile])
        pieces = across * entries * across
        done["dp"] += THREADS * (pieces * passes * flops(a_pass) + across * flops(once))
        done["shared"] += THREADS * pieces * (passes * loads + a_piece["STS.64"] * 8)
        done["global"] += pieces * (a_piece["LDG.E.64.STRONG.GPU"] * 8 * THREADS + SIDE * 4)
        done["global"] += across * entries * warps * 4
        # Of lists: where entries begin and end, the scale, and 32 rows.
        done["global"] += across * (warps * (4 + 4 + 8) + SIDE * 4)
        done["global"] += across * SIDE * SIDE * 8 * (1 + step.add)
    return done


def test_counts_of_a_product_by_hand() -> None:
    """Two tiles of 64 columns; one has an entry of matrix 4, the other none."""
    made = make_product(
        np.array([3, 8]), np.array([0, 1]), np.array([1.0, 2.0]), np.array([[0, 4, 6]]), 9
    )
    counts = count_product(made, 64, add=True)
    # Two parts of the result's columns, each of two pieces of 32.
    assert counts["dp"] == 2 * 2 * 2 * 32**3 + 2 * 2 * 2 * 32 * 32
    assert counts["shared"] == 4 * (2 * 8 * 32 * 32 + 8 * 8 * 32 * 64)
    lists = 2 * 32 * 4 + 3 * 4 + 4 + 32 * 4 + 2 * 8
    first = (2 * 64 * 8) + 64 * 64 * 8 + lists
    assert counts["dram"] == first + 4 * 32 * 32 * 8
    loaded = 4 * (2 * 8 * 32 * 32 + 32 * 4) + 2 * 2 * 4 + 4 * (2 * 16 + 32 * 4)
    assert counts["l2"] == loaded - first + 4 * 32 * 32 * 8


def test_offsets_of_cells_that_do_not_touch() -> None:
    assert len(far_offsets()) == 7**3 - 3**3


def test_the_kernel_is_registered_and_planning_imports_neither_cuda_nor_numba() -> None:
    assert find_kernel("gpu_fmm") is gpu_fmm
    code = (
        "import sys; from kernels.registry import find_kernel; find_kernel('gpu_fmm'); "
        "sys.exit(bool({'numba', 'cuda'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", ["gpu_fmm", "gpu_fmm_u"])
def test_without_a_driver_the_message_says_where_to_run(name: str) -> None:
    """No machine that runs the tests has a driver; where one does, the kernel is run."""
    kernel = find_kernel(name)
    try:
        run = kernel.prepare(kernel.params(n=500), Team())
    except KernelFailed as error:
        assert str(error).startswith("opening the GPU: ")
    else:
        run.run(3)
        run.check()
        run.close()
