#!/usr/bin/env bash
# FINDING: with job_file=..., the job of simple_slurm 0.3.6 is another one than without. It puts
# a backslash in front of every "$" for the here-document in which sbatch gets the script; a file is no
# here-document, and there the backslashes stay. "export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK" then sets the
# name of the variable, not its value: the program gets no number of threads, and takes one of its own.
# Sizes and clocks that are handed on as variables are lost alike. sbatch(job_file=..., convert=False)
# writes the script as it was given.
#
# Seen with simple_slurm 0.3.6, an sbatch that runs the script with SLURM_CPUS_PER_TASK=8:
#   without job_file: OMP_NUM_THREADS is 8
#   with job_file: OMP_NUM_THREADS is $SLURM_CPUS_PER_TASK
#   with job_file and convert=False: OMP_NUM_THREADS is 8
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet simple_slurm==0.3.6

mkdir "$folder/bin"
cat > "$folder/bin/sbatch" <<'SH'
#!/bin/sh
if [ $# -gt 0 ]; then cp "$1" "$SEEN.sh"; else cat > "$SEEN.sh"; fi
SLURM_CPUS_PER_TASK=8 sh "$SEEN.sh" > "$SEEN"
echo "Submitted batch job 1"
SH
chmod +x "$folder/bin/sbatch"

cat > "$folder/program.py" <<'PYTHON'
import os
import sys
from pathlib import Path

from simple_slurm import Slurm


def threads(name: str, **options) -> str:
    job = Slurm(cpus_per_task=8)
    job.add_cmd("export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK")
    job.sbatch("printenv OMP_NUM_THREADS", verbose=False, **options)
    text = Path(os.environ["SEEN"]).read_text().strip()
    print(f"{name}: OMP_NUM_THREADS is {text}")
    return text


def main(job_file: str) -> int:
    found = (
        threads("without job_file"),
        threads("with job_file", job_file=job_file),
        threads("with job_file and convert=False", job_file=job_file, convert=False),
    )
    return 0 if found == ("8", "$SLURM_CPUS_PER_TASK", "8") else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
PYTHON
PATH="$folder/bin:$PATH" SEEN="$folder/seen" "$folder/venv/bin/python" "$folder/program.py" "$folder/job.sh"
