#!/usr/bin/env bash
# FINDING: BoaviztAPI 2.5.0 computes with the power of another processor than the one that it is told, although it is
# told the power too. It is to complete what a request does not state, and looks for the name in its table of
# processors. A processor that is not in the table becomes the one with the most similar name, and the TDP, the cores
# and the die of this row take the place of those that the request states: "Intel Xeon 6980P" with tdp=500 and
# core_units=128 becomes a W-1290P of 10 cores and 125 W. One would think that what is stated is kept. Only with
# verbose=true does the answer have the name that was found; the powers and emissions are the other processor's anyhow.
# Without a name the same request has the power that was stated.
#
# Seen with BoaviztAPI 2.5.0, processors at full load:
#   Intel Xeon Platinum 8592+, 350 W: Intel Xeon Platinum 8352M, tdp 185 W, 189 W; without name 357 W
#   AMD EPYC 9965, 500 W: AMD EPYC 9654, tdp 360 W, 368 W; without name 510 W
#   Intel Xeon 6980P, 500 W: Intel Xeon W-1290P, tdp 125 W, 128 W; without name 510 W
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet boaviztapi==2.5.0 fastapi==0.137.2 httpx==0.28.1

cat > "$folder/program.py" <<'PYTHON'
import sys

from boaviztapi.main import app
from fastapi.testclient import TestClient

PROCESSORS = {  # by name: TDP in W, cores
    "Intel Xeon Platinum 8592+": (350, 64),
    "AMD EPYC 9965": (500, 192),
    "Intel Xeon 6980P": (500, 128),
}


def answer(client: TestClient, **stated: str | int) -> tuple[str | None, int, float]:
    request = stated | {"usage": {"usage_location": "FRA", "time_workload": 100}}
    details = client.post("/v1/component/cpu?verbose=true", json=request).json()["verbose"]
    name = details.get("name", {}).get("value")
    return name, details["tdp"]["value"], details["avg_power"]["value"]


def main() -> int:
    still = True
    client = TestClient(app)
    for name, (tdp_w, cores) in PROCESSORS.items():
        found, found_tdp_w, power_w = answer(client, name=name, tdp=tdp_w, core_units=cores)
        _, kept_tdp_w, right_w = answer(client, tdp=tdp_w, core_units=cores)
        print(f"{name}, {tdp_w} W: {found}, tdp {found_tdp_w} W, ", end="")
        print(f"{power_w:.0f} W; without name {right_w:.0f} W")
        still = still and kept_tdp_w == tdp_w and found_tdp_w < tdp_w and power_w < 0.8 * right_w
    return 0 if still else 1


if __name__ == "__main__":
    sys.exit(main())
PYTHON
"$folder/venv/bin/python" -W ignore "$folder/program.py" 2> /dev/null
