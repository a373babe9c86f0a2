#!/usr/bin/env bash
# FINDING: sprofile 0.2.3 gives a job of several programs on a GPU a load of nearly 0. From the driver's accounting it
# takes for each process when it began and how long it ran, and weighs the processes' utilisations with their times.
# NVML has the beginning in microseconds and the time in milliseconds; sprofile adds them as they are, so that each
# process lasts a thousandth of its time, and what follows until the next one is idle. One would think that the load of
# four programs of 90 % that follow each other is about 90 %, as for one. With one process alone the time cancels, and
# the load is right. A campaign, which runs a program for each setting, seems to leave its GPUs idle.
#
# Seen with sprofile 0.2.3, nvidia-ml-py 13.615.71 and a stand-in for the driver's library, 100 s each, 10 s apart:
#   1 of 90 %: load 0.900, by their times 0.900
#   4 of 90 %: load 0.001, by their times 0.837
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet sprofile==0.2.3 nvidia-ml-py==13.615.71

cat > "$folder/nvml.c" <<'C'
#include <stdlib.h>
#include <string.h>

typedef struct {
    unsigned gpu_utilization, memory_utilization;
    unsigned long long max_memory_usage, time, start_time; /* bytes, ms, us */
    unsigned is_running, reserved[5];
} accounting;
typedef struct { unsigned long long total, free, used; } memory;

static unsigned programs(void) { return atoi(getenv("PROGRAMS")); }

int nvmlInitWithFlags(unsigned flags) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = (void *)1; return 0; }
int nvmlDeviceGetMemoryInfo(void *device, memory *info) { info->total = 80ULL << 30; return 0; }
int nvmlDeviceGetAccountingBufferSize(void *device, unsigned *size) { *size = 100; return 0; }

int nvmlDeviceGetAccountingPids(void *device, unsigned *count, unsigned *pids) {
    *count = programs();
    for (unsigned i = 0; i < *count; i++) pids[i] = i;
    return 0;
}

int nvmlDeviceGetAccountingStats(void *device, unsigned pid, accounting *stats) {
    memset(stats, 0, sizeof *stats);
    stats->gpu_utilization = 90;
    stats->max_memory_usage = 1ULL << 30;
    stats->time = 100ULL * 1000;
    stats->start_time = atoll(getenv("JOB_START")) * 1000000 + pid * 110ULL * 1000000;
    return 0;
}
C
cc -shared -fPIC -o "$folder/libnvidia-ml.so.1" "$folder/nvml.c"

mkdir "$folder/bin"
cat > "$folder/bin/scontrol" <<'SH'
#!/bin/sh
echo "JobId=1 RunTime=00:10:00 TimeLimit=01:00:00 StartTime=$(date -d "@$JOB_START" +%Y-%m-%dT%H:%M:%S)"
SH
chmod +x "$folder/bin/scontrol"

cat > "$folder/program.py" <<'PYTHON'
import os

from sprofile.sprofile import NVMLHandle, NVMLStats

with NVMLHandle(0) as gpu:
    load = NVMLStats.usage_stats(gpu)[0]
programs = int(os.environ["PROGRAMS"])
expected = 0.9 * 100 * programs / (110 * programs - 10)
print(f"{programs} of 90 %: load {load:.3f}, by their times {expected:.3f}")
PYTHON
export LD_LIBRARY_PATH="$folder" PATH="$folder/bin:$PATH" JOB_START=1767225600 SLURM_JOB_ID=1 SLURMD_NODENAME=node1
for programs in 1 4; do
    PROGRAMS=$programs "$folder/venv/bin/python" "$folder/program.py" | tee -a "$folder/seen"
done
diff "$folder/seen" - <<'TEXT'
1 of 90 %: load 0.900, by their times 0.900
4 of 90 %: load 0.001, by their times 0.837
TEXT
