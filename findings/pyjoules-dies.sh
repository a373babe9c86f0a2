#!/usr/bin/env bash
# FINDING: pyJoules 0.5.1 knows a package of RAPL only by the exact name "package-N", N being the
# number of its folder. On processors of several dies Linux names the domains package-0-die-0,
# package-0-die-1, ... pyJoules then finds no package, and no error either: a measurement of "all
# available domains" is that of the DRAM alone, or of nothing.
#
# Seen with pyJoules 0.5.1, one socket of two dies with a DRAM domain each:
#   domains found: dram_0, dram_1
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet pyJoules==0.5.1

for die in 0 1; do
    zone="$folder/intel-rapl/intel-rapl:$die"
    mkdir -p "$zone/intel-rapl:$die:0"
    echo "package-0-die-$die" > "$zone/name"
    echo 1000000 > "$zone/energy_uj"
    echo dram > "$zone/intel-rapl:$die:0/name"
    echo 1000000 > "$zone/intel-rapl:$die:0/energy_uj"
done
"$folder/venv/bin/python" - "$folder/intel-rapl" > "$folder/found" <<'PYTHON'
import sys

from pyJoules.device import rapl_device

rapl_device.RAPL_API_DIR = sys.argv[1]
print(", ".join(map(str, rapl_device.RaplDevice.available_domains())))
PYTHON
echo "domains found: $(cat "$folder/found")"
[ "$(cat "$folder/found")" = "dram_0, dram_1" ]
