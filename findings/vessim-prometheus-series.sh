#!/usr/bin/env bash
# FINDING: vessim 0.16.0 takes the power of one GPU for the power of a node. Its PrometheusSignal, "energy usage data
# from a Prometheus instance", uses the first series of a query's answer and drops the others. Prometheus answers with a
# series for each label set: DCGM_FI_DEV_POWER_USAGE{Hostname="node1"} has one for each GPU, and no promised order. One
# would think of their sum, or of an error, as for an answer without a series. Demand, imported energy and emissions of
# a node of 8 GPUs are an eighth or less, as the first GPU may be the idle one; sum(...) around the query gives the
# right ones.
#
# Seen with vessim 0.16.0, a stand-in for Prometheus, one GPU at 60 W and seven at 300 W:
#   a series for each GPU: 60 W; sum(): 2160 W
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

GPU_W = [60.0] + 7 * [300.0]
QUERY = 'DCGM_FI_DEV_POWER_USAGE{Hostname="node1"}'


class Prometheus(BaseHTTPRequestHandler):
    def do_GET(self):
        query = parse_qs(urlsplit(self.path).query)["query"][0]
        powers = {f"{gpu}": power for gpu, power in enumerate(GPU_W)}
        if query.startswith("sum("):
            powers = {"": sum(GPU_W)}
        series = [
            {"metric": {"gpu": gpu} if gpu else {}, "value": [time.time(), str(power)]}
            for gpu, power in powers.items()
        ]
        data = {"resultType": "vector", "result": series}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"status": "success", "data": data}).encode())

    def log_message(self, *arguments):
        pass


def main() -> int:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Prometheus)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    found = {}
    for name, query in (("a series for each GPU", QUERY), ("sum()", f"sum({QUERY})")):
        signal = vessim.PrometheusSignal(url, query, update_interval=0.1)
        signal.start()
        time.sleep(2.0)
        found[name] = signal.at(2.0)
        signal.finalize()
    print("; ".join(f"{name}: {power:.0f} W" for name, power in found.items()))
    return 0 if list(found.values()) == [GPU_W[0], sum(GPU_W)] else 1


if __name__ == "__main__":
    sys.exit(main())
PYTHON
"$folder/venv/bin/python" "$folder/program.py"
