#!/usr/bin/env bash
# FINDING: codegreen-core 0.0.8 takes the carbon intensity of a country with hourly data in g/kWh and that of any other
# in kg/kWh, as the same number. compute_ci has the one from the mix of sources, the other from a table, and returns
# both as ci_default; compute_ce and compare_carbon_emissions multiply them by the energy alike. One would think that
# two servers are compared in one unit. Where there is no hourly data, a job seems to emit a thousandth: less than on
# water power alone elsewhere. A campaign is moved to where it emits more.
#
# Seen with codegreen-core 0.0.8, a job of 10 h in Norway (100 % water power, simulated) and in the United States:
#   ci_default: Norway 24.0, United States 0.40706
#   compare_carbon_emissions: Norway 0.0621, United States 0.0011; higher: server1, which is Norway
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

import datetime

import pandas as pd
from codegreen_core.tools import carbon_intensity
from codegreen_core.tools.carbon_emission import compare_carbon_emissions

START, HOURS = datetime.datetime(2026, 11, 1), 10
SOURCES = ["Coal", "Petroleum", "Biomass", "Natural Gas", "Geothermal", "Hydroelectricity", "Nuclear", "Solar", "Wind"]


def water_power(country: str, start: datetime.datetime, end: datetime.datetime) -> dict:
    """What the download of a country's hourly mix would give."""
    table = pd.DataFrame({"startTimeUTC": pd.date_range(start, end, freq="h")})
    for source in SOURCES:
        table[f"{source}_per"] = 100.0 if source == "Hydroelectricity" else 0.0
    return {"data": table}


def main() -> int:
    carbon_intensity.energy = water_power
    end = START + datetime.timedelta(hours=HOURS)
    intensities = [carbon_intensity.compute_ci(name, START, end)["ci_default"].iloc[0] for name in ("NO", "US")]
    print(f"ci_default: Norway {intensities[0]}, United States {intensities[1]}")
    servers = [{"country": name, "number_core": 32, "memory_gb": 64} for name in ("NO", "US")]
    first, second, _, higher = compare_carbon_emissions(*servers, START, START, HOURS * 60)
    print(f"compare_carbon_emissions: Norway {first}, United States {second}; higher: {higher}, which is Norway")
    return 0 if intensities == [24.0, 0.40706] and (first, second, higher) == (0.0621, 0.0011, "server1") else 1


if __name__ == "__main__":
    sys.exit(main())
PYTHON
"$folder/venv/bin/python" -W ignore "$folder/program.py"
