"""The modelled bytes of an FMM evaluation, compared with valgrind's cache simulation, cachegrind.

    .venv/bin/python -m benchmarks.fmm_cachegrind [--n 4000] [--last-kib 256]

The cases are small; the V phase dominates in some, the U phase in others. The bytes that one
evaluation misses (``benchmarks/cachegrind.py``), less those for :data:`TINY` points, which are
Python's work, are compared with modelled ones: those missed in the first cache with the bytes of
all further levels, those missed in the last cache with the bytes of the memory. Takes minutes.

Exits 0 when every ratio lies between 1 / 2 and 2, 1 otherwise, 2 where valgrind is missing.
"""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks import cachegrind
from benchmarks.cachegrind import FIRST_KIB, Simulation, compared, simulated_machine
from benchmarks.shared import argument_parser

CASES = ((3, "single", 30), (3, "single", 400), (6, "double", 30), (6, "double", 400))
"""(digits, precision, q)."""
TINY = 8


def child(case: list[Any], evaluations: int) -> None:
    """Prepare, evaluate ``evaluations`` times, and print the modelled counts."""
    from kernels.fmm import prepare
    from kernels.fmm.counts.by_phase import phase_counts
    from kernels.fmm.counts.work import work_of
    from kernels.fmm.distributions import points

    n, digits, precision, q, last_kib = case
    places, charges = points("uniform", n, 0)
    method = prepare(places, digits=digits, precision=precision, q=q, threads=1)
    for _ in range(evaluations):
        method.evaluate(charges)
    print(json.dumps(phase_counts(work_of(method), simulated_machine(last_kib))))


def compare(arguments: Namespace, simulation: Simulation) -> bool:
    """Print the table and return whether every ratio is within bounds."""
    n, last_kib = arguments.n, simulation.last_kib
    fine, start_bytes = True, dict[tuple[int, str], np.ndarray]()
    print(
        f"{n} points, caches of {FIRST_KIB} and {last_kib} KiB; MB by the model / by the simulation"
    )
    print("digits precision    q  beyond the first cache       from memory              V's flops")
    for digits, precision, q in CASES:
        case = [digits, precision, q, last_kib]
        phases = simulation.printed([n, *case])
        missed_bytes = simulation.missed_bytes([n, *case])
        if (digits, precision) not in start_bytes:
            simulation.printed([TINY, *case])  # compiles
            start_bytes[digits, precision] = simulation.missed_bytes([TINY, *case])
        missed_bytes = missed_bytes - start_bytes[digits, precision]
        modelled = total(phases, "l2", "dram"), total(phases, "dram")
        columns, within = zip(*map(compared, modelled, missed_bytes), strict=True)
        fine &= all(within)
        share = total({"v": phases["v"]}, "sp", "dp") / total(phases, "sp", "dp")
        print(
            f"{digits:6} {precision:9} {q:4}  {columns[0]}  {columns[1]}  {share:6.0%}", flush=True
        )
    return fine


def total(phases: Mapping[str, Mapping[str, float]], *classes: str) -> float:
    """Return the sum of the counts of some classes over the phases."""
    return sum(counts.get(name, 0.0) for counts in phases.values() for name in classes)


if __name__ == "__main__":
    parser = argument_parser(__doc__)
    parser.add_argument("--n", type=int, default=4000, help="points")
    parser.add_argument("--last-kib", type=int, default=256, help="size of the last cache, KiB")
    sys.exit(cachegrind.main("fmm_cachegrind", parser, child, compare))
