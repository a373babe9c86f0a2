"""The modelled bytes of ``dgemm``, compared with valgrind's cache simulation, cachegrind.

    .venv/bin/python -m benchmarks.gemm_cachegrind [--last-kib 256] [--random 0]

The bytes that one product misses in the first cache (``benchmarks/cachegrind.py``) are compared
with the modelled bytes of all further levels, those missed in the last cache with those of the
memory. Takes minutes.

Exits 0 when every ratio lies between 1 / 2 and 2, 1 otherwise, 2 where valgrind is missing.
"""

from __future__ import annotations

import json
import random
import sys
from argparse import Namespace

from benchmarks import cachegrind
from benchmarks.cachegrind import FIRST_KIB, Simulation, compared, simulated_machine
from benchmarks.shared import argument_parser

NAMES = ("n", "mr", "nr", "unroll", "mc", "kc", "nc")
CASES = (
    (240, 8, 4, 4, 96, 128, 240),
    (300, 8, 6, 2, 48, 64, 60),
    (300, 16, 2, 1, 304, 300, 300),
    (397, 12, 12, 2, 120, 256, 396),
)
"""Values of :data:`NAMES`: blocks that fit, small ones, and some that are too large."""


def child(case: list[int], products: int) -> None:
    """Prepare, multiply ``products`` times, and print the modelled counts."""
    from kernels.host.ranks import Team
    from kernels.products.counts import count_product
    from kernels.products.kernel import DgemmParams, dgemm

    *values, last_kib = case
    params = DgemmParams(**dict(zip(NAMES, values, strict=True)))
    dgemm.prepare(params, Team()).run(products)
    print(json.dumps(count_product(params.n, 1, params.variant(), simulated_machine(last_kib))))


def drawn(count: int) -> list[tuple[int, ...]]:
    """Random cases, the same each time."""
    rng, cases = random.Random(0), []
    for _ in range(count):
        n, mr, nr = rng.randrange(150, 450), rng.choice([4, 8, 12, 16]), rng.choice([2, 4, 6])
        mc, nc = mr * rng.randrange(1, n // mr + 1), nr * rng.randrange(1, n // nr + 1)
        cases.append((n, mr, nr, rng.choice([1, 4]), mc, rng.randrange(16, 400), nc))
    return cases


def compare(arguments: Namespace, simulation: Simulation) -> bool:
    """Print the table and return whether every ratio is within bounds."""
    fine = True
    print(
        f"caches of {FIRST_KIB} and {simulation.last_kib} KiB; MB by the model / by the simulation"
    )
    print("".join(f"{name:>7}" for name in NAMES) + "   beyond the first cache       from memory")
    for case in [*CASES, *drawn(arguments.random)]:
        counts = simulation.printed([*case, simulation.last_kib])
        missed_bytes = simulation.missed_bytes([*case, simulation.last_kib])
        dram = counts.get("dram", 0.0)
        least = 0.1 * 3 * 8 * case[0] ** 2  # below a tenth of the matrices, nothing to model
        pairs = [
            compared(*pair) if max(pair) > least else ("none", True)
            for pair in zip((counts.get("l2", 0.0) + dram, dram), missed_bytes, strict=True)
        ]
        fine &= all(is_within for _, is_within in pairs)
        columns = [f"{text:>26}" for text, _ in pairs]
        print("".join(f"{value:7}" for value in case) + f"  {columns[0]}  {columns[1]}", flush=True)
    return fine


if __name__ == "__main__":
    parser = argument_parser(__doc__)
    parser.add_argument("--last-kib", type=int, default=256, help="size of the last cache, KiB")
    parser.add_argument("--random", type=int, default=0, help="random cases in addition")
    sys.exit(cachegrind.main("gemm_cachegrind", parser, child, compare))
