#!/usr/bin/env bash
# FINDING: perun 1.0.0 cannot read the JSON that it writes, though `perun export` takes "hdf5, json or
# pickle": the nodes of a node are written as a list of one object, and read as an object.
#
# Seen with perun 1.0.0:
#   perun export sleeps.json text: AttributeError: 'list' object has no attribute 'items'
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet perun==1.0.0
cd "$folder"
echo "import time; time.sleep(1)" > sleeps.py
venv/bin/perun monitor --app-name sleeps --format json sleeps.py > /dev/null 2>&1
if venv/bin/perun export perun_results/sleeps.json text 2> said; then exit 1; fi
echo "perun export sleeps.json text: $(tail -1 said)"
grep -q "AttributeError: 'list' object has no attribute 'items'" said
