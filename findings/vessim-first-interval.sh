#!/usr/bin/env bash
# FINDING: vessim 0.16.0 counts the first interval of a live run with 0 W. A live signal starts a thread that fetches
# its first value, and the run samples the signal at once: it gets the 0 that the signal holds until an answer is
# there. A sample counts for the whole interval that follows it. One would think that a run starts with a value, or
# that an interval without one has none. With a step of 5 minutes an hour lacks a twelfth of its energy; a query that
# is never answered is 0 W to the end. Nothing is said. A carbon intensity or a price is 0 in that interval, too.
#
# Seen with vessim 0.16.0, 300 W all the time, answered by a stand-in for Prometheus within 0.2 s, 9 s in steps of 3 s:
#   sampled: 0 W, 300 W, 300 W
#   energy: 1800 J of 2700 J
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

import vessim

POWER_W, STEP_S, STEPS = 300.0, 3, 3


class Prometheus(BaseHTTPRequestHandler):
    def do_GET(self):
        time.sleep(0.2)
        series = [{"metric": {}, "value": [time.time(), str(POWER_W)]}]
        data = {"resultType": "vector", "result": series}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"status": "success", "data": data}).encode())

    def log_message(self, *arguments):
        pass


def main() -> int:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Prometheus)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    signal = vessim.PrometheusSignal(
        f"http://127.0.0.1:{server.server_port}", "node_power_watts", update_interval=0.5
    )
    environment = vessim.Environment.live(step_size=STEP_S)
    environment.add_microgrid(
        name="site",
        actors=[vessim.Consumer("node", signal)],
        dispatchables=[vessim.GridConnection()],
    )
    recorder = vessim.Recorder()
    environment.add_controller(recorder)
    environment.run(until=STEP_S * STEPS)
    powers = [-float(power) for power in recorder.to_df()["p_delta"]]
    energy_j = recorder.metrics["actors"]["site"]["node"]["energy_consumed"] * 3600
    print(f"sampled: {', '.join(f'{abs(power):.0f} W' for power in powers)}")
    print(f"energy: {energy_j:.0f} J of {POWER_W * STEP_S * STEPS:.0f} J")
    missing_j = POWER_W * STEP_S * STEPS - energy_j
    return 0 if powers == [0, POWER_W, POWER_W] and abs(missing_j - POWER_W * STEP_S) < 1 else 1


if __name__ == "__main__":
    sys.exit(main())
PYTHON
"$folder/venv/bin/python" "$folder/program.py"
