#!/usr/bin/env bash
# FINDING: Zeus 0.16.0's GlobalPowerLimitOptimizer picks another power limit for the same job, whether one
# process drives all GPUs or, as it asks for, one process each GPU. By default it minimises the mean of the
# energy and of (highest power limit * GPUs * time). The energy is summed over all processes; the number of
# GPUs is that of this process, 1. The time then weighs an eighth with 8 GPUs, and the limit gets far too
# low. ZeusCost(0.5, world_size=8) has to be given to get the same as in one process.
#
# Seen with zeus 0.16.0; 8 GPUs (100 to 400 W, time as limit^-0.4) and the sums of 8 equal processes are
# simulated:
#   one process of 8 GPUs: 275 W
#   8 processes of one GPU: 100 W
#   8 processes of one GPU, world_size=8: 275 W
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet zeus==0.16.0

cat > "$folder/program.py" <<'PYTHON'
import sys

from zeus.monitor.energy import Measurement
from zeus.optimizer import power_limit
from zeus.optimizer.power_limit import GlobalPowerLimitOptimizer, ZeusCost

GPUS, LOWEST_W, HIGHEST_W = 8, 100, 400


class SimulatedGPUs:
    limit_w = HIGHEST_W

    def get_power_management_limit_constraints(self, index: int) -> tuple[int, int]:
        return 1000 * LOWEST_W, 1000 * HIGHEST_W

    def set_persistence_mode(self, index: int, enabled: bool, block: bool) -> None:
        pass

    def set_power_management_limit(self, index: int, limit_mw: int) -> None:
        self.limit_w = limit_mw // 1000


class SimulatedMonitor:
    def __init__(self, gpus: SimulatedGPUs, gpu_indices: list[int]) -> None:
        self.gpus, self.gpu_indices = gpus, gpu_indices

    def begin_window(self, name: str) -> None:
        pass

    def end_window(self, name: str) -> Measurement:
        time_s = (HIGHEST_W / self.gpus.limit_w) ** 0.4
        energy_j = dict.fromkeys(self.gpu_indices, self.gpus.limit_w * time_s)
        return Measurement(time=time_s, gpu_energy=energy_j)


def picked_w(gpus_each: int, selector: ZeusCost | None = None) -> int:
    processes = GPUS // gpus_each

    def all_reduce(values: list[float], operation: str) -> list[float]:
        return [v * processes for v in values] if operation == "sum" else values

    gpus = SimulatedGPUs()
    power_limit.get_gpus = lambda ensure_homogeneous=False: gpus
    power_limit.all_reduce = all_reduce
    power_limit.is_distributed = lambda: processes > 1
    monitor = SimulatedMonitor(gpus, list(range(gpus_each)))
    optimizer = GlobalPowerLimitOptimizer(monitor, optimum_selector=selector)
    for _ in range(2000):
        optimizer.on_step_begin()
    return gpus.limit_w


def main() -> int:
    one, ranks = picked_w(GPUS), picked_w(1)
    given = picked_w(1, ZeusCost(0.5, world_size=GPUS))
    print(f"one process of {GPUS} GPUs: {one} W")
    print(f"{GPUS} processes of one GPU: {ranks} W")
    print(f"{GPUS} processes of one GPU, world_size={GPUS}: {given} W")
    return 0 if given == one and ranks < one else 1


if __name__ == "__main__":
    sys.exit(main())
PYTHON
"$folder/venv/bin/python" "$folder/program.py"
