#!/usr/bin/env bash
# FINDING: PSI/J 0.9.11 drops cpu_cores_per_process for PBS and LSF, and gpu_cores_per_process for PBS Pro,
# without a word. The scripts ask for one core a process: of a job of 2 nodes with 4 processes of 8 cores and
# a GPU each, Slurm is asked for 64 cores and 8 GPUs, LSF for 8 cores and 8 GPUs, PBS for 8 cores and no GPU.
# Where the nodes are shared and cores are bound, the 8 threads of a process then share one core, and times
# and energies are not those of the same description on Slurm.
#
# Seen with psij-python 0.9.11, the scripts that are submitted (sbatch, qsub and bsub are simulated):
#   slurm: nodes=2, ntasks-per-node=4, gpus-per-task=1, cpus-per-task=8
#   pbs: select=2:ncpus=4:mpiprocs=4
#   lsf: nnodes 2, n 8, gpu num=1/task
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet psij-python==0.9.11

mkdir "$folder/bin"
for command in sbatch qsub bsub; do
    cat > "$folder/bin/$command" <<'BASH'
#!/usr/bin/env bash
cp "${@: -1}" "$HOME/script"
case ${0##*/} in
    sbatch) echo "Submitted batch job 1" ;;
    qsub) echo "1.server" ;;
    bsub) echo "Job <1> is submitted to queue <normal>." ;;
esac
BASH
    chmod +x "$folder/bin/$command"
done

cat > "$folder/program.py" <<'PYTHON'
import os
import re
import sys
from datetime import timedelta
from pathlib import Path

from psij import Job, JobAttributes, JobExecutor, JobSpec, ResourceSpecV1

RESOURCES = ResourceSpecV1(
    node_count=2, processes_per_node=4, cpu_cores_per_process=8, gpu_cores_per_process=1
)
ASKED = {
    "slurm": r"--((?:nodes|ntasks-per-node|cpus-per-task|gpus-per-task)=.*)",
    "pbs": r"-l (select=.*)",
    "lsf": r"-((?:nnodes|n|gpu) .*)",
}


def asked(scheduler: str) -> str:
    attributes = JobAttributes(duration=timedelta(hours=1))
    spec = JobSpec("./solver", resources=RESOURCES, attributes=attributes)
    JobExecutor.get_instance(scheduler).submit(Job(spec))
    script = (Path.home() / "script").read_text()
    seen = ", ".join(re.findall(rf"^#[A-Z]+ {ASKED[scheduler]}$", script, re.MULTILINE))
    print(f"{scheduler}: {seen}")
    return seen


right = "cpus-per-task=8" in asked("slurm")
wrong = asked("pbs") == "select=2:ncpus=4:mpiprocs=4"
wrong = asked("lsf") == "nnodes 2, n 8, gpu num=1/task" and wrong
sys.stdout.flush()
# The threads that poll the queues would go on.
os._exit(0 if right and wrong else 1)
PYTHON
HOME=$folder PATH=$folder/bin:$PATH "$folder/venv/bin/python" "$folder/program.py"
