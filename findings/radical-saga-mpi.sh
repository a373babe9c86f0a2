#!/usr/bin/env bash
# FINDING: radical.saga 1.103.0 asks Slurm for no tasks, cores or nodes where a job is an MPI job. For 128
# processes of 64 a node, its script has --ntasks=128 and --ntasks-per-node=64; with spmd_variation = "MPI",
# which puts mpirun in front of the program, it has neither, and starts "mpirun -n 128" in what Slurm gives
# by default: one task, with one core where cores are shared. mpirun refuses, or runs 128 processes there, and
# the time and energy that come out are taken for those of two nodes. The memory, total_physical_memory, is
# asked for in both as if there were two nodes.
#
# Seen with radical.saga 1.103.0, an sbatch that keeps the script, nodes of 64 cores:
#   without spmd_variation: --ntasks=128 --ntasks-per-node=64 --mem=65536; runs ./solver
#   with "MPI": --mem=65536; runs mpirun -n 128 ./solver
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet radical.saga==1.103.0

mkdir "$folder/bin"
printf '#!/bin/sh\n' | tee "$folder/bin/squeue" > "$folder/bin/scancel"
cat > "$folder/bin/scontrol" <<'SH'
#!/bin/sh
case "$1" in
    --version) echo "slurm 24.05.2" ;;
    show) echo "NodeName=n1 CPUTot=64 CPULoad=0.0" ;;
esac
SH
cat > "$folder/bin/sbatch" <<SH
#!/bin/sh
cp "\$1" "$folder/script"
echo "Submitted batch job 1"
SH
chmod +x "$folder"/bin/*

cat > "$folder/program.py" <<'PYTHON'
import re
import sys
from pathlib import Path

import radical.saga


def submitted(service, script: Path, variation: str | None) -> tuple[str, str]:
    description = radical.saga.job.Description()
    description.executable = "./solver"
    description.total_cpu_count = description.number_of_processes = 128
    description.processes_per_host = 64
    description.total_physical_memory = 128 * 1024
    if variation:
        description.spmd_variation = variation
    service.create_job(description).run()
    text = script.read_text()
    asked = re.findall(r"^#SBATCH (?!--output|--error)(.*)", text, re.MULTILINE)
    (runs,) = re.findall(r"^.*\./solver", text, re.MULTILINE)
    name = f'with "{variation}"' if variation else "without spmd_variation"
    print(f"{name}: {' '.join(asked)}; runs {runs}")
    return " ".join(asked), runs


def main(script: Path) -> int:
    service = radical.saga.job.Service("slurm://localhost/")
    plain = submitted(service, script, None)
    mpi = submitted(service, script, "MPI")
    service.close()
    same = plain == ("--ntasks=128 --ntasks-per-node=64 --mem=65536", "./solver")
    return 0 if same and mpi == ("--mem=65536", "mpirun -n 128 ./solver") else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
PYTHON
cd "$folder"
HOME="$folder" PATH="$folder/bin:$PATH" venv/bin/python program.py "$folder/script"
