#!/usr/bin/env bash
# FINDING: slurm-emission 0.2.0 runs some experiments on two clusters and others on none. With subset={"north": 0.5,
# "south": 0.5} each cluster, on which the same program is started, takes its part of the list, which is shuffled
# with a seed that is the same by default. Before that the list goes through a Python set to drop repeats, and the
# order of a set of strings is another in each process. One would think that the parts of a seeded list add up to
# the list. Settings of a sweep are missing, and as many are measured twice. With PYTHONHASHSEED=0, or
# remove_duplicates=False, the parts fit.
#
# Seen with slurm-emission 0.2.0, 16 experiments on two clusters:
#   as it is: some on both, as many on none; with PYTHONHASHSEED=0, and with remove_duplicates=False: each on one
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet slurm-emission==0.2.0

cat > "$folder/sweep.py" <<'PYTHON'
import socket
import sys

from slurm_emission import run_experiments

cluster, drop_repeats = sys.argv[1:]
socket.gethostname = lambda: f"{cluster}-login"
run_experiments(
    experiments=[{"clock": list(range(1000, 1800, 100)), "threads": [8, 16]}],
    subset={"north": 0.5, "south": 0.5},
    remove_duplicates=drop_repeats == "yes",
    mock_send=True,
)
PYTHON
cat > "$folder/program.py" <<'PYTHON'
import os
import re
import subprocess
import sys


def on_both_and_none(sweep: str, drop_repeats: str, **variables: str) -> tuple[int, int]:
    runs = []
    for cluster in ("north", "south"):
        variables_of_run = {**os.environ, "PYTHONHASHSEED": "random"} | variables
        command = [sys.executable, sweep, cluster, drop_repeats]
        output = subprocess.run(
            command, env=variables_of_run, capture_output=True, text=True, check=True
        ).stdout
        runs.append(set(re.findall(r"--clock=\d+ --threads=\d+", output)))
    return len(runs[0] & runs[1]), 16 - len(runs[0] | runs[1])


def main(sweep: str) -> int:
    # The orders are random: over five draws it does not happen that they fit.
    found = [on_both_and_none(sweep, "yes") for _ in range(5)]
    same_hashes = on_both_and_none(sweep, "yes", PYTHONHASHSEED="0")
    repeats_kept = on_both_and_none(sweep, "no")
    print(f"of 16 experiments, on both clusters and on none, five times: {found}")
    print(f"with PYTHONHASHSEED=0: {same_hashes}; with remove_duplicates=False: {repeats_kept}")
    both, none = map(sum, zip(*found, strict=True))
    return 0 if both == none > 4 and same_hashes == repeats_kept == (0, 0) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
PYTHON
HOME="$folder" "$folder/venv/bin/python" "$folder/program.py" "$folder/sweep.py"
