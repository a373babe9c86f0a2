#!/usr/bin/env bash
# FINDING: PowerAPI 2.10.0 writes the powers to InfluxDB with the time of the node's clock on the wall,
# without its zone, and the InfluxDB client takes that for UTC. On a node in Europe all points lie an hour
# or two late, against those of other tools and of the job. In the night when the clocks go back the
# points of two hours get the times of one. What PowerAPI hands to Prometheus has the right time, and a
# node on UTC is not affected.
#
# Seen with powerapi 2.10.0 and influxdb-client 1.50.0, the points as they are sent:
#   Central Europe: 2026-11-30 12:00 UTC is sent as 2026-11-30 13:00 UTC
#   Central Europe: 2026-10-25 00:30 UTC is sent as 2026-10-25 02:30 UTC
#   Central Europe: 2026-10-25 01:30 UTC is sent as 2026-10-25 02:30 UTC
#   UTC: 2026-11-30 12:00 UTC is sent as 2026-11-30 12:00 UTC
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet powerapi==2.10.0 influxdb-client==1.50.0

cat > "$folder/program.py" <<'PYTHON'
import os
import sys
import time
from datetime import datetime, timezone

from influxdb_client import Point

from powerapi.report import PowerReport


ZONES = {"Central Europe": "CET-1CEST,M3.5.0,M10.5.0/3", "UTC": "UTC0"}


def sent(zone: str, utc: str) -> str:
    os.environ["TZ"] = ZONES[zone]
    time.tzset()
    measured = datetime.fromisoformat(f"{utc}+00:00")
    report = PowerReport.from_json(
        {
            "timestamp": int(1000 * measured.timestamp()),
            "sensor": "node1",
            "target": "job1",
            "power": 100.0,
        }
    )
    assert PowerReport.to_prometheus(report, None)["time"] == measured.timestamp()
    line = Point.from_dict(PowerReport.to_influxdb(report, None)).to_line_protocol()
    written = datetime.fromtimestamp(int(line.split()[-1]) / 1e9, timezone.utc)
    print(f"{zone}: {utc} UTC is sent as {written:%Y-%m-%d %H:%M} UTC")
    return f"{written:%Y-%m-%d %H:%M}"


def main() -> int:
    later = sent("Central Europe", "2026-11-30 12:00")
    night = [sent("Central Europe", f"2026-10-25 {at}") for at in ("00:30", "01:30")]
    right = sent("UTC", "2026-11-30 12:00")
    wrong = later == "2026-11-30 13:00" and night[0] == night[1]
    return 0 if wrong and right == "2026-11-30 12:00" else 1


if __name__ == "__main__":
    sys.exit(main())
PYTHON
"$folder/venv/bin/python" "$folder/program.py"
