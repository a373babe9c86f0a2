"""gpu_fmm without a GPU: its steps computed by NumPy and by the sources compiled for the host."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from kernels.cuda.fmm.arrays import arrays_of, matrices_of, rows_within
from kernels.cuda.fmm.kernel import (
    GpuFmmParams,
    check_potentials,
    gpu_fmm,
    plan_of,
    source_of,
)
from kernels.cuda.fmm.plan import SPECTRA, DirectStep, Plan, SpectraStep, Step, make_plan
from kernels.fmm.constants import PHASES
from kernels.fmm.interface import setup_for
from kernels.fmm.kernel import direct_sums
from kernels.fmm.method import prepare_method
from kernels.host.ranks import Team
from kernels.kernel import KernelError, ResultError
from kernels.registry import find_kernel
from tests.kernels.cuda.on_host import host_library

LANES = 32


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """The products here are small: a BLAS's threads would mostly wait for each other."""
    with threadpool_limits(1, user_api="blas"):
        yield


Arrays = dict[str, np.ndarray]


def by_numpy(step: Step, plan: Plan, arrays: Arrays, matrices: Arrays) -> None:
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
            places = sources[s, :3].copy()
            if step.jobs.shifts is not None:
                shifts = step.jobs.shifts[begin : begin + chunks * warps, :3]
                places += np.repeat(shifts, LANES, axis=0)
            r = np.linalg.norm(targets[t, None, :3].astype(float) - places, axis=2)
            inverse = np.divide(plan.variant.unit, r, out=np.zeros_like(r), where=r > 0)
            out[t] = inverse @ sources[s, 3] + (out[t] if step.add else 0)
        return
    source, out = (rows(arrays, name, plan) for name in (step.source, step.out))
    spectra = isinstance(step, SpectraStep)
    tiles = step.tiles if spectra else step.product.tiles
    for tile, to in enumerate(tiles.rows_out.astype(int)):
        total = np.zeros((len(to), plan.width(step.out)))
        for entry in range(tiles.begins[tile], tiles.begins[tile + 1]):
            given, number = source[tiles.rows_in[entry].astype(int)], tiles.operator_of[entry]
            if spectra:
                operators = matrices[step.operators].reshape(-1, plan.slabs.columns)
                factor = operators[step.first_operator + number].astype(float).view(complex)
                total += (given.astype(float).view(complex) * factor).view(float)
            else:
                total += given @ matrices[step.matrices][number]
        if spectra:
            out[to] = total
        else:
            out[to] = step.product.scales[tile] * total + (out[to] if step.add else 0)
    assert not out[-1].any(), "the row of zeros stays so"


def rows(arrays: Arrays, name: str, plan: Plan) -> np.ndarray:
    """An array of rows, or the densities among points: a view."""
    first, stride = rows_within(name, plan)
    shape, flat = (plan.rows, plan.width(name)), arrays[name].reshape(-1)
    item = flat.itemsize
    return np.lib.stride_tricks.as_strided(
        flat[first:], shape, (item * stride * shape[1], item * stride)
    )


def evaluated(plan: Plan, compute: Callable[..., None]) -> np.ndarray:
    """The sums of all slots."""
    arrays, matrices = arrays_of(plan), matrices_of(plan)
    arrays["sums"][:] = arrays["up_check"][:-1] = arrays["down_check"][:-1] = np.nan
    for name in SPECTRA:
        arrays[name][:-1] = np.nan
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
        (600, 20, 5, "uniform", None),
    ],
)
@pytest.mark.parametrize("precision", ["single", "double"])
def test_the_steps_give_the_potentials(
    n: int, q: int, digits: int, distribution: str, few: int | None, precision: str
) -> None:
    """To the digits, at all points; with ``few`` 0 there are W and X lists."""
    params = GpuFmmParams(n=n, q=q, digits=digits, distribution=distribution, precision=precision)
    plan = make_plan(n, q, digits, distribution, params.direct, params.cells, few)
    sums = evaluated(plan, by_numpy)
    right = direct_sums(plan.places, plan.charges, plan.places)
    computed = plan.potentials(sums)
    assert np.linalg.norm(computed - right) <= 10.0**-digits * np.linalg.norm(right)
    check_potentials(plan, sums, digits)
    if n > 300:
        with pytest.raises(ResultError, match="differ from direct summation by"):
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
    sums = evaluated(plan, by_numpy)
    # To all bits, as here; by default the host's method computes near pairs to the digits.
    setup = replace(setup_for(6, q=40, threads=1), steps=2)
    theirs = prepare_method(plan.places, None, setup).evaluate(plan.charges)
    right = direct_sums(plan.places, plan.charges, plan.places)
    size = np.linalg.norm(right)
    apart = np.linalg.norm(plan.potentials(sums) - theirs) / size
    assert apart <= 1e-10
    assert np.linalg.norm(theirs - right) / size > 100 * apart


