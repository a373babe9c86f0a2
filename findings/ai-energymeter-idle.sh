#!/usr/bin/env bash
# FINDING: AI-EnergyMeter 2.0.2 gives a GPU more energy without its idle times than with them. By default
# include_idle=False leaves "energy used during idle times" out: of the powers that it has sampled it drops those at a
# utilization of 0, and joins the others by straight lines over their times. An idle time between two kernels becomes a
# line from load to load, and counts with the power of the load. One would think that idle seconds count with 0 W. Only
# those before the first kernel and after the last are left out. The longer a program lets its GPU wait, the more its
# GPU has used, and a version that keeps the GPU busy for as long seems no better.
#
# Seen with ai-energymeter 2.0.2, NVML and the clock simulated, 300 W for 10 s, 60 W at 0 % for 80 s, 300 W for 10 s:
#   include_idle=True: 10770 J
#   include_idle=False: 29970 J; the 20 s at 300 W: 6000 J
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet ai-energymeter==2.0.2 pynvml==13.0.1 numpy==2.3.5

cat > "$folder/program.py" <<'PYTHON'
import contextlib
import io
import sys
from types import SimpleNamespace

import energymeter.energy_meter as meters

LOAD_W, IDLE_W, LOAD_S, IDLE_S = 300, 60, 10, 80
END_S = 2 * LOAD_S + IDLE_S


class Run:
    """The program's clock, and the GPU at each of its times."""

    now_s = 0.0

    def busy(self) -> bool:
        return not LOAD_S <= self.now_s < LOAD_S + IDLE_S


def gpu_energy_j(include_idle: bool) -> float:
    run = Run()
    meters.nvmlInit = lambda: None
    meters.nvmlDeviceGetHandleByIndex = lambda index: index
    meters.nvmlDeviceGetTemperature = lambda handle, sensor: 50
    meters.nvmlDeviceGetPowerUsage = lambda handle: 1000 * (LOAD_W if run.busy() else IDLE_W)
    meters.nvmlDeviceGetUtilizationRates = lambda handle: SimpleNamespace(
        gpu=100 if run.busy() else 0
    )
    with contextlib.redirect_stdout(io.StringIO()):
        meter = meters.EnergyMeter(include_idle=include_idle, ignore_disk=True)
    sampler = meter.thread_gpu

    def sleep(seconds: float) -> None:
        run.now_s = round(run.now_s + seconds, 6)
        sampler.stop = run.now_s >= END_S

    meters.time = SimpleNamespace(time=lambda: run.now_s, sleep=sleep)
    sampler.run()
    return meter.get_total_joules_gpu()


def main() -> int:
    everything, without_idle = gpu_energy_j(True), gpu_energy_j(False)
    load = 2 * LOAD_S * LOAD_W
    print(f"include_idle=True: {everything:.0f} J")
    print(f"include_idle=False: {without_idle:.0f} J; the {2 * LOAD_S} s at {LOAD_W} W: {load} J")
    right = abs(everything - load - IDLE_S * IDLE_W) < 100
    return 0 if right and without_idle > 0.99 * LOAD_W * END_S else 1


if __name__ == "__main__":
    sys.exit(main())
PYTHON
"$folder/venv/bin/python" -W ignore "$folder/program.py" 2> /dev/null
