#!/usr/bin/env bash
# FINDING: SbatchMan 2.0.3 takes a job that ran out of memory for one that is still running. Slurm's state for it,
# OUT_OF_MEMORY, is not among the states that the tool knows, neither the word nor the "OUT_OF_ME+" of sacct's
# column of 10 characters, which is what it reads; nor is BOOT_FAIL. Such a job is UNKNOWN, and for a job that
# is UNKNOWN the tool keeps the state that it had before. One would think of a failed job, as a job that
# exceeds its time or loses its node is one. A step of a campaign, which waits until all jobs have ended,
# waits for it until its own time is over, and the job is in no list of failed ones.
#
# Seen with SbatchMan 2.0.3, a job that was RUNNING, after its update:
#   FAILED: FAILED; TIMEOUT: TIMEOUT; NODE_FAIL: FAILED; OUT_OF_ME+, OUT_OF_MEMORY and BOOT_FAIL: RUNNING
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet sbatchman==2.0.3
printf '#!/bin/sh\necho "$STATE"\n' > "$folder/sacct"
chmod +x "$folder/sacct"

cat > "$folder/program.py" <<'PYTHON'
import os
import sys
from types import SimpleNamespace

from sbatchman.core.jobs_manager import _update_single_job_status
from sbatchman.core.status import TERMINAL_STATES
from sbatchman.schedulers.slurm import SlurmConfig

EXPECTED = {
    "FAILED": "FAILED",
    "TIMEOUT": "TIMEOUT",
    "NODE_FAIL": "FAILED",
    "OUT_OF_ME+": "RUNNING",
    "OUT_OF_MEMORY": "RUNNING",
    "BOOT_FAIL": "RUNNING",
}


def updated(state: str) -> str:
    os.environ["STATE"] = state
    job = SimpleNamespace(job_id=7, status="RUNNING")
    job.get_job_config = lambda: SlurmConfig
    job.write_metadata = lambda: None
    _update_single_job_status(job)
    return job.status


def main(folder: str) -> int:
    os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"
    found = {state: updated(state) for state in EXPECTED}
    for state, status in found.items():
        ended = "ended" if status in TERMINAL_STATES else "not ended"
        print(f"{state}: {status}, {ended}")
    return 0 if found == EXPECTED else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
PYTHON
"$folder/venv/bin/python" "$folder/program.py" "$folder"
