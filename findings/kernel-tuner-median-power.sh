#!/usr/bin/env bash
# FINDING: Kernel Tuner 1.5.0's nvml_energy is the median of the power readings times the time of a run,
# not the energy that was used; nvml_power, which its documentation calls the average, is that median. Of
# a kernel with two phases only the longer one counts: the energy of a kernel that computes for 40 ms of
# 100 ms comes out a third too low, of one that does so for 60 ms a third too high, and tuning for energy
# can pick the wrong one. NVML's own counter of energy has the sum. At a steady power the two agree.
#
# Seen with kernel-tuner 1.5.0, a second of runs of 0.1 s, 150 W or 350 W (power and clock are simulated):
#   steady 230 W: nvml_power 230 W, nvml_energy 23 J; used 23 J
#   350 W for 0.04 s of each run: nvml_power 150 W, nvml_energy 15 J; used 23 J
#   350 W for 0.06 s of each run: nvml_power 350 W, nvml_energy 35 J; used 27 J
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet kernel-tuner==1.5.0

cat > "$folder/program.py" <<'PYTHON'
import sys
from collections.abc import Callable
from types import SimpleNamespace

from kernel_tuner.observers import nvml, observer

RUN_MS, RUNS = 100, 10


def seen(name: str, power_w: Callable[[int], int]) -> tuple[int, int]:
    now = SimpleNamespace(ms=0)
    clock = SimpleNamespace(perf_counter=lambda: now.ms / 1000)
    observer.time = nvml.time = clock
    gpu = nvml.NVMLObserver(["nvml_power", "nvml_energy"])
    gpu.nvml = SimpleNamespace(pwr_usage=lambda: 1000 * power_w(now.ms % RUN_MS))
    continuous = gpu.continuous_observer
    continuous.results = {"time": RUN_MS}
    continuous.before_start()
    continuous.after_start()
    for now.ms in range(RUNS * RUN_MS):
        continuous.during()
    continuous.after_finish()
    results = continuous.get_results()
    used_j = round(sum(power_w(ms) for ms in range(RUN_MS)) / 1000)
    energy_j = round(results["nvml_energy"])
    print(
        f"{name}: nvml_power {results['nvml_power']:.0f} W, nvml_energy {energy_j} J; "
        f"used {used_j} J"
    )
    return energy_j, used_j


def main() -> int:
    steady = seen("steady 230 W", lambda ms: 230)
    short = seen("350 W for 0.04 s of each run", lambda ms: 350 if ms < 40 else 150)
    long = seen("350 W for 0.06 s of each run", lambda ms: 350 if ms < 60 else 150)
    return 0 if (steady, short, long) == ((23, 23), (15, 23), (35, 27)) else 1


if __name__ == "__main__":
    sys.exit(main())
PYTHON
"$folder/venv/bin/python" "$folder/program.py"
