#!/usr/bin/env bash
# FINDING: the update period that Zeus 0.16.0 infers of a GPU's power is always 0 s: it takes the smaller
# of what it has found and the 0 that it starts with. PowerMonitor, whose default it is, and which
# ZeusMonitor starts for GPUs without an energy counter, then reads without a pause: a processor core for
# each kind of power is busy all the time, on the node that is measured. A period that is given does not
# do this.
#
# Seen with zeus 0.16.0, a simulated GPU whose power changes every 100 ms:
#   found of the GPU: 0.10 s; inferred: 0.00 s
#   reading for 3 s takes 1.99 s of processor time; at a period of 0.05 s: 0.05 s
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet zeus==0.16.0 psutil==7.1.3

cat > "$folder/program.py" <<'PYTHON'
import sys
import time

import psutil

from zeus.device.gpu.common import ZeusGPUNotSupportedError
from zeus.monitor import power


class SimulatedGPUs:
    def __len__(self) -> int:
        return 1

    def get_name(self, index: int) -> str:
        return "simulated"

    def get_instant_power_usage(self, index: int) -> int:
        until = time.perf_counter() + 0.0005
        while time.perf_counter() < until:  # a call of the driver
            pass
        return 200_000 + int(time.time() * 10) % 100

    def get_average_power_usage(self, index: int) -> int:
        raise ZeusGPUNotSupportedError("simulated")

    get_average_memory_power_usage = get_average_power_usage


power.get_gpus = lambda ensure_homogeneous=False: SimulatedGPUs()


def processor_s(update_period: float | None) -> float:
    monitor = power.PowerMonitor(update_period=update_period)
    (process,) = monitor.processes.values()
    reader = psutil.Process(process.pid)
    before = reader.cpu_times()
    time.sleep(3)
    after = reader.cpu_times()
    monitor.stop()
    return after.user + after.system - before.user - before.system


def main() -> int:
    found_s = power._infer_counter_update_period_single(0)
    inferred_s = power.infer_counter_update_period([0])
    print(f"found of the GPU: {found_s:.2f} s; inferred: {inferred_s:.2f} s")
    busy_s, calm_s = processor_s(None), processor_s(0.05)
    print(
        f"reading for 3 s takes {busy_s:.2f} s of processor time; "
        f"at a period of 0.05 s: {calm_s:.2f} s"
    )
    return 0 if found_s > 0.05 and inferred_s == 0 and busy_s > 5 * calm_s else 1


if __name__ == "__main__":
    sys.exit(main())
PYTHON
"$folder/venv/bin/python" "$folder/program.py"
