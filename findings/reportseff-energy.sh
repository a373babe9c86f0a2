#!/usr/bin/env bash
# FINDING: reportseff 2.10.3 gives the energy of one step of a job as the job's. Its column Energy is the
# largest TRESUsageOutAve of all steps, which Slurm defines as the average over the tasks of a step.
# Neither the steps nor the nodes are summed: a job that runs its measurements one after another has the
# energy of the longest, or of its script on the first node. With --format=+ConsumedEnergyRaw the job's own
# figure stands beside it.
#
# Seen with reportseff 2.10.3, accounts of Slurm for jobs on nodes of 500 W (sacct, scontrol: simulated):
#   1 nodes, 1 steps of 60 minutes: Energy 1800000, ConsumedEnergyRaw 1800000
#   1 nodes, 3 steps of 20 minutes: Energy 600000, ConsumedEnergyRaw 1800000
#   4 nodes, 3 steps of 20 minutes: Energy 600000, ConsumedEnergyRaw 7200000
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet reportseff==2.10.3

mkdir "$folder/bin"
cat > "$folder/bin/sacct" <<'PYTHON'
#!/usr/bin/env python3
import os
import sys

NODES, STEPS, NODE_W = int(os.environ["NODES"]), int(os.environ["STEPS"]), 500
STEP_J = NODE_W * 3600 // STEPS
FIELDS = "JobID JobIDRaw State AdminComment ConsumedEnergyRaw TRESUsageOutAve NNodes NTasks"


def record(name: str, average: str, total_j: int) -> dict[str, str]:
    nodes = str(NODES)
    values = (name, name, "COMPLETED", "", str(total_j), average, nodes, nodes)
    return dict(zip(FIELDS.split(), values, strict=True))


records = [record("7", "", NODES * STEPS * STEP_J)]
records += [record(f"7.{i}", f"energy={STEP_J},fs/disk=1", NODES * STEP_J) for i in range(STEPS)]
if "--helpformat" in sys.argv:
    print(FIELDS)
else:
    (asked,) = [a.split("=", 1)[1].split(",") for a in sys.argv if a.startswith("--format=")]
    for values in records:
        print("".join(f"{values[field]}^|^" for field in asked))
PYTHON
cat > "$folder/bin/scontrol" <<'BASH'
#!/usr/bin/env bash
echo "PartitionName=batch MaxTime=1-00:00:00"
BASH
chmod +x "$folder/bin/sacct" "$folder/bin/scontrol"

still=0
check() { # NODES STEPS ENERGY CONSUMED
    local energy consumed
    read -r _ energy consumed < <(NODES=$1 STEPS=$2 PATH=$folder/bin:$PATH \
        "$folder/venv/bin/reportseff" --no-color --format JobID,Energy,ConsumedEnergyRaw 7 |
        tail -n 1)
    echo "$1 nodes, $2 steps of $((60 / $2)) minutes: Energy $energy, ConsumedEnergyRaw $consumed"
    [[ "$energy $consumed" == "$3 $4" ]] || still=1
}
check 1 1 1800000 1800000
check 1 3 600000 1800000
check 4 3 600000 7200000
exit "$still"
