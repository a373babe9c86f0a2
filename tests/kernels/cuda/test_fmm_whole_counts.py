"""The machine code of gpu_fmm executes what is counted, read without a GPU."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from campaign.plan.plan import make_plan
from kernels.cuda.fmm import direct
from kernels.cuda.fmm import product as products
from kernels.cuda.fmm.hadamard import count_hadamard
from kernels.cuda.fmm.kernel import GpuFmmParams, count_evaluation, count_phases, plan_of, source_of
from kernels.cuda.fmm.plan import DirectStep, Plan, ProductStep, SpectraStep, Step
from kernels.cuda.fmm.product import SIDE, THREADS, count_product, make_product
from kernels.cuda.fmm.tiles import make_tiles
from kernels.cuda.listing import Function
from sites.site_reading import find_site, read_site
from tests.kernels.cuda.on_host import ARCHITECTURES, compiled, compiled_together

LANES = 32
EXAMPLES = Path(__file__).parents[3] / "examples"


def drawn(count: int, seed: int) -> list[GpuFmmParams]:
    rng = random.Random(seed)
    return [
        GpuFmmParams(
            n=rng.randint(1, 900),
            q=rng.randint(10, 80),
            digits=rng.randint(3, 5 if i % 3 else 9),
            precision="single" if i % 3 else "double",
            distribution=rng.choice(["uniform", "plummer", "sphere", "line"]),
            tile=2 ** (i % 4),
            threads=(64, 32, 128, 256)[i % 4],
            cells=(4, 1, 8, 2)[i % 4],
        )
        for i in range(count)
    ]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_machine_code_executes_what_is_counted(architecture: str, tmp_path: Path) -> None:
    """Ten parameter sets each: instructions of all sources, times what the lists say."""
    sets = drawn(40, 5)[ARCHITECTURES.index(architecture) :: 4]
    plans = [plan_of(params) for params in sets]
    needed = {
        key(step, params): source_of(step, params)
        for params, plan in zip(sets, plans, strict=True)
        for step in plan.steps
    }
    found = compiled_together([*needed.values()], architecture, tmp_path)
    code = dict(zip(needed, found, strict=True))
    seen: set[str] = set()
    for params, plan in zip(sets, plans, strict=True):
        done: dict[str, Counter[str]] = {}
        for step in plan.steps:
            compiled, use = code[key(step, params)]
            assert use.spilled_bytes == 0
            assert use.shared_bytes == shared_bytes(step, params)
            total = done.setdefault(step.phase, Counter())
            if isinstance(step, DirectStep):
                total.update(direct_done(compiled, step, plan))
            elif isinstance(step, SpectraStep):
                total.update(spectra_done(compiled, step, plan))
            else:
                total.update(product_done(compiled, step, plan))
        seen |= set(done)
        counted = count_phases(params)
        assert list(counted) == list(done)
        for phase, counts in counted.items():
            for name in ("sp", "dp", "sfu", "int", "shared"):
                assert counts.get(name, 0) == done[phase][name], (params, phase, name)
            assert counts["l2"] + counts["dram"] == done[phase]["global"], (params, phase)
            assert counts["l2"] >= 0
        total = count_evaluation(params)
        kind = "sp" if params.precision == "single" else "dp"
        assert total[kind] == sum(counts[kind] for counts in counted.values())
    assert seen >= {"up", "v", "down", "u"}


def key(step: Step, params: GpuFmmParams) -> tuple:
    """What a step's machine code depends on."""
    source, name = source_of(step, params)
    return name, *source.macros.values()


def shared_bytes(step: Step, params: GpuFmmParams) -> int:
    if isinstance(step, DirectStep):
        return direct.shared_bytes(params.direct)
    return 0 if isinstance(step, SpectraStep) else products.shared_bytes(step.product.item)


ADDED = {"DADD": 1, "DMUL": 1, "DFMA": 2, "FADD": 1, "FMUL": 1, "FFMA": 2}


def flops(executed: Counter[str]) -> int:
    return sum(executed[name] * each for name, each in ADDED.items())


