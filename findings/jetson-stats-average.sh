#!/usr/bin/env bash
# FINDING: the "power average" of jetson-stats 7.2.2 is nearly the power of the last readings. For each rail of a
# Jetson, and for the total, avg is the mean of the power that was just read and of the avg before it: the last reading
# counts a half, the four last of them 94 %, whatever came before. One would think of the mean since the service or the
# program began, which tegrastats prints after each power. Multiplied by the time of a run, an avg that is read a few
# seconds after the run's end is its idle power times its time; one that is read at the end of a run with a varying load
# is the power of its last phase. Each reading is rounded down, too.
#
# Seen with jetson-stats 7.2.2, the files of a Jetson's sensor simulated, a reading a second:
#   60 s at 30000 mW, then 5 s at 5000 mW: mean 28076 mW, avg 5781 mW
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet smbus2==0.6.0 distro==1.9.0 nvidia-ml-py==13.615.71
# Unpacked, not installed: its installation as root sets up a service on this machine.
"$folder/venv/bin/pip" download --quiet --no-deps --no-binary :all: --dest "$folder" jetson-stats==7.2.2
tar --extract --file "$folder/jetson_stats-7.2.2.tar.gz" --directory "$folder"

cat > "$folder/program.py" <<'PYTHON'
import logging
import sys
from pathlib import Path

from jtop.core import power

MILLIVOLTS = 5000
PHASES = [(60, 30_000), (5, 5_000)]  # seconds, mW


def main(devices: Path) -> int:
    monitor = devices / "1-0040"
    sensor = monitor / "hwmon" / "hwmon4"
    sensor.mkdir(parents=True)
    (monitor / "name").write_text("ina3221\n")
    (sensor / "in1_label").write_text("VDD_IN\n")
    (sensor / "in1_input").write_text(f"{MILLIVOLTS}\n")
    current = sensor / "curr1_input"
    current.write_text("0\n")
    logging.disable()  # of the sensors that this machine has not
    service = power.PowerService()
    service._power_sensor = power.find_all_i2c_power_monitor(str(devices))
    read_mw = []
    for seconds, milliwatts in PHASES:
        for _ in range(seconds):
            current.write_text(f"{milliwatts * 1000 // MILLIVOLTS}\n")
            total = service.get_status()["tot"]
            read_mw.append(total["power"])
    mean_mw = sum(read_mw) // len(read_mw)
    text = ", then ".join(f"{seconds} s at {milliwatts} mW" for seconds, milliwatts in PHASES)
    print(f"{text}: mean {mean_mw} mW, avg {total['avg']} mW")
    weighted = 5_000 + (30_000 - 5_000) / 2 ** PHASES[1][0]
    return 0 if mean_mw == 28_076 and abs(total["avg"] - weighted) < 5 else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
PYTHON
PYTHONPATH="$folder/jetson_stats-7.2.2" "$folder/venv/bin/python" "$folder/program.py" "$folder/devices"
