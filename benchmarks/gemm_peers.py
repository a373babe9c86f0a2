"""``dgemm`` compared with NumPy's product (OpenBLAS), on one thread and on two.

The variants are measured at one n in random order, each by the CPU time of the fastest of three
runs. The fastest few are then measured at every n, interleaved with NumPy. A ratio is NumPy's CPU
time over the variant's in the same round. The median over the rounds counts, so that other work on
the machine, which slows both, does not decide. The share of the peak refers to fused multiply-adds
in registers (the kernel ``dp_fma``). Wall times of one thread and of two are compared last; they
need two free cores.

Run from the root of the repository (minutes):

    .venv/bin/python -m benchmarks.gemm_peers [--variants 200] [--rounds 15]

Exits 0 when the best variant's ratio is at least 0.95 at 960 and 1,920, and 0.9 at 997; else 1.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from benchmarks.shared import argument_parser, interleaved, seconds_of

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np

from kernels.host.ranks import Team
from kernels.microbench.fma import dp_fma
from kernels.products.kernel import DgemmParams, Matrices, PreparedProduct

BARS = {960: 0.95, 997: 0.9, 1920: 0.95}
TILES = ((8, 24), (16, 12), (16, 14), (24, 8), (24, 9), (32, 6), (12, 4), (8, 6))
"""mr and nr: those that fill 32 vector registers of 512 bits, and 16 of 256."""
UNROLLS = (1, 4, 8)
KCS = (128, 160, 192, 240, 256, 320, 384, 480)
TUNED_AT = 960
FINALISTS = 6


def variants(count: int) -> list[dict[str, int]]:
    """Return distinct variants drawn at random, the same in each run."""
    rng, drawn = random.Random(0), dict[tuple[int, ...], dict[str, int]]()
    while len(drawn) < count:
        (mr, nr), unroll, kc = rng.choice(TILES), rng.choice(UNROLLS), rng.choice(KCS)
        mc = max(1, rng.choice([96, 192, 240, 288, 384, 480]) // mr) * mr
        drawn[mr, nr, unroll, mc, kc] = {"mr": mr, "nr": nr, "unroll": unroll, "mc": mc, "kc": kc}
    return list(drawn.values())


def cpu_s(call: Callable[[], object]) -> float:
    """Return the CPU time of a call in this thread."""
    return seconds_of(call, time.thread_time)


def tune(count: int) -> list[dict[str, int]]:
    """Return the fastest variants at one n, the fastest first."""
    matrices, seconds = Matrices.random(TUNED_AT, 0), list[tuple[float, int]]()
    space = variants(count)
    for i, variant in enumerate(space):
        prepared = PreparedProduct(DgemmParams(n=TUNED_AT, **variant), matrices)
        seconds.append((min(cpu_s(partial(prepared.run, 1)) for _ in range(3)), i))
        prepared.check()
        prepared.close()
    rates = sorted(2e-9 * TUNED_AT**3 / s for s, _ in seconds)
    print(f"{count} variants at n = {TUNED_AT}: {rates[0]:.1f} to {rates[-1]:.1f} GFLOP/s")
    return [space[i] for _, i in sorted(seconds)[:FINALISTS]]


def compare(n: int, finalists: list[dict[str, int]], rounds: int) -> dict[str, int]:
    """Print the finalists' rates, interleaved with NumPy's; return the fastest."""
    matrices = Matrices.random(n, 0)
    a, b = (np.ascontiguousarray(square) for square in matrices.square()[:2])
    out = np.empty((n, n))
    # Each variant adds to a separate C, so that it can be checked.
    prepared = [
        PreparedProduct(DgemmParams(n=n, **v), replace(matrices, c=Matrices.random(n, i).c))
        for i, v in enumerate(finalists)
    ]
    runs = max(1, round(1e9 / n**3))
    product = partial(np.matmul, a, b, out=out)
    calls = {"NumPy": lambda: [product() for _ in range(runs)]}
    calls |= {str(i): partial(part.run, runs) for i, part in enumerate(prepared)}
    times_s = interleaved({name: partial(cpu_s, call) for name, call in calls.items()}, rounds)
    numpy_s, *ours_s = (np.array(times) / runs for times in times_s.values())
    ratios = np.median(numpy_s / ours_s, axis=1)
    best = int(np.argmax(ratios))
    rate, peer = (2e-9 * n**3 / np.median(s) for s in (ours_s[best], numpy_s))
    print(
        f"n = {n:4}: {rate:5.1f} GFLOP/s, NumPy {peer:5.1f}, ratio {ratios[best]:.3f} (at least "
        f"{BARS[n]}), finalists {ratios.min():.3f} to {ratios.max():.3f}; best {finalists[best]}",
        flush=True,
    )
    for part in prepared:
        part.check()
        part.close()
    return finalists[best] if ratios[best] >= BARS[n] else {}


def speed_up(n: int, variant: dict[str, int], rounds: int) -> None:
    """Print the wall time of one thread over that of two, fastest of the rounds, interleaved."""
    prepared = [
        PreparedProduct(DgemmParams(n=n, threads=t, **variant), Matrices.random(n, 0))
        for t in (1, 2)
    ]
    runs = {str(i): partial(part.run, 2) for i, part in enumerate(prepared)}
    times_s = interleaved({name: partial(seconds_of, run) for name, run in runs.items()}, rounds)
    one_s, two_s = map(min, times_s.values())
    print(f"n = {n:4}: two threads {one_s / two_s:.2f} times one (load {os.getloadavg()[0]:.1f})")
    for part in prepared:
        part.close()


def peak() -> float:
    """Return the GFLOP/s of fused multiply-adds in registers, the fastest of several runs."""
    chains = dp_fma.prepare(dp_fma.params(), Team())
    flops = chains.counts()["dp"]
    return 1e-9 * flops / min(cpu_s(partial(chains.run, 1)) for _ in range(10))


def main() -> int:
    """Print the table; returns the exit code."""
    parser = argument_parser(__doc__)
    parser.add_argument("--variants", type=int, default=200, help="variants to measure")
    parser.add_argument("--rounds", type=int, default=15, help="rounds of each comparison")
    arguments = parser.parse_args()
    print(f"multiply-adds in registers: {peak():.1f} GFLOP/s")
    finalists = tune(arguments.variants)
    bests = [compare(n, finalists, arguments.rounds) for n in BARS]
    for n in (960, 1920):
        speed_up(n, finalists[0], arguments.rounds)
    return 0 if all(bests) else 1


if __name__ == "__main__":
    sys.exit(main())
