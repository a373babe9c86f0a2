#!/usr/bin/env bash
# FINDING: energy-bench 0.1.0 gives a short kernel less energy than none, and the slower it is, the less. On a GPU
# without an energy counter its meter joins the powers that it has sampled inside the block, each 0.1 s by default,
# and takes nothing for the time before the first and after the last; from this it subtracts the idle power times
# the whole time. A kernel that ends before the second sample has 0 J, and so minus its idle energy as net, whatever
# it drew. One would think of the power times the time where there is one sample, or of a message; the one warning
# calls the method noisier. Of two clocks the slower one is recommended, which uses more.
#
# Seen with energy-bench 0.1.0, idle 60 W, samples each 0.1 s, NVML simulated:
#   high clock, 50 ms at 400 W, net 17 J: -3 J; low clock, 90 ms at 300 W, net 21.6 J: -5.4 J;
#   recommended: low clock, "already the lowest-energy cell"
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet energy-bench==0.1.0

cat > "$folder/program.py" <<'PYTHON'
import sys
import warnings
from types import SimpleNamespace

from energy_bench import EnergyMeter, SweepReport, recommend

IDLE_W = 60
SETTINGS = {"high clock": (50, 400), "low clock": (90, 300)}


class Gpu:
    """An NVML of a GPU without an energy counter."""

    def __init__(self) -> None:
        self.power_w = IDLE_W

    def count(self) -> int:
        return 1

    def handle_by_index(self, index: int) -> int:
        return index

    def uuid(self, handle: int) -> str:
        return "GPU-0"

    def energy_mj(self, handle: int) -> int:
        raise RuntimeError("Not Supported")

    def power_mw(self, handle: int) -> int:
        return 1000 * self.power_w

    def temperature_c(self, handle: int) -> int:
        return 60

    def sm_clock_mhz(self, handle: int) -> int:
        return 1980


def net_j(time_ms: int, power_w: int) -> float:
    gpu, now_s = Gpu(), [0.0]
    meter = EnergyMeter(device_uuid="GPU-0", nvml=gpu, clock=lambda: now_s[0])
    gpu.power_w = power_w
    with meter.session(idle_w=IDLE_W) as session:
        now_s[0] += time_ms / 1000
    assert session.reading.method == "power_integration"
    return session.reading.energy_j_net


def main() -> int:
    warnings.simplefilter("ignore")
    found = {name: net_j(*kernel) for name, kernel in SETTINGS.items()}
    for name, (time_ms, power_w) in SETTINGS.items():
        true_j = (power_w - IDLE_W) * time_ms / 1000
        print(f"{name}, {time_ms} ms at {power_w} W, net {true_j:g} J: reported {found[name]:g} J")
    cells = {
        name: SimpleNamespace(energy_j_net_mean=energy_j, accuracy=None)
        for name, energy_j in found.items()
    }
    sweep = SweepReport(task="kernel", metric="none", cells=cells, failures={})
    advice = recommend(sweep, baseline="low clock")
    print(f"recommended: {advice.chosen}, since {advice.reason}")
    expected = {"high clock": -3.0, "low clock": -5.4}
    return 0 if found == expected and advice.chosen == "low clock" else 1


if __name__ == "__main__":
    sys.exit(main())
PYTHON
"$folder/venv/bin/python" "$folder/program.py"
