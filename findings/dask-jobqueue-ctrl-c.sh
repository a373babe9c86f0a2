#!/usr/bin/env bash
# FINDING: importing dask-jobqueue 0.9.0 replaces the process's handler of SIGINT, whether a cluster
# is made or not. From then on Ctrl-C does not raise KeyboardInterrupt: the process ends by
# SystemExit, with exit status 0. A batch script, a Makefile or Slurm takes an interrupted program for
# one that has succeeded, and code that handles KeyboardInterrupt is not run.
#
# Seen with dask-jobqueue 0.9.0 and distributed 2026.8.0 on Python 3.11:
#   without the import: KeyboardInterrupt was handled, exit status 7
#   with the import:    the handler was not run, exit status 0
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet dask-jobqueue==0.9.0 distributed==2026.8.0 dask==2026.8.0

cat > "$folder/program.py" <<'PYTHON'
import os
import signal
import sys

if sys.argv[1] == "with":
    import dask_jobqueue  # noqa: F401

try:
    os.kill(os.getpid(), signal.SIGINT)
    signal.pause()
except KeyboardInterrupt:
    print("KeyboardInterrupt was handled")
    sys.exit(7)
PYTHON
status() {
    set +e
    said=$("$folder/venv/bin/python" "$folder/program.py" "$1")
    code=$?
    set -e
    echo "$1 the import: ${said:-the handler was not run}, exit status $code"
}
status without | tee "$folder/seen"
status with | tee -a "$folder/seen"
grep -q "^without .*handled, exit status 7$" "$folder/seen"
grep -q "^with .*not run, exit status 0$" "$folder/seen"
