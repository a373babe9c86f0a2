"""gpu_stencil without a GPU: its machine code counted, its program compiled for the host."""

from __future__ import annotations

from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from campaign.plan.plan import make_plan
from kernels.cuda.listing import Function
from kernels.cuda.stencils import stencil
from kernels.cuda.stencils.stencil import (
    FUNCTION,
    GpuStencilParams,
    StencilRun,
    columns_held,
    count_prisms,
    gpu_stencil,
    iteration,
    launches,
    line_numbers,
    prism_metrics,
    prism_source,
    refusal,
    shared_bytes,
)
from kernels.host.ranks import Team
from kernels.kernel import KernelError, ResultError
from kernels.stencils.counts import count_stencil, stencil_metrics, wavefronts
from kernels.stencils.kernel import plain_steps
from kernels.stencils.stencils import STENCILS, next_step
from tests.kernels.cuda.on_host import ARCHITECTURES, compiled_together
from tests.kernels.cuda.stencils.executions import executions
from tests.kernels.cuda.stencils.host_gpu import COUNTED, HostGpu, on_host, whole_grid
from tests.kernels.cuda.stencils.variants import drawn

ROOT = Path(__file__).parents[4]
OPCODES = {"single": ("FADD", "FMUL"), "double": ("DADD", "DMUL")}
COUNTED_OPCODES = {
    *("FADD", "FMUL", "FFMA", "DADD", "DMUL", "DFMA", "FADD2", "FMUL2", "FFMA2"),
    *("LDS", "STS", "LDG", "LDGSTS", "STG", "LD", "ST", "LDL", "STL", "BAR", "ATOMS"),
}


def item_bytes(params: GpuStencilParams) -> int:
    return 4 if params.precision == "single" else 8


def bodies(function: Function) -> tuple[list[Counter[str]], Counter[tuple[str, int]]]:
    """What is counted in each innermost loop, by opcode; and outside them, by opcode and depth. An
    instruction that is never executed is none."""
    inner = [
        loop
        for loop in function.loops
        if not any(other != loop and loop.holds(other.begin) for other in function.loops)
    ]
    counts: list[Counter[str]] = [Counter() for _ in inner]
    outside: Counter[tuple[str, int]] = Counter()
    for one in function.instructions:
        if one.opcode not in COUNTED_OPCODES or one.guard == "!PT":
            continue
        places = [place for place, loop in enumerate(inner) if loop.holds(one.at)]
        for place in places:
            counts[place][one.opcode] += 1
        if not places:
            outside[one.opcode, function.depth(one)] += 1
    return counts, outside


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_machine_code_executes_what_is_counted(architecture: str, tmp_path: Path) -> None:
    """Ten variants each: instructions of each loop's body, times how often it runs."""
    variants = drawn(40, 3, most=150, most_threads=1024)[ARCHITECTURES.index(architecture) :: 4]
    functions = [(prism_source(params), FUNCTION) for params in variants]
    code = compiled_together(functions, architecture, tmp_path)
    for params, (function, use) in zip(variants, code, strict=True):
        assert use.spilled_bytes == 0, params
        assert use.shared_bytes == 0, "all of it is asked for at launch"
        assert use.registers * np.prod(params.block) <= 65536
        loops, outside = bodies(function)
        add, multiply = OPCODES[params.precision]
        (points,) = (loop for loop in loops if loop[add])
        (out,) = (loop for loop in loops if loop["STG"])
        brought = [loop for loop in loops if loop["LDGSTS"]]
        assert len(loops) == 2 + len(brought), loops
        # Those of a row, and the fixed values at both ends of its lines.
        assert brought == [{"LDGSTS": 1}] * (1 if params.axes == 1 else 3)
        assert out == {"LDS": 1, "STG": 1}
        assert set(points) == {add, multiply, "LDS", "STS"}
        done, size = executions(params), item_bytes(params)
        counted = count_prisms(params)
        kind = "sp" if params.precision == "single" else "dp"
        assert counted.pop(f"{kind}_add") == points[add] * done["points"], params
        assert counted.pop(f"{kind}_mul") == points[multiply] * done["points"]
        moved = done["brought in"] + done["written out"]
        assert counted.pop("dram") == moved * size
        of_points = (points["LDS"] + points["STS"]) * done["points"]
        assert counted.pop("shared") == (of_points + moved) * size
        # One barrier in the loop of rows; two in that of pieces, before it and after it.
        assert outside == {("BAR", 2): 1, ("BAR", 1): 2}
        assert counted.pop("barrier") == done["rows of pieces"] + 2 * done["pieces"]
        assert counted.pop("launch") == done["launches"]
        assert counted == {}
        width = "64" if params.precision == "double" else "E"
        for one in function.instructions:
            if one.opcode in ("LDS", "STS", "LDGSTS", "STG") and one.guard != "!PT":
                assert ({"64", "128"} & set(one.modifiers)) == ({width} & {"64"}), one


