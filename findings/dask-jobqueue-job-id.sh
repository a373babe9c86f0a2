#!/usr/bin/env bash
# FINDING: dask-jobqueue 0.9.0 takes the first digits that sbatch prints for the job's id, and calls
# sbatch without --parsable. Where a site's sbatch prints a greeting with a digit before "Submitted
# batch job N" (a wrapper or a job_submit plugin may), a number of the greeting becomes the id: the
# job is looked for, and cancelled, under another job's number, and the real job is left in the queue.
#
# Seen with dask-jobqueue 0.9.0 and distributed 2026.8.0:
#   sbatch printed: Welcome to Cluster7 / Submitted batch job 519605
#   job id: 7
#   scancel was called with: 7
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet dask-jobqueue==0.9.0 distributed==2026.8.0 dask==2026.8.0

mkdir "$folder/bin"
cat > "$folder/bin/sbatch" <<'SBATCH'
#!/bin/sh
echo "Welcome to Cluster7"
echo "Submitted batch job 519605"
SBATCH
cat > "$folder/bin/scancel" <<SCANCEL
#!/bin/sh
echo "\$@" >> "$folder/cancelled"
SCANCEL
chmod +x "$folder/bin/sbatch" "$folder/bin/scancel"

cd "$folder"
PATH="$folder/bin:$PATH" "$folder/venv/bin/python" - > ids <<'PYTHON'
import time

from dask_jobqueue import SLURMCluster

if __name__ == "__main__":
    cluster = SLURMCluster(
        cores=1, memory="1GB", interface="lo", scheduler_options={"dashboard_address": "127.0.0.1:0"}
    )
    cluster.scale(jobs=1)
    while not any(job.job_id for job in cluster.workers.values()):
        time.sleep(0.1)
    print(*(job.job_id for job in cluster.workers.values()))
    cluster.scale(0)
    while cluster.workers:
        time.sleep(0.1)
    cluster.close()
PYTHON
echo "sbatch printed: Welcome to Cluster7 / Submitted batch job 519605"
echo "job id: $(cat ids)"
echo "scancel was called with: $(tr '\n' ' ' < cancelled)"
[ "$(cat ids)" = 7 ] && [ "$(tr -d '\n' < cancelled)" = 7 ]
