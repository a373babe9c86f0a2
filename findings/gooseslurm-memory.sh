#!/usr/bin/env bash
# FINDING: GooseSLURM 0.13.4 asks Slurm for a million times the memory where it is not a round number in its units.
# Its memory.asSlurm takes bytes, and writes them with the largest of K, M, G and T that leaves no rest; where all
# leave one it writes the bytes without a unit, and a number without a unit is megabytes to sbatch. Its units are
# powers of 1000, so that sizes which a program computes as powers of 1024 are of this kind: 1 GiB becomes
# 1073741824 MB. One would think that bytes stay bytes. The job waits for a node that there is not, or is refused,
# and a small job gets a whole node.
#
# Seen with GooseSLURM 0.13.4, memory.asSlurm, and what sbatch makes of it:
#   1e9: 1G; "1.5G": 1500M; 2**30: 1073741824, so 1 PB; "16.384K": 16384, so 16 GB
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet GooseSLURM==0.13.4

cat > "$folder/program.py" <<'PYTHON'
import sys

import GooseSLURM

UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def slurm_bytes(size: str) -> int:
    """What sbatch takes --mem for."""
    if size[-1] in UNITS:
        return int(size[:-1]) * UNITS[size[-1]]
    return int(size) * UNITS["M"]


def main() -> int:
    expected = {10**9: "1G", "1.5G": "1500M", 2**30: "1073741824", "16.384K": "16384"}
    found = {}
    for size in expected:
        found[size] = GooseSLURM.memory.asSlurm(size)
        factor = slurm_bytes(found[size]) / GooseSLURM.memory.asBytes(size)
        print(f"{size!r}: --mem={found[size]}, {factor:.2f} times what was asked for")
    return 0 if found == expected else 1


if __name__ == "__main__":
    sys.exit(main())
PYTHON
"$folder/venv/bin/python" "$folder/program.py"
