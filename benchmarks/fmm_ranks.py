"""The FMM on MPI ranks: the speed-up of two ranks over one, and the memory of a rank.

    .venv/bin/python -m benchmarks.fmm_ranks [--points 262144] [--digits 6] [--rounds 7]

Uniform points; each rank makes its share and runs one thread. One and two ranks are measured
alternately: medians of evaluations with tree, lists and operators ready. Each round also runs two
independent processes with all the points each. Twice the time of one rank over their time is the
largest speed-up that two cores of this machine, which share caches and memory, can give. Memory is
the peak resident memory above that of a rank after its imports, the largest of the ranks, with 1, 2
and 4 ranks. The error is measured at 1,000 targets, against direct sums in double precision.

Exits 0 when two ranks are at least 1.6 times as fast as one and memory shrinks with ranks.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.ours import begin_peak_mb, memory_mb
from benchmarks.shared import argument_parser, cost_of, seconds_of

LEAST_FASTER = 1.6
EVALUATIONS = 5
"""Evaluations of a process."""
TARGETS = 1000
FEW = 1000
"""Points that take almost no memory."""


def one_rank(n: int, digits: float, is_apart: bool) -> None:
    """Measure on one rank; rank 0 prints {"seconds", "above_mb", "error"}.

    ``is_apart``: each process evaluates ``n`` points independently of the others.
    """
    from mpi4py import MPI

    from kernels.fmm.interface import setup_for
    from kernels.fmm.mpi_ranks import RankedFmm

    world = MPI.COMM_WORLD
    comm = MPI.COMM_SELF if is_apart else world
    rank, ranks = world.Get_rank(), world.Get_size()
    held_mb = begin_peak_mb()
    random = np.random.default_rng(rank)
    count = n if is_apart else n // ranks + (rank < n % ranks)
    places, charges = random.random((count, 3)), random.uniform(-1, 1, count)
    method = RankedFmm(comm, places, setup_for(digits, threads=1))
    # Compiles, or loads compiled code.
    potentials = method.evaluate(charges)
    seconds = []
    for _ in range(EVALUATIONS):
        world.Barrier()
        seconds.append(seconds_of(lambda: (method.evaluate(charges), world.Barrier())))
    above_mb = world.allreduce(memory_mb("VmHWM") - held_mb, MPI.MAX)
    error = reached(comm, places, charges, potentials)
    if rank == 0:
        print(json.dumps({"seconds": seconds, "above_mb": above_mb, "error": error}))


def reached(
    comm: Any, places: np.ndarray, charges: np.ndarray, potentials: np.ndarray
) -> float | None:
    """Return the relative L2 error at rank 0's first points; None on other ranks. Collective."""
    from kernels.fmm.kernel import direct_sums

    parts = comm.gather((places, charges))
    if parts is None:
        return None
    every, charge = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    exact = direct_sums(every, charge, places[:TARGETS])
    difference = potentials[: len(exact)] - exact
    return float(np.linalg.norm(difference) / np.linalg.norm(exact))


def turn(ranks: int, n: int, digits: float, mode: str = "together") -> dict[str, Any]:
    """Return the result of a run on ``ranks`` ranks; ``mode``: together or apart."""
    command = [
        str(Path(sys.executable).with_name("mpiexec")), "-n", str(ranks),
        sys.executable, "-m", "benchmarks.fmm_ranks", "--rank",
        str(n), str(digits), mode,
    ]  # fmt: skip
    result: dict[str, Any] = json.loads(cost_of(command).output)
    return result


def main() -> int:
    """Print speed-up and memory; 0 when both are as required."""
    if sys.argv[1:2] == ["--rank"]:
        n, digits, mode = sys.argv[2:]
        one_rank(int(n), float(digits), mode == "apart")
        return 0
    parser = argument_parser(__doc__)
    parser.add_argument("--points", type=int, default=262_144, help="points of all ranks")
    parser.add_argument("--digits", type=float, default=6, help="digits requested")
    parser.add_argument("--rounds", type=int, default=7, help="runs of each kind")
    arguments = parser.parse_args()
    print(
        f"{arguments.points:,} points, {arguments.digits:g} digits, "
        f"{arguments.rounds} interleaved rounds"
    )
    least = turn(1, FEW, arguments.digits)
    print(f"{FEW:,} points, 1 rank: {least['above_mb']:.0f} MB, most of it compiled code")
    by_ranks = {ranks: turn(ranks, arguments.points, arguments.digits) for ranks in (1, 2, 4)}
    for ranks, result in by_ranks.items():
        print(f"{ranks} ranks: {result['above_mb']:.0f} MB a rank, error {result['error']:.1e}")
    shrinks = by_ranks[1]["above_mb"] > by_ranks[2]["above_mb"] > by_ranks[4]["above_mb"]
    turns = {"one": (1, "together"), "two": (2, "together"), "apart": (2, "apart")}
    ratios: dict[str, list[float]] = {"two": [], "apart": []}
    for number in range(arguments.rounds):
        first = number % len(turns)
        seconds = {
            name: statistics.median(
                turn(ranks, arguments.points, arguments.digits, mode)["seconds"]
            )
            for name, (ranks, mode) in [*turns.items()][first:] + [*turns.items()][:first]
        }
        ratios["two"].append(seconds["one"] / seconds["two"])
        ratios["apart"].append(2 * seconds["one"] / seconds["apart"])
        print(
            f"one rank {seconds['one']:.4f} s, two {seconds['two']:.4f} s: {ratios['two'][-1]:.2f} "
            f"times as fast; two independent processes {seconds['apart']:.4f} s: "
            f"{ratios['apart'][-1]:.2f}",
            flush=True,
        )
    faster, ceiling = (statistics.median(ratios[name]) for name in ("two", "apart"))
    print(
        f"speed-up of two ranks: {faster:.2f}, required {LEAST_FASTER}; "
        f"two independent processes: {ceiling:.2f}"
    )
    return 0 if shrinks and faster >= LEAST_FASTER else 1


if __name__ == "__main__":
    sys.exit(main())
