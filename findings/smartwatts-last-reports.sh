#!/usr/bin/env bash
# FINDING: SmartWatts 2.4.1, the power meter of PowerAPI, never gives the powers of the last five reports of a run. It
# holds five times back, since the parts of a report can come late, and works on the oldest one when a sixth has come.
# At the end of its input, and when it is told to stop, those that it holds are dropped. One would think that an input
# from files, which is complete, is worked off. The powers that RAPL counted are missing as well as those of the
# processes; the program ends with exit status 0 and says nothing. With the usual report each second a job's energy
# lacks its last five seconds, and a run of five seconds has no power at all.
#
# Seen with smartwatts 2.4.1 and powerapi 2.10.0, reports of RAPL, MSRs and a process each second, as CSV files, 200 W:
#   60 reports, 12000 J: 55 powers of RAPL, 11000 J
#   10 reports, 2000 J: 5 powers of RAPL, 1000 J
#   5 reports, 1000 J: 0 powers of RAPL, 0 J
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet smartwatts==2.4.1 powerapi==2.10.0

cat > "$folder/program.py" <<'PYTHON'
import csv
import shutil
import subprocess
import sys
from pathlib import Path

POWER_W, HZ, START_MS = 200, 2_100_000_000, 1_767_225_600_000
EVENTS = {  # by group: the target, and its events in a second
    "rapl": ("all", {"RAPL_ENERGY_PKG": POWER_W * 2**32}),
    "msr": ("all", {"APERF": HZ, "MPERF": HZ}),
    "core": ("solver", {"LLC_MISSES": 10**6, "INSTRUCTIONS_RETIRED": 2 * 10**9}),
}


def powers_w(folder: Path, reports: int) -> list[float]:
    folder.mkdir()
    for group, (target, events) in EVENTS.items():
        with (folder / f"{group}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["timestamp", "sensor", "target", "socket", "cpu", *events])
            for second in range(reports):
                at_ms = START_MS + 1000 * second
                writer.writerow([at_ms, "node", target, 0, 0, *events.values()])
    files = ",".join(f"{group}.csv" for group in EVENTS)
    command = f"-m smartwatts --disable-dram-formula --input csv --model HWPCReport --files {files} "
    command += "--output csv --model PowerReport --directory powers"
    for _ in range(5):  # it ends with an error where a part of it starts too slowly
        shutil.rmtree(folder / "powers", ignore_errors=True)
        run = subprocess.run([sys.executable, *command.split()], cwd=folder, capture_output=True)
        if run.returncode == 0:
            break
    run.check_returncode()
    found = folder / "powers/node-rapl/PowerReport.csv"
    if not found.exists():
        return []
    with found.open() as file:
        return [float(row["power"]) for row in csv.DictReader(file)]


def main(folder: Path) -> int:
    still = True
    for reports in (60, 10, 5):
        powers = powers_w(folder / str(reports), reports)
        print(f"{reports} reports, {reports * POWER_W} J: ", end="")
        print(f"{len(powers)} powers of RAPL, {sum(powers):.0f} J")
        still = still and len(powers) == reports - 5 and set(powers) <= {float(POWER_W)}
    return 0 if still else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
PYTHON
"$folder/venv/bin/python" "$folder/program.py" "$folder"
