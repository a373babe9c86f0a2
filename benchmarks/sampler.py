"""The sampler at 1 kHz during a kernel on every core: its periods, CPU time and slowdown.

    .venv/bin/python -m benchmarks.sampler [--rounds 9] [--seconds 2]

A powercap meter reads a file that another process writes. Rounds with and without the sampler are
interleaved, and medians are printed. The lower bound is a thread that only wakes up 1,000 times a
second during the same kernel: no sampler that sleeps between readings can cost less. The kernel
ends with its last thread, so time that one core loses counts fully.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import tempfile
import threading
import time
from multiprocessing.synchronize import Event
from pathlib import Path

import numpy as np
from numba import njit

from benchmarks.shared import argument_parser
from campaign.measure.sampler import Sampler, UsedMeter
from campaign.measure.ticker import Ticker, compile_loop
from sites.clocks.fixed import Fixed
from sites.meters import open_meter

HZ = 1000.0


@njit(nogil=True)
def work(passes):  # type: ignore[no-untyped-def]
    """Compute without memory access."""
    total = 0.0
    for i in range(passes):
        total = total * 0.999999 + i
    return total


def run_kernel(passes: int) -> float:
    """Return the seconds of the same work on every core."""
    threads = [
        threading.Thread(target=work, args=(passes,)) for _ in range(len(os.sched_getaffinity(0)))
    ]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began


def write_counter(path: str, stop: Event) -> None:
    """Write a counter that rises by 40 W, ten times a second, which costs almost nothing."""
    file = os.open(path, os.O_WRONLY)
    while not stop.wait(0.1):
        os.pwrite(file, b"%012d\n" % (time.monotonic_ns() * 40 // 1000 % 262_143_328_850), 0)


def main() -> None:
    """Prepare the meter's files, and measure."""
    parser = argument_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=2.0, help="of the kernel alone")
    arguments = parser.parse_args()
    compile_loop()
    work(1)
    began = time.perf_counter()
    work(50_000_000)
    passes = round(50_000_000 * arguments.seconds / (time.perf_counter() - began))
    with tempfile.TemporaryDirectory(prefix="sampler-") as folder:
        root = Path(folder)
        zone = root / "sys/class/powercap/intel-rapl:0"
        zone.mkdir(parents=True)
        (zone / "name").write_text("package-0\n")
        (zone / "max_energy_range_uj").write_text("262143328850\n")
        (zone / "energy_uj").write_text("000000000001\n")
        stop = multiprocessing.Event()
        writer = multiprocessing.Process(target=write_counter, args=(f"{zone}/energy_uj", stop))
        writer.start()
        try:
            measure(root, passes, arguments.rounds)
        finally:
            stop.set()
            writer.join()


def measure(root: Path, passes: int, rounds: int) -> None:
    """Run all rounds and print the results."""
    meter = open_meter("powercap", {}, root)
    alone_s, beside_s, waking_s = [], [], []
    errors, p99_s, shares, floors = [], [], [], []
    for _ in range(rounds):
        alone_s.append(run_kernel(passes))
        sampler = Sampler([UsedMeter(meter)], Fixed(root), 1.0 / HZ)
        sampler.begin()
        seconds = run_kernel(passes)
        sampler.end()
        beside_s.append(seconds)
        cost = sampler.costs()
        errors.append(abs(cost["powercap"]["period_s"] * HZ - 1.0))
        p99_s.append(cost["powercap"]["gap_p99_s"])
        shares.append((cost["powercap"]["cpu_s"] + cost["sampler"]["cpu_s"]) / seconds)
        ticker = Ticker([], 1.0 / HZ)
        ticker.start()
        seconds = run_kernel(passes)
        ticker.end()
        waking_s.append(seconds)
        floors.append(ticker.cpu_s / seconds)
    meter.close()
    slower, floor_slower = (
        np.median(np.array(times_s) / np.array(alone_s)) - 1.0 for times_s in (beside_s, waking_s)
    )
    print(f"{rounds} interleaved rounds, medians (worst)")
    print(f"error of the median period: {statistics.median(errors):.4%} ({max(errors):.4%})")
    print(f"99th percentile of gaps: {1e3 * statistics.median(p99_s):.3f} ms "
          f"({1e3 * max(p99_s):.3f})")  # fmt: skip
    print(f"share of one core: {statistics.median(shares):.2%} ({max(shares):.2%}); waking up: "
          f"{statistics.median(floors):.2%}")  # fmt: skip
    print(f"kernel slower by {slower:.2%}; with waking up only: {floor_slower:.2%}")


if __name__ == "__main__":
    main()
