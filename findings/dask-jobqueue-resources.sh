#!/usr/bin/env bash
# FINDING: dask-jobqueue 0.9.0 gives every worker process of a job the resources that are stated for the job.
# With --resources METER=1, which is to keep measurements on a node apart, a job of 4 processes has 4 of it: 4
# tasks that need the meter run at once, and each one's power contains the others'. One would think that a job
# has what is stated once, as cores and memory, which are split between its processes. With 1 process
# the same tasks run one after the other.
#
# Seen with dask-jobqueue 0.9.0 and distributed 2026.8.0, one job, 4 tasks with METER=1:
#   processes=1: METER=1 in all, at most 1 task at once
#   processes=4: METER=4 in all, at most 4 tasks at once; 4 threads and 4 GB in all, as stated
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet dask-jobqueue==0.9.0 distributed==2026.8.0

cat > "$folder/program.py" <<'PYTHON'
import sys
import time
from pathlib import Path

from dask_jobqueue.local import LocalCluster
from distributed import Client

TASKS = 4


def measure(number: int, running: str, others: int) -> int:
    mine = Path(running, str(number))
    mine.touch()
    most, until = 0, time.monotonic() + (2 if others == 1 else 30)
    while most < max(others, 2) and time.monotonic() < until:
        most = max(most, len(list(mine.parent.iterdir())))
        time.sleep(0.05)
    time.sleep(1)
    mine.unlink()
    return most


def seen(folder: Path, processes: int) -> tuple[float, int, int, int]:
    running = folder / f"running_{processes}"
    running.mkdir()
    with LocalCluster(
        cores=TASKS,
        processes=processes,
        memory="4GB",
        worker_extra_args=["--resources", "METER=1"],
        local_directory=str(folder),
        log_directory=str(folder),
        n_workers=processes,
    ) as cluster, Client(cluster) as client:
        client.wait_for_workers(processes, timeout=120)
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        meters = sum(worker["resources"]["METER"] for worker in workers)
        threads = sum(worker["nthreads"] for worker in workers)
        memory_gb = round(sum(worker["memory_limit"] for worker in workers) / 1e9)
        tasks = client.map(
            measure, range(TASKS), running=str(running), others=processes, resources={"METER": 1}
        )
        return meters, max(client.gather(tasks)), threads, memory_gb


def main(folder: Path) -> int:
    one, four = seen(folder, 1), seen(folder, 4)
    print(f"processes=1: METER={one[0]:.0f} in all, at most {one[1]} task at once")
    print(
        f"processes=4: METER={four[0]:.0f} in all, at most {four[1]} tasks at once; "
        f"{four[2]} threads and {four[3]} GB in all, as stated"
    )
    return 0 if one[:2] == (1, 1) and four == (4, 4, TASKS, 4) else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
PYTHON
cd "$folder"
"$folder/venv/bin/python" "$folder/program.py" "$folder"
