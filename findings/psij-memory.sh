#!/usr/bin/env bash
# FINDING: PSI/J 0.9.11 asks for the memory of a job once for each node. Its documentation calls the value
# "The total amount, in bytes, of memory requested for the job"; the scripts have it as Slurm's --mem, which
# counts for each node, and in PBS Pro's select, where it counts for each chunk, of which there is one
# a node. A job of 16 nodes with memory=512 GiB asks for 8 TiB: it waits for nodes with much memory, is
# refused, or, where memory is charged for, costs 16 times as much. The total divided by the nodes has to be
# given.
#
# Seen with psij-python 0.9.11, the scripts that are submitted (sbatch and qsub are simulated):
#   slurm, 1 node, memory of 512 GiB: asks for 512 GiB
#   slurm, 16 nodes, memory of 512 GiB: asks for 8192 GiB
#   pbs, 1 node, memory of 512 GiB: asks for 512 GiB
#   pbs, 16 nodes, memory of 512 GiB: asks for 8192 GiB
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet psij-python==0.9.11

mkdir "$folder/bin"
for command in sbatch qsub; do
    cat > "$folder/bin/$command" <<'BASH'
#!/usr/bin/env bash
cp "${@: -1}" "$HOME/script"
case ${0##*/} in
    sbatch) echo "Submitted batch job 1" ;;
    qsub) echo "1.server" ;;
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

GIB = 2**30
# The nodes, the memory of each, and the bytes that the memory's unit has.
ASKED = {
    "slurm": (r"--nodes=(\d+)", r"--mem=(\d+)K", 1024),
    "pbs": (r"select=(\d+):", r":mem=(\d+)", 1),
}


def asked_gib(scheduler: str, nodes: int) -> float:
    resources = ResourceSpecV1(node_count=nodes, processes_per_node=4, memory=512 * GIB)
    attributes = JobAttributes(duration=timedelta(hours=1))
    spec = JobSpec("./solver", resources=resources, attributes=attributes)
    JobExecutor.get_instance(scheduler).submit(Job(spec))
    script = (Path.home() / "script").read_text()
    of_nodes, of_memory, unit = ASKED[scheduler]
    count, each = (int(re.findall(x, script)[0]) for x in (of_nodes, of_memory))
    total_gib = count * each * unit / GIB
    plural = "s" if nodes > 1 else ""
    print(f"{scheduler}, {nodes} node{plural}, memory of 512 GiB: asks for {total_gib:.0f} GiB")
    return total_gib


seen = [asked_gib(scheduler, nodes) for scheduler in ASKED for nodes in (1, 16)]
sys.stdout.flush()
# The threads that poll the queues would go on.
os._exit(0 if seen == [512, 8192, 512, 8192] else 1)
PYTHON
HOME=$folder PATH=$folder/bin:$PATH "$folder/venv/bin/python" "$folder/program.py"
