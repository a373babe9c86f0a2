#!/usr/bin/env bash
# FINDING: slurmpast 0.9.0 reports the energy of a job without the steps that took most of it. It asks sacct for
# ConsumedEnergy, which sacct writes with a prefix from 1000 J on (2.36M), and does not ask for ConsumedEnergyRaw or
# --noconvert. The field goes through the parser of counts, where what is not a number is unknown, and a job has the
# largest energy of its steps. One would think that joules are parsed as bytes are, prefix included. A step of 1000 J or
# more counts for nothing: a job of two steps has the energy of a batch step below 1 kJ, or none, as at a site that does
# not measure it.
#
# Seen with slurmpast 0.9.0:
#   batch 812, application 2.36M: 812 J
#   batch 812, application 944: 944 J
#   batch 1.02K, application 2.36M: None
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet slurmpast==0.9.0

cat > "$folder/program.py" <<'PYTHON'
import sys

from slurmpast import sacct

FIELDS = ["JobID", "JobName", "State", "Start", "End", "ElapsedRaw", "MaxRSS", "ConsumedEnergy"]
TIMES = "COMPLETED|2026-01-01T00:00:00|2026-01-01T00:10:00|600"


def job_energy(batch: str, application: str) -> int | None:
    rows = [
        f"101|solve|{TIMES}||",
        f"101.batch|batch|{TIMES}|1.5M|{batch}",
        f"101.0|solve|{TIMES}|2G|{application}",
    ]
    (job,) = sacct.parse("\n".join(rows) + "\n", fields=FIELDS)
    print(f"batch {batch}, application {application}: {job.energy_joules}")
    if [step.max_rss for step in job.steps] != [3 * 2**19, 2 * 2**30]:
        raise ValueError("the prefixes of bytes are not read")
    return job.energy_joules


def main() -> int:
    asked = "ConsumedEnergy" in sacct.resolve_fields()
    still = job_energy("812", "2.36M") == 812 and job_energy("1.02K", "2.36M") is None
    right = job_energy("812", "944") == 944
    return 0 if asked and right and still else 1


if __name__ == "__main__":
    sys.exit(main())
PYTHON
"$folder/venv/bin/python" "$folder/program.py"
