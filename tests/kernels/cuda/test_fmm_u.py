"""gpu_fmm_u without a GPU: its machine code counted, its sums compiled for the host."""

from __future__ import annotations

import ctypes
import itertools
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from kernels.cuda.fmm.direct import (
    FUNCTION,
    direct_source,
    executed_pairs,
    in_planes,
    shared_bytes,
    tolerance,
)
from kernels.cuda.fmm.direct_jobs import Places, make_jobs
from kernels.cuda.fmm.u_phase import (
    GpuFmmUParams,
    check_sums,
    count_u_phase,
    gpu_fmm_u,
    laid_out,
    u_metrics,
    work_of,
)
from kernels.cuda.program import compile_program
from kernels.fmm_u.kernel import FmmUParams, Leaves, fmm_u
from kernels.fmm_u.variants import tolerance as host_tolerance
from kernels.host.ranks import Team
from kernels.kernel import ResultError
from kernels.registry import find_kernel
from tests.kernels.cuda.on_host import ARCHITECTURES, compiled_together, host_library

ROOTS = [("single", "estimate"), ("single", "newton1")] + [
    ("double", root) for root in ("newton1", "newton2", "cubic")
]
LANES = 32
CLASS_OF = {
    "single": {
        "sp": {"FADD": 1, "FMUL": 1, "FFMA": 2},
        "sfu": {"MUFU.RSQ": 1},
        "int": {"FSETP.GE.AND": 1, "FSEL": 1},
    },
    "double": {
        "dp": {"DADD": 1, "DMUL": 1, "DFMA": 2},
        "sfu": {"MUFU.RSQ64H": 1},
        "int": {"ISETP.GE.AND": 1, "SEL": 1},
    },
}
"""Precision -> class -> instruction -> operations in each lane."""


