"""The driver of our FMM: POINTS N ORDER Q THREADS PRECISION DIGITS REPEATS.

Prints what ``fmm_peers.py`` reads. What drivers of other codes in Python need is here too.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

CHECKED = 1000
"""Targets on which the error is measured."""


def memory_mb(field: str) -> float:
    """``VmRSS``, the resident memory of this process, or ``VmHWM``, its peak, in MB."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"/proc/self/status has no {field}")


def begin_peak_mb() -> float:
    """The resident memory of this process, MB. Resets its peak, where the system allows it."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        print(
            "the peak includes the memory of the imports: it cannot be reset here", file=sys.stderr
        )
    return memory_mb("VmRSS")


def read_points(file: str, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The places (n, 3) and charges (n,) of a file of points, float64."""
    data = np.fromfile(file, "<f8", 4 * n).reshape(-1, 4)
    if len(data) != n:
        sys.exit(f"{file} has fewer than {n} points")
    return np.ascontiguousarray(data[:, :3]), data[:, 3].copy()


def since_start_s() -> float:
    """Seconds since the system started this process, to 0.01."""
    fields = Path("/proc/self/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    ticks = int(fields[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def direct_error(file: str, x: np.ndarray, charges: np.ndarray, potentials: np.ndarray) -> float:
    """The relative L2 error on evenly strided targets against direct summation, whose sums are
    kept in a file next to the points."""
    count = min(len(x), CHECKED)
    picked = np.arange(count) * len(x) // count
    kept = Path(f"{file}.{len(x)}.npy")
    if kept.exists():
        direct = np.load(kept, allow_pickle=False)
    else:
        direct = np.empty(count)
        for k, i in enumerate(picked):
            r2 = ((x - x[i]) ** 2).sum(axis=1)
            with np.errstate(divide="ignore"):
                direct[k] = np.where(r2 > 0, 1 / np.sqrt(r2), 0) @ charges / (4 * np.pi)
        new = kept.with_suffix(f".{os.getpid()}.npy")
        np.save(new, direct)
        new.rename(kept)
    return float(np.linalg.norm(potentials[picked] - direct) / np.linalg.norm(direct))


def main(arguments: list[str]) -> None:
    """Run our code and print what the drivers print."""
    file, precision = arguments[0], arguments[5]
    n, order, q, threads, repeats = (int(arguments[i]) for i in (1, 2, 3, 4, 7))
    from kernels.fmm.interface import prepare

    held_mb = begin_peak_mb()
    x, charges = read_points(file, n)
    began = time.perf_counter()
    method = prepare(
        x, digits=float(arguments[6]), order=order, q=q, threads=threads, precision=precision
    )
    prepared = time.perf_counter() - began
    seconds, first = [], 0.0
    for _ in range(repeats):
        began = time.perf_counter()
        potentials = method.evaluate(charges)
        seconds.append(time.perf_counter() - began)
        first = first or since_start_s()
    peak_mb = memory_mb("VmHWM")
    print(json.dumps({
        "code": "ours", "n": n, "order": order, "q": q, "threads": threads,
        "precision": precision, "evaluation_s": [round(s, 6) for s in seconds],
        "tree_s": round(method.seconds["tree"], 6),
        "setup_s": round(prepared - method.seconds["tree"], 6), "first_answer_s": round(first, 3),
        "resident_mb": round(peak_mb - held_mb, 1), "imports_mb": round(held_mb, 1),
        "error": direct_error(file, x, charges, potentials), "computes": "potential",
    }))  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:])
