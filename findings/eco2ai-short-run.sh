#!/usr/bin/env bash
# FINDING: eco2AI 0.3.12 counts no energy of the processor for a run that is shorter than its
# measure_period (10 s by default), nor for what is after the last whole period of a longer one. It takes
# the load that `top` shows at the period's end for that of the whole period. stop() asks in the program's
# own thread: the program waits for top at that moment, and its load is 0.
#
# Seen with eco2AI 0.3.12, pandas 2.2.3 and top of procps-ng 4.0.2, one thread that is busy for 5 s:
#   measure_period of 10 s: 0 % of TDP * processor time / cores
#   measure_period of 1 s: 67 % of TDP * processor time / cores
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet eco2ai==0.3.12 pandas==2.2.3 setuptools==80.9.0

cat > "$folder/program.py" <<'PYTHON'
import sys
import time
from pathlib import Path

import psutil

import eco2ai


def part_counted(folder: Path, period_s: int) -> float:
    tracker = eco2ai.Tracker(
        file_name=str(folder / f"{period_s}.csv"),
        measure_period=period_s,
        alpha_2_code="DE",
        emission_level=400,
        ignore_warnings=True,
    )
    tracker.start()
    until_s, before_s = time.monotonic() + 5, time.process_time()
    while time.monotonic() < until_s:
        pass
    used_s = time.process_time() - before_s
    tracker.stop()
    cpu = tracker._cpu
    counted_j = cpu._consumption * 3.6e6
    part = counted_j / (cpu.tdp() * cpu.cpu_num() * used_s / psutil.cpu_count())
    print(f"measure_period of {period_s} s: {part:.0%} of TDP * processor time / cores")
    return part


if __name__ == "__main__":
    long, short = (part_counted(Path(sys.argv[1]), period_s) for period_s in (10, 1))
    sys.exit(0 if long < 0.05 and short > 0.3 else 1)
PYTHON
cd "$folder"
"$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder" | sed 's/%/ %/'
