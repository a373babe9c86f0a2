#!/usr/bin/env bash
# FINDING: slurm-usage 3.1.0 counts the work of srun as idle. For each job with a script it takes the
# processor's time and the memory of the batch step, which is the script alone, in place of the job's; the
# steps that srun starts are left out. An MPI job that keeps its 64 cores busy has an efficiency of 0 %, and
# all of its 64 core hours are "wasted", in the tables of users and groups too. The same program started
# without srun has 98 %.
#
# Seen with slurm-usage 3.1.0, an hour on 64 cores, 63 hours of processor time, spent (sacct is simulated):
#   in the script: CPU efficiency 98 %, memory 78 %, 1 core hours wasted
#   in a step of srun: CPU efficiency 0 %, memory 0 %, 64 core hours wasted
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet slurm-usage==3.1.0

mkdir "$folder/bin"
cat > "$folder/bin/sacct" <<'PYTHON'
#!/usr/bin/env python3
import sys

if "--version" in sys.argv:
    sys.exit(print("slurm 25.05.4"))
day = sys.argv[sys.argv.index("-S") + 1].split("T")[0]
(fields,) = [a.split("=", 1)[1].split(",") for a in sys.argv if a.startswith("--format=")]
times = {"Submit": f"{day}T00:00:00", "Start": f"{day}T00:00:00", "End": f"{day}T01:00:00"}
common = times | {"State": "COMPLETED", "ElapsedRaw": "3600", "AllocCPUS": "64"}
job = common | {"User": "user", "JobName": "solver", "ReqMem": "128G", "TotalCPU": "2-15:00:00"}
work = common | {"TotalCPU": "2-15:00:00", "MaxRSS": "100G"}
script = common | {"TotalCPU": "00:02.000", "MaxRSS": "10M"}
records = [
    job | {"JobID": "1"},
    work | {"JobID": "1.batch"},
    job | {"JobID": "2"},
    script | {"JobID": "2.batch"},
    work | {"JobID": "2.0"},
]
for record in records:
    print("|".join(record.get(field, "") for field in fields))
PYTHON
chmod +x "$folder/bin/sacct"

cat > "$folder/program.py" <<'PYTHON'
import sys

import polars

jobs = {
    job["job_id"]: job
    for job in polars.read_parquet(f"{sys.argv[1]}/processed/*.parquet").iter_rows(named=True)
}
for name, job in (("in the script", jobs["1"]), ("in a step of srun", jobs["2"])):
    print(
        f"{name}: CPU efficiency {job['cpu_efficiency']:.0f} %, "
        f"memory {job['memory_efficiency']:.0f} %, {job['cpu_hours_wasted']:.0f} core hours wasted"
    )
right = jobs["1"]["cpu_efficiency"] > 98 and jobs["1"]["memory_efficiency"] > 78
wrong = jobs["2"]["cpu_efficiency"] < 0.1 and jobs["2"]["memory_efficiency"] < 0.1
sys.exit(0 if right and wrong else 1)
PYTHON
PATH=$folder/bin:$PATH "$folder/venv/bin/slurm-usage" collect --days 0 --no-summary \
    --data-dir "$folder/data" > "$folder/log"
"$folder/venv/bin/python" "$folder/program.py" "$folder/data"
