#!/usr/bin/env bash
# FINDING: hpcpy 0.9.0 rounds the time limit of a Slurm job down to whole minutes, and below a minute it asks for
# no limit at all: walltime=timedelta(seconds=45) is --time 0, which Slurm takes for "no limit", and 119 s are
# one minute. The same call for PBS keeps the seconds, up to a day; from then on the limit is
# written as Python prints it, "1 day, 6:00:00", and the command line ends with two words that are no option:
# qsub gets a limit of 1 s and takes "day," for the job's script. One would think that a timedelta is the
# same limit on both schedulers. A campaign's short jobs are then without a limit, or killed before their end.
#
# Seen with hpcpy 0.9.0, the commands of a dry run:
#   45 s: Slurm --time 0, PBS walltime=0:00:45; 119 s: --time 1, 0:01:59; 30 h: --time 1800, "1", "day,", "6:00:00"
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet hpcpy==0.9.0

cat > "$folder/program.py" <<'PYTHON'
import logging
import shlex
import sys
from datetime import timedelta

from hpcpy import PBSClient, SlurmClient


def limit(client: PBSClient | SlurmClient, script: str, walltime: timedelta) -> list[str]:
    command = client.submit(script, walltime=walltime, dry_run=True)
    return [word for word in shlex.split(command)[1:] if word not in ("-l", script)]


def main(script: str) -> int:
    logging.disable(logging.CRITICAL)
    found = {}
    for seconds in (45, 119, 30 * 3600):
        walltime = timedelta(seconds=seconds)
        found[seconds] = [limit(kind(), script, walltime) for kind in (SlurmClient, PBSClient)]
        print(f"{seconds} s: Slurm {found[seconds][0]}, PBS {found[seconds][1]}")
    expected = {
        45: [["--time", "0"], ["walltime=0:00:45"]],
        119: [["--time", "1"], ["walltime=0:01:59"]],
        108000: [["--time", "1800"], ["walltime=1", "day,", "6:00:00"]],
    }
    return 0 if found == expected else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
PYTHON
touch "$folder/job.sh"
"$folder/venv/bin/python" "$folder/program.py" "$folder/job.sh"
