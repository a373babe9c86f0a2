#!/usr/bin/env bash
# FINDING: slurm-job-analyzer 0.1.1 judges every job by the GPUs of all jobs. Its gpu-waste takes the mean of all
# samples of the GPU log, whatever node they are of, and writes it as the utilisation of each job, though the
# log has the node and sacct's export has the job's. One would think that a job is judged by its own GPUs. Of
# two jobs on two nodes, one at 100 % and one at 0 %, both are "50 %, UNDERUTILIZED": the one that wastes its
# GPU is not found, and the one that fills it is blamed. Memory goes the same way: sacct has MaxRSS on the
# steps, which are skipped, so that no job has an efficiency of memory.
#
# Seen with slurm-job-analyzer 0.1.1, the same two jobs in one export and each by itself:
#   together: job 1 50.0 % UNDERUTILIZED, job 2 50.0 % UNDERUTILIZED
#   each by itself: job 1 100.0 % EFFICIENT, job 2 0.0 % IDLE_WASTE; memory N/A for both
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet slurm-job-analyzer==0.1.1

cat > "$folder/program.py" <<'PYTHON'
import csv
import subprocess
import sys
from pathlib import Path

HEADER = "JobID JobName Partition State Elapsed AllocCPUS AllocTRES ReqMem MaxRSS NodeList".split()
LOG = "timestamp_s node gpu_index utilization_pct temperature_c power_w memory_used_mib memory_total_mib"


def judged(folder: Path, utilisation: dict[int, int]) -> dict[int, list[str]]:
    export, log, out = (folder / name for name in ("sacct.tsv", "gpus.csv", "out.csv"))
    rows, samples = [HEADER], [LOG.split()]
    for job, percent in utilisation.items():
        tres = "cpu=8,gres/gpu=1,mem=64G"
        rows.append([f"{job}", "run", "gpu", "COMPLETED", "01:00:00", "8", tres, "64G", "", f"n{job}"])
        rows.append([f"{job}.0", "solve", "", "COMPLETED", "01:00:00", "8", tres, "", "48G", f"n{job}"])
        for second in range(0, 3600, 60):
            samples.append([f"{second}", f"n{job}", "0", f"{percent}", "60", "400", "1", "80"])
    export.write_text("".join("\t".join(row) + "\n" for row in rows))
    log.write_text("".join(",".join(row) + "\n" for row in samples))
    program = str(Path(sys.executable).parent / "slurm-analyze")
    words = ["gpu-waste", "--input", str(export), "--gpu-log", str(log), "--out", str(out)]
    subprocess.run([program, *words], check=True, stdout=subprocess.DEVNULL)
    columns = ("avg_util_pct", "verdict", "mem_efficiency")
    with out.open() as file:
        return {int(row["job_id"]): [row[column] for column in columns] for row in csv.DictReader(file)}


def main(folder: Path) -> int:
    together = judged(folder, {1: 100, 2: 0})
    alone = judged(folder, {1: 100}) | judged(folder, {2: 0})
    print(f"together: {together}")
    print(f"each by itself: {alone}")
    both = ["50.0", "UNDERUTILIZED", "N/A"]
    own = {1: ["100.0", "EFFICIENT", "N/A"], 2: ["0.0", "IDLE_WASTE", "N/A"]}
    return 0 if together == {1: both, 2: both} and alone == own else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
PYTHON
"$folder/venv/bin/python" "$folder/program.py" "$folder"
