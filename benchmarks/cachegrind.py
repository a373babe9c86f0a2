"""What a kernel misses in valgrind's cache simulation, cachegrind: shared by its benchmarks.

A benchmark runs itself as a child process, whose kernel runs once or eleven times. The misses of
one run are a tenth of the difference. valgrind does not know AVX-512, so the loops are compiled for
AVX2, first outside valgrind, so that the simulated run finds them in Numba's cache. It simulates
two levels; a miss is a line of 64 bytes.
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
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.shared import ROOT

if TYPE_CHECKING:
    from kernels.fmm.counts.machine import Machine

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
WITHIN = 2.0


@dataclass(frozen=True)
class Simulation:
    """Runs the children of a benchmark. ``folder``: of Numba's cache."""

    benchmark: str
    last_kib: int
    folder: str

    def printed(self, case: Any) -> Any:
        """Return what a child prints after one run of a case, outside valgrind."""
        text = self._run(case, FEW, [])
        return json.loads(text) if text else None

    def missed_bytes(self, case: Any) -> np.ndarray:
        """Return the bytes of the lines that one run misses: in the first cache, and in the
        last."""
        few_misses, many_misses = (self._misses(case, runs) for runs in (FEW, MANY))
        return (many_misses - few_misses) / (MANY - FEW) * LINE_BYTES

    def _run(self, case: Any, runs: int, before: list[str]) -> str:
        command = [sys.executable, "-m", f"benchmarks.{self.benchmark}"]
        command += ["--child", json.dumps(case), str(runs)]
        environment = os.environ | AVX2 | {"NUMBA_CACHE_DIR": self.folder}
        process = subprocess.run(
            [*before, *command],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return process.stdout

    def _misses(self, case: Any, runs: int) -> np.ndarray:
        out = Path(self.folder) / "cachegrind.out"
        before = [
            "valgrind",
            "--tool=cachegrind",
            "--cache-sim=yes",
            f"--D1={FIRST_KIB << 10},8,{LINE_BYTES}",
            f"--LL={self.last_kib << 10},16,{LINE_BYTES}",
            f"--cachegrind-out-file={out}",
        ]
        self._run(case, runs, before)
        text = out.read_text()
        names = re.findall(r"^events: (.*)$", text, re.M)[0].split()
        values = map(float, re.findall(r"^summary: (.*)$", text, re.M)[0].split())
        count = dict(zip(names, values, strict=True))
        return np.array([count[f"{cache}mr"] + count[f"{cache}mw"] for cache in ("D1", "DL")])


def simulated_machine(last_kib: int) -> Machine:
    """Return the host with the simulated caches, for modelled counts."""
    from kernels.fmm.counts.machine import host_machine

    caches = (("l1", FIRST_KIB << 10), ("l2", last_kib << 10))
    return replace(host_machine(), caches=caches)


def compared(model: float, simulated: float) -> tuple[str, bool]:
    """Return both in MB with their ratio, and whether the ratio is within bounds."""
    ratio = model / simulated
    text = f"{model / 1e6:8.2f} / {simulated / 1e6:8.2f} = {ratio:4.2f}"
    return text, 1 / WITHIN <= ratio <= WITHIN


def main(
    benchmark: str,
    parser: argparse.ArgumentParser,
    child: Callable[[Any, int], None],
    compare: Callable[[argparse.Namespace, Simulation], bool],
) -> int:
    """Run a benchmark, or in a child process its ``child`` with the case and the number of runs.
    Return the exit code: 0 where ``compare`` finds all as it should be, 1 otherwise, 2 without
    valgrind. ``parser``: has ``last_kib``."""
    if sys.argv[1:2] == ["--child"]:
        child(json.loads(sys.argv[2]), int(sys.argv[3]))
        return 0
    arguments = parser.parse_args()
    if shutil.which("valgrind") is None:
        print("valgrind is not installed (Debian: apt-get install valgrind)", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="cachegrind-") as folder:
        return 0 if compare(arguments, Simulation(benchmark, arguments.last_kib, folder)) else 1
