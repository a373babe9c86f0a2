#!/usr/bin/env bash
# FINDING: dpdispatcher 1.1.0's resources mean different jobs on different schedulers. number_node=2,
# cpu_per_node=8 and gpu_per_node=4 are 16 cores and 8 GPUs in the scripts for Slurm, PBS and Torque. The one for
# SGE asks for 8 cores and for no GPU: the number of nodes and the GPUs are in its environment variables alone.
# The one for LSF asks for no GPU. Nothing is said. A campaign that moves to another cluster measures half the
# cores, or the CPU alone, under the same description.
#
# Seen with dpdispatcher 1.1.0, 2 nodes with 8 cores and 4 GPUs each:
#   Slurm: --nodes 2 --ntasks-per-node 8 --gres=gpu:4
#   PBS: -l select=2:ncpus=8:ngpus=4
#   Torque: -l nodes=2:ppn=8:gpus=4
#   LSF: -n 16 -R 'span[ptile=8]'
#   SGE: -pe mpi 8
#   in the environment of the job of SGE: 2 nodes, 8 cores and 4 GPUs a node
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet dpdispatcher==1.1.0

cat > "$folder/program.py" <<'PYTHON'
import logging
import re
import sys

from dpdispatcher import Machine, Resources, Submission, Task

NODES, CORES, GPUS = 2, 8, 4
SIZE = {"number_node": NODES, "cpu_per_node": CORES, "gpu_per_node": GPUS}
OTHER = re.compile(r"-(S|cwd|N|j|q|e|o|-partition)\b")


def script(scheduler: str, folder: str) -> str:
    where = {"context_type": "LocalContext", "local_root": folder, "remote_root": folder}
    machine = Machine.load_from_dict({"batch_type": scheduler} | where)
    resources = Resources.load_from_dict(SIZE | {"queue_name": "queue", "group_size": 1})
    task = Task(command="solve", task_work_path=".", forward_files=[], backward_files=[])
    submission = Submission(".", machine=machine, resources=resources, task_list=[task])
    submission.generate_jobs()
    return machine.gen_script(submission.belonging_jobs[0])


def main(folder: str) -> int:
    logging.disable(logging.CRITICAL)
    asked = {}
    for scheduler in ("Slurm", "PBS", "Torque", "LSF", "SGE"):
        text = script(scheduler, folder)
        lines = re.findall(r"^#(?:SBATCH|PBS|BSUB|\$) (.*?) *$", text, re.MULTILINE)
        asked[scheduler] = " ".join(line for line in lines if not OTHER.match(line))
        print(f"{scheduler}: {asked[scheduler]}")
    found = dict(re.findall(r"DPDISPATCHER_(\w+_NODE)=(\d+)", text))
    nodes, cores, gpus = found["NUMBER_NODE"], found["CPU_PER_NODE"], found["GPU_PER_NODE"]
    print(f"in the environment of the job of SGE: {nodes} nodes, {cores} cores and {gpus} GPUs a node")
    right = "gpu" in asked["Slurm"] and "gpu" in asked["PBS"] and "gpu" in asked["Torque"]
    lost = asked["SGE"] == f"-pe mpi {CORES}" and "gpu" not in asked["LSF"]
    return 0 if right and lost and asked["LSF"].startswith(f"-n {NODES * CORES} ") else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
PYTHON
cd "$folder"
"$folder/venv/bin/python" "$folder/program.py" "$folder"