def test_counts_are_those_of_the_host_with_fixed_values_and_transfers() -> None:
    """Over sets of (step, point) of whole prisms, fixed values apart; so are the trips."""
    for params in drawn(120, 5, most=40, most_threads=64):
        done, size = executions(params), item_bytes(params)
        host, counted = count_stencil(params.on_host()), count_prisms(params)
        assert counted.pop("dram") - host.pop("dram") == done["fixed"] * size, params
        moved = done["brought in"] + done["written out"]
        assert counted.pop("shared") - host.pop("l1") == moved * size
        assert counted == host
        metrics = prism_metrics(params)
        assert metrics["trips"] == done["trips"]
        assert metrics["tiles"] == stencil_metrics(params.on_host())["tiles"] == done["pieces"]
        assert len(list(launches(params))) == done["launches"]


def test_a_prism_needs_each_value_around_it_once_along_both_axes() -> None:
    """The factor of the second axis, by sets of (step, point, column) of whole prisms."""
    for params in drawn(60, 6, most=9, most_threads=8):
        if params.axes == 1:
            continue
        brought = fixed = 0
        for wavefront in wavefronts(params.on_host()):
            for tile in range(len(wavefront.steps)):
                columns = zip(*(side[tile].tolist() for side in (
                    wavefront.steps, wavefront.lows, wavefront.highs)), strict=True)  # fmt: skip
                own = {
                    (step, *point)
                    for step, low, high in columns
                    for point in product(range(low, high), range(params.size_2))
                }
                star = ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1))
                needed = {(t - 1, i + di, j + dj) for t, i, j in own for di, dj in star} - own
                inside = {
                    (t, i, j)
                    for t, i, j in needed
                    if 0 <= i < params.size_1 and 0 <= j < params.size_2
                }
                of_prism = len({(t % 2, i, j) for t, i, j in needed - inside})
                brought, fixed = brought + len(inside) + of_prism, fixed + of_prism
        done = executions(params)
        assert (brought, fixed) == (done["brought in"], done["fixed"]), params


def test_counts_by_hand() -> None:
    """A hexagon away from all borders: rows of 3, 5, 5 and 3 points, in double precision. With
    eight points and four steps more there are two of them more than with either alone."""
    params = GpuStencilParams(
        stencil="j1d", size_1=1000, steps=40, precision="double", tile_t=4, tile_1=3
    )
    counts = {
        (size, steps): count_prisms(params.model_copy(update={"size_1": size, "steps": steps}))
        for size in (1000, 1008)
        for steps in (40, 44)
    }
    words_in, words_out, points = 3 + 2 * 4, 3 + 2 * 4 - 2, 3 + 5 + 5 + 3
    of_two = {
        name: counts[1008, 44][name]
        - counts[1000, 44][name]
        - counts[1008, 40][name]
        + counts[1000, 40][name]
        for name in counts[1000, 40]
    }
    assert of_two == {
        "dp_add": 2 * points * 2,
        "dp_mul": 2 * points * 1,
        "dram": 2 * (words_in + words_out) * 8,
        "shared": 2 * (points * 4 + words_in + words_out) * 8,
        "barrier": 2 * (4 + 2),
        "launch": 0,
    }
    assert shared_bytes(params) == 2 * 8 * (3 + 4)


