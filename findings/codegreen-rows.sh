#!/usr/bin/env bash
# FINDING: codegreen-core 0.0.8 gives a job emissions in proportion to the number of rows that its carbon intensity
# comes in. compute_ce_from_energy divides the energy by the runtime in seconds, multiplies this by the intensity of
# each row, and adds up the rows, of whatever length they are: quarters of an hour give nearly four times as much as
# hours. One would think of energy times mean intensity, which is the same for both. What it returns, "in kilograms"
# by its documentation, is neither that in kilograms nor in grams. Two sites, of which one has finer data, are
# compared by their data.
#
# Seen with codegreen-core 0.0.8, a job of 10 h on 32 cores and 64 GB, 400 g/kWh all the time:
#   rows of 60 minutes: 1.0352; rows of 15 minutes: 3.8586; energy times intensity: 3388 g
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-deps codegreen-core==0.0.8 \
    pandas==2.2.3 numpy==1.26.4 python-dateutil==2.9.0.post0 pytz==2025.2 tzdata==2025.2 six==1.17.0

cat > "$folder/program.py" <<'PYTHON'
import sys
import sysconfig
from types import ModuleType
from unittest.mock import MagicMock

# Its plots, downloads and predictions are not used here: what they need is left out.
for name in ("matplotlib", "matplotlib.pyplot", "matplotlib.dates", "redis", "entsoe", "tensorflow"):
    sys.modules[name] = MagicMock()
for name in ("tensorflow.keras", "tensorflow.keras.models", "sklearn", "sklearn.preprocessing"):
    sys.modules[name] = MagicMock()
for name in ("codegreen_core", "codegreen_core.tools"):
    sys.modules[name] = ModuleType(name)
    sys.modules[name].__path__ = [f"{sysconfig.get_path('purelib')}/{name.replace('.', '/')}"]

import pandas as pd
from codegreen_core.tools.carbon_emission import compute_ce_from_energy

HOURS, INTENSITY = 10, 400.0
SERVER = {"number_core": 32, "power_draw_core": 15.8, "usage_factor_core": 1}
SERVER |= {"memory_gb": 64, "power_draw_mem": 0.3725, "power_usage_efficiency": 1.6}


def emissions(minutes: int) -> float:
    times = pd.date_range("2026-11-01", periods=HOURS * 60 // minutes + 1, freq=f"{minutes}min")
    rows = pd.DataFrame({"startTimeUTC": times, "ci_default": INTENSITY})
    return compute_ce_from_energy(SERVER, rows)[0]


def main() -> int:
    found = {minutes: emissions(minutes) for minutes in (60, 15)}
    for minutes, value in found.items():
        print(f"rows of {minutes} minutes: {value}")
    power = (32 * 15.8 + 64 * 0.3725) * 1.6
    print(f"energy times intensity: {power / 1000 * HOURS * INTENSITY:.0f} g")
    return 0 if found == {60: 1.0352, 15: 3.8586} else 1


if __name__ == "__main__":
    sys.exit(main())
PYTHON
"$folder/venv/bin/python" -W ignore "$folder/program.py"
