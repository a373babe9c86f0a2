#!/usr/bin/env bash
# FINDING: cpu_power of codecarbon 3.3.2's emissions.csv is not the power of the run, which is
# cpu_energy / duration. It is the mean of the samples' powers, in which one right at the start, over
# no time, counts as much as each other. With RAPL that one is 0 W; and the last may be one over less
# time. A run of three seconds on a counter of 40 W has a cpu_power far from 40 W, and the right energy.
# Nor does the file say whether the energy was read from RAPL or computed from the load.
#
# Seen with codecarbon 3.3.2, a counter of 40 W, a sample a second, 3 s:
#   cpu_energy / duration: 38.3 W
#   cpu_power: 20.1 W
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet codecarbon==3.3.2

cat > "$folder/program.py" <<'PYTHON'
import csv
import sys
import threading
import time
from pathlib import Path

from codecarbon import OfflineEmissionsTracker
from codecarbon.core import cpu

WATTS = 40


def count(zone: Path, began: float) -> None:
    while True:
        (zone / "next").write_text(f"{1_000_000_000 + int((time.time() - began) * WATTS * 1e6)}\n")
        (zone / "next").replace(zone / "energy_uj")
        time.sleep(0.005)


def main(folder: Path) -> int:
    zone = folder / "intel-rapl" / "intel-rapl:0"
    zone.mkdir(parents=True)
    (zone / "name").write_text("package-0\n")
    (zone / "max_energy_range_uj").write_text("262143328850\n")
    (folder / "intel-rapl:0").symlink_to(zone)
    threading.Thread(target=count, args=(zone, time.time()), daemon=True).start()
    time.sleep(0.1)
    made, available = cpu.IntelRAPL.__init__, cpu.is_rapl_available

    def init(self, rapl_dir: str = "", **options: object) -> None:
        made(self, rapl_dir=str(folder / "intel-rapl"), **options)

    cpu.IntelRAPL.__init__ = init
    cpu.is_rapl_available = lambda rapl_dir=None: available(str(folder / "intel-rapl"))
    tracker = OfflineEmissionsTracker(
        country_iso_code="DEU",
        measure_power_secs=1,
        log_level="error",
        output_dir=str(folder),
        allow_multiple_runs=True,
    )
    tracker.start()
    time.sleep(3)
    tracker.stop()
    with (folder / "emissions.csv").open() as file:
        (run,) = csv.DictReader(file)
    true_w = float(run["cpu_energy"]) * 3.6e6 / float(run["duration"])
    print(f"cpu_energy / duration: {true_w:.1f} W")
    print(f"cpu_power: {float(run['cpu_power']):.1f} W")
    right = abs(true_w - WATTS) < 0.1 * WATTS
    return 0 if right and abs(float(run["cpu_power"]) - true_w) > 0.15 * WATTS else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
PYTHON
"$folder/venv/bin/python" "$folder/program.py" "$folder/powercap" 2>/dev/null