HOST_VARIANTS = [
    *drawn(16, 11, most=13, most_threads=8),
    # Many pieces, each of one column, and a tile higher than all steps.
    GpuStencilParams(
        stencil="j2d", size_1=9, size_2=7, steps=5, tile_t=6, tile_1=1, tile_2=1, threads_1=2,
        threads_2=2,
    ),
    GpuStencilParams(
        stencil="g2d", size_1=1, size_2=1, steps=1, tile_t=8, tile_1=20, tile_2=3, threads_1=1,
        threads_2=3,
    ),
    GpuStencilParams(stencil="j1d", size_1=1, steps=3, tile_t=2, tile_1=1, threads_1=3),
    # Inside the grid all of the shared memory is used.
    GpuStencilParams(
        stencil="l2d", size_1=20, size_2=40, steps=8, tile_t=4, tile_1=2, tile_2=5, threads_1=3,
        threads_2=2,
    ),
]  # fmt: skip


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """All of HOST_VARIANTS, compiled for the host."""
    return on_host(HOST_VARIANTS, tmp_path_factory.mktemp("host"))


def test_all_steps_are_bit_for_bit_those_of_numpy_and_count_as_declared(program) -> None:
    """Two iterations from random values, with wavefronts' blocks in both orders. What a grid does
    not hold yet, and shared memory before a block begins, is no number."""
    for number, params in enumerate(HOST_VARIANTS):
        gpu = HostGpu(program, number)
        dtype = np.float32 if params.precision == "single" else np.float64
        rng = np.random.default_rng(number)
        values = rng.random((params.size_1 + 2) * line_numbers(params), dtype)
        grids = [values, values.copy()]
        inside = (slice(1, -1),) * params.axes
        whole_grid(params, grids[1])[inside] = np.nan
        right = whole_grid(params, values).copy()
        host = np.stack([right] * 2)
        for _ in range(2):
            for launch in iteration(params, gpu.function(None, FUNCTION, 1), grids):
                gpu.launch(launch)
            for _ in range(params.steps):
                right[inside] = next_step(params.stencil, right)
            if params.steps % 2:
                grids.reverse()
            now = whole_grid(params, grids[0])
            assert np.array_equal(now, right), params
            plain = plain_steps(params.stencil, host, params.steps)
            assert np.array_equal(now, plain)
            host = np.stack([plain] * 2)
        assert gpu.outside == 0, params
        done = dict(zip(COUNTED, (gpu.counts // 2).tolist(), strict=True))
        counted, size = count_prisms(params), item_bytes(params)
        kind = "sp" if params.precision == "single" else "dp"
        points = params.size_1 * (params.size_2 or 1) * params.steps
        moved = done["brought_in"] + done["written_out"]
        of_points = points * (STENCILS[params.stencil].loads + 1)
        assert counted == {
            f"{kind}_add": done["additions"],
            f"{kind}_mul": done["multiplications"],
            "shared": (of_points + moved) * size,
            "dram": moved * size,
            "barrier": done["barriers"],
            "launch": gpu.launched / 2,
        }, params


def test_inside_a_grid_all_of_the_shared_memory_is_used(program) -> None:
    number, params = len(HOST_VARIANTS) - 1, HOST_VARIANTS[-1]
    assert shared_bytes(params) == 2 * 4 * (2 + 4) * (5 + 4 + 1)
    gpu = HostGpu(program, number)
    values = np.zeros((params.size_1 + 2) * line_numbers(params), np.float32)
    unwritten = []
    for launch in iteration(params, gpu.function(None, FUNCTION, 1), [values, values.copy()]):
        gpu.launch(launch)
        unwritten.append(int(gpu.counts[COUNTED.index("unwritten")]))
    assert 0 in unwritten, "in some wavefront's last block"


@pytest.mark.parametrize("number", [0, 1, 2, 16])
def test_a_run_goes_on_from_its_last_values_and_a_wrong_one_is_found(
    program, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Odd and even numbers of iterations of odd and even numbers of steps; the host runs what a GPU
    would."""
    params = HOST_VARIANTS[number]
    monkeypatch.setattr(stencil, "Gpu", lambda team: HostGpu(program, number))
    run = StencilRun(params, Team())
    right = np.stack([whole_grid(params, run._grids[run._parity])] * 2)
    for iterations in (1, 2, 3, 0, 4):
        run.run(iterations)
        for _ in range(iterations):
            right = np.stack([plain_steps(params.stencil, right, params.steps)] * 2)
        assert np.array_equal(whole_grid(params, run._grids[run._parity]), right[0])
    run.check()
    assert run.counts() == gpu_stencil.counts(params)
    replay = run._gpu.replay

    def spoiled(graph, times):
        replay(graph, times)
        for grid in run._grids:
            np.add(grid, grid.dtype.type(1e-3), out=grid)

    monkeypatch.setattr(run._gpu, "replay", spoiled)
    with pytest.raises(ResultError, match="another result than untiled, near"):
        run.check()


def test_the_examples_space_has_all_tiles_that_fit_its_gpu() -> None:
    """Its condition is the formula of the shared memory."""
    plan = make_plan(ROOT / "examples/gpu-stencil.toml")
    found = {GpuStencilParams.model_validate_json(text) for text in plan.spaces[0].params}
    fitting = set()
    for tile_t, tile_1, tile_2, threads_1 in product(
        range(4, 33, 4), (4, 8, 16, 32), range(32, 257, 32), (4, 8, 16)
    ):
        params = GpuStencilParams(
            stencil="j2d", size_1=8192, size_2=8192, steps=256, tile_t=tile_t, tile_1=tile_1,
            tile_2=tile_2, threads_1=threads_1, threads_2=32,
        )  # fmt: skip
        if not refusal(params, 48 << 10) and threads_1 <= tile_1 + tile_t:
            fitting.add(params)
    assert found == fitting
    assert len(found) > 400


def test_without_a_gpu_the_message_says_where_to_run() -> None:
    """No machine that runs the tests has a driver; where one does, it runs."""
    try:
        run = gpu_stencil.prepare(HOST_VARIANTS[-1], Team())
    except KernelError as error:
        assert "run where `nvidia-smi -L` lists a GPU" in str(error)
    else:
        run.check()
        run.close()


def test_a_variant_that_does_not_fit_is_refused(program, monkeypatch) -> None:
    big = GpuStencilParams(
        stencil="j2d", size_1=4096, size_2=4096, steps=8, tile_t=16, tile_1=16, tile_2=512
    )
    needed = 2 * 4 * (16 + 16) * (512 + 16 + 1)
    assert shared_bytes(big) == needed
    assert prism_metrics(big)["shared_bytes"] == needed
    assert refusal(big, needed) == ""
    assert refusal(big, needed - 1) == (
        f"a block needs {needed:,} bytes of shared memory, and this GPU's have at most "
        f"{needed - 1:,}; make tile_t, tile_1 or tile_2 smaller"
    )
    whole = big.model_copy(update={"tile_2": 0})
    assert columns_held(whole) == 4098
    assert "set tile_2, which is 0 for whole lines" in refusal(whole, 227 << 10)
    monkeypatch.setattr(stencil, "Gpu", lambda team: HostGpu(program, 0))
    with pytest.raises(KernelError, match="this variant cannot run on sm_90: a block needs"):
        StencilRun(whole, Team())


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"tile_t": 3}, "tile_t: found 3; with hexagonal tiling it must be even, such as 2 or 4"),
        ({"size_2": 0}, "size_2: 0 or missing, and stencil j2d needs it; give 1 or more"),
        ({"stencil": "j1d"}, "size_2: stencil j1d has no axis 2; leave out size_2 and tile_2"),
        (
            {"stencil": "j1d", "size_2": 0, "threads_2": 4},
            "threads_2: found 4, and stencil j1d has no second axis; leave it out",
        ),
        (
            {"threads_1": 64},
            "threads_1: 64 x 32 threads, and a block has at most 1024; make threads_1 or "
            "threads_2 smaller",
        ),
        ({"size_1": 1 << 30, "size_2": 1 << 30}, "make a size smaller"),
        ({"stencil": "sw"}, "j1d"),
    ],
)
def test_wrong_parameters_get_one_clear_message(own: dict, message: str) -> None:
    right = {"stencil": "j2d", "size_1": 8, "size_2": 8, "steps": 4, "tile_t": 4, "tile_1": 4}
    GpuStencilParams(**right)
    with pytest.raises(ValueError, match=message):
        GpuStencilParams(**(right | own))