def on_host(folder: Path, params: GpuFmmParams) -> Callable[..., None]:
    """Computes a step by the sources compiled for the host."""

    def address(array: np.ndarray) -> ctypes.c_void_p:
        return ctypes.c_void_p(array.ctypes.data)

    def compute(step: Step, plan: Plan, arrays: Arrays, matrices: Arrays) -> None:
        source, _ = source_of(step, params)
        library = host_library(source, f"fmm_{source.path.stem}_host.cpp", folder)
        if isinstance(step, DirectStep):
            of = [
                argument
                for name in (step.targets, step.sources)
                for argument in (address(arrays[name]), ctypes.c_longlong(arrays[name].shape[1]))
            ]
            jobs, out = step.jobs, arrays[step.out]
            shifts = [] if jobs.shifts is None else [address(jobs.shifts)]
            library.on_host(len(jobs.jobs), address(out), *of, address(jobs.groups),
                            address(jobs.jobs), *shifts)  # fmt: skip
            return
        if isinstance(step, SpectraStep):
            library.on_host(
                len(step.tiles.rows_out), address(arrays[step.out]), address(arrays[step.source]),
                address(matrices[step.operators]), step.first_operator, plan.slabs.frequencies,
                *map(address, step.tiles.lists),
            )  # fmt: skip
            return
        of = []
        for name in (step.out, step.source):
            first, stride = rows_within(name, plan)
            of += [address(arrays[name]), ctypes.c_longlong(first), ctypes.c_int(stride)]
        tiles = step.product.tiles
        library.on_host(
            len(tiles.rows_out), *of, address(matrices[step.matrices]), plan.width(step.source),
            plan.width(step.out), *map(address, tiles.lists), address(step.product.scales),
        )  # fmt: skip

    return compute


@pytest.mark.parametrize(("precision", "near"), [("single", 1e-5), ("double", 1e-9)])
def test_the_sources_give_the_potentials(tmp_path: Path, precision: str, near: float) -> None:
    """All phases, of two levels, by the sources; each step as NumPy computes it."""
    params = GpuFmmParams(n=90, q=12, digits=3, distribution="line", precision=precision)
    plan = make_plan(90, 12, 3, "line", params.direct, params.cells, 0)
    assert list(dict.fromkeys(step.phase for step in plan.steps)) == list(PHASES)
    compute = on_host(tmp_path, params)

    def both(step, plan, arrays, matrices) -> None:
        before = {name: a.copy() for name, a in arrays.items()}
        compute(step, plan, arrays, matrices)
        by_numpy(step, plan, before, matrices)
        for name, array in arrays.items():
            scale = np.nan_to_num(np.abs(before[name])).max()
            np.testing.assert_allclose(array, before[name], rtol=near, atol=near / 10 * scale)

    sums = evaluated(plan, both)
    check_potentials(plan, sums, params.digits)


def test_single_precision_rounds_the_points_and_refuses_more_digits() -> None:
    """By at most half of the root cube's side divided by 2^24; two points apart by whole parts."""
    given = {"n": 300, "q": 30, "digits": 5, "distribution": "line"}
    single, double = (
        plan_of(GpuFmmParams(precision=precision, **given)) for precision in ("single", "double")
    )
    part = single.tree.size / 2**24
    moved = np.abs(single.places - double.places)
    assert 0.4 * part < moved.max() <= 0.5001 * part
    apart = (single.places - single.places[0]) / part
    np.testing.assert_allclose(apart, np.rint(apart), atol=1e-6)
    with pytest.raises(ValueError, match="found 6, which single precision does not have; use 3 to"):
        GpuFmmParams(n=300, precision="single", digits=6)


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
    except KernelError as error:
        assert str(error).startswith("opening the GPU: ")
    else:
        run.run(3)
        run.check()
        run.close()
