#!/usr/bin/env bash
# FINDING: a program that asks prometheus-api-client 0.7.2 for a power every ten minutes gets the same ten minutes each
# time, those before it started. get_metric_range_data without times, as its README has it, asks Prometheus for the ten
# minutes before now, and "now" is the moment at which the module was imported, for as long as the process lives. One
# would think of the ten minutes before the call. Nothing looks wrong: the samples are real, as many as expected, and
# have the right labels. A monitor that adds them up multiplies the energy before its start, idle in most cases, by the
# number of its calls, and never sees the runs that it was to measure.
#
# Seen with prometheus-api-client 0.7.2 and a stand-in for Prometheus, idle at 100 W, at 300 W from the import on:
#   asked 1 s after the import: the window ends 1 s ago, mean 100 W
#   asked 6 s after the import: the window ends 6 s ago, mean 100 W
#   with times: ends 0 s ago, mean 102 W
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet prometheus-api-client==0.7.2

cat > "$folder/program.py" <<'PYTHON'
import json
import sys
import threading
import time
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

IMPORTED_S = time.time()
from prometheus_api_client import PrometheusConnect  # noqa: E402

IDLE_W, BUSY_W = 100.0, 300.0


class Prometheus(BaseHTTPRequestHandler):
    def do_GET(self):
        asked = parse_qs(urlsplit(self.path).query)
        seconds = int(asked["query"][0].rsplit("[", 1)[1].rstrip("s]"))
        end_s = int(asked["time"][0])
        times = range(end_s - seconds + 1, end_s + 1)
        values = [[t, str(BUSY_W if t > IMPORTED_S + 0.5 else IDLE_W)] for t in times]
        data = {"resultType": "matrix", "result": [{"metric": {"host": "node1"}, "values": values}]}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"status": "success", "data": data}).encode())

    def log_message(self, *arguments):
        pass


def window(prometheus: PrometheusConnect, **times: datetime) -> tuple[float, float]:
    (series,) = prometheus.get_metric_range_data("node_power_watts", **times)
    powers = [float(power) for _, power in series["values"]]
    return time.time() - series["values"][-1][0], sum(powers) / len(powers)


def main() -> int:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Prometheus)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    prometheus = PrometheusConnect(url=f"http://127.0.0.1:{server.server_port}")
    ages = []
    for after_s in (1.0, 6.0):
        time.sleep(max(0.0, IMPORTED_S + after_s - time.time()))
        age_s, mean_w = window(prometheus)
        ages.append(age_s)
        print(f"asked {after_s:.0f} s after the import: ", end="")
        print(f"the window ends {age_s:.0f} s ago, mean {mean_w:.0f} W")
    now = datetime.now()
    age_s, mean_w = window(prometheus, start_time=now - timedelta(minutes=10), end_time=now)
    print(f"with times: ends {abs(age_s):.0f} s ago, mean {mean_w:.0f} W")
    return 0 if 4.0 < ages[1] - ages[0] < 6.0 and abs(age_s) < 2.0 else 1


if __name__ == "__main__":
    sys.exit(main())
PYTHON
"$folder/venv/bin/python" "$folder/program.py"
