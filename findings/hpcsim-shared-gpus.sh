#!/usr/bin/env bash
# FINDING: hpcsim 0.3.1, a simulator of GPU clusters for green scheduling, has GPUs that draw less power the more jobs
# share them. A GPU's power grows with its utilization, as in GPUs; the utilization is set to one over the number of its
# jobs. One would think that a second job of MPS adds to the load, or leaves it at 1. Each one lowers it, to little
# above idle at four. A job on a slice of MIG sets the slice's utilization, which the node's power does not ask for: a
# GPU whose seven slices are all busy draws what an idle one does, and the cluster's utilization is 0. total_energy_kwh
# and the share of renewable energy are computed from that power: a policy that packs jobs onto few GPUs is found to
# save energy.
#
# Seen with hpcsim 0.3.1, W of a node with one A100 above the idle node:
#   jobs of MPS on it: 1: 370.0, 2: 120.2, 4: 43.9
#   busy slices of MIG of 7: 7: 0.0
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
# Of what it depends on, only what is imported here.
"$folder/venv/bin/pip" install --quiet numpy==2.4.6 matplotlib==3.11.2 tabulate==0.10.0
"$folder/venv/bin/pip" install --quiet --no-deps hpcsim==0.3.1

cat > "$folder/program.py" <<'PYTHON'
import sys

from hpcsim.cluster.cluster import Cluster, ClusterConfig, NodeSpec
from hpcsim.cluster.hardware import GPUType, MIGProfile


def make_cluster(**sharing) -> Cluster:
    node = NodeSpec(num_nodes=1, gpu_type=GPUType.A100, gpus_per_node=1, **sharing)
    return Cluster(ClusterConfig("one node", [node]))


def main() -> int:
    above_w = {}
    for jobs in (1, 2, 4):
        shared = make_cluster(mps_max_jobs=4)
        idle_w = shared.total_power_watts()
        if not all(shared.allocate(f"job{job}", list(shared.gpus), 4.0) for job in range(jobs)):
            return 1
        above_w[jobs] = shared.total_power_watts() - idle_w
    shown = ", ".join(f"{jobs}: {watts:.1f}" for jobs, watts in above_w.items())
    print(f"jobs of MPS on it: {shown}")

    sliced = make_cluster(mig_profile=MIGProfile.G1_10GB)
    idle_w = sliced.total_power_watts()
    slices = list(sliced.mig_slices)
    if not all(sliced.allocate_mig(f"job{index}", [name]) for index, name in enumerate(slices)):
        return 1
    sliced_w = sliced.total_power_watts() - idle_w
    busy = len(slices) - sliced.free_mig_slices()
    print(f"busy slices of MIG of {len(slices)}: {busy}: {sliced_w:.1f}")
    right = above_w[1] > 300 and busy == len(slices) == 7
    still = above_w[2] < above_w[1] / 3 and above_w[4] < above_w[2] / 2 and sliced_w == 0
    return 0 if right and still else 1


if __name__ == "__main__":
    sys.exit(main())
PYTHON
"$folder/venv/bin/python" "$folder/program.py"
