#!/usr/bin/env bash
# FINDING: carbontracker 2.4.7's parser.aggregate_consumption adds up the predicted energies of finished
# runs, not the measured ones. It takes the number of epochs of the actual consumption for 1, whatever
# the log says, finds it to differ from that of the prediction, and takes the run for an unfinished one.
# By default the prediction is the first epoch times the number of epochs.
#
# Seen with carbontracker 2.4.7, a CPU of 100 W simulated by carbontracker, a PUE of 1.58:
#   Predicted consumption for 3 epoch(s): 474 J
#   Actual consumption for 3 epoch(s): 1106 J
#   aggregate_consumption: 474 J
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet carbontracker==2.4.7

cat > "$folder/program.py" <<'PYTHON'
import re
import sys
import time
from pathlib import Path

from carbontracker import parser
from carbontracker.tracker import CarbonTracker


def main(folder: Path) -> int:
    tracker = CarbonTracker(
        epochs=3,
        components="cpu",
        log_dir=str(folder),
        verbose=0,
        sim_cpu="simulated",
        sim_cpu_tdp=100,
        sim_cpu_util=1.0,
    )
    for seconds in (1, 3, 3):
        tracker.epoch_start()
        time.sleep(seconds)
        tracker.epoch_end()
    (log,) = folder.glob("*_carbontracker_output.log")
    entries = re.findall(r"(\w+ consumption.*):\n.*\n\s+Energy:\s+(\S+) kWh", log.read_text())
    logged_j = [float(kwh) * 3.6e6 for _, kwh in entries]
    for (what, _), joules in zip(entries, logged_j):
        print(f"{what}: {joules:.0f} J")
    sum_j = parser.aggregate_consumption(str(folder))[0] * 3.6e6
    print(f"aggregate_consumption: {sum_j:.0f} J")
    predicted_j, actual_j = logged_j
    return 0 if sum_j == predicted_j and actual_j > 1.5 * predicted_j else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
PYTHON
mkdir "$folder/logs"
"$folder/venv/bin/python" "$folder/program.py" "$folder/logs" 2> /dev/null | grep consumption
