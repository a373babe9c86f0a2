#!/usr/bin/env bash
# FINDING: Hatchet 1.4.1's Chopper.load_imbalance calls a region that one rank alone runs perfectly balanced.
# The imbalance is the largest time of a rank divided by the mean over the ranks that have the region; ranks
# that were never in it do not count as 0 s. Of a solver that rank 0 runs for 10 s while three ranks wait, the
# imbalance is 1, as of one that all four share; with 1 ms on each of the others it is 4. A list of regions
# sorted by imbalance has the worst ones at its end.
#
# Seen with hatchet 1.4.1, 10 s on rank 0 of four:
#   10 s on the other three: imbalance 1.00
#   1 ms on the other three: imbalance 4.00
#   not run on the other three: imbalance 1.00
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet hatchet==1.4.1 pandas==2.2.3 numpy==1.26.4

cat > "$folder/program.py" <<'PYTHON'
import sys

import hatchet
import pandas as pd

RANKS = 4
OTHERS_S = {"10 s on": 10.0, "1 ms on": 0.001, "not run on": None}


def main() -> int:
    frames = [{"name": name, "type": "function"} for name in OTHERS_S]
    calls = [{"frame": frame, "metrics": {"time": 0.0}} for frame in frames]
    top = {"frame": {"name": "main", "type": "function"}, "metrics": {"time": 0.0}}
    graph = hatchet.GraphFrame.from_literal([top | {"children": calls}]).graph
    rows = []
    for node in graph.traverse():
        name = node.frame["name"]
        for rank in range(RANKS):
            time = 10.0 if name == "main" or rank == 0 else OTHERS_S[name]
            if time is not None:
                rows.append({"node": node, "rank": rank, "name": name, "time": time})
    table = pd.DataFrame(rows).set_index(["node", "rank"]).sort_index()
    profile = hatchet.GraphFrame(graph, table, exc_metrics=["time"], inc_metrics=[])
    result = hatchet.Chopper().load_imbalance(profile, metric_column="time").dataframe
    found = dict(zip(result["name"], result["time.imbalance"].round(2)))
    for name in OTHERS_S:
        print(f"{name} the other three: imbalance {found[name]:.2f}")
    return 0 if [found[name] for name in OTHERS_S] == [1, 4, 1] else 1


if __name__ == "__main__":
    sys.exit(main())
PYTHON
"$folder/venv/bin/python" -W ignore "$folder/program.py"
