"""The modelled bytes of ``dgemm``, compared with valgrind's cache simulation, cachegrind.

As in ``fmm_cachegrind``: the misses of one product are a tenth of the difference between eleven
products and one. Lines that miss the first cache, times their 64 bytes, are compared with the
modelled bytes of all further levels; lines that miss the last cache with those of the memory.

Run from the root of the repository, with valgrind installed (minutes):

    .venv/bin/python benchmarks/gemm_cachegrind.py [--last-kib 256] [--random 0]

Exits 0 when every ratio lies between 1 / 2 and 2, 1 otherwise, 2 where valgrind is missing.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.fmm_cachegrind import FEW, FIRST_KIB, compared, missed, run, total  # noqa: E402

NAMES = ("n", "mr", "nr", "unroll", "mc", "kc", "nc")
CASES = (
    (240, 8, 4, 4, 96, 128, 240),
    (300, 8, 6, 2, 48, 64, 60),
    (300, 16, 2, 1, 304, 300, 300),
    (397, 12, 12, 2, 120, 256, 396),
)
"""Values of :data:`NAMES`: blocks that fit, small ones, and some that are too large."""


def child(values: list[str], last_kib: int, products: int) -> None:
    """Prepare, multiply ``products`` times, and print the modelled counts."""
    from kernels.fmm.counts.machine import host_machine
    from kernels.host.ranks import Team
    from kernels.products.counts import count_product
    from kernels.products.kernel import DgemmParams, dgemm

    params = DgemmParams(**dict(zip(NAMES, map(int, values), strict=True)))
    prepared = dgemm.prepare(params, Team())
    prepared.run(products)
    caches = (("l1", FIRST_KIB << 10), ("l2", last_kib << 10))
    machine = replace(host_machine(), caches=caches)
    print(json.dumps(count_product(params.n, 1, params.variant(), machine)))


def drawn(count: int) -> list[tuple[int, ...]]:
    """Random cases, the same each time."""
    rng, cases = random.Random(0), []
    for _ in range(count):
        n, mr, nr = rng.randrange(150, 450), rng.choice([4, 8, 12, 16]), rng.choice([2, 4, 6])
        mc, nc = mr * rng.randrange(1, n // mr + 1), nr * rng.randrange(1, n // nr + 1)
        cases.append((n, mr, nr, rng.choice([1, 4]), mc, rng.randrange(16, 400), nc))
    return cases


def compare(cases: list[tuple[int, ...]], last_kib: int, folder: str) -> bool:
    """Print the table and return whether every ratio is within bounds."""
    fine = True
    print(f"caches of {FIRST_KIB} and {last_kib} KiB; MB by the model / by the simulation")
    print("".join(f"{name:>7}" for name in NAMES) + "   beyond the first cache       from memory")
    for case in cases:
        arguments = [*map(str, case), str(last_kib)]
        counts = json.loads(run([*arguments, str(FEW)], [], folder, __file__).stdout)
        misses = missed(arguments, last_kib, folder, __file__)
        least = 0.1 * 3 * 8 * case[0] ** 2  # below a tenth of the matrices, nothing to model
        beyond = total({"": counts}, "l2", "dram"), misses["D1mr"] + misses["D1mw"]
        memory = total({"": counts}, "dram"), misses["DLmr"] + misses["DLmw"]
        pairs = [
            compared(*pair) if max(pair) > least else ("none", True) for pair in (beyond, memory)
        ]
        fine &= all(is_within for _, is_within in pairs)
        columns = [f"{text:>26}" for text, _ in pairs]
        print("".join(f"{value:7}" for value in case) + f"  {columns[0]}  {columns[1]}", flush=True)
    return fine


def main() -> int:
    """Print the table; returns the exit code."""
    if sys.argv[1:2] == ["--child"]:
        *values, last_kib, products = sys.argv[2:]
        child(values, int(last_kib), int(products))
        return 0
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--last-kib", type=int, default=256, help="size of the last cache, KiB")
    parser.add_argument("--random", type=int, default=0, help="random cases in addition")
    options = parser.parse_args()
    if shutil.which("valgrind") is None:
        print("valgrind is not installed (Debian: apt-get install valgrind)", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="gemm-cachegrind-") as folder:
        return 0 if compare([*CASES, *drawn(options.random)], options.last_kib, folder) else 1


if __name__ == "__main__":
    sys.exit(main())
