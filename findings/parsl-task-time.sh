#!/usr/bin/env bash
# FINDING: Parsl 2026.10.26's monitoring gives a task the processor time of all tasks that its worker has run before it.
# The columns psutil_process_time_user and psutil_process_time_system of the table resource, which has a row for each
# task and look, are read from the process of the worker, which lives on from task to task; what it had used when the
# task began is not taken away. One would think that a row with the id of a task has what the task has used. Each task
# of a worker seems to need more than the one before it, by as much as that one needed: the last of
# 100 equal ones has 100 times its time, and their sum is 50 times the worker's. A time per task from the first and the
# last row of each is right for what Python itself computes.
#
# Seen with Parsl 2026.10.26, one worker, four equal tasks of 2 s of processor time, the last row of each:
#   user and system: about 2.5 s, 4.5 s, 6.5 s, 8.5 s; sum 22 s of 8 s
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet 'parsl[monitoring]==2026.10.26'

cat > "$folder/program.py" <<'PYTHON'
import sqlite3
import sys
from pathlib import Path

import parsl
from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl.monitoring import MonitoringHub
from parsl.providers import LocalProvider

SECONDS, TASKS = 2.0, 4


@parsl.python_app
def compute(seconds):
    import time

    began = time.process_time()
    while time.process_time() - began < seconds:
        pass


def main(folder: Path) -> int:
    config = Config(
        run_dir=str(folder / "runs"),
        executors=[
            HighThroughputExecutor(
                address="127.0.0.1",
                max_workers_per_node=1,
                provider=LocalProvider(init_blocks=1, max_blocks=1),
            )
        ],
        monitoring=MonitoringHub(
            resource_monitoring_interval=30, logging_endpoint=f"sqlite:///{folder}/rows.db"
        ),
    )
    with parsl.load(config):
        for _ in range(TASKS):
            compute(SECONDS).result()
    query = (
        "select max(psutil_process_time_user + psutil_process_time_system)"
        " from resource group by task_id order by task_id"
    )
    found = [row[0] for row in sqlite3.connect(folder / "rows.db").execute(query)]
    print(f"user and system: {', '.join(f'{seconds:.1f} s' for seconds in found)}; ", end="")
    print(f"sum {sum(found):.0f} s of {SECONDS * TASKS:.0f} s")
    steps = [later - earlier for earlier, later in zip(found, found[1:])]
    grows = all(0.8 * SECONDS < step < 1.5 * SECONDS for step in steps)
    return 0 if len(found) == TASKS and grows else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
PYTHON
cd "$folder"
PATH="$folder/venv/bin:$PATH" "$folder/venv/bin/python" "$folder/program.py" "$folder"
