#!/usr/bin/env bash
# FINDING: fsl_sub 2.11.0 with its Slurm plugin 1.7.0 asks for the threads of a task once for each GPU. threads is,
# in its documentation, the "number of CPU threads task will utilise"; on a queue with GPUs it becomes
# --cpus-per-gpu. A task of 8 threads with 4 GPUs gets 32 cores, and one of 8 threads that uses none of the
# queue's GPUs asks for cores of GPUs that it does not have, so for one core. The number of cores
# that it tells the task is SLURM_CPUS_PER_TASK's, which Slurm sets for --cpus-per-task. One would think that 8
# threads are 8 cores on every queue. Times and energies of a scaling over GPUs are then those of 8, 16 and 32 cores.
#
# Seen with fsl_sub 2.11.0 and fsl_sub_plugin_slurm 1.7.0, threads=8, the lines of the job script:
#   queue without GPUs: --cpus-per-task=8; 1, 2 and 4 GPUs: --cpus-per-gpu=8 each time; no GPU of a queue with GPUs:
#   --cpus-per-gpu=8 and no --gres; FSLSUB_NSLOTS=SLURM_CPUS_PER_TASK in all of them
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet fsl_sub==2.11.0 fsl_sub_plugin_slurm==1.7.0

cat > "$folder/fsl_sub.yml" <<'YAML'
method: slurm
coproc_opts:
  cuda:
    resource: gpu
    classes: False
    include_more_capable: False
    uses_modules: False
    uses_pe: False
    no_binding: False
    presence_test: "true"
    class_constraint: False
queues:
  cpu: {time: 1440, max_slots: 64, slot_size: 16, max_size: 1024, group: 0, priority: 1}
  gpu:
    {time: 1440, max_slots: 64, slot_size: 16, max_size: 1024, group: 1, priority: 1,
     copros: {cuda: {max_quantity: 4}}}
YAML
printf '#!/bin/sh\ncat > "%s/script"\necho 7\n' "$folder" > "$folder/sbatch"
printf '#!/bin/sh\n' > "$folder/sinfo"
printf '#!/bin/sh\necho '\''{"users": [{"default": {"account": "lab"}}]}'\''\n' > "$folder/sacctmgr"
chmod +x "$folder"/{sbatch,sinfo,sacctmgr}

cat > "$folder/program.py" <<'PYTHON'
import re
import sys
from pathlib import Path

from fsl_sub_plugin_slurm import SlurmPlugin


def asked(folder: Path, queue: str, gpus: int) -> str:
    gpu = {"coprocessor": "cuda", "coprocessor_multi": gpus} if gpus else {}
    SlurmPlugin().submit(["./solve"], job_name="run", queue=queue, threads=8, **gpu)
    script = (folder / "script").read_text()
    assert "FSLSUB_NSLOTS=SLURM_CPUS_PER_TASK" in script
    return " ".join(re.findall(r"^#SBATCH (--(?:cpus|gres)\S+)", script, re.MULTILINE))


def main(folder: Path) -> int:
    jobs = [("cpu", 0), ("gpu", 0), ("gpu", 1), ("gpu", 2), ("gpu", 4)]
    found = {job: asked(folder, *job) for job in jobs}
    for (queue, gpus), words in found.items():
        print(f"queue {queue}, {gpus} GPUs, 8 threads: {words}")
    expected = {("cpu", 0): "--cpus-per-task=8", ("gpu", 0): "--cpus-per-gpu=8"}
    expected |= {("gpu", gpus): f"--gres=gpu:{gpus} --cpus-per-gpu=8" for gpus in (1, 2, 4)}
    return 0 if found == expected else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
PYTHON
cd "$folder"
PATH="$folder:$PATH" FSLSUB_CONF="$folder/fsl_sub.yml" \
    "$folder/venv/bin/python" "$folder/program.py" "$folder"
