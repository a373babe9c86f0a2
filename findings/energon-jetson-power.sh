#!/usr/bin/env bash
# FINDING: Energon 0.1.0, a Prometheus exporter of powers, exports other quantities of a Jetson's sensors as power.
# On an AGX Orin total_power is the sum of the files in1_input to in3_input of two sensors, which are voltages in mV
# by the kernel's naming, and on an Orin Nano it is curr1_input, a current in mA; on the AGX the voltages that it
# exports are the currents. Its documentation and the names of its metrics say mW. One would think of current times
# voltage, both of which it reads. On the AGX the value hardly moves, whatever runs: the energy of a kernel is its
# time, and the highest clock the best. On the Nano it moves with the load, and is a fifth of the power at 5 V.
#
# Seen with Energon 0.1.0, rails of 5 V at 200 mA, then at 2000 mA, in simulated files:
#   AGX Orin, 6 rails: total_power 30000 and 30000, where the rails have 6000 mW and 60000 mW
#   Orin Nano, 1 rail: total_power 200 and 2000, where the rail has 1000 mW and 10000 mW
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet energon-prometheus-exporter==0.1.0

# cat gives a rail's 5000 mV and the current of the moment
mkdir "$folder/bin"
cat > "$folder/bin/cat" <<'BASH'
#!/bin/bash
[[ $1 == */in?_input ]] && echo 5000
[[ $1 == */curr?_input ]] && echo "$CURRENT_MA"
exit 0
BASH
chmod +x "$folder/bin/cat"

cat > "$folder/program.py" <<'PYTHON'
import os
import sys

from energon_prometheus_exporter.models.jetson_agx_orin import JetsonAgxOrin
from energon_prometheus_exporter.models.jetson_orin_nano import JetsonOrinNano

VOLTAGE_MV, CURRENTS_MA = 5000, (200, 2000)


def main() -> int:
    found = {}
    for name, model, rails in (("AGX Orin", JetsonAgxOrin, 6), ("Orin Nano", JetsonOrinNano, 1)):
        device = model()
        for current in CURRENTS_MA:
            os.environ["CURRENT_MA"] = str(current)
            device.set_energy_metrics()
            power = device.energy_metrics["total_power"]
            real = rails * VOLTAGE_MV * current // 1000
            print(f"{name}, {rails} rails at {current} mA: total_power {power:g}, the rails have {real} mW")
            found[name, current] = power
    expected = {("AGX Orin", 200): 30000, ("AGX Orin", 2000): 30000}
    expected |= {("Orin Nano", 200): 200, ("Orin Nano", 2000): 2000}
    return 0 if found == expected else 1


if __name__ == "__main__":
    sys.exit(main())
PYTHON
PATH="$folder/bin:$PATH" "$folder/venv/bin/python" -W ignore "$folder/program.py"
