#!/usr/bin/env bash
# FINDING: slurm2sql 0.9.9 gives a heterogeneous job the cores of its largest component and the processor time
# of all. Its view eff, from which slurm2sql-seff prints, has one row for the components 10+0 and 10+1: the
# cores, the time and the memory that were reserved are the largest of the two, the time that was used is the
# sum. A job that used 88 of 96 core hours has an efficiency of 138 %, and 64 core hours. Two jobs of the same
# sizes have the right ones.
#
# Seen with slurm2sql 0.9.9, one hour on 64 cores (60 h used) and on 32 cores (28 h used):
#   jobs 20 and 21: 64 cores, 94 %, 64 h reserved; 32 cores, 88 %, 32 h reserved
#   heterogeneous job 10: 64 cores, 138 %, 64 h reserved
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet slurm2sql==0.9.9

cat > "$folder/program.py" <<'PYTHON'
import sqlite3
import sys

import slurm2sql

NAMES = [c for c in [*slurm2sql.COLUMNS, *slurm2sql.COLUMNS_EXTRA] if not c.startswith("_")]
START = {"Submit": "2026-01-01T00:00:00", "Start": "2026-01-01T00:00:00"}
HOUR = START | {"End": "2026-01-01T01:00:00", "Elapsed": "01:00:00", "State": "COMPLETED"}


def lines(job: str, cores: int, cpu_time: str, used: str) -> list[str]:
    size = {"NCPUS": str(cores), "NNodes": "1", "CPUTime": cpu_time}
    size["AllocTRES"] = size["ReqTRES"] = f"billing={cores},cpu={cores},mem=100G,node=1"
    number = {"JobIDRaw": job.replace("+", "")}
    allocation = HOUR | size | number | {"JobID": job, "User": "user", "JobName": "solve"}
    step = HOUR | size | number | {"JobID": f"{job}.0", "TRESUsageInTot": f"cpu={used},mem=10G"}
    rows = (dict.fromkeys(NAMES, "") | row for row in (allocation, step))
    return [";|;".join(row[name] for name in NAMES) for row in rows]


def main() -> int:
    database = sqlite3.connect(":memory:")
    sacct = [";|;".join(NAMES)]
    for large, small in (("20", "21"), ("10+0", "10+1")):
        sacct += lines(large, 64, "2-16:00:00", "2-12:00:00")
        sacct += lines(small, 32, "1-08:00:00", "1-04:00:00")
    slurm2sql.slurm2sql(database, raw_sacct=sacct)
    query = "select JobID, NCPUS, round(100 * CPUeff), cpu_s_reserved / 3600 from eff"
    found = {job: row for job, *row in database.execute(query)}
    text = {j: f"{n} cores, {e:.0f} %, {h:.0f} h reserved" for j, (n, e, h) in found.items()}
    print(f"jobs 20 and 21: {text['20']}; {text['21']}")
    print(f"heterogeneous job 10: {text['10']}")
    right = found["20"] == [64, 94, 64] and found["21"] == [32, 88, 32]
    return 0 if right and found["10"] == [64, 138, 64] else 1


if __name__ == "__main__":
    sys.exit(main())
PYTHON
"$folder/venv/bin/python" "$folder/program.py"
