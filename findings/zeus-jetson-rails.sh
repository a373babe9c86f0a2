#!/usr/bin/env bash
# FINDING: on Jetson boards whose power sensor has one rail for CPU and GPU (VDD_CPU_GPU_CV, with the
# accelerators), Zeus 0.16.0 reports this rail as the energy of the CPU. It looks for "cpu" in the rail's
# name first. The GPU has no energy there, not even 0 J: what its kernels use is in cpu_energy_mj.
#
# Seen with zeus 0.16.0, the files of the sensor simulated:
#   VDD_IN 9000 mW, VDD_CPU_GPU_CV 5000 mW, VDD_SOC 2000 mW
#   cpu_power_mw: 5000, total_power_mw: 9000
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet zeus==0.16.0

cat > "$folder/program.py" <<'PYTHON'
import pathlib
import sys

from zeus.device.soc import jetson

RAILS_MW = {"VDD_IN": 9000, "VDD_CPU_GPU_CV": 5000, "VDD_SOC": 2000}
VOLTAGE_MV = 5000


def main(folder: pathlib.Path) -> int:
    sensor = folder / "bus/i2c/drivers/ina3221/1-0040/hwmon/hwmon3"
    sensor.mkdir(parents=True)
    for number, (rail, mw) in enumerate(RAILS_MW.items(), start=1):
        (sensor / f"in{number}_label").write_text(f"{rail}\n")
        (sensor / f"in{number}_input").write_text(f"{VOLTAGE_MV}\n")
        (sensor / f"curr{number}_input").write_text(f"{1000 * mw // VOLTAGE_MV}\n")
    jetson.Path = lambda path: pathlib.Path(str(path).replace("/sys/bus", f"{folder}/bus"))
    found = jetson.Jetson._discover_available_metrics(None)
    found_mw = {name: meter.measure_power() for name, meter in found.items()}
    print(", ".join(f"{rail} {mw} mW" for rail, mw in RAILS_MW.items()))
    print(", ".join(f"{name}: {mw:.0f}" for name, mw in sorted(found_mw.items())))
    return 0 if found_mw == {"total_power_mw": 9000, "cpu_power_mw": 5000} else 1


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
PYTHON
"$folder/venv/bin/python" "$folder/program.py" "$folder/board"
