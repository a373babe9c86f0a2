#!/usr/bin/env bash
# FINDING: srun() of simple_slurm 0.3.6 drops every option that has no value. Its sbatch() writes
# "#SBATCH --exclusive" for Slurm(exclusive=True); the command line of srun() has no --exclusive, and no
# --contiguous. A measurement that asks for nodes of its own shares them with other jobs, and the power and
# energy of its nodes are those of all of them. Nothing is said. Options with a value, as exclusive="user",
# get through.
#
# Seen with simple_slurm 0.3.6, an srun and an sbatch that print what they get:
#   sbatch: --contiguous --exclusive --ntasks 4
#   srun:   --ntasks=4 ./solver
#   srun:   --exclusive=user --ntasks=4 ./solver
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet simple_slurm==0.3.6

mkdir "$folder/bin"
cat > "$folder/bin/srun" <<'SH'
#!/bin/sh
echo "$*" > "$SEEN"
SH
cat > "$folder/bin/sbatch" <<'SH'
#!/bin/sh
sed -n 's/^#SBATCH //p' | tr -s ' \n' ' ' > "$SEEN"
echo "Submitted batch job 1"
SH
chmod +x "$folder/bin/srun" "$folder/bin/sbatch"

cat > "$folder/program.py" <<'PYTHON'
import os
import sys
from pathlib import Path

from simple_slurm import Slurm


def seen(name: str) -> str:
    text = Path(os.environ["SEEN"]).read_text().strip()
    print(f"{name + ':':7} {text}")
    return text


def main() -> int:
    flags = {"ntasks": 4, "exclusive": True, "contiguous": True}
    Slurm(**flags).sbatch("./solver", verbose=False)
    batch = seen("sbatch")
    Slurm(**flags).srun("./solver")
    step = seen("srun")
    Slurm(ntasks=4, exclusive="user").srun("./solver")
    with_value = seen("srun")
    same = "--exclusive" in batch and "--contiguous" in batch and step == "--ntasks=4 ./solver"
    return 0 if same and with_value == "--exclusive=user --ntasks=4 ./solver" else 1


if __name__ == "__main__":
    sys.exit(main())
PYTHON
PATH="$folder/bin:$PATH" SEEN="$folder/seen" "$folder/venv/bin/python" "$folder/program.py"
