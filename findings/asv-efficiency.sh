#!/usr/bin/env bash
# FINDING: asv 0.6.6 calls a gain of efficiency a loss. Every value of a track_ benchmark counts as better when
# it is lower, whatever its unit: flop/J, Gflop/s or a saving that doubles is listed under "have got worse" by
# asv compare, and one that halves under "have improved". A benchmark has a unit, but nothing that turns the
# direction. One would think that only times and sizes have to fall. Energies in J come out right.
#
# Seen with asv 0.6.6, a change that doubles Gflop/J and halves J:
#   asv compare, improved: energy_j
#   asv compare, worse: efficiency
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet asv==0.6.6

mkdir -p "$folder/project/benchmarks"
cd "$folder/project"
touch benchmarks/__init__.py
cat > asv.conf.json <<'JSON'
{
  "version": 1,
  "project": "solver",
  "project_url": "solver",
  "repo": ".",
  "branches": ["main"],
  "environment_type": "existing"
}
JSON
cat > benchmarks/solve.py <<'PYTHON'
import os

WORK_GFLOP = 80
JOULES = float(os.environ.get("JOULES", "1"))


def track_energy_j():
    return JOULES


def track_efficiency():
    return WORK_GFLOP / JOULES


track_energy_j.unit = "J"
track_efficiency.unit = "Gflop/J"
PYTHON

cat > "$folder/program.py" <<'PYTHON'
import os
import re
import subprocess
import sys
from pathlib import Path

BIN = Path(sys.executable).parent
IDENTITY = ("-c", "user.name=user", "-c", "user.email=user@localhost")


def run(*words: str, **variables: str) -> str:
    environment = os.environ | {"HOME": str(Path.cwd().parent)} | variables
    done = subprocess.run(words, env=environment, check=True, capture_output=True, text=True)
    return done.stdout


def measured(joules: int) -> str:
    run("git", *IDENTITY, "commit", "--quiet", "--allow-empty", "--message", f"{joules} J")
    commit = run("git", "rev-parse", "HEAD").strip()
    where = ("-E", f"existing:{sys.executable}", "--set-commit-hash", commit)
    run(str(BIN / "asv"), "run", *where, JOULES=str(joules))
    return commit


def main() -> int:
    run("git", "init", "--quiet", "--initial-branch=main")
    run(str(BIN / "asv"), "machine", "--yes")
    before, after = measured(8), measured(4)
    text = run(str(BIN / "asv"), "compare", "--split", before, after)
    found = {}
    for title, names in re.findall(r"Benchmarks that have (.*?):\n(.*?)(?=Benchmarks|\Z)", text, re.DOTALL):
        found[title] = re.findall(r"track_(\w+)", names)
    better, worse = found.get("improved", []), found.get("got worse", [])
    print(f"asv compare, improved: {' '.join(better)}")
    print(f"asv compare, worse: {' '.join(worse)}")
    return 0 if (better, worse) == (["energy_j"], ["efficiency"]) else 1


if __name__ == "__main__":
    sys.exit(main())
PYTHON
"$folder/venv/bin/python" "$folder/program.py"
