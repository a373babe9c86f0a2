#!/usr/bin/env bash
# FINDING: in hpcsim 0.3.1 the sun rises every six hours where renewable power is given every 15 minutes.
# RenewableConfig has slot_duration_sec, of one hour, and available_power_watts looks up the slot of a time. One would
# think that shorter slots are the same day in finer steps. The hour of the day goes on by 1 from slot to slot whatever
# their duration: slots of 15 minutes make four days of one, slots of two hours half a day, with the sun's power in
# full. Schedulers that wait for the sun wait a quarter of the time, and the sun is no longer a reason to wait for a job
# of hours. A forecast is of 24 slots, too, and not of 24 hours.
#
# Seen with hpcsim 0.3.1, sun only, 72 hours:
#   slots of 3600 s: 3 sunrises
#   slots of 900 s: 12 sunrises
#   slots of 7200 s: 1 sunrises
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
# Of what it depends on, only what is imported here.
"$folder/venv/bin/pip" install --quiet numpy==2.4.6 matplotlib==3.11.2 tabulate==0.10.0
"$folder/venv/bin/pip" install --quiet --no-deps hpcsim==0.3.1

cat > "$folder/program.py" <<'PYTHON'
import sys
from itertools import pairwise

from hpcsim.energy.renewable import RenewableConfig, RenewableEnergyModule, WindModel

DURATION_S = 72 * 3600


def main() -> int:
    sunrises, forecast_hours = {}, {}
    for slot_s in (3600, 900, 7200):
        config = RenewableConfig(wind=WindModel(rated_power_w=0.0), slot_duration_sec=slot_s)
        supply = RenewableEnergyModule(config, total_gpus=256, sim_duration=DURATION_S)
        watts = [supply.available_power_watts(at) for at in range(0, DURATION_S, slot_s)]
        sunrises[slot_s] = sum(before == 0 < after for before, after in pairwise(watts))
        forecast_hours[slot_s] = sum(duration for duration, _ in supply.get_forecast(0)) / 3600
        print(f"slots of {slot_s} s: {sunrises[slot_s]} sunrises")
    right = sunrises[3600] == 3 and forecast_hours[3600] == 24
    still = sunrises[900] == 12 and sunrises[7200] == 1 and forecast_hours[900] == 6
    return 0 if right and still else 1


if __name__ == "__main__":
    sys.exit(main())
PYTHON
"$folder/venv/bin/python" "$folder/program.py"
