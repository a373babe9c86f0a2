#!/usr/bin/env bash
# FINDING: WattAMeter 0.9.3 records 0 mW for a GPU that draws 300 W, where NVML has no instantaneous power for the
# device. Whether it asks for this field is decided by whether the Python binding knows the field's
# number, which every recent one does, and not by the device's answer: the answer carries its own return code,
# "not supported", that is not looked at, and the value beside it is 0. nvmlDeviceGetPowerUsage, which works
# there, is not asked. One would think of the other reading, or of a message; there is neither. The
# GPU's energy in a campaign is 0 J, and the node's is that of its processors alone.
#
# Seen with WattAMeter 0.9.3, nvidia-ml-py 13.615.71 and a stand-in for the driver's library:
#   field supported: 300000 mW; not supported: 0 mW; nvmlDeviceGetPowerUsage of both: 310000 mW
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet wattameter==0.9.3 nvidia-ml-py==13.615.71

cat > "$folder/nvml.c" <<'C'
#include <stdlib.h>
#include <string.h>

typedef struct {
    unsigned field, scope;
    long long timestamp, latency;
    int value_type, result;
    union { double d; unsigned u; unsigned long long ull; } value;
} field_value;

int nvmlInitWithFlags(unsigned flags) { return 0; }
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = (void *)1; return 0; }
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) { *milliwatts = 310000; return 0; }

int nvmlDeviceGetFieldValues(void *device, int count, field_value *values) {
    int supported = !strcmp(getenv("INSTANT_POWER"), "supported");
    for (int i = 0; i < count; i++) {
        values[i].result = supported ? 0 : 3;
        values[i].value.ull = supported ? 300000 : 0;
    }
    return 0;
}
C
cc -shared -fPIC -o "$folder/libnvidia-ml.so.1" "$folder/nvml.c"

cat > "$folder/program.py" <<'PYTHON'
import sys

import pynvml
from wattameter.readers.nvml import NVMLReader

reader = NVMLReader()
usage = pynvml.nvmlDeviceGetPowerUsage(reader.devices[0])
print(f"{sys.argv[1]}: {reader.tags[0]} {reader.read()[0]}, nvmlDeviceGetPowerUsage {usage}")
PYTHON
for answer in supported unsupported; do
    LD_LIBRARY_PATH="$folder" INSTANT_POWER=$answer \
        "$folder/venv/bin/python" "$folder/program.py" $answer 2>&1 | tee -a "$folder/seen"
done
diff "$folder/seen" - <<'TEXT'
supported: gpu-0[mW] 300000, nvmlDeviceGetPowerUsage 310000
unsupported: gpu-0[mW] 0, nvmlDeviceGetPowerUsage 310000
TEXT
