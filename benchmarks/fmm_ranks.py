"""The FMM on MPI ranks: how much faster two are than one, and what memory a rank takes.

    .venv/bin/python benchmarks/fmm_ranks.py [--points 262144] [--digits 6] [--rounds 7]

Uniform points; each rank makes its own share and runs one thread. One rank and two, in turns:
medians of evaluations with tree, lists and operators ready. In each turn also two processes that
know nothing of each other, with all the points each: twice one's time over theirs is what two cores
of this machine, which share caches and memory, can give. Memory is the peak of resident memory
above what a rank holds after its imports, the largest of the ranks, with 1, 2 and 4 of them. The
error is told at 1,000 targets, by direct sums in double precision.

Exits 0 when two ranks are at least 1.6 times as fast as one and memory shrinks with ranks.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.fmm_peers import begin_peak_mb, memory_mb

LEAST_FASTER = 1.6
EVALUATIONS = 5
"""Evaluations of a turn."""
TARGETS = 1000
FEW = 1000
"""Points that take next to no memory."""


def one_rank(n: int, digits: float, is_apart: bool) -> None:
    """What each rank of a turn does; rank 0 prints {"seconds", "above_mb", "error"}. Apart: on its
    own points alone, as many as one rank has."""
    from mpi4py import MPI

    from kernels.fmm.interface import setup_for
    from kernels.fmm.mpi_ranks import RankedFmm

    world = MPI.COMM_WORLD
    comm = MPI.COMM_SELF if is_apart else world
    rank, ranks = world.Get_rank(), world.Get_size()
    held_mb = begin_peak_mb()
    random = np.random.default_rng(rank)
    mine = n if is_apart else n // ranks + (rank < n % ranks)
    places, charges = random.random((mine, 3)), random.uniform(-1, 1, mine)
    method = RankedFmm(comm, places, setup_for(digits, threads=1))
    # Compiles, or loads what is compiled.
    potentials = method.evaluate(charges)
    seconds = []
    for _ in range(EVALUATIONS):
        world.Barrier()
        began = time.perf_counter()
        method.evaluate(charges)
        world.Barrier()
        seconds.append(time.perf_counter() - began)
    above_mb = world.allreduce(memory_mb("VmHWM") - held_mb, MPI.MAX)
    error = reached(comm, places, charges, potentials)
    if rank == 0:
        print(json.dumps({"seconds": seconds, "above_mb": above_mb, "error": error}))


def reached(
    comm: Any, places: np.ndarray, charges: np.ndarray, potentials: np.ndarray
) -> float | None:
    """The relative L2 error at rank 0's first points, told by rank 0. Collective."""
    from kernels.fmm.kernel import direct_sums

    parts = comm.gather((places, charges))
    if parts is None:
        return None
    every, charge = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    exact = direct_sums(every, charge, places[:TARGETS])
    difference = potentials[: len(exact)] - exact
    return float(np.linalg.norm(difference) / np.linalg.norm(exact))


def turn(ranks: int, n: int, digits: float, mode: str = "together") -> dict[str, Any]:
    """What so many ranks told; ``mode``: together or apart."""
    command = [
        str(Path(sys.executable).with_name("mpiexec")), "-n", str(ranks),
        sys.executable, str(Path(__file__).resolve()), "--rank",
        str(n), str(digits), mode,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def main() -> int:
    """Print both; 0 when both hold."""
    if sys.argv[1:2] == ["--rank"]:
        n, digits, mode = sys.argv[2:]
        one_rank(int(n), float(digits), mode == "apart")
        return 0
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", 1)[0])
    parser.add_argument("--points", type=int, default=262_144)
    parser.add_argument("--digits", type=float, default=6)
    parser.add_argument("--rounds", type=int, default=7)
    asked = parser.parse_args()
    print(f"{asked.points:,} points, {asked.digits:g} digits, {asked.rounds} rounds in turns")
    least = turn(1, FEW, asked.digits)
    print(f"{FEW:,} points, 1 rank: {least['above_mb']:.0f} MB, most of it compiled code")
    found = {ranks: turn(ranks, asked.points, asked.digits) for ranks in (1, 2, 4)}
    for ranks, told in found.items():
        print(f"{ranks} ranks: {told['above_mb']:.0f} MB a rank, error {told['error']:.1e}")
    held = found[1]["above_mb"] > found[2]["above_mb"] > found[4]["above_mb"]
    turns = {"one": (1, "together"), "two": (2, "together"), "apart": (2, "apart")}
    ratios: dict[str, list[float]] = {"two": [], "apart": []}
    for number in range(asked.rounds):
        first = number % len(turns)
        seconds = {
            name: statistics.median(turn(ranks, asked.points, asked.digits, mode)["seconds"])
            for name, (ranks, mode) in [*turns.items()][first:] + [*turns.items()][:first]
        }
        ratios["two"].append(seconds["one"] / seconds["two"])
        ratios["apart"].append(2 * seconds["one"] / seconds["apart"])
        print(
            f"one rank {seconds['one']:.4f} s, two {seconds['two']:.4f} s: {ratios['two'][-1]:.2f} "
            f"times as fast; two apart, all the points each, {seconds['apart']:.4f} s: "
            f"{ratios['apart'][-1]:.2f}",
            flush=True,
        )
    faster, ceiling = (statistics.median(ratios[name]) for name in ("two", "apart"))
    print(f"two ranks over one: {faster:.2f}, at least {LEAST_FASTER}; two apart: {ceiling:.2f}")
    return 0 if held and faster >= LEAST_FASTER else 1


if __name__ == "__main__":
    sys.exit(main())
