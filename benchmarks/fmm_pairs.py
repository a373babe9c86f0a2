"""Pairs of points per second: the loops of kernels.fmm.phases.pair_loops and the same loops in C.

    .venv/bin/python -m benchmarks.fmm_pairs [--rounds 15] [--seconds 0.05] [--core 0] [--cc cc]

The loops in C use intrinsics (fmm_pairs.c: AVX-512, or AVX2 on processors without it). Both run on
one core, interleaved. 2,000 targets and 4,000 sources, 1 / r from the processor's estimate and
Newton steps: float32 with 0 and 1, float64 with 1 and 2. A pair counts once in ``act_one_way`` and
twice in ``act_both_ways``. C is compiled with several block sizes; the table shows the fastest.
The results are compared with each other and with NumPy's in double precision.
"""

from __future__ import annotations

import ctypes
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

from benchmarks.shared import argument_parser, interleaved, seconds_of
from kernels.fmm.operators.interaction_kernels import Rule, unit_of
from kernels.fmm.phases.pair_loops import NONE_MET, act_both_ways, act_one_way
from kernels.fmm.tree.layout import BEYOND
from kernels.host.vectors import lanes_of

SOURCES, TARGETS = 4000, 2000
CASES = ((32, 0), (32, 1), (64, 1), (64, 2))
"""Bits of a number, and Newton steps."""
BLOCKS = (2, 3, 4, 5, 6, 8)
LOOPS = {"one way": 1, "both ways": 2}
"""Loop -> interactions per pair."""
AGREE = {32: 1e-5, 64: 1e-12}
"""Largest relative L2 difference allowed between our sums and those of C, which round
differently."""


@njit(nogil=True)
def our_one_way(repeats, rule, s, n, t, sum_t, t1, parameter, met):
    """Call ``act_one_way`` several times, so that the call from Python does not count."""
    for _ in range(repeats):
        act_one_way(rule, s, n, t, sum_t, t1, parameter, met)


@njit(nogil=True)
def our_both_ways(repeats, rule, s, sum_s, n, t, sum_t, t1, parameter, met):
    """Call ``act_both_ways`` several times."""
    for _ in range(repeats):
        act_both_ways(rule, s, sum_s, 0, n, t, sum_t, 0, t1, parameter, met)


@dataclass
class Points:
    """Sources and targets of one type, their sums, and the smallest r^2 found."""

    s: np.ndarray
    t: np.ndarray
    sum_s: np.ndarray
    sum_t: np.ndarray
    met: np.ndarray

    def clear(self) -> None:
        """Set the sums to 0."""
        self.sum_s[:], self.sum_t[:], self.met[:] = 0, 0, NONE_MET


def aligned(rows: int, columns: int, dtype: np.dtype) -> np.ndarray:
    """Return zeros that begin at a cache line, for both codes."""
    size = rows * columns * dtype.itemsize
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype).reshape(rows, columns)


