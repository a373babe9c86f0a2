#!/usr/bin/env bash
# FINDING: submitit 1.5.4 runs all jobs of its local executor at once, on the same GPU. Jobs with
# gpus_per_node=1 and visible_gpus=[0, 1, 2, 3] all get CUDA_VISIBLE_DEVICES=0, the first of the list; none
# waits for another, and the GPUs 1 to 3 stay idle. With Slurm, for which the same script is meant, each job has
# a GPU to itself. The times, powers and energies that are measured are those of four jobs on one GPU, and
# nothing is said.
#
# Seen with submitit 1.5.4, four jobs that wait for each other for up to 60 s:
#   4 jobs at once; their CUDA_VISIBLE_DEVICES: 0 0 0 0
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet submitit==1.5.4

cat > "$folder/program.py" <<'PYTHON'
import os
import sys
import time
from pathlib import Path

import submitit

JOBS = 4


def measure(number: int, folder: Path) -> tuple[str, int]:
    (folder / str(number)).touch()
    until = time.time() + 60
    while len(list(folder.iterdir())) < JOBS and time.time() < until:
        time.sleep(0.1)
    return os.environ["CUDA_VISIBLE_DEVICES"], len(list(folder.iterdir()))


def main(folder: Path) -> int:
    began = folder / "began"
    began.mkdir()
    executor = submitit.LocalExecutor(folder / "log")
    executor.update_parameters(gpus_per_node=1, visible_gpus=[0, 1, 2, 3], timeout_min=5)
    jobs = [executor.submit(measure, number, began) for number in range(JOBS)]
    gpus, running = zip(*(job.result() for job in jobs))
    print(f"{min(running)} jobs at once; their CUDA_VISIBLE_DEVICES: {' '.join(gpus)}")
    return 0 if set(gpus) == {"0"} and min(running) == JOBS else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
PYTHON
"$folder/venv/bin/python" "$folder/program.py" "$folder"
