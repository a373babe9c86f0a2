#!/usr/bin/env bash
# FINDING: pyJoules 0.5.1 gives a GPU's energy in another unit than a processor's. Its documentation says uJ
# for every device. RAPL's counters are in uJ and NVML's in mJ, and pyJoules hands both on as they are. One would think
# that values of one sample, in one row, can be added. A GPU that uses 300 W has three thousandths of the energy of a
# processor that uses 100 W; the sum is the processor's, and a program that moves its work to the GPU seems to save
# nearly all of its energy. An idle energy in uJ that is taken away by remove_idle leaves a negative one.
#
# Seen with pyJoules 0.5.1 and nvidia-ml-py 13.615.71, the files of RAPL and the library of NVML simulated, 10 s:
#   package_0: 1000000000 for 100 W; nvidia_gpu_0: 3000000 for 300 W
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet pyJoules==0.5.1 nvidia-ml-py==13.615.71

cat > "$folder/nvml.c" <<'C'
#include <stdio.h>
#include <stdlib.h>

int nvmlInitWithFlags(unsigned flags) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = (void *)1; return 0; }

/* Since the driver was loaded, in mJ. */
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules) {
    FILE *file = fopen(getenv("GPU_MILLIJOULES"), "r");
    int values = fscanf(file, "%llu", millijoules);
    fclose(file);
    return values == 1 ? 0 : 999;
}
C
cc -shared -fPIC -o "$folder/libnvidia-ml.so.1" "$folder/nvml.c"

cat > "$folder/program.py" <<'PYTHON'
import os
import sys
from pathlib import Path

from pyJoules.device import rapl_device
from pyJoules.device.nvidia_device import NvidiaGPUDomain
from pyJoules.energy_meter import EnergyContext
from pyJoules.handler import EnergyHandler

SECONDS, PACKAGE_W, GPU_W = 10, 100, 300


def main(folder: Path) -> int:
    package = folder / "intel-rapl:0"
    package.mkdir()
    gpu = Path(os.environ["GPU_MILLIJOULES"])
    (package / "name").write_text("package-0\n")
    (package / "energy_uj").write_text("5000000\n")
    gpu.write_text("7000\n")
    rapl_device.RAPL_API_DIR = str(folder)
    handler = EnergyHandler()
    domains = [rapl_device.RaplPackageDomain(0), NvidiaGPUDomain(0)]
    with EnergyContext(handler=handler, domains=domains):
        (package / "energy_uj").write_text(f"{5_000_000 + SECONDS * PACKAGE_W * 10**6}\n")
        gpu.write_text(f"{7000 + SECONDS * GPU_W * 10**3}\n")
    found = handler.traces[0][0].energy
    print(f"package_0: {found['package_0']:.0f} for {PACKAGE_W} W; ", end="")
    print(f"nvidia_gpu_0: {found['nvidia_gpu_0']:.0f} for {GPU_W} W")
    microjoules = found["package_0"] == SECONDS * PACKAGE_W * 10**6
    return 0 if microjoules and found["nvidia_gpu_0"] == SECONDS * GPU_W * 10**3 else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
PYTHON
mkdir "$folder/powercap"
LD_LIBRARY_PATH="$folder" GPU_MILLIJOULES="$folder/millijoules" \
    "$folder/venv/bin/python" "$folder/program.py" "$folder/powercap"
