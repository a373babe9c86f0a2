#!/usr/bin/env bash
# FINDING: QToolKit 0.1.7 asks Slurm for gpus_per_job GPUs on every node. Its documentation calls the value
# the "Number of GPUs per job"; the script has it as --gres=gpu:N, which Slurm counts for each node. A job
# of 2 nodes with gpus_per_job=8 gets 16 GPUs, and is charged for them, or is refused where a node has
# fewer than 8. On one node the two are the same.
#
# Seen with qtoolkit 0.1.7, the script's lines:
#   gpus_per_job=4, 1 node: --nodes=1 --gres=gpu:4, so 4 GPUs
#   gpus_per_job=8, 2 nodes: --nodes=2 --gres=gpu:8, so 16 GPUs
#   gpus_per_job=16, 4 nodes: --nodes=4 --gres=gpu:16, so 64 GPUs
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet qtoolkit==0.1.7

cat > "$folder/program.py" <<'PYTHON'
import re
import sys

from qtoolkit.core.data_objects import QResources
from qtoolkit.io.slurm import SlurmIO


def gpus(per_job: int, nodes: int) -> int:
    resources = QResources(nodes=nodes, processes_per_node=4, gpus_per_job=per_job)
    script = SlurmIO().get_submission_script("srun ./solver", resources)
    lines = re.findall(r"--(?:nodes|gres)=.*", script)
    total = nodes * int(re.findall(r"--gres=gpu:(\d+)", script)[0])
    plural = "s" if nodes > 1 else ""
    print(f"gpus_per_job={per_job}, {nodes} node{plural}: {' '.join(lines)}, so {total} GPUs")
    return total


seen = gpus(4, 1), gpus(8, 2), gpus(16, 4)
sys.exit(0 if seen == (4, 16, 64) else 1)
PYTHON
"$folder/venv/bin/python" "$folder/program.py"
