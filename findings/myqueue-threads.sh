#!/usr/bin/env bash
# FINDING: MyQueue 26.8.1 runs a job of several cores a process with one core a process. For "64:8:1h", 64
# cores and 8 processes, it asks Slurm for 8 tasks of 8 cores, and sets OMP_NUM_THREADS to 1 in the script,
# unless the shell that submits has one: 56 of the 64 cores are idle, and are charged for. PBS is asked for
# 8 cores, one a process, and gets OMP_NUM_THREADS=1 whatever the shell has. The time and energy of such a run
# are taken for those of 64 cores.
#
# Seen with myqueue 26.8.1, mq submit --dry-run -R 64:8:1h, a node type of 64 cores:
#   Slurm: --ntasks=8 --cpus-per-task=8 OMP_NUM_THREADS=1
#   Slurm, OMP_NUM_THREADS=8 in the shell: --ntasks=8 --cpus-per-task=8
#   PBS: nodes=1:ppn=8 OMP_NUM_THREADS=1
#   PBS, OMP_NUM_THREADS=8 in the shell: nodes=1:ppn=8 OMP_NUM_THREADS=1
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet myqueue==26.8.1
unset OMP_NUM_THREADS

asked() { # SCHEDULER: what its script asks for and sets
    mkdir -p "$folder/$1/.myqueue"
    cd "$folder/$1"
    echo "config = {'scheduler': '$1', 'nodes': [('big', {'cores': 64, 'memory': '256GB'})]}" \
        > .myqueue/config.py
    touch solve.py
    "$folder/venv/bin/mq" submit solve.py -R 64:8:1h --dry-run --verbose |
        grep -Eo -e '--ntasks=[0-9]+|--cpus-per-task=[0-9]+|nodes=[0-9]+:ppn=[0-9]+|OMP_NUM_THREADS=[0-9]+' |
        paste -sd ' '
}

slurm=$(asked slurm)
slurm_8=$(OMP_NUM_THREADS=8 asked slurm)
pbs=$(asked pbs)
pbs_8=$(OMP_NUM_THREADS=8 asked pbs)
echo "Slurm: $slurm"
echo "Slurm, OMP_NUM_THREADS=8 in the shell: $slurm_8"
echo "PBS: $pbs"
echo "PBS, OMP_NUM_THREADS=8 in the shell: $pbs_8"
[[ $slurm == "--ntasks=8 --cpus-per-task=8 OMP_NUM_THREADS=1" ]]
[[ $slurm_8 == "--ntasks=8 --cpus-per-task=8" ]]
[[ $pbs == "nodes=1:ppn=8 OMP_NUM_THREADS=1" && $pbs_8 == "$pbs" ]]
