#!/usr/bin/env bash
# FINDING: evalys 4.0.7 loses the first job of a workload file each time it reads one. Its Workload.from_csv reads
# the standard workload format, whose lines are jobs from the first one on below comments, as a table with a line of
# column names, and puts its own names in place of that line. Nothing is said, MaxJobs in the file is not compared,
# and to_csv writes no such line, so that a trace that is cut or converted in steps loses a job in each. One would
# think that reading and writing leave a trace as it is. Core hours, load, and the energy by core hour are without
# the lost jobs, and a simulator that replays the trace starts on another machine state.
#
# Seen with evalys 4.0.7 and pandas 2.2.3, jobs of one hour on 64, 16, 16 and 4 cores:
#   in the file 4 jobs, 100 core hours; read: 3 jobs, 36 core hours; written and read again: 2 jobs, 20 core hours
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet evalys==4.0.7 pandas==2.2.3 numpy==1.26.4

cat > "$folder/program.py" <<'PYTHON'
import sys
from pathlib import Path

from evalys.workload import Workload

CORES = [64, 16, 16, 4]


def line(number: int, cores: int) -> str:
    """A completed job's line: 18 fields, of which -1 is unknown."""
    fields = [-1] * 18
    fields[:5] = [number, 3600 * number, 0, 3600, cores]
    fields[7], fields[10] = cores, 1
    return " ".join(map(str, fields)) + "\n"


def count(table) -> tuple[int, float]:
    return len(table), float(table["execution_time"] @ table["proc_alloc"]) / 3600


def main(folder: Path) -> int:
    jobs = "".join(line(number, cores) for number, cores in enumerate(CORES, start=1))
    first, second = folder / "first.swf", folder / "second.swf"
    first.write_text(f"; Version: 2.2\n; MaxJobs: {len(CORES)}\n; MaxProcs: 64\n{jobs}")
    workload = Workload.from_csv(str(first))
    workload.to_csv(str(second))
    found = [count(workload.df), count(Workload.from_csv(str(second)).df)]
    print(f"in the file: {len(CORES)} jobs, {sum(CORES)} core hours")
    for name, (number, hours) in zip(("read", "written and read again"), found):
        print(f"{name}: {number} jobs, {hours:g} core hours")
    return 0 if found == [(3, 36), (2, 20)] else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
PYTHON
"$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder"
