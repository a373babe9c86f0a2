#!/usr/bin/env bash
# FINDING: an assignment to gpus, gres or array of a job of slurmpie 0.9.0 adds to what is there. A program that
# submits one job for 1, 2 and 4 GPUs, with job.gpus = {"a100": n} before each, asks for --gpus=a100:1, then for
# --gpus=a100:1,a100:2, then for --gpus=a100:1,a100:2,a100:4; the second half of an array that follows the first
# runs the first again. memory_size, nodes, tasks and nodelist are replaced, as one would think of all of them. A
# scaling over GPUs is then measured on other numbers of GPUs than those in its table, and settings are measured
# twice.
#
# Seen with slurmpie 0.9.0, the options of three submissions of one job:
#   --gpus as above; --array=0-3, then 0-3,4-7, then 0-3,4-7,8-11; --mem=1G, 2G, 4G and --nodes=1, 2, 4
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet slurmpie==0.9.0

printf '#!/bin/sh\necho "$@" >> "%s/submitted"\necho 7\n' "$folder" > "$folder/sbatch"
printf '#!/bin/sh\n' > "$folder/solve.sh"
chmod +x "$folder/sbatch"

cat > "$folder/program.py" <<'PYTHON'
import sys
from pathlib import Path

from slurmpie import slurmpie

EXPECTED = {
    "gpus": ["a100:1", "a100:1,a100:2", "a100:1,a100:2,a100:4"],
    "array": ["0-3", "0-3,4-7", "0-3,4-7,8-11"],
    "mem": ["1G", "2G", "4G"],
    "nodes": ["1", "2", "4"],
}


def main(folder: Path) -> int:
    job = slurmpie.Job(str(folder / "solve.sh"))
    for number, indices in ((1, "0-3"), (2, "4-7"), (4, "8-11")):
        job.gpus = {"a100": number}
        job.array = indices
        job.memory_size = f"{number}GB"
        job.nodes = number
        job.submit()
    found = {option: [] for option in EXPECTED}
    for line in (folder / "submitted").read_text().splitlines():
        words = dict(word[2:].split("=", 1) for word in line.split() if "=" in word)
        for option in found:
            found[option].append(words[option])
    for option, values in found.items():
        print(f"--{option} of three submissions: {values}")
    return 0 if found == EXPECTED else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
PYTHON
PATH="$folder:$PATH" "$folder/venv/bin/python" "$folder/program.py" "$folder"
