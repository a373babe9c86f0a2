#!/usr/bin/env bash
# FINDING: carbontracker 2.4.7 reports the energy of one device where a node has several. It puts the
# powers of all devices, sample after sample, into one list, and multiplies the mean of this list by the
# time: energy and power of N GPUs are divided by N, and a package of 200 W with 30 W of DRAM counts as
# 115 W. The log names all the devices.
#
# Seen with carbontracker 2.4.7, NVML and RAPL simulated:
#   8 GPUs of 400 W, 10 s: 4000 J of 32000 J
#   a package of 200 W and DRAM of 30 W, 10 s: 1149 J of 2300 J
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet carbontracker==2.4.7

cat > "$folder/program.py" <<'PYTHON'
import sys
import threading
import time
from pathlib import Path

import pynvml

from carbontracker.components.component import Component
from carbontracker.components.cpu import intel

GPUS, GPU_WATTS, PACKAGE_WATTS, DRAM_WATTS, SECONDS = 8, 400, 200, 30, 10


def energy_j(name: str) -> float:
    component = Component(name, pids=[], devices_by_pid=False, logger=None)
    component.init()
    for _ in range(3):
        component.collect_power_usage(epoch=1)
    (kwh,) = component.energy_usage([SECONDS])
    return kwh * 3.6e6


def simulate_rapl(folder: Path) -> None:
    watts = {"intel-rapl:0": PACKAGE_WATTS, "intel-rapl:0:0": DRAM_WATTS}
    for zone, name in zip(watts, ("package-0", "dram")):
        (folder / zone).mkdir(parents=True)
        (folder / zone / "name").write_text(f"{name}\n")
        (folder / zone / "energy_uj").write_text("5000000000\n")
    began = time.monotonic()

    def advance() -> None:
        while True:
            for zone, w in watts.items():
                used_uj = int((time.monotonic() - began) * w * 1e6)
                (folder / zone / "new").write_text(f"{5_000_000_000 + used_uj}\n")
                (folder / zone / "new").rename(folder / zone / "energy_uj")
            time.sleep(0.005)

    threading.Thread(target=advance, daemon=True).start()
    intel.RAPL_DIR = str(folder)


def main(folder: Path) -> int:
    pynvml.nvmlInit = pynvml.nvmlShutdown = lambda: None
    pynvml.nvmlDeviceGetCount = lambda: GPUS
    pynvml.nvmlDeviceGetHandleByIndex = lambda index: index
    pynvml.nvmlDeviceGetPowerUsage = lambda handle: GPU_WATTS * 1000
    gpus_j, true_gpus_j = energy_j("gpu"), GPUS * GPU_WATTS * SECONDS
    print(f"{GPUS} GPUs of {GPU_WATTS} W, {SECONDS} s: {gpus_j:.0f} J of {true_gpus_j} J")
    simulate_rapl(folder)
    cpu_j, true_cpu_j = energy_j("cpu"), (PACKAGE_WATTS + DRAM_WATTS) * SECONDS
    print(
        f"a package of {PACKAGE_WATTS} W and DRAM of {DRAM_WATTS} W, {SECONDS} s: "
        f"{cpu_j:.0f} J of {true_cpu_j} J"
    )
    return 0 if round(gpus_j) == true_gpus_j / GPUS and cpu_j < 0.6 * true_cpu_j else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
PYTHON
env -u CUDA_VISIBLE_DEVICES "$folder/venv/bin/python" "$folder/program.py" "$folder/powercap"
