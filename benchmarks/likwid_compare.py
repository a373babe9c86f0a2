"""Our microbenchmarks compared with likwid-bench, on one core, interleaved.

For single- and double-precision multiply-adds and for loads from every level: our median rate over
the best median of likwid-bench's variants. Both stream the same working set, which the table shows.
Our multiply-adds load nothing; likwid-bench's peakflops load one word for every 15 multiply-adds,
from a working set that fits in the first cache.

Run from the root of the repository, with likwid-bench installed:

    .venv/bin/python -m benchmarks.likwid_compare [--rounds 9] [--seconds 0.1] [--core 0]

Exits 0 when every ratio is at least 0.95, 1 otherwise.
"""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.shared import argument_parser, seconds_of
from kernels.host.caches import memory_bytes, read_caches, working_set_bytes
from kernels.host.ranks import Team
from kernels.kernel import Kernel
from kernels.microbench.fma import dp_fma, sp_fma
from kernels.microbench.load import load

ENOUGH = 0.95
SCREENED = 2
"""Rounds that every variant takes part in; afterwards only the fast ones run."""
SP = ("peakflops_sp_avx512_fma", "peakflops_sp_avx_fma", "peakflops_sp_sse", "peakflops_sp")
DP = ("peakflops_avx512_fma", "peakflops_avx_fma", "peakflops_sse", "peakflops")
LOAD = ("load_avx512", "load_avx", "load_sse", "load", "load_mem")


@dataclass(frozen=True)
class Case:
    """One row of the table: our kernel, its level and class, likwid's variants and the line of its
    output."""

    name: str
    kernel: Kernel
    level: str
    operation_class: str
    variants: tuple[str, ...]
    line: str
    unit: str


CASES = (
    Case("sp fma", sp_fma, "register", "sp", SP, "MFlops/s", "GFLOP/s"),
    Case("dp fma", dp_fma, "register", "dp", DP, "MFlops/s", "GFLOP/s"),
    *(
        Case(f"{level} load", load, level, level, LOAD, "MByte/s", "GB/s")
        for level in ("l1", "l2", "l3", "dram")
    ),
)


