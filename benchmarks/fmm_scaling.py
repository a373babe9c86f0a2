"""The scaling of our FMM with the number of points: time per point, the tree's share, memory.

    .venv/bin/python -m benchmarks.fmm_scaling [--threads 1] [--rounds 7] [--quick]

Uniform points of the unit cube, 6 digits in double precision:

- time per point of one evaluation at 1,048,576 points over that at 65,536, each at its best Q of
  a list, measured alternately; at most 1.25;
- the time to build the tree over that of one evaluation at 262,144 points; at most 10 %;
- the peak resident memory at 262,144 points above that of the process after its imports, in a
  new process; at most 283 MB.

Exits 0 when all three are within their limits, 1 otherwise. ``--small``, ``--large`` and
``--points`` change the numbers of points.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from functools import partial
from typing import Any

import numpy as np

from benchmarks.fmm_peers import OUR_QS
from benchmarks.peers.ours import begin_peak_mb, memory_mb
from benchmarks.shared import argument_parser, cost_of, interleaved, seconds_of

SEED = 5
MOST_GROWTH = 1.25
MOST_TREE = 0.10
MOST_MB = 283.0
TRIED = 2
"""Evaluations that each Q is judged by."""


def make(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (points, charges)."""
    random = np.random.default_rng(SEED)
    return random.random((n, 3)), random.uniform(-1, 1, n)


def evaluation_s(method: Any, charges: np.ndarray) -> float:
    """Return the seconds of one evaluation."""
    return seconds_of(partial(method.evaluate, charges))


def at_best_q(n: int, arguments: argparse.Namespace) -> tuple[int, Any, np.ndarray]:
    """Return (Q, method, charges) with the fastest Q of the list."""
    from kernels.fmm.interface import prepare

    x, charges = make(n)
    best: tuple[float, int, Any] | None = None
    tree_sizes = set()
    for q in OUR_QS:
        method = prepare(x, digits=arguments.digits, q=q, threads=arguments.threads)
        # Uniform points fall into the same tree with most Qs.
        if len(method.tree) in tree_sizes:
            continue
        tree_sizes.add(len(method.tree))
        method.evaluate(charges)
        seconds = min(evaluation_s(method, charges) for _ in range(TRIED))
        if best is None or seconds < best[0]:
            best = seconds, q, method
    assert best is not None
    return best[1], best[2], charges


def growth(arguments: argparse.Namespace) -> float:
    """Print the time per point at both numbers of points; return their ratio."""
    sides = {n: at_best_q(n, arguments) for n in (arguments.small, arguments.large)}

    def round_s(n: int) -> float:
        _, method, charges = sides[n]
        # As many points in a round of either side.
        times = max(1, arguments.large // n // 4)
        method.evaluate(charges)
        return statistics.median(evaluation_s(method, charges) for _ in range(times))

    seconds = interleaved({n: partial(round_s, n) for n in sides}, arguments.rounds)
    per_point = {n: statistics.median(times) / n for n, times in seconds.items()}
    for n, (q, method, _) in sides.items():
        print(
            f"{n:>9,} points, order {method.order}, Q {q}: {per_point[n] * n:.4f} s, "
            f"{per_point[n] * 1e9:.0f} ns a point"
        )
    ratio = per_point[arguments.large] / per_point[arguments.small]
    print(f"time per point, large over small: {ratio:.3f}, limit {MOST_GROWTH}")
    return ratio


def tree_share(arguments: argparse.Namespace) -> float:
    """Print the times of the tree and of an evaluation; return their ratio."""
    from kernels.fmm.interface import prepare

    x, charges = make(arguments.points)
    tree, evaluation = [], []
    # The first round compiles, or loads compiled code.
    for turn in range(arguments.rounds + 1):
        method = prepare(x, digits=arguments.digits, threads=arguments.threads)
        built = method.seconds["tree"]
        method.evaluate(charges)
        seconds = evaluation_s(method, charges)
        if turn:
            tree.append(built)
            evaluation.append(seconds)
    tree_s, one_s = statistics.median(tree), statistics.median(evaluation)
    share = tree_s / one_s
    print(
        f"{arguments.points:>9,} points: tree {tree_s:.4f} s, evaluation {one_s:.4f} s: "
        f"{share:.1%}, limit {MOST_TREE:.0%}"
    )
    return share


def memory_of_one(n: int, digits: float, threads: int) -> None:
    """Print {"imports_mb", "above_mb"} of this process and of one evaluation."""
    from kernels.fmm.interface import prepare

    held_mb = begin_peak_mb()
    x, charges = make(n)
    prepare(x, digits=digits, threads=threads).evaluate(charges)
    print(json.dumps({"imports_mb": held_mb, "above_mb": memory_mb("VmHWM") - held_mb}))


def memory(arguments: argparse.Namespace) -> float:
    """Print the memory of an evaluation; return MB above the imports."""
    command = [
        sys.executable, "-m", "benchmarks.fmm_scaling", "--memory", str(arguments.points),
        str(arguments.digits), str(arguments.threads),
    ]  # fmt: skip
    # The first process may compile, which takes memory too.
    for _ in range(2):
        result = json.loads(cost_of(command).output)
    print(
        f"{arguments.points:>9,} points: {result['above_mb']:.0f} MB above the "
        f"{result['imports_mb']:.0f} MB of the imports, limit {MOST_MB:.0f}"
    )
    return float(result["above_mb"])


def main() -> int:
    """Print all three; 0 when all are within their limits."""
    if sys.argv[1:2] == ["--memory"]:
        n, digits, threads = sys.argv[2:]
        memory_of_one(int(n), float(digits), int(threads))
        return 0
    parser = argument_parser(__doc__)
    parser.add_argument("--threads", type=int, default=1, help="threads")
    parser.add_argument("--rounds", type=int, default=7, help="rounds of each measurement")
    parser.add_argument("--quick", action="store_true", help="2 rounds")
    parser.add_argument("--digits", type=float, default=6, help="digits requested")
    parser.add_argument("--small", type=int, default=65_536, help="points of the small case")
    parser.add_argument("--large", type=int, default=1_048_576, help="points of the large case")
    parser.add_argument("--points", type=int, default=262_144, help="points for tree and memory")
    arguments = parser.parse_args()
    arguments.rounds = 2 if arguments.quick else arguments.rounds
    print(
        f"{arguments.digits:g} digits, threads {arguments.threads}, "
        f"{arguments.rounds} rounds; medians"
    )
    within = memory(arguments) <= MOST_MB
    within = tree_share(arguments) <= MOST_TREE and within
    within = growth(arguments) <= MOST_GROWTH and within
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
