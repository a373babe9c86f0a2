#!/usr/bin/env bash
# FINDING: vessim 0.16.0's carbon intensity from WattTime is a percentile. WatttimeSignal, the "current marginal carbon
# intensity in lbs CO2/MWh" by its documentation, asks WattTime's signal-index, which says from 0 to 100 how high the
# current rate is among the rates of its region; the answer says so in its meta data, which are not read. The rate
# itself is in another place of WattTime's service. One would think that a number that is called an intensity can be
# multiplied by an energy, and compared between sites: the 80 of a region on water power then is more than the 20 of one
# on coal. Converted from lbs/MWh, 80 is 36 g/kWh, a value that a grid may have.
#
# Seen with vessim 0.16.0 and a stand-in for the service of WattTime:
#   HYDRO: rate 50 lbs/MWh, percentile 80; WatttimeSignal 80
#   COAL: rate 2100 lbs/MWh, percentile 20; WatttimeSignal 20
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet vessim==0.16.0 requests==2.34.2

cat > "$folder/program.py" <<'PYTHON'
import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import vessim

LBS_PER_MWH = {"HYDRO": 50.0, "COAL": 2100.0}
PERCENTILE = {"HYDRO": 80.0, "COAL": 20.0}


class WattTime(BaseHTTPRequestHandler):
    def do_GET(self):
        parts = urlsplit(self.path)
        if parts.path == "/login":
            answer = {"token": "token"}
        else:
            region = parse_qs(parts.query)["region"][0]
            index = parts.path == "/v3/signal-index"
            value = (PERCENTILE if index else LBS_PER_MWH)[region]
            units = "percentile" if index else "lbs_co2_per_mwh"
            answer = {
                "data": [{"point_time": "2026-01-01T00:00:00+00:00", "value": value}],
                "meta": {"region": region, "signal_type": "co2_moer", "units": units},
            }
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *arguments):
        pass


def main() -> int:
    server = ThreadingHTTPServer(("127.0.0.1", 0), WattTime)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    found = {}
    for region in LBS_PER_MWH:
        signal = vessim.WatttimeSignal(
            "user", "word", region=region, base_url=f"http://127.0.0.1:{server.server_port}"
        )
        signal.start()
        time.sleep(2.0)
        found[region] = signal.at(2.0)
        signal.finalize()
        print(f"{region}: rate {LBS_PER_MWH[region]:.0f} lbs/MWh, ", end="")
        print(f"percentile {PERCENTILE[region]:.0f}; WatttimeSignal {found[region]:.0f}")
    return 0 if found == PERCENTILE else 1


if __name__ == "__main__":
    sys.exit(main())
PYTHON
"$folder/venv/bin/python" "$folder/program.py"