def drawn(count: int, seed: int) -> list[GpuFmmUParams]:
    """Random parameter sets, every precision and root among them; two of each variant. Passes of up
    to 16 pairs: larger ones take long to compile."""
    rng = random.Random(seed)
    sizes = [(a, b) for a, b in itertools.product((1, 2, 4, 8), repeat=2) if a * b <= 16]
    sets = []
    for precision, root in itertools.islice(itertools.cycle(ROOTS), count // 2):
        tile, unroll = rng.choice(sizes)
        threads = rng.choice([32, 64, 128, 256, 512])
        sets += [
            GpuFmmUParams(
                n=rng.randint(300, 1500),
                q=rng.choice([20, 45, 100, 300]),
                distribution=rng.choice(["uniform", "plummer", "sphere"]),
                precision=precision,
                root=root,
                threads=threads,
                tile=tile,
                unroll=unroll,
            )
            for _ in range(2)
        ]
    return sets


def walked(params: GpuFmmUParams) -> Counter[str]:
    """What blocks and warps execute, by a walk through leaves and their lists."""
    leaves = work_of(params).schedule.leaves
    warps, done = params.threads // LANES, Counter()
    listed: set[int] = set()
    for leaf in leaves.tree.leaves:
        sources = leaves.neighbours(leaf)
        rows = -sum(-int(leaves.sizes[source]) // LANES for source in sources)
        chunks = -(-rows // warps)
        done["list"] += chunks * warps
        listed |= {*map(int, sources), *([-1] if rows % warps else [])}
        groups = -(-int(leaves.sizes[leaf]) // LANES)
        done["targets"] += groups
        for first in range(0, groups, warps * params.tile):
            done["jobs"] += 1
            done["chunks"] += chunks
            held = min(groups - first, warps * params.tile)
            done["warp_chunks"] += -(-held // params.tile) * chunks
    done["groups"] = sum(1 if a < 0 else -(-int(leaves.sizes[a]) // LANES) for a in listed)
    return done


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_machine_code_executes_what_is_counted(architecture: str, tmp_path: Path) -> None:
    """Ten parameter sets each, all of what is counted."""
    first = 10 * ARCHITECTURES.index(architecture)
    sets = drawn(40, 11)[first : first + 10]
    functions = [(direct_source(params), FUNCTION) for params in sets]
    code = compiled_together(functions, architecture, tmp_path)
    for params, (function, use) in zip(sets, code, strict=True):
        assert use.spilled_bytes == 0, params
        planes = params.dtype.itemsize // 4
        assert use.shared_bytes == shared_bytes(params) == params.threads * planes * 16
        a_pass, a_chunk, once = (
            {name: count for name, count in function.executed(*given).items() if count}
            for given in ((2,), (1, [0]), (0, [0, 0]))
        )
        done, counted = walked(params), dict(count_u_phase(params))
        passes = done["warp_chunks"] * LANES * params.threads // params.unroll
        for name, instructions in CLASS_OF[params.precision].items():
            assert {*instructions} <= {*a_pass}, params
            if name != "int":
                assert not {*instructions} & {*a_chunk, *once}, params
            executed = sum(a_pass[each] * flops for each, flops in instructions.items())
            assert executed * passes == counted.pop(name), (params, name)
        # What is counted is all arithmetic there is in a pass.
        flops = {name for name in a_pass if name[0] in "FD"} - {"FSETP.GE.AND", "FSEL"}
        assert flops <= {*next(iter(CLASS_OF[params.precision].values()))}, params

        assert {name for name in a_pass if name.startswith(("LD", "ST"))} == {"LDS.128"}
        assert a_pass["LDS.128"] == planes * params.unroll
        shared = a_pass["LDS.128"] * 16 * passes
        shared += a_chunk["STS.128"] * 16 * params.threads * done["chunks"]
        assert shared == counted.pop("shared"), params

        # The first chunk is loaded before the loop, all others in it.
        warps, item = params.threads // LANES, params.dtype.itemsize
        of_chunk = {"LDG.E.128.STRONG.GPU": planes, "LDG.E.STRONG.GPU": 1}
        assert {k: n for k, n in a_chunk.items() if k.startswith("LDG")} == of_chunk
        loads = Counter({k: n for k, n in once.items() if k.startswith("LDG")})
        loads -= Counter(of_chunk)
        of_target = {"LDG.E.128.STRONG.GPU": params.tile + 1}
        if params.precision == "double":
            of_target["LDG.E.64.STRONG.GPU"] = params.tile
        assert loads == of_target, params
        target_bytes = 16 if params.precision == "single" else 24
        loaded = done["chunks"] * (params.threads * 4 * item + warps * 4)
        loaded += done["jobs"] * warps * (16 + LANES * params.tile * target_bytes)
        first = done["groups"] * LANES * 4 * item + done["list"] * 4 + done["jobs"] * 16
        assert loaded - first == counted.pop("l2"), params
        assert sum(n for k, n in once.items() if k.startswith("STG.E")) == params.tile
        assert first + done["targets"] * LANES * item == counted.pop("dram"), params
        assert counted == {}


def test_the_largest_variant_needs_no_spills() -> None:
    """128 registers a thread, of which double precision's targets and sums take half."""
    params = GpuFmmUParams(precision="double", root="cubic", tile=8, threads=512, unroll=8)
    use = compile_program(direct_source(params), "sm_90").functions[FUNCTION]
    assert use.spilled_bytes == 0
    assert use.registers <= 128


def test_counts_by_hand() -> None:
    """One leaf of 70 points in 3 groups; a block has 2 warps of 2 groups: 2 chunks of 64 sources,
    for 2 warps with targets."""
    params = GpuFmmUParams(n=70, q=100, tile=2, threads=64, root="newton1")
    pairs = 4 * 32 * 128
    assert executed_pairs(params, work_of(params).jobs) == pairs
    staged, listed = 128 * 16, 4 * 4
    assert count_u_phase(params) == {
        # 3 differences, 5 for the sum of squares, 4 for a step, 2 for the sum.
        "sp": 14.0 * pairs,
        "sfu": pairs,
        "int": 2 * pairs,
        "shared": staged + 64 * 128 * 16,
        "l2": (128 * 16 + listed + 2 * 16 + 128 * 16) - (staged + listed + 16),
        "dram": staged + listed + 16 + 96 * 4,
    }
    cubic = GpuFmmUParams(n=70, q=100, tile=2, threads=64, precision="double", root="cubic")
    # As before but for the step, of 2 products and 3 multiply-adds.
    assert count_u_phase(cubic)["dp"] == (3 + 5 + 8 + 2) * pairs
    metrics = u_metrics(params)
    assert metrics["useful_pairs"] == 70 * 69
    assert metrics["shared_once_bytes"] == staged + 2 * 128 * 16
    assert metrics["jobs"] == 1


@pytest.fixture(scope="module")
def on_host(tmp_path_factory) -> Callable[..., np.ndarray]:
    """The sums of all slots, by the source compiled for the host."""
    folder = tmp_path_factory.mktemp("host")

    def computed(params: GpuFmmUParams, points, jobs) -> np.ndarray:
        library = host_library(direct_source(params), "fmm_direct_host.cpp", folder)
        slots = ctypes.c_longlong(points.shape[1])
        sums = np.full(points.shape[1], np.nan, params.dtype)
        to, of, groups, rows = (
            ctypes.c_void_p(a.ctypes.data) for a in (sums, points, jobs.groups, jobs.jobs)
        )
        library.on_host(ctypes.c_uint(len(jobs.jobs)), to, of, slots, of, slots, groups, rows)
        return sums

    return computed


def direct(leaves: Leaves) -> tuple[np.ndarray, np.ndarray, int]:
    """Sums over the leaves whose cubes share a point, by NumPy; the same of their absolute values;
    the most sources of a target."""
    tree = leaves.tree
    side = 0.5 ** tree.level.astype(float)[:, None]
    low, high = tree.anchor * side, (tree.anchor + 1) * side
    right, scale, most = np.zeros(len(leaves.points)), np.zeros(len(leaves.points)), 0
    for leaf in tree.leaves:
        near = [
            a for a in tree.leaves if (low[leaf] <= high[a]).all() & (low[a] <= high[leaf]).all()
        ]
        t = tree.order[tree.begin[leaf] : tree.end[leaf]]
        s = np.concatenate([tree.order[tree.begin[a] : tree.end[a]] for a in near])
        r = np.linalg.norm(leaves.points[t, None] - leaves.points[s], axis=2)
        inverse = np.divide(1.0, r, out=np.zeros_like(r), where=r > 0)
        right[t], scale[t] = inverse @ leaves.charges[s], inverse @ np.abs(leaves.charges[s])
        most = max(most, len(s))
    return right, scale, most


@pytest.mark.parametrize(
    ("precision", "root", "more"),
    [
        ("single", "estimate", {"tile": 1, "threads": 32, "unroll": 1, "n": 333, "q": 150}),
        ("single", "newton1", {"tile": 2, "threads": 64, "n": 501, "q": 70}),
        ("double", "newton1", {"tile": 1, "threads": 64, "distribution": "sphere"}),
        ("double", "newton2", {"tile": 8, "threads": 32, "unroll": 8, "distribution": "plummer"}),
        ("double", "cubic", {"tile": 4, "threads": 64, "unroll": 2, "n": 401, "q": 101}),
        ("single", "newton1", {"tile": 2, "threads": 64, "n": 1}),
    ],
)
def test_sums_are_those_of_numpy(on_host, precision: str, root: str, more: dict) -> None:
    """All targets. The error is that of the root: another root would not pass, nor other sums."""
    params = GpuFmmUParams(**{"n": 300, "q": 37, "precision": precision, "root": root, **more})
    work = work_of(params)
    sums = on_host(params, laid_out(work, params), work.jobs)
    check_sums(params, work, sums)
    computed = sums[work.schedule.slot] / params.unit
    right, scale, most = direct(work.schedule.leaves)
    scale[scale == 0] = 1.0
    error = np.abs(computed - right) / scale
    assert error.max() <= tolerance(params, most)
    if params.n > 1:
        with pytest.raises(ResultError, match=r"the sum at point \d+ is .*, allowed "):
            check_sums(params, work, sums * params.dtype.type(1.01))
    if (precision, root) == ("double", "newton1"):
        assert error.max() > 1e-14, "one step does not give all bits"


@pytest.mark.parametrize(("precision", "root"), [("single", "newton1"), ("double", "newton2")])
def test_sums_are_those_of_the_hosts_kernel(on_host, precision: str, root: str) -> None:
    params = GpuFmmUParams(n=300, q=60, precision=precision, root=root, threads=32)
    work = work_of(params)
    sums = on_host(params, laid_out(work, params), work.jobs)[work.schedule.slot] / params.unit
    like = FmmUParams(n=300, q=60, precision=precision, root="sqrt", vector_bits=256)
    run = fmm_u.prepare(like, Team())
    try:
        run.run(1)
        part = run.parts[0]
        theirs = part._arrays.sums[part._schedule.slot] / like.unit
    finally:
        run.close()
    assert (part._schedule.leaves.points == work.schedule.leaves.points).all()
    _, scale, most = direct(work.schedule.leaves)
    allowed = tolerance(params, most) + host_tolerance(like, most)
    assert (np.abs(sums - theirs) <= allowed * scale).all()


def test_coincident_points_add_nothing_to_each_other(on_host) -> None:
    """All points in one place, and the same beside others."""
    params = GpuFmmUParams(n=70, q=10, distribution="equal", threads=32)
    work = work_of(params)
    assert len(work.schedule.leaves.tree.leaves) == 1
    points = laid_out(work, params)
    assert (on_host(params, points, work.jobs)[work.schedule.slot] == 0).all()
    apart = work.schedule.slot[:30]
    points[0, apart, 0] += 0.25
    sums = on_host(params, points, work.jobs) / params.unit
    charges = work.schedule.leaves.charges
    np.testing.assert_allclose(sums[apart], 4 * charges[30:].sum(), rtol=1e-5)
    np.testing.assert_allclose(sums[work.schedule.slot[30:]], 4 * charges[:30].sum(), rtol=1e-5)


@pytest.mark.parametrize(("tile", "threads"), [(1, 64), (8, 32), (1, 128)])
def test_leaves_without_points_or_sources_are_jobs_too(on_host, tile: int, threads: int) -> None:
    """Leaves of odd sizes, one of them empty, one with an empty list; node 2 is no leaf."""
    params = GpuFmmUParams(tile=tile, threads=threads, precision="double", root="cubic")
    sizes = np.array([45, 0, 0, 33, 7, 131, 1])
    room = -(-sizes // 32) * 32
    first, slots = np.cumsum(room) - room, int(room.sum()) + 32
    pairs = np.array([(a, b) for a in (0, 1, 3, 4, 5) for b in (5, 1, 4, 0, 6) if (a + b) % 4])
    leaves = Places(first, sizes, slots // 32 - 1)
    mixed = np.random.default_rng(1).permutation(pairs)
    jobs = make_jobs(leaves, leaves, mixed, threads // 32, tile)
    assert set(jobs.jobs[:, 0]) >= {int(a) // 32 for a in first[sizes > 0]}
    rng = np.random.default_rng(2)
    rows = np.full((slots, 4), 4.0)
    rows[:, 3] = 0
    filled = np.concatenate([np.arange(a, a + n) for a, n in zip(first, sizes, strict=True)])
    rows[filled] = rng.uniform(-1, 1, (len(filled), 4))
    sums = on_host(params, in_planes(rows, params), jobs)
    for leaf, (begin, size) in enumerate(zip(first, sizes, strict=True)):
        near = [b for a, b in pairs if a == leaf]
        s = np.concatenate([np.arange(first[b], first[b] + sizes[b]) for b in near] or [[]])
        s = s.astype(int)
        t = np.arange(begin, begin + size)
        r = np.linalg.norm(rows[t, None, :3] - rows[s, :3], axis=2)
        inverse = np.divide(1.0, r, out=np.zeros_like(r), where=r > 0)
        scale = inverse @ np.abs(rows[s, 3])
        assert (np.abs(sums[t] - inverse @ rows[s, 3]) <= tolerance(params, len(s)) * scale).all()
    # The slots of padding are sums of a leaf's own; all others are left alone.
    assert np.isnan(sums[slots - 32 :]).all()


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"precision": "double", "root": "estimate"}, "20 of double precision's 53 bits; use"),
        ({"root": "cubic"}, "found 'cubic', which computes more bits than single precision's 24"),
        ({"root": "newton2"}, "use 'estimate' or 'newton1'"),
        ({"root": "sqrt"}, "root"),
        ({"tile": 3}, "tile"),
        ({"threads": 1024}, "threads"),
        ({"n": 0}, "greater than or equal to 1"),
    ],
)
def test_wrong_parameters_are_refused(params: dict, text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        GpuFmmUParams(**({"precision": "double"} if params.get("root") == "sqrt" else {}) | params)


def test_the_kernel_is_registered_and_planning_imports_neither_cuda_nor_numba() -> None:
    assert find_kernel("gpu_fmm_u") is gpu_fmm_u
    code = (
        "import sys; from kernels.registry import find_kernel; find_kernel('gpu_fmm_u'); "
        "sys.exit(bool({'numba', 'cuda'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
