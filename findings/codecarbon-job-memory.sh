#!/usr/bin/env bash
# FINDING: CodeCarbon 3.3.2 gives each node of a Slurm job the memory of all its nodes. In a job it takes the size of the
# memory, from which it computes its power, from scontrol's line of the job, which has the sum over the nodes. A tracker
# measures its node; with one on each node, which CodeCarbon's warning about ranks of a node asks for, the memory of the
# job is counted as often as it has nodes. One would think that the nodes of a job add up to the job. The power of the
# memory of 16 nodes is 3.3 times what the same 16 nodes have as 16 jobs, and a scaling over nodes gets worse in energy
# by this alone. The cores, which give the power of a processor that CodeCarbon does not know, are taken likewise.
#
# Seen with codecarbon 3.3.2, nodes with 64 cores and 256 GB that are used whole (scontrol is simulated):
#   1 node: 64 cores, 38 W of memory on each node
#   4 nodes: 256 cores, 38 W of memory on each node
#   16 nodes: 1024 cores, 126 W of memory on each node
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet codecarbon==3.3.2

mkdir "$folder/bin"
cat > "$folder/bin/scontrol" <<'SH'
#!/bin/sh
cores=$((64 * NODES))
echo "JobId=1 JobName=solve NumNodes=$NODES NumCPUs=$cores NumTasks=$NODES CPUs/Task=64"
echo "   AllocTRES=cpu=$cores,mem=$((256 * NODES))G,node=$NODES,billing=$cores"
SH
chmod +x "$folder/bin/scontrol"

cat > "$folder/program.py" <<'PYTHON'
import os

from codecarbon.core.util import count_cpus
from codecarbon.external.ram import RAM

nodes = int(os.environ["NODES"])
name = f"{nodes} node{'s' if nodes > 1 else ''}"
memory = RAM(tracking_mode="machine")
memory.is_arm_cpu = False  # its model of other processors' memory has less power for each module
power = memory.total_power()
print(f"{name}: {count_cpus()} cores, {power.W:.0f} W of memory on each node")
PYTHON
for nodes in 1 4 16; do
    NODES=$nodes SLURM_JOB_ID=1 PATH="$folder/bin:$PATH" "$folder/venv/bin/python" "$folder/program.py" \
        2> /dev/null | tee -a "$folder/seen"
done
diff "$folder/seen" - <<'TEXT'
1 node: 64 cores, 38 W of memory on each node
4 nodes: 256 cores, 38 W of memory on each node
16 nodes: 1024 cores, 126 W of memory on each node
TEXT
