#!/usr/bin/env bash
# FINDING: executorlib 1.11.0, where it has a cache, gives the first result of a function for every number
# of cores, threads and GPUs that is asked for. A result's key is made of the function and its arguments;
# the resource_dict is stored with the result, and is no part of the key. A scaling measurement of 1, 2 and
# 4 threads is one measurement three times, and nothing is said. The executors that submit jobs through files
# have a cache whether one is asked for or not, and it outlives the executor. TestClusterExecutor stands for
# them here: it runs without a scheduler.
#
# Seen with executorlib 1.11.0, a function that returns when it ran:
#   SingleNodeExecutor(): 3 results of 3 numbers of threads
#   SingleNodeExecutor(cache_directory="cache"): 1 result of 3 numbers of threads
#   TestClusterExecutor(): 1 result of 3 numbers of threads
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "executorlib[cache]==1.11.0"

cat > "$folder/program.py" <<'PYTHON'
import sys

from executorlib import SingleNodeExecutor
from executorlib.api import TestClusterExecutor

THREADS = (1, 2, 4)


def measure() -> int:
    import time

    return time.time_ns()


def results(name: str, new_executor) -> int:
    times = set()
    for threads in THREADS:
        with new_executor() as executor:
            future = executor.submit(measure, resource_dict={"threads_per_core": threads})
            times.add(future.result())
    plural = "" if len(times) == 1 else "s"
    print(f"{name}: {len(times)} result{plural} of {len(THREADS)} numbers of threads")
    return len(times)


def main() -> int:
    found = (
        results("SingleNodeExecutor()", SingleNodeExecutor),
        results(
            'SingleNodeExecutor(cache_directory="cache")',
            lambda: SingleNodeExecutor(cache_directory="cache"),
        ),
        results("TestClusterExecutor()", TestClusterExecutor),
    )
    return 0 if found == (3, 1, 1) else 1


if __name__ == "__main__":
    sys.exit(main())
PYTHON
cd "$folder"
venv/bin/python program.py
