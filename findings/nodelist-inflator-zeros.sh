#!/usr/bin/env bash
# FINDING: nodelist-inflator 0.2.0 makes other nodes of a list of Slurm's. It expands "cn[008-011]" to cn8, cn9,
# cn10 and cn11: the zeros of a range are lost, while those of single numbers in the same brackets stay. A name
# without a digit is left out, which moves the ranks of the others, and what follows a bracket becomes a node of its
# own. One would think of what "scontrol show hostnames" prints, as python-hostlist 2.3.0 does. The file of hosts
# that it writes, with 8 slots for every node, names nodes that are not in the allocation, and a process that looks
# up its rank by its node's name gets that of another.
#
# Seen with nodelist-inflator 0.2.0 and python-hostlist 2.3.0:
#   cn[008-010,012]: cn8 cn9 cn10 cn012; login,cn1: cn1, of rank 0; r[1-2]n3: r1 r2 n3
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet nodelist-inflator==0.2.0 python-hostlist==2.3.0

cat > "$folder/program.py" <<'PYTHON'
import subprocess
import sys
from pathlib import Path

from hostlist import expand_hostlist

EXPECTED = {
    "cn[008-010,012]": ["cn8", "cn9", "cn10", "cn012"],
    "login,cn1": ["cn1"],
    "r[1-2]n3": ["r1", "r2", "n3"],
}


def written(inflate: str, nodes: str) -> list[str]:
    subprocess.run([inflate, "--nodelist", nodes, "--write"], check=True)
    return Path("hostnames").read_text().splitlines()


def main(inflate: str) -> int:
    found = {nodes: written(inflate, nodes) for nodes in EXPECTED}
    for nodes, lines in found.items():
        print(f"{nodes}: {lines}; python-hostlist: {' '.join(expand_hostlist(nodes))}")
    command = [inflate, "--nodelist", "login,cn1", "--hostname", "cn1"]
    rank = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    print(f"rank of cn1 in login,cn1: {rank}")
    expected = {nodes: [f"{name} slots=8" for name in names] for nodes, names in EXPECTED.items()}
    return 0 if found == expected and rank == "0" else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
PYTHON
cd "$folder"
"$folder/venv/bin/python" "$folder/program.py" "$folder/venv/bin/nodelist_inflate"
