#!/usr/bin/env bash
# FINDING: snakemake-executor-plugin-slurm 2.8.0 takes a rule's tasks for the tasks of one GPU as soon as the
# rule asks for a GPU. tasks=8 is --ntasks=8 without one, and --ntasks-per-gpu=8 with one: of a rule with 4 GPUs
# Slurm makes 32 tasks, and with 4 cores a task it allocates 128 cores for the 32 that were meant. The same
# rule measured on CPUs and on GPUs does not hold the same cores, and idle cores and whole nodes are added
# to the energy of the job. A rule of MPI gets both options at once.
#
# Seen with snakemake-executor-plugin-slurm 2.8.0, tasks=8 and cpus_per_task=4:
#   no GPU: --ntasks=8 --cpus-per-task=4
#   gpu=4: --ntasks-per-gpu=8 --cpus-per-task=4 --gpus=4
#   gpu=4 and mpi: --ntasks-per-gpu=8 --ntasks=8 --cpus-per-task=4 --gpus=4
#   cores of the first two: 32 and 128
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet snakemake-executor-plugin-slurm==2.8.0

cat > "$folder/program.py" <<'PYTHON'
import sys
from types import SimpleNamespace

from snakemake_executor_plugin_slurm.submit_string import get_submit_command
from snakemake_executor_plugin_slurm.utils import set_gres_string

TASKS, CORES, GPUS = 8, 4, 4
GIVEN = dict.fromkeys(("run_uuid", "slurm_logfile", "comment_str", "account", "partition"), "")


class Resources(dict):
    __getattr__ = dict.__getitem__


def options(**more: int | str) -> dict[str, str]:
    resources = Resources(tasks=TASKS, cpus_per_task=CORES, **more)
    job = SimpleNamespace(resources=resources, threads=1)
    call = get_submit_command(job, GIVEN | {"workdir": None}) + set_gres_string(job)
    words = (word.partition("=") for word in call.split() if "task" in word or "gpus" in word)
    return {name: value for name, _, value in words}


def main() -> int:
    cpu, gpu = options(), options(gpu=GPUS)
    both = options(gpu=GPUS, mpi="srun")
    for name, found in (("no GPU", cpu), ("gpu=4", gpu), ("gpu=4 and mpi", both)):
        print(f"{name}: {' '.join(f'{option}={value}' for option, value in found.items())}")
    cpu_cores = int(cpu["--ntasks"]) * int(cpu["--cpus-per-task"])
    gpu_tasks = int(gpu["--gpus"]) * int(gpu["--ntasks-per-gpu"])
    gpu_cores = gpu_tasks * int(gpu["--cpus-per-task"])
    print(f"cores of the first two: {cpu_cores} and {gpu_cores}")
    right = cpu_cores == TASKS * CORES and "--ntasks" not in gpu and "--ntasks-per-gpu" in both
    return 0 if right and gpu_cores == GPUS * TASKS * CORES else 1


if __name__ == "__main__":
    sys.exit(main())
PYTHON
"$folder/venv/bin/python" "$folder/program.py"