def make_points(bits: int) -> Points:
    """Return points of two adjacent cubes, charges 0 to 1; charges of 0 fill the vectors."""
    random = np.random.default_rng(1)
    dtype = np.dtype(f"f{bits // 8}")
    lanes = lanes_of(dtype.itemsize)
    arrays = []
    for n, corner in ((SOURCES, 0.0), (TARGETS, 1.0)):
        columns = -(-n // lanes) * lanes
        array = aligned(4, columns, dtype)
        array[:3] = BEYOND
        array[:3, :n] = random.random((3, n))
        array[0, :n] += corner
        array[3, :n] = random.random(n)
        arrays.append(array)
    s, t = arrays
    sum_s, sum_t = (aligned(1, a.shape[1], dtype)[0] for a in arrays)
    return Points(s, t, sum_s, sum_t, aligned(2, lanes, dtype))


def direct(points: Points) -> tuple[np.ndarray, np.ndarray]:
    """Return (sums at the sources, sums at the targets) by NumPy in double precision."""
    s, t = points.s[:, :SOURCES].astype(float), points.t[:, :TARGETS].astype(float)
    at_s, at_t = np.zeros(SOURCES), np.zeros(TARGETS)
    for i in range(TARGETS):
        inverse = 1 / np.sqrt(((s[:3] - t[:3, i, None]) ** 2).sum(axis=0))
        at_t[i] = inverse @ s[3]
        at_s += inverse * t[3, i]
    return at_s, at_t


def our_loops(points: Points, rule: Rule) -> dict[str, Callable[[int], Any]]:
    """Our loops by name; each takes the number of repeats."""
    p, zero = points, points.s.dtype.type(0)

    def one_way(repeats: int) -> None:
        our_one_way(repeats, rule, p.s, SOURCES, p.t, p.sum_t, TARGETS, zero, p.met)

    def both_ways(repeats: int) -> None:
        our_both_ways(
            repeats, rule, p.s, p.sum_s, SOURCES, p.t, p.sum_t, TARGETS, zero, p.met
        )  # fmt: skip

    return {"one way": one_way, "both ways": both_ways}


def compile_c(folder: Path, cc: str, bits: int, steps: int, block: int) -> ctypes.CDLL:
    """Compile the loops in C."""
    library = folder / f"pairs_{bits}_{steps}_{block}.so"
    subprocess.run(
        [cc, "-O3", "-march=native", "-shared", "-fPIC", f"-DNUMBER={bits}", f"-DSTEPS={steps}",
         f"-DBLOCK={block}", "-o", str(library), str(Path(__file__).with_suffix(".c"))],
        check=True,
    )  # fmt: skip
    return ctypes.CDLL(str(library))


def c_loops(points: Points, library: ctypes.CDLL) -> dict[str, Callable[[int], Any]]:
    """The loops in C by name; each takes the number of repeats."""
    p, long = points, ctypes.c_long
    s, t, sum_s, sum_t, met = (
        ctypes.c_void_p(a.ctypes.data) for a in (p.s, p.t, p.sum_s, p.sum_t, p.met)
    )
    source = s, long(p.s.shape[1]), long(SOURCES)
    target = t, long(p.t.shape[1])

    def one_way(repeats: int) -> None:
        library.one_way(long(repeats), *source, *target, sum_t, long(TARGETS))

    def both_ways(repeats: int) -> None:
        library.both_ways(long(repeats), *source, sum_s, *target, sum_t, long(TARGETS), met)

    return {"one way": one_way, "both ways": both_ways}


def repeats_for(work: Callable[[int], Any], seconds: float) -> int:
    """Return the repeats that take about ``seconds`` seconds."""
    work(1)
    return max(1, round(seconds / min(seconds_of(partial(work, 1)) for _ in range(5))))


def sums(points: Points, work: Callable[[int], Any], loop: str) -> np.ndarray:
    """Return the sums of one run: at the targets, and at the sources if the loop computes them."""
    points.clear()
    work(1)
    at_t, at_s = points.sum_t[:TARGETS].copy(), points.sum_s[:SOURCES].copy()
    return np.concatenate([at_t, at_s]) if loop == "both ways" else at_t


def difference(a: np.ndarray, b: np.ndarray) -> float:
    """The relative L2 difference of a from b."""
    return float(np.linalg.norm(a.astype(float) - b) / np.linalg.norm(b.astype(float)))


def rates(
    works: dict[Any, Callable[[int], Any]], points: Points, rounds: int, seconds: float
) -> dict[Any, list[float]]:
    """Return runs per second of each loop by round."""
    repeats = {name: repeats_for(work, seconds) for name, work in works.items()}

    def per_second(name: Any) -> float:
        points.clear()
        return repeats[name] / seconds_of(partial(works[name], repeats[name]))

    return interleaved({name: partial(per_second, name) for name in works}, rounds)


def compare(bits: int, steps: int, libraries: dict[int, ctypes.CDLL], arguments: Any) -> bool:
    """Print the rows of a type and a number of steps; return whether the results agree."""
    points, rule = make_points(bits), Rule("laplace", steps)
    ours = our_loops(points, rule)
    c_by_block = {block: c_loops(points, library) for block, library in libraries.items()}
    at_s, at_t = direct(points)
    agree = True
    for loop, interactions in LOOPS.items():
        exact = np.concatenate([at_t, at_s]) if loop == "both ways" else at_t
        by_block = {block: loops[loop] for block, loops in c_by_block.items()}
        screened = rates(by_block, points, 3, arguments.seconds)
        block = max(screened, key=lambda b: statistics.median(screened[b]))
        result = sums(points, ours[loop], loop)
        c_sums = sums(points, by_block[block], loop)
        unit = unit_of(rule)
        by_side = rates(
            {"ours": ours[loop], "c": by_block[block]}, points, arguments.rounds, arguments.seconds
        )
        scale = SOURCES * TARGETS * interactions / 1e9
        our_rate, c_rate = (scale * statistics.median(by_side[side]) for side in ("ours", "c"))
        between = difference(result, c_sums)
        agree = agree and between <= AGREE[bits]
        print(
            f"float{bits} {steps:5} {loop:9} {our_rate:9.3f} {c_rate:9.3f} {block:7} "
            f"{our_rate / c_rate:7.3f} {difference(result / unit, exact):11.1e} "
            f"{difference(c_sums / unit, exact):9.1e} {between:9.1e}",
            flush=True,
        )
    return agree


def main() -> int:
    """Print the table; 0 when our sums and those of C agree."""
    parser = argument_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="runs of each loop")
    parser.add_argument("--seconds", type=float, default=0.05, help="length of one run")
    parser.add_argument(
        "--core", type=int, default=min(os.sched_getaffinity(0)), help="core to use"
    )
    parser.add_argument("--cc", default="cc", help="the C compiler")
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {arguments.core})
    print(
        f"{TARGETS:,} targets, {SOURCES:,} sources, core {arguments.core}, "
        f"{arguments.rounds} rounds of {arguments.seconds} s, interleaved; "
        "medians, 1e9 interactions/s"
    )
    print(
        f"{'type':7} {'steps':>5} {'loop':9} {'ours':>9} {'C':>9} {'C block':>7} {'ours/C':>7} "
        f"{'ours-NumPy':>11} {'C-NumPy':>9} {'ours-C':>9}"
    )
    agree = True
    with tempfile.TemporaryDirectory(prefix="fmm-pairs-") as folder:
        build = partial(compile_c, Path(folder), arguments.cc)
        for bits, steps in CASES:
            libraries = {block: build(bits, steps, block) for block in BLOCKS}
            agree = compare(bits, steps, libraries, arguments) and agree
    if not agree:
        print("our results and those of C do not agree", file=sys.stderr)
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
