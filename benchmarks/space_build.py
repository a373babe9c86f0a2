"""The time to list the space of Anzt et al. 2015 (examples/k20x-dgemm.toml), compared with peers.

    .venv/bin/python -m benchmarks.space_build [--blk-k 64 1024] [--rounds 5] [--peers PYTHON]
        [--limit-s 300]

The peers are python-constraint2 and Kernel Tuner. They are not part of the project's environment:

    python3 -m venv PEERS && PEERS/bin/pip install python-constraint2==2.9.0 kernel-tuner==1.5.0

and then ``--peers PEERS/bin/python``. A peer that is not installed there is left out, with a line.

Each gets the conditions as its users write them. Its domains are the full ranges of each parameter,
or ``narrowed`` by hand as far as one parameter at a time allows: 20 of 1,024 numbers of threads.
Kernel Tuner gets the narrowed ones, runs once, and only with the first limit of blk_k: with full
ranges it takes more than a minute. ``loops`` are nested loops in Python written for this space
alone, with each test as early as possible.

Every run is a separate process. Its processor time starts before the declaration is read and ends
when all variants are in a list of tuples, without the start of Python and imports. The runs
alternate, and all must find the same set.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterable
from functools import partial
from itertools import product

from benchmarks.shared import ROOT, argument_parser

NAMES = ("dim_m", "dim_n", "blk_m", "blk_n", "blk_k", "m_a", "n_a", "m_b", "n_b", "simd")
THREADS, REGISTERS, SHARED_BYTES = 1024, 65536, 49152
"""The limits of the site tesla-k20x."""
CONDITIONS = (
    "dim_m * dim_n <= 1024",
    "dim_m * dim_n % 32 == 0",
    "blk_m % dim_m == 0",
    "blk_n % dim_n == 0",
    "2 * blk_m * blk_n <= 65536",
    "2 * blk_m * blk_n <= 255 * dim_m * dim_n",
    "blk_m * blk_n >= 32 * (blk_m + blk_n)",
    "8 * blk_k * (blk_m + blk_n) <= 49152",
    "min(65536 // (2 * blk_m * blk_n), 2048 // (dim_m * dim_n)) * dim_m * dim_n >= 512",
    "min(49152 // (8 * blk_k * (blk_m + blk_n)), 2048 // (dim_m * dim_n)) * dim_m * dim_n >= 512",
    "m_a * n_a == dim_m * dim_n",
    "m_b * n_b == dim_m * dim_n",
    "blk_m % m_a == 0",
    "blk_k % n_a == 0",
    "blk_k % m_b == 0",
    "blk_n % n_b == 0",
    "simd == 0 or (blk_m % (2 * m_a) == 0 and blk_k % (2 * m_b) == 0)",
)
Rows = Iterable[tuple[int, ...]]


def domains(blk_k: int, narrowed: bool = False) -> dict[str, list[int]]:
    """Return the largest domain of each parameter. ``narrowed``: without values that take thought
    to leave out: tiles of more than 1,024, and threads that divide no block's."""
    dims = list(range(16, THREADS + 1, 16))
    tiles = list(range(16, (THREADS if narrowed else REGISTERS // 32) + 1, 16))
    blocks = [m * n for m, n in product(dims, dims) if m * n <= THREADS]
    threads = [
        t for t in range(1, THREADS + 1) if not narrowed or any(block % t == 0 for block in blocks)
    ]
    values = (dims, dims, tiles, tiles, list(range(1, blk_k + 1)), *[threads] * 4, [0, 1])
    return dict(zip(NAMES, values, strict=True))


def ours() -> Callable[[int], Rows]:
    """Build this project's space, as the example declares it."""
    from kernels.space import read_space, variants

    example = tomllib.loads((ROOT / "examples/k20x-dgemm.toml").read_text())
    device = tomllib.loads((ROOT / "sites/builtin/tesla-k20x.toml").read_text())["device"]
    declaration = example["kernels"][0]["space"]

    def rows(blk_k: int) -> Rows:
        space = read_space(declaration | {"blk_k": f"1 : {blk_k}"}, [], list(device))
        return [tuple(variant.values()) for variant in variants(space, {}, device)]

    return rows


def constraint2(narrowed: bool = False) -> Callable[[int], Rows]:
    """Build it by python-constraint2."""
    from constraint import Problem

    def rows(blk_k: int) -> Rows:
        problem = Problem()
        for name, values in domains(blk_k, narrowed).items():
            problem.addVariable(name, values)
        for condition in CONDITIONS:
            problem.addConstraint(condition)
        return list(problem.getSolutionsOrderedList(list(NAMES)))

    return rows


def kernel_tuner() -> Callable[[int], Rows]:
    """Build it by Kernel Tuner."""
    from kernel_tuner.searchspace import Searchspace

    return lambda blk_k: Searchspace(domains(blk_k, True), list(CONDITIONS), THREADS).list


def loops() -> Callable[[int], Rows]:
    """Build it by nested loops."""
    return _looped


def _looped(blk_k: int) -> Rows:
    rows = []
    for dim_m, dim_n in product(range(16, THREADS + 1, 16), repeat=2):
        t = dim_m * dim_n
        if t > THREADS or t % 32:
            continue
        divisors = [m for m in range(1, t + 1) if t % m == 0]
        for blk_m in range(dim_m, REGISTERS // (2 * dim_n) + 1, dim_m):
            for blk_n in range(dim_n, REGISTERS // (2 * blk_m) + 1, dim_n):
                tile = 2 * blk_m * blk_n
                if tile > 255 * t or tile < 64 * (blk_m + blk_n):
                    continue
                if min(REGISTERS // tile, 2048 // t) * t < 512:
                    continue
                for k in range(1, blk_k + 1):
                    stripes = 8 * k * (blk_m + blk_n)
                    if stripes > SHARED_BYTES or min(SHARED_BYTES // stripes, 2048 // t) * t < 512:
                        break
                    shapes_a = [m for m in divisors if blk_m % m == 0 and k % (t // m) == 0]
                    shapes_b = [m for m in divisors if k % m == 0 and blk_n % (t // m) == 0]
                    for m_a, m_b in product(shapes_a, shapes_b):
                        row = (dim_m, dim_n, blk_m, blk_n, k, m_a, t // m_a, m_b, t // m_b)
                        rows.append((*row, 0))
                        if blk_m % (2 * m_a) == 0 and k % (2 * m_b) == 0:
                            rows.append((*row, 1))
    return rows


BUILDERS: dict[str, Callable[[], Callable[[int], Rows]]] = {
    "ours": ours,
    "loops": loops,
    "python-constraint2, narrowed": partial(constraint2, True),
    "python-constraint2": constraint2,
    "kernel-tuner, narrowed": kernel_tuner,
}
SLOW = ("kernel-tuner, narrowed",)


def child(name: str, blk_k: int) -> None:
    """Print one build's time and set as JSON."""
    try:
        build = BUILDERS[name]()
    except ImportError as error:
        print(json.dumps({"missing": str(error)}))
        return
    began_s = time.process_time()
    rows = build(blk_k)
    cpu_s = time.process_time() - began_s
    unique = sorted({tuple(map(int, row)) for row in rows})
    digest = hashlib.sha256(repr(unique).encode()).hexdigest()
    print(json.dumps({"cpu_s": cpu_s, "size": len(unique), "set": digest}))


def run(python: str, name: str, blk_k: int, limit_s: float) -> dict:
    """Run one build in a separate process."""
    command = [python, "-m", "benchmarks.space_build", "--child", name, "--blk-k", str(blk_k)]
    try:
        process = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=limit_s
        )
    except subprocess.TimeoutExpired:
        return {"missing": f"took more than {limit_s:g} s"}
    return dict(json.loads(process.stdout.splitlines()[-1]))


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--blk-k", type=int, nargs="+", default=[64, 1024])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peers", default=sys.executable, help="a Python that has the peers")
    parser.add_argument("--limit-s", type=float, default=300.0, help="of one build, in s")
    parser.add_argument("--child", choices=BUILDERS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child, arguments.blk_k[0])
        return
    print(f"{'blk_k to':>8}  {'':28}  {'variants':>8}  {'CPU s':>8}  {'ours is':>8}")
    for blk_k in arguments.blk_k:
        compare(arguments, blk_k)


def compare(arguments: argparse.Namespace, blk_k: int) -> None:
    """Print a line for each builder."""
    times: dict[str, list[float]] = {}
    missing: dict[str, str] = {}
    sets = {}
    for i in range(arguments.rounds):
        for name in BUILDERS:
            if name in missing or (name in SLOW and (i or blk_k != arguments.blk_k[0])):
                continue
            python = sys.executable if name in ("ours", "loops") else arguments.peers
            built = run(python, name, blk_k, arguments.limit_s)
            if "missing" in built:
                missing[name] = built["missing"]
                continue
            times.setdefault(name, []).append(built["cpu_s"])
            sets[name] = built["set"], built["size"]
    own_s = statistics.median(times["ours"])
    for name, measured in times.items():
        cpu_s = statistics.median(measured)
        note = "" if sets[name] == sets["ours"] else "  ANOTHER SET"
        print(
            f"{blk_k:8}  {name:28}  {sets[name][1]:8,}  {cpu_s:8.3f}  {own_s / cpu_s:8.4f}{note}",
            flush=True,
        )
    for name, why in missing.items():
        print(f"{blk_k:8}  {name:28}  left out: {why}", flush=True)
    if len(set(sets.values())) > 1:
        raise SystemExit("the sets differ")


if __name__ == "__main__":
    main()
