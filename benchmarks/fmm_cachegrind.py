"""The modelled bytes of an FMM evaluation, compared with valgrind's cache simulation, cachegrind.

The cases are small; the V phase dominates in some, the U phase in others. The misses of one
evaluation are a tenth of the difference between eleven evaluations and one. The same figure for
:data:`TINY` points, which is Python's work, is subtracted. Lines that miss the first cache, times
their 64 bytes, are compared with the modelled bytes of all further levels; lines that miss the last
cache with the bytes of the memory. valgrind does not know AVX-512, so the loops are compiled for
AVX2, first outside valgrind, so that the simulated run finds them in Numba's cache. It simulates
two levels.

Run from the root of the repository, with valgrind installed (minutes):

    .venv/bin/python benchmarks/fmm_cachegrind.py [--n 4000] [--last-kib 256]

Exits 0 when every ratio lies between 1 / 2 and 2, 1 otherwise, 2 where valgrind is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

LINE_BYTES = 64
FIRST_KIB = 32
AVX2 = {
    "NUMBA_CPU_NAME": "haswell",
    "NUMBA_CPU_FEATURES": "+sse,+sse2,+sse3,+ssse3,+sse4.1,+sse4.2,+avx,+avx2,+fma,+popcnt,+bmi,"
    "+bmi2",
    "OPENBLAS_CORETYPE": "Haswell",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
}
FEW, MANY = 1, 11
CASES = ((3, "single", 30), (3, "single", 400), (6, "double", 30), (6, "double", 400))
"""(digits, precision, q)."""
TINY = 8
WITHIN = 2.0


def child(n: int, digits: int, precision: str, q: int, last_kib: int, evaluations: int) -> None:
    """Prepare, evaluate ``evaluations`` times, and print the modelled counts."""
    from kernels.fmm import prepare
    from kernels.fmm.counts.by_phase import phase_counts
    from kernels.fmm.counts.machine import host_machine
    from kernels.fmm.counts.work import work_of
    from kernels.fmm.distributions import points

    places, charges = points("uniform", n, 0)
    method = prepare(places, digits=digits, precision=precision, q=q, threads=1)
    for _ in range(evaluations):
        method.evaluate(charges)
    caches = (("l1", FIRST_KIB << 10), ("l2", last_kib << 10))
    machine = replace(host_machine(), caches=caches)
    print(json.dumps(phase_counts(work_of(method), machine)))


def run(
    arguments: list[str], before: list[str], cache: str, program: str = __file__
) -> subprocess.CompletedProcess[str]:
    """Run a program's child in a new process, with the command ``before`` in front."""
    environment = {**os.environ, **AVX2, "NUMBA_CACHE_DIR": cache}
    return subprocess.run(
        [*before, sys.executable, program, "--child", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )


def simulate(
    arguments: list[str], last_kib: int, folder: str, program: str = __file__
) -> dict[str, float]:
    """Cachegrind's data references and misses in a child process."""
    out = Path(folder) / "cachegrind.out"
    before = [
        "valgrind",
        "--tool=cachegrind",
        "--cache-sim=yes",
        f"--D1={FIRST_KIB << 10},8,{LINE_BYTES}",
        f"--LL={last_kib << 10},16,{LINE_BYTES}",
        f"--cachegrind-out-file={out}",
    ]
    run(arguments, before, folder, program)
    text = out.read_text()
    names = re.findall(r"^events: (.*)$", text, re.M)[0].split()
    values = [float(v) for v in re.findall(r"^summary: (.*)$", text, re.M)[0].split()]
    return dict(zip(names, values, strict=True))


def missed(
    case: list[str], last_kib: int, folder: str, program: str = __file__
) -> dict[str, float]:
    """Return the bytes of the lines that one evaluation misses, by cachegrind's event."""
    few_misses, many_misses = (
        simulate([*case, str(k)], last_kib, folder, program) for k in (FEW, MANY)
    )
    return {k: (many_misses[k] - few_misses[k]) / (MANY - FEW) * LINE_BYTES for k in many_misses}


def compare(n: int, last_kib: int, folder: str) -> bool:
    """Print the table and return whether every ratio is within bounds."""
    fine, start_bytes = True, dict[tuple[int, str], dict[str, float]]()
    print(
        f"{n} points, caches of {FIRST_KIB} and {last_kib} KiB; MB by the model / by the simulation"
    )
    print("digits precision    q  beyond the first cache       from memory              V's flops")
    for digits, precision, q in CASES:
        case = [str(n), str(digits), precision, str(q), str(last_kib)]
        phases = json.loads(run([*case, str(FEW)], [], folder).stdout)
        misses = missed(case, last_kib, folder)
        if (digits, precision) not in start_bytes:
            run([str(TINY), *case[1:], str(FEW)], [], folder)
            start_bytes[digits, precision] = missed([str(TINY), *case[1:]], last_kib, folder)
        misses = {
            name: value - start_bytes[digits, precision][name] for name, value in misses.items()
        }
        columns = []
        for model, simulated in (
            (total(phases, "l2", "dram"), misses["D1mr"] + misses["D1mw"]),
            (total(phases, "dram"), misses["DLmr"] + misses["DLmw"]),
        ):
            text, is_within = compared(model, simulated)
            fine &= is_within
            columns.append(text)
        flops = total(phases, "sp", "dp")
        share = total({"v": phases["v"]}, "sp", "dp") / flops
        print(
            f"{digits:6} {precision:9} {q:4}  {columns[0]}  {columns[1]}  {share:6.0%}", flush=True
        )
    return fine


def compared(model: float, simulated: float) -> tuple[str, bool]:
    """Return both in MB with their ratio, and whether the ratio is within bounds."""
    ratio = model / simulated
    text = f"{model / 1e6:8.2f} / {simulated / 1e6:8.2f} = {ratio:4.2f}"
    return text, 1 / WITHIN <= ratio <= WITHIN


def total(phases: Mapping[str, Mapping[str, float]], *classes: str) -> float:
    """Return the sum of the counts of some classes over the phases."""
    return sum(counts.get(name, 0.0) for counts in phases.values() for name in classes)


def main() -> int:
    """Print the table; returns the exit code."""
    if sys.argv[1:2] == ["--child"]:
        n, digits, precision, q, last_kib, evaluations = sys.argv[2:]
        child(int(n), int(digits), precision, int(q), int(last_kib), int(evaluations))
        return 0
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=4000, help="points")
    parser.add_argument("--last-kib", type=int, default=256, help="size of the last cache, KiB")
    arguments = parser.parse_args()
    if shutil.which("valgrind") is None:
        print("valgrind is not installed (Debian: apt-get install valgrind)", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="fmm-cachegrind-") as folder:
        return 0 if compare(arguments.n, arguments.last_kib, folder) else 1


if __name__ == "__main__":
    sys.exit(main())
