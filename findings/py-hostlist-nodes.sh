#!/usr/bin/env bash
# FINDING: py-hostlist 0.0.2.dev0 gives other nodes than a job had, unless all of them are in one pair of brackets. It
# "processes slurm-style hostlist strings", and expands cn[1-3] and cn[08-10] rightly. What follows the first ] is taken
# as an ending of each node's name, a list without brackets is empty, and in front of the brackets only the last word
# stays. Slurm writes all of these: gpu7 for a job of one node, cn[1-2],gpu7 for two partitions. One would think that a
# node is there once. Of cn[1-2],gpu7 a split at the comma gives gpu7 twice: joules of nodes that are summed over the
# list are counted twice; those of a job of one node are none. Nothing is raised.
#
# Seen with py-hostlist 0.0.2.dev0:
#   cn[08-10]: cn08, cn09, cn10
#   cn[1-2],gpu7: cn1, gpu7, cn2, gpu7
#   gpu7: none
#   gpu7,cn[1-2]: cn1, cn2
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet py-hostlist==0.0.2.dev0

cat > "$folder/program.py" <<'PYTHON'
import sys

from hostlist.hostlist import expand


def nodes(written: str) -> list[str]:
    found = [node for node in expand(written).split(",") if node]
    print(f"{written}: {', '.join(found) or 'none'}")
    return found


def main() -> int:
    right = nodes("cn[08-10]") == ["cn08", "cn09", "cn10"]
    still = nodes("cn[1-2],gpu7") == ["cn1", "gpu7", "cn2", "gpu7"]
    still = still and nodes("gpu7") == [] and nodes("gpu7,cn[1-2]") == ["cn1", "cn2"]
    return 0 if right and still else 1


if __name__ == "__main__":
    sys.exit(main())
PYTHON
"$folder/venv/bin/python" "$folder/program.py"
