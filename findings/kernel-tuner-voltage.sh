#!/usr/bin/env bash
# FINDING: the gr_voltage of Kernel Tuner 1.5.0's NVMLObserver is about half of the GPU's voltage. The
# readings are pairs of a time and a voltage, and what is averaged is the first pair: its time, near 0 s,
# and its voltage in mV. The readings after it are not used, so a voltage that rises with the load is not
# seen. Nothing is said, and the value depends on the clock as a voltage does.
#
# Seen with kernel-tuner 1.5.0, nvidia-smi and the GPU simulated:
#   nvidia-smi: 800.0 mV, then 1000.0 mV
#   gr_voltage: 400.0 mV
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet kernel-tuner==1.5.0

cat > "$folder/nvidia-smi" <<'SMI'
#!/bin/sh
echo "        Voltage"
if [ -e "${0%/*}/busy" ]; then
    echo "            Graphics                      : 1000.000 mV"
else
    echo "            Graphics                      : 800.000 mV"
fi
SMI
chmod +x "$folder/nvidia-smi"
cat > "$folder/program.py" <<'PYTHON'
import sys
from pathlib import Path

from kernel_tuner.observers.nvml import NVMLObserver, nvml


class OneGPU:
    id = 0
    gr_voltage = nvml.gr_voltage


observer = NVMLObserver(["gr_voltage"])
observer.nvml = OneGPU()
observer.before_start()
observer.after_start()
first_mv = observer.nvml.gr_voltage()
Path(sys.argv[1]).touch()
for _ in range(20):
    observer.during()
later_mv = observer.nvml.gr_voltage()
observer.after_finish()
seen_mv = observer.get_results()["gr_voltage"]
print(f"nvidia-smi: {first_mv} mV, then {later_mv} mV")
print(f"gr_voltage: {seen_mv:.1f} mV")
sys.exit(0 if abs(seen_mv - first_mv / 2) < 1 else 1)
PYTHON
PATH="$folder:$PATH" "$folder/venv/bin/python" "$folder/program.py" "$folder/busy"
