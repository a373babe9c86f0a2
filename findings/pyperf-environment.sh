#!/usr/bin/env bash
# FINDING: pyperf 2.11.0 measures without OMP_NUM_THREADS. Its worker processes get the few variables that it
# knows, such as PATH; the number of threads, the GPU and the job of Slurm that the caller sets are not among
# them. A series over 1, 2 and 4 threads measures the same thing three times, the program without the
# variable, and nothing is said. One would think that OMP_NUM_THREADS=4 before a command counts for what the
# command measures. --inherit-environ NAMES hands the variables on.
#
# Seen with pyperf 2.11.0, a benchmark whose time is its number of threads, and 99 s without one:
#   OMP_NUM_THREADS=1: 99 s, OMP_NUM_THREADS=2: 99 s, OMP_NUM_THREADS=4: 99 s
#   CUDA_VISIBLE_DEVICES, SLURM_JOB_ID, OMP_PROC_BIND in the worker: none
#   OMP_NUM_THREADS=4 and --inherit-environ: 4 s
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet pyperf==2.11.0

cat > "$folder/bench.py" <<'PYTHON'
import os

import pyperf

NAMES = ("CUDA_VISIBLE_DEVICES", "SLURM_JOB_ID", "OMP_PROC_BIND")


def solve(loops: int) -> int:
    return loops * int(os.environ.get("OMP_NUM_THREADS", "99"))


runner = pyperf.Runner(processes=1, values=1, warmups=0, loops=1)
runner.metadata["seen"] = " ".join(name for name in NAMES if name in os.environ) or "none"
runner.bench_time_func("solve", solve)
PYTHON

cat > "$folder/program.py" <<'PYTHON'
import os
import subprocess
import sys
from pathlib import Path

import pyperf

SET = {"CUDA_VISIBLE_DEVICES": "1", "SLURM_JOB_ID": "7", "OMP_PROC_BIND": "close"}


def bench(folder: Path, threads: int, *words: str) -> tuple[float, str]:
    result = folder / f"{threads}{len(words)}.json"
    command = [sys.executable, str(folder / "bench.py"), "--quiet", "-o", str(result), *words]
    environment = os.environ | SET | {"OMP_NUM_THREADS": str(threads)}
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    read = pyperf.Benchmark.load(str(result))
    return read.mean(), read.get_metadata()["seen"]


def main(folder: Path) -> int:
    series = {threads: bench(folder, threads) for threads in (1, 2, 4)}
    handed_on, _ = bench(folder, 4, "--inherit-environ", "OMP_NUM_THREADS")
    print(", ".join(f"OMP_NUM_THREADS={n}: {t:.0f} s" for n, (t, _) in series.items()))
    print(f"{', '.join(SET)} in the worker: {series[4][1]}")
    print(f"OMP_NUM_THREADS=4 and --inherit-environ: {handed_on:.0f} s")
    return 0 if {*series.values()} == {(99, "none")} and handed_on == 4 else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
PYTHON
"$folder/venv/bin/python" "$folder/program.py" "$folder"
