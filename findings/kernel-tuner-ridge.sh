#!/usr/bin/env bash
# FINDING: Kernel Tuner 1.5.0's model of power over clock cannot find a ridge (the clock above which the
# voltage rises) below twice the lowest clock that was measured. The fit subtracts the lowest clock from
# the clocks, and not from the bounds of the ridge. Points that its own model makes are fitted exactly
# where the ridge is higher; where it is lower the bound comes out, without a warning. It is the clock
# that create_power_frequency_model returns, and that clocks to tune are chosen around. Where the median
# of the clocks is below twice the lowest, the fit ends with a ValueError.
#
# Seen with kernel-tuner 1.5.0, points of its model without noise:
#   600 to 2000 MHz, ridge at 1400 MHz: found 1400 MHz
#   600 to 2000 MHz, ridge at 1000 MHz: found 1200 MHz
#   600 to 2000 MHz, ridge at 800 MHz: found 1200 MHz
#   1000 to 1980 MHz, ridge at 1400 MHz: ValueError: Initial guess is outside of provided bounds
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

import numpy as np

from kernel_tuner.energy.energy import estimated_power, fit_power_frequency_model

LOWEST_W, VOLTAGE_SCALE, CLOCK_SCALE = 60, 0.5, 0.8


def found(first_mhz: int, last_mhz: int, ridge_mhz: int) -> str:
    clocks_mhz = np.linspace(first_mhz, last_mhz, 21)
    above, ridge_above = clocks_mhz - first_mhz, ridge_mhz - first_mhz
    power_w = LOWEST_W * estimated_power(above, ridge_above, VOLTAGE_SCALE, CLOCK_SCALE, 100)
    try:
        seen = f"found {fit_power_frequency_model(clocks_mhz, power_w)[0]:.0f} MHz"
    except ValueError as e:
        seen = f"ValueError: {e}"
    print(f"{first_mhz} to {last_mhz} MHz, ridge at {ridge_mhz} MHz: {seen}")
    return seen


right = found(600, 2000, 1400) == "found 1400 MHz"
wrong = {found(600, 2000, ridge) for ridge in (1000, 800)} == {"found 1200 MHz"}
fails = found(1000, 1980, 1400).startswith("ValueError")
sys.exit(0 if right and wrong and fails else 1)
PYTHON
"$folder/venv/bin/python" "$folder/program.py"
