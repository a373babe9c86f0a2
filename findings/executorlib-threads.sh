#!/usr/bin/env bash
# FINDING: executorlib 1.11.0's SingleNodeExecutor does not hand threads_per_core on to what it runs. The
# documentation calls it the "number of OpenMP threads to be used for each function call"; it counts against
# max_cores, so that calls wait for each other, and nothing else: no OMP_NUM_THREADS is set, and no core is
# bound. A BLAS in a call with threads_per_core=1 takes all cores of the node, as it does in one with 4. Calls
# with one thread each then run side by side on the same cores, and a scaling measurement shows no scaling.
#
# Seen with executorlib 1.11.0 and numpy 2.3.5 on a node of 2 cores:
#   threads_per_core=1: OMP_NUM_THREADS is not set, BLAS has all threads, 2 calls run at once
#   threads_per_core=2: OMP_NUM_THREADS is not set, BLAS has all threads, 1 call runs at once
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet executorlib==1.11.0 numpy==2.3.5 threadpoolctl==3.6.0

cat > "$folder/program.py" <<'PYTHON'
import sys

from executorlib import SingleNodeExecutor


def call(number: int) -> tuple:
    import os
    import time

    import numpy
    import threadpoolctl

    began = time.time()
    time.sleep(3)
    blas = {pool["num_threads"] for pool in threadpoolctl.threadpool_info()}
    cores = len(os.sched_getaffinity(0))
    return os.environ.get("OMP_NUM_THREADS"), blas == {cores}, (began, time.time())


def main() -> int:
    found = []
    for threads in (1, 2):
        with SingleNodeExecutor(max_cores=2, hostname_localhost=True) as executor:
            resources = {"threads_per_core": threads}
            futures = [executor.submit(call, n, resource_dict=resources) for n in range(2)]
            (variable, all_threads, first), (_, _, second) = (f.result() for f in futures)
        at_once = 2 if max(first[0], second[0]) < min(first[1], second[1]) else 1
        print(
            f"threads_per_core={threads}: OMP_NUM_THREADS is {variable or 'not set'}, "
            f"BLAS has {'all' if all_threads else 'some'} threads, "
            f"{'2 calls run' if at_once == 2 else '1 call runs'} at once"
        )
        found.append((variable, all_threads, at_once))
    return 0 if found == [(None, True, 2), (None, True, 1)] else 1


if __name__ == "__main__":
    sys.exit(main())
PYTHON
cd "$folder"
env -u OMP_NUM_THREADS -u OPENBLAS_NUM_THREADS venv/bin/python program.py
