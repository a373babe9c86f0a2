#!/usr/bin/env bash
# FINDING: PyDarshan 3.5.0 adds up the bandwidths of jobs that use one file after another. darshan file_stats puts the
# logs of several jobs together by file, and takes the sum of every numeric column: of the bytes, the operations, the
# times, and of perf_by_slowest, the bytes per second of each job. One would think of the bytes of the row divided by
# its time, as the TOTAL below the table has it. A file that 100 jobs read has 100 times the bandwidth of one of them;
# with --order_by perf_by_slowest files are sorted by how often they are used. On a roofline the point of such a file is
# above the roof of the file system.
#
# Seen with darshan 3.5.0, its example of IOR once, and as the logs of two and of ten jobs:
#   1 job: perf_by_slowest 39.3 MB/s; 8398304 bytes in 0.214 s: 39.3 MB/s
#   2 jobs: perf_by_slowest 78.6 MB/s; 16796608 bytes in 0.428 s: 39.3 MB/s
#   10 jobs: perf_by_slowest 392.8 MB/s; 83983040 bytes in 2.138 s: 39.3 MB/s
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet darshan==3.5.0 pandas==3.1.1

cat > "$folder/program.py" <<'PYTHON'
import csv
import io
import shutil
import subprocess
import sys
from pathlib import Path

import darshan

LOG = Path(darshan.__file__).parent / "examples/example_logs/ior_hdf5_example.darshan"


def rates(folder: Path, jobs: int) -> tuple[float, float]:
    logs = [folder / f"{jobs}-{job}.darshan" for job in range(jobs)]
    for log in logs:
        shutil.copy(LOG, log)
    command = [sys.executable, "-m", "darshan", "file_stats", "--csv", *map(str, logs)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    (row,) = csv.DictReader(io.StringIO(printed))
    stated, size, time_s = (
        float(row[name]) for name in ("perf_by_slowest", "total_bytes", "time_by_slowest")
    )
    print(f"{jobs} job{'s' if jobs > 1 else ''}: perf_by_slowest {stated / 1e6:.1f} MB/s; ", end="")
    print(f"{size:.0f} bytes in {time_s:.3f} s: {size / time_s / 1e6:.1f} MB/s")
    return stated, size / time_s


def main(folder: Path) -> int:
    still = all(
        abs(stated / rate - jobs) < 0.01
        for jobs in (1, 2, 10)
        for stated, rate in [rates(folder, jobs)]
    )
    return 0 if still else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
PYTHON
"$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder"