def moved(executed: Counter[str], opcode: str) -> int:
    """Bytes of one thread."""
    of_name = {name: name.split(".") for name in executed}
    return sum(
        executed[name] * next((int(part) // 8 for part in parts if part in ("64", "128")), 4)
        for name, parts in of_name.items()
        if parts[0] == opcode
    )


def direct_done(function: Function, step: DirectStep, plan: Plan) -> Counter[str]:
    """Operations and bytes of a step, job by job."""
    a_pass, a_chunk, once = (function.executed(*given) for given in ((2,), (1, [0]), (0, [0, 0])))
    done: Counter[str] = Counter()
    variant = plan.variant
    warps, tile, threads, item = (
        variant.warps,
        variant.tile,
        variant.threads,
        variant.dtype.itemsize,
    )
    single = item == 4
    # Where coordinates are relative to centres, a source is moved when it is staged.
    assert flops(a_chunk) == 3 * single
    assert (step.jobs.shifts is not None) == single
    # Added to what is there: one addition for each target.
    assert flops(once) == (tile if step.add else 0)
    load = "LDG.E" if single else "LDG.E.64"
    assert once[load] + once[f"{load}.CONSTANT"] == (tile if step.add else 0)
    assert once["STG.E" if single else "STG.E.64"] == tile
    # A source, and, all lanes at one address, its group and the shift.
    assert a_chunk["LDG.E.128.STRONG.GPU"] == variant.planes + single
    assert a_chunk["LDG.E.STRONG.GPU"] == 1
    root, integer = ("MUFU.RSQ64H", ("ISETP.GE.AND", "SEL"))
    if single:
        root, integer = ("MUFU.RSQ", ("FSETP.GE.AND", "FSEL"))
    name = "sp" if single else "dp"
    for _, held, _, chunks in step.jobs.jobs.astype(int):
        passes = -(-held // tile) * LANES * chunks * threads // variant.unroll
        done[name] += flops(a_pass) * passes + flops(once) // tile * held * LANES
        done[name] += flops(a_chunk) * chunks * threads
        done["sfu"] += a_pass[root] * passes
        done["int"] += sum(a_pass[each] for each in integer) * passes
        done["shared"] += moved(a_pass, "LDS") * passes + moved(a_chunk, "STS") * threads * chunks
        done["global"] += chunks * (4 * item * threads + (4 + 16 * single) * warps)
        target_bytes = (4 if single else 3) * item
        done["global"] += warps * (16 + tile * LANES * target_bytes)
        done["global"] += held * LANES * item * (1 + step.add)
    return done


def product_done(function: Function, step: ProductStep, plan: Plan) -> Counter[str]:
    """Operations and bytes of a step, tile by tile."""
    a_pass, a_piece, an_entry, once = (
        function.executed(*given) for given in ((3,), (2, [0]), (1, [0, 0]), (0, [0, 0, 0]))
    )
    down, across = plan.width(step.source) // SIDE, plan.width(step.out) // SIDE
    warps, item = THREADS // LANES, step.product.item
    name = "sp" if item == 4 else "dp"
    passes = SIDE // 8
    assert flops(a_piece) == flops(an_entry) == 0
    # Numbers of both, and, once a warp, those of the rows.
    numbers = 2 * SIDE * SIDE // THREADS
    assert moved(a_piece, "LDG") == numbers * item + SIDE // warps * 4
    assert moved(a_piece, "STS") == numbers * item
    assert an_entry["LDG.E.STRONG.GPU"] == 1
    # Begin and end, four rows, the scale, and what is added to.
    assert moved(once, "LDG") == (2 + 4) * 4 + item * (1 + 16 * step.add)
    assert moved(once, "STG") == 16 * item
    done: Counter[str] = Counter()
    for entries in np.diff(step.product.tiles.begins.astype(int)).tolist():
        pieces = across * entries * down
        done[name] += THREADS * (pieces * passes * flops(a_pass) + across * flops(once))
        done["shared"] += THREADS * pieces * (passes * moved(a_pass, "LDS") + numbers * item)
        done["global"] += pieces * (numbers * item * THREADS + SIDE * 4)
        done["global"] += across * entries * warps * 4
        # Of lists: where entries begin and end, the scale, and 32 rows.
        done["global"] += across * (warps * (4 + 4 + item) + SIDE * 4)
        done["global"] += across * SIDE * SIDE * item * (1 + step.add)
    return done


def spectra_done(function: Function, step: SpectraStep, plan: Plan) -> Counter[str]:
    """Operations and bytes of a step, tile by tile."""
    an_entry, once = function.executed(1), function.executed(0, (0,))
    cells, item = step.tiles.rows_out.shape[1], plan.variant.dtype.itemsize
    threads = plan.width(step.out) * item // 16
    assert an_entry["LDG.E.128.STRONG.GPU"] == an_entry["LDG.E.STRONG.GPU"] == cells + 1
    assert an_entry["DFMA" if item == 8 else "FFMA"] == 4 * (8 // item) * cells
    assert flops(once) == once["LDG.E.128.STRONG.GPU"] == 0
    assert once["STG.E.128"] == cells
    # The first entry's numbers are loaded before the loop, and none in its last pass.
    assert once["LDG.E.STRONG.GPU"] == (cells + 1) + cells + 2
    done: Counter[str] = Counter()
    for entries in np.diff(step.tiles.begins.astype(int)).tolist():
        done["sp" if item == 4 else "dp"] += threads * entries * flops(an_entry)
        done["global"] += threads * (entries * (cells + 1) + cells) * 16
        # Of lists, once a warp.
        done["global"] += threads // LANES * (entries * (cells + 1) + cells + 2) * 4
    return done


INTEGER = re.compile(
    r"U?(IADD3?|IMAD(?!\.MOV)|LEA|LOP3|SHF|ISETP|SEL|IMNMX|VIADD)\b|[FD](SETP|SEL)\b"
)


def integers(function: Function, depth: int, depths: int) -> float:
    """Integer instructions between the loops of a depth, a thread: line by line of the listing."""
    found = 0.0
    for each in function.instructions:
        if function.depth(each) == depth and not (each.moves_constant or each.never_runs):
            found += bool(INTEGER.match(each.name)) / (LANES if each.name[0] == "U" else 1)
    assert depths >= max(function.depth(each) for each in function.instructions)
    return found


def integers_done(function: Function, step: Step, plan: Plan) -> float:
    """Integer instructions of all threads, tile by tile and job by job."""
    done = 0.0
    if isinstance(step, DirectStep):
        variant = plan.variant
        once, a_chunk, a_pass = (integers(function, depth, 2) for depth in range(3))
        for _, held, _, chunks in step.jobs.jobs.astype(int):
            busy = sum(warp * variant.tile < held for warp in range(variant.warps)) * LANES
            passes = chunks * variant.threads // variant.unroll
            done += variant.threads * (once + chunks * a_chunk) + busy * passes * a_pass
        return done
    if isinstance(step, SpectraStep):
        once, an_entry = (integers(function, depth, 1) for depth in range(2))
        threads = plan.width(step.out) * plan.variant.dtype.itemsize // 16
        for entries in np.diff(step.tiles.begins.astype(int)).tolist():
            done += threads * (once + entries * an_entry)
        return done
    once, an_entry, a_piece, a_pass = (integers(function, depth, 3) for depth in range(4))
    down, across = plan.width(step.source) // SIDE, plan.width(step.out) // SIDE
    for entries in np.diff(step.product.tiles.begins.astype(int)).tolist():
        a_tile = once + entries * (an_entry + down * (a_piece + SIDE // 8 * a_pass))
        done += across * THREADS * a_tile
    return done


@pytest.mark.parametrize("params", drawn(3, 8), ids=["double", "single", "single, wider"])
def test_all_integers_are_those_of_the_machine_code(params: GpuFmmParams) -> None:
    """Addresses and loops too; nothing else changes."""
    plan = plan_of(params)
    done: dict[str, float] = {}
    for step in plan.steps:
        source, name = source_of(step, params)
        function, _ = compiled(source, name, ARCHITECTURES[0])
        done[step.phase] = done.get(step.phase, 0.0) + integers_done(function, step, plan)
    data = count_phases(params)
    found = count_phases(params.model_copy(update={"integers": "all"}))
    for phase, counts in found.items():
        assert counts["int"] == pytest.approx(done[phase], rel=1e-12)
        assert counts["int"] > data[phase].get("int", 0.0)
        assert {**counts, "int": 0.0} == {**data[phase], "int": 0.0}
    # A pair needs its comparison and selection, and a load's address at the least.
    assert sum(done.values()) > 1.02 * count_evaluation(params)["int"]


def test_the_paper_s_study_with_the_integers_of_a_gpu_s_code() -> None:
    """The example's site is the built-in one but for sfu, and integers are a fifth to a half of the
    instructions, with a multiply-add as one."""
    site, built_in = (
        read_site(path).model_dump()
        for path in (EXAMPLES / "jetson-tk1-gpu.toml", find_site("jetson-tk1", EXAMPLES))
    )
    assert site["classes"]["sp"].pop("counted_as") == ["sfu"]
    assert built_in["classes"]["sp"].pop("counted_as") == []
    assert site == built_in
    plan = make_plan(EXAMPLES / "tk1-gpu-fmm.toml")
    inputs = {point.params for point in plan.points}
    assert len(inputs) == 8
    for params in inputs:
        counts = count_evaluation(GpuFmmParams(**json.loads(params)))
        instructions = counts["int"] + counts["dp"] / 2.0
        assert 0.2 <= counts["int"] / instructions <= 0.5


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
    counts = count_hadamard(made, 128, 8)
    assert counts["dp"] == 2 * 4 * 128 * 8
    lists = 2 * 4 * 4 + 3 * 4 + 2 * 4 + 2 * 4 * 4
    # Rows 6 and 7, that of zeros, and two operators.
    first = (3 + 2) * 128 * 16 + lists
    assert counts["dram"] == first + 2 * 4 * 128 * 16
    loaded = 2 * (1 + 4) * 128 * 16 + 4 * 4 * (2 * (1 + 4) + 2 * (2 + 4))
    assert counts["l2"] == loaded - first
