#!/usr/bin/env bash
# FINDING: Zeus 0.16.0's PowerMonitor.get_energy is far from the energy of the window. The monitor keeps a
# power only where it differs from the one before. get_energy joins the kept powers inside the window by
# straight lines, and adds nothing for the window's two ends. A steady power gives 0 J, however long the
# window; a step after a steady time becomes a ramp over all of it. ZeusMonitor uses it for the GPUs
# without an energy counter, and warns of 0 J that the window was too short.
#
# Here the GPU is simulated: 50 W, then 300 W for some seconds, then 50 W.
#
# Seen with zeus 0.16.0, powers that are read every 50 ms:
#   3 s of 300 W, nothing else: 0 J of 900 J
#   all, 4 s of 300 W between 50 W: 695 J of 1400 J
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet zeus==0.16.0

cat > "$folder/program.py" <<'PYTHON'
import os
import sys
import time

from zeus.device.gpu.common import ZeusGPUNotSupportedError
from zeus.monitor import power

LOW_W, HIGH_W = 50, 300
# The monitor reads in a process of its own, which runs this file too.
BUSY_S = float(os.environ.setdefault("BUSY_S", str(time.time() + 20)))
IDLE_S = BUSY_S + 4


class SimulatedGPUs:
    def __len__(self) -> int:
        return 1

    def get_instant_power_usage(self, index: int) -> int:
        return 1000 * (HIGH_W if BUSY_S <= time.time() < IDLE_S else LOW_W)

    def get_average_power_usage(self, index: int) -> int:
        raise ZeusGPUNotSupportedError("simulated")

    get_average_memory_power_usage = get_average_power_usage


power.get_gpus = lambda ensure_homogeneous=False: SimulatedGPUs()


def main() -> int:
    monitor = power.PowerMonitor(update_period=0.05)
    began = BUSY_S - 2
    if time.time() > began - 1:
        sys.exit("the monitor's process has started too late")
    time.sleep(IDLE_S + 2 - time.time())
    steady_j = monitor.get_energy(BUSY_S + 0.5, IDLE_S - 0.5)[0]
    all_j = monitor.get_energy(began, IDLE_S + 2)[0]
    monitor.stop()
    true_j = 4 * HIGH_W + 4 * LOW_W
    print(f"3 s of {HIGH_W} W, nothing else: {steady_j:.0f} J of {3 * HIGH_W} J")
    print(f"all, 4 s of {HIGH_W} W between {LOW_W} W: {all_j:.0f} J of {true_j} J")
    return 0 if steady_j == 0 and all_j < 0.6 * true_j else 1


if __name__ == "__main__":
    sys.exit(main())
PYTHON
"$folder/venv/bin/python" "$folder/program.py"
