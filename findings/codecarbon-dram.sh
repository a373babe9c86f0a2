#!/usr/bin/env bash
# FINDING: codecarbon 3.3.2 with rapl_include_dram = True leaves out the DRAM of servers. It takes a
# DRAM domain that Linux lists below a package (intel-rapl:0:0, as on every server) for a part of the
# package, and skips it "to avoid double-counting". The package's counter does not contain the DRAM
# there. The log says what was skipped at the debug level only, and that "N package domains" are used.
#
# Seen with codecarbon 3.3.2, two packages of 150 W with 30 W of DRAM each:
#   domains read: intel-rapl:0, intel-rapl:1
#   power: 300 W of 360 W
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet codecarbon==3.3.2

cat > "$folder/program.py" <<'PYTHON'
import sys
from pathlib import Path

from codecarbon.core.cpu import IntelRAPL
from codecarbon.core.units import Time

SECONDS, START_UJ = 10, 7_000_000_000
WATTS = {"package-0": 150, "package-1": 150, "dram 0": 30, "dram 1": 30}


def main(folder: Path) -> int:
    zones = {}
    for socket in (0, 1):
        package = folder / "intel-rapl" / f"intel-rapl:{socket}"
        zones[f"package-{socket}"] = package
        zones[f"dram {socket}"] = package / f"intel-rapl:{socket}:0"
    for number, (name, zone) in enumerate(zones.items()):
        zone.mkdir(parents=True, exist_ok=True)
        (zone / "name").write_text(f"{name.split()[0]}\n")
        (zone / "max_energy_range_uj").write_text("262143328850\n")
        (zone / "energy_uj").write_text(f"{START_UJ * (number + 1)}\n")
        (folder / zone.name).symlink_to(zone)  # as /sys/class/powercap has each
    rapl = IntelRAPL(rapl_dir=str(folder / "intel-rapl"), rapl_include_dram=True)
    rapl.start()
    for number, (name, zone) in enumerate(zones.items()):
        used_uj = WATTS[name] * SECONDS * 1_000_000
        (zone / "energy_uj").write_text(f"{START_UJ * (number + 1) + used_uj}\n")
    details = rapl.get_cpu_details(Time(SECONDS))
    watts = sum(v for key, v in details.items() if "Power" in key)
    print("domains read:", ", ".join(Path(f.path).parent.name for f in rapl._rapl_files))
    print(f"power: {watts:.0f} W of {sum(WATTS.values())} W")
    return 0 if round(watts) == 300 else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
PYTHON
"$folder/venv/bin/python" "$folder/program.py" "$folder/powercap"
