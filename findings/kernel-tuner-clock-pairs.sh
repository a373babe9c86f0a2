#!/usr/bin/env bash
# FINDING: Kernel Tuner 1.5.0 sets nvml_gr_clock before nvml_mem_clock. NVML takes both in one call, so
# the new core clock is checked against the memory clock of the setting before. A pair that the GPU
# supports then ends the tuning with a ValueError, or not, depending on which pair came before it. Where
# the lowest memory clock has low core clocks only, no pair with a higher one can be reached from it.
#
# Seen with kernel-tuner 1.5.0 and nvidia-ml-py 13.615.71, NVML simulated:
#   memory: 5001 MHz supports 1200, 600 MHz; 405 MHz supports 405, 210 MHz
#   from 405/405 to 5001/600: ValueError
#   from 5001/1200 to 5001/600: set
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet kernel-tuner==1.5.0 nvidia-ml-py==13.615.71

cat > "$folder/program.py" <<'PYTHON'
import sys
from types import SimpleNamespace

import pynvml

from kernel_tuner.core import DeviceInterface
from kernel_tuner.observers.nvml import nvml

SUPPORTED = {5001: [1200, 600], 405: [405, 210]}
clocks = {}


def set_clocks(gpu: object, mem_mhz: int, gr_mhz: int) -> None:
    assert gr_mhz in SUPPORTED[mem_mhz]
    clocks.update({pynvml.NVML_CLOCK_MEM: mem_mhz, pynvml.NVML_CLOCK_GRAPHICS: gr_mhz})


def not_supported(*_: object) -> None:
    raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


def seen(before: tuple[int, int], after: tuple[int, int]) -> str:
    set_clocks(None, *before)
    device = SimpleNamespace(use_nvml=True, use_tegra=False, nvml=nvml(device_id=0))
    params = {"nvml_mem_clock": after[0], "nvml_gr_clock": after[1]}
    try:
        DeviceInterface.set_nvml_parameters(device, SimpleNamespace(params=params))
        said = "set"
    except ValueError:
        said = "ValueError"
    print(f"from {before[0]}/{before[1]} to {after[0]}/{after[1]}: {said}")
    return said


for name, value in {
    "Init": None,
    "DeviceGetHandleByIndex": "gpu",
    "DeviceGetIndex": 0,
    "DeviceGetUUID": "GPU-0",
    "DeviceGetPciInfo_v3": SimpleNamespace(busId="0"),
    "DeviceGetPersistenceMode": 1,
    "DeviceGetSupportedMemoryClocks": list(SUPPORTED),
}.items():
    setattr(pynvml, f"nvml{name}", lambda *_, value=value: value)
pynvml.nvmlDeviceGetPowerManagementLimit = not_supported
pynvml.nvmlDeviceGetAutoBoostedClocksEnabled = not_supported
pynvml.nvmlDeviceGetSupportedGraphicsClocks = lambda gpu, mem_mhz: SUPPORTED[mem_mhz]
pynvml.nvmlDeviceSetApplicationsClocks = set_clocks
pynvml.nvmlDeviceGetDefaultApplicationsClock = lambda gpu, kind: clocks[kind]
pynvml.nvmlDeviceGetApplicationsClock = lambda gpu, kind: clocks[kind]

rows = "; ".join(f"{m} MHz supports {g[0]}, {g[1]} MHz" for m, g in SUPPORTED.items())
print("memory:", rows)
one, other = seen((405, 405), (5001, 600)), seen((5001, 1200), (5001, 600))
sys.exit(0 if (one, other) == ("ValueError", "set") else 1)
PYTHON
"$folder/venv/bin/python" "$folder/program.py"
