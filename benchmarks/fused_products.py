"""Fused products and chains of matrices compared with NumPy's.

    .venv/bin/python -m benchmarks.fused_products [--rounds 7] [--chains 30]

One thread, CPU time, interleaved, medians over the rounds. Three matrices of which two are small
are multiplied fused and by two calls of ``numpy.dot``. Random chains of three to eight matrices,
sizes 16 to 2,048, are multiplied by ``multiply_chain`` and by ``numpy.linalg.multi_dot``.

Exits 0 when fused products are at least 1.25 times as fast, every chain takes at most 1.05 times
as long, the geometric mean is at most 0.98, and results differ by at most 1e-12 of the largest
number; else 1.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from operator import truediv

from benchmarks.shared import argument_parser, interleaved, seconds_of

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np

from kernels.products import multiply_chain, plan_chain
from kernels.products.chain_run import RATES, second_cache_numbers

TALL = ((2_000_000, 16, 16, 16), (500_000, 64, 64, 64))
LONG_ENOUGH_S = 0.02
SIZES = (16, 2048)
MATRICES = (3, 8)


def taken_s(call: Callable[[], object]) -> float:
    """Return the CPU seconds of a call, a mean over enough calls to be measured."""
    times_s: list[float] = []
    while sum(times_s) < LONG_ENOUGH_S:
        times_s.append(seconds_of(call, time.process_time))
    return statistics.fmean(times_s)


def ratio_of(call: Callable[[], object], other: Callable[[], object], rounds: int) -> float:
    """Return the median of the times of a call over those of the other."""
    calls = {"call": partial(taken_s, call), "other": partial(taken_s, other)}
    return statistics.median(map(truediv, *interleaved(calls, rounds).values()))


def drawn(rng: np.random.Generator, sizes: tuple[int, ...]) -> list[np.ndarray]:
    """Return the matrices of a random chain."""
    return [rng.standard_normal(shape) for shape in pairwise(sizes)]


def difference(result: np.ndarray, reference: np.ndarray) -> float:
    """Return the largest difference, relative to the largest number of the reference."""
    return float(np.abs(result - reference).max() / np.abs(reference).max())


def main() -> None:
    """Measure, print, and exit with the verdict."""
    parser = argument_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--chains", type=int, default=30)
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    right = True
    for sizes in TALL:
        a, b, c = drawn(rng, sizes)
        right &= difference(multiply_chain([a, b, c]), a.dot(b).dot(c)) <= 1e-12
        ratio = ratio_of(
            lambda a=a, b=b, c=c: a.dot(b).dot(c),
            partial(multiply_chain, [a, b, c]),
            arguments.rounds,
        )
        right &= ratio >= 1.25
        print(f"{sizes}: fused {ratio:.2f} times as fast as two numpy.dot", flush=True)
    ratios = []
    for _ in range(arguments.chains):
        sizes = tuple(
            rng.integers(*SIZES, int(rng.integers(*MATRICES)) + 1, endpoint=True).tolist()
        )
        chain = drawn(rng, sizes)
        wrong = difference(multiply_chain(chain), np.linalg.multi_dot(chain))
        ratio = ratio_of(
            partial(multiply_chain, chain), partial(np.linalg.multi_dot, chain), arguments.rounds
        )
        fused = sum(
            node.fused == "parent"
            for node in plan_chain(sizes, second_cache_numbers(), RATES, "tiles").nodes
        )
        ratios.append(ratio)
        right &= wrong <= 1e-12
        print(f"{ratio:.3f} of multi_dot's time, {fused} fused, {wrong:.0e}: {sizes}", flush=True)
    mean = statistics.geometric_mean(ratios)
    print(f"geometric mean {mean:.3f}, longest {max(ratios):.3f}")
    sys.exit(0 if right and mean <= 0.98 and max(ratios) <= 1.05 else 1)


if __name__ == "__main__":
    main()