def likwid_rate(variant: str, size_bytes: int, iterations: int, line: str) -> tuple[float, float]:
    """Return (rate in 1e9/s, seconds) of a run of likwid-bench on the core that this process is
    bound to.

    Raises:
        ValueError: likwid-bench did not run the variant, for instance because there is no AVX-512.
    """
    command = ["likwid-bench", "-t", variant, "-w", f"N:{size_bytes}B:1", "-i", str(iterations)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    rate = re.search(rf"^{line}:\s+(\S+)", run.stdout, re.MULTILINE)
    seconds = re.search(r"^Time:\s+(\S+) sec", run.stdout, re.MULTILINE)
    size = re.search(r"^Size \(Byte\):\s+(\d+)", run.stdout, re.MULTILINE)
    if run.returncode or not rate or not seconds or not size:
        raise ValueError((run.stdout + run.stderr).strip() or f"exit status {run.returncode}")
    if int(size[1]) != size_bytes:
        raise ValueError(f"it used a working set of {size[1]} bytes, not {size_bytes}")
    return float(rate[1]) / 1e3, float(seconds[1])


def our_rate(prepared: Any, volume: float, iterations: int) -> tuple[float, float]:
    """Return (rate in 1e9/s, seconds) of a run of our kernel."""
    seconds = seconds_of(partial(prepared.run, iterations))
    return volume * iterations / seconds / 1e9, seconds


def iterations_for(seconds: float, measure: Any) -> int:
    """Return iterations that take about ``seconds``; ``measure(iterations)`` gives their
    seconds."""
    iterations, elapsed_s = 1, measure(1)
    while elapsed_s < seconds / 4:
        iterations *= max(2, min(1000, int(seconds / 2 / max(elapsed_s, 1e-6))))
        elapsed_s = measure(iterations)
    return max(1, round(iterations * seconds / elapsed_s))


def supported(variants: tuple[str, ...]) -> list[str]:
    """Return the variants that likwid-bench has and this processor can run."""
    listed = subprocess.run(["likwid-bench", "-a"], capture_output=True, text=True, check=False)
    names = {line.split(" ", 1)[0] for line in listed.stdout.splitlines()}
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    needs = {"avx512": "avx512f", "avx": " avx ", "fma": "fma"}
    return [
        v
        for v in variants
        if v in names and all(flag in flags for part, flag in needs.items() if part in v.split("_"))
    ]


def compare(case: Case, rounds: int, seconds: float) -> tuple[float, str]:
    """Return (our median over likwid's best median, the row of the table)."""
    values = {"level": case.level}
    params = case.kernel.params.model_validate(values)
    level: Any = "l1" if case.level == "register" else case.level
    size = working_set_bytes(level, read_caches(), memory_bytes())
    prepared = case.kernel.prepare(params, Team())
    volume = (case.kernel.counts(params) or {})[case.operation_class]
    our_iterations = iterations_for(seconds, lambda n: our_rate(prepared, volume, n)[1])
    variants = supported(case.variants)
    their_iterations = {
        v: iterations_for(seconds, lambda n, v=v: likwid_rate(v, size, n, case.line)[1])
        for v in variants
    }
    ours: list[float] = []
    peer_rates: dict[str, list[float]] = {v: [] for v in variants}
    for turn in range(rounds):
        if turn == SCREENED:
            # Starting likwid-bench takes a second: variants that are much slower no longer run.
            first = max(statistics.median(rates) for rates in peer_rates.values())
            variants = [v for v in variants if statistics.median(peer_rates[v]) > 0.8 * first]
        for v in variants:
            peer_rates[v].append(likwid_rate(v, size, their_iterations[v], case.line)[0])
            # Warm up: likwid-bench leaves the core with other clocks and cache contents.
            prepared.run(max(1, our_iterations // 5))
            ours.append(our_rate(prepared, volume, our_iterations)[0])
    prepared.check()
    prepared.close()
    best = max(variants, key=lambda v: statistics.median(peer_rates[v]))
    our_median, their_median = statistics.median(ours), statistics.median(peer_rates[best])
    ratio = our_median / their_median
    held = "registers" if case.level == "register" else f"{size // 1024} KiB"
    row = (
        f"{case.name:10} {held:>11} {our_median:8.1f} {spread(ours):>15} "
        f"{their_median:8.1f} {spread(peer_rates[best]):>15} {case.unit:8} {ratio:6.3f}  "
        f"{best}{f' ({size // 1024} KiB)' if case.level == 'register' else ''}"
    )
    return ratio, row


def spread(values: list[float]) -> str:
    """Return the quartiles as text."""
    low, _, high = statistics.quantiles(values, n=4)
    return f"[{low:.1f}, {high:.1f}]"


def main() -> int:
    """Print the table; 0 when every ratio is at least :data:`ENOUGH`."""
    parser = argument_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="runs of each side (at least 2)")
    parser.add_argument("--seconds", type=float, default=0.1, help="length of one run")
    parser.add_argument(
        "--core", type=int, default=min(os.sched_getaffinity(0)), help="core to use"
    )
    arguments = parser.parse_args()
    if not shutil.which("likwid-bench"):
        print("likwid-bench is not installed (Debian: apt-get install likwid)", file=sys.stderr)
        return 1
    os.sched_setaffinity(0, {arguments.core})
    print(
        f"core {arguments.core}, {arguments.rounds} interleaved rounds of {arguments.seconds} s; "
        f"medians and [quartiles]; likwid-bench's best variant"
    )
    print(
        f"{'':10} {'working set':>11} {'ours':>8} {'':>15} "
        f"{'likwid':>8} {'':>15} {'':8} {'ratio':>6}"
    )
    ratios = []
    for case in CASES:
        ratio, row = compare(case, arguments.rounds, arguments.seconds)
        ratios.append(ratio)
        print(row, flush=True)
    print(f"smallest ratio {min(ratios):.3f}, required {ENOUGH}")
    return 0 if min(ratios) >= ENOUGH else 1


if __name__ == "__main__":
    sys.exit(main())
