#!/usr/bin/env bash
# FINDING: EcoFreq 0.0.7 reports another power than RAPL's, and its switch for that does not switch it off. With
# PowerSensor=rapl, what it logs is the processors' power times 1.25 and 0.3 of the first package's limit on
# top, an estimate of the whole node. One would think that "rapl" is what RAPL counted, or at least that
# EstimateFullPower=False in the configuration makes it so. The value is taken as a text, and the text "False"
# is true; only an empty value turns the estimate off. The constant makes a saving by lower clocks look smaller
# than the one that RAPL measured.
#
# Seen with EcoFreq 0.0.7, RAPL counters that advance by 2 x 100 W, then 2 x 50 W, and a limit of 200 W:
#   EstimateFullPower=False: 310 W and 185 W, as without the line; EstimateFullPower= (empty): 200 W and 100 W
#   half the power saves 50 % of RAPL's energy, 40 % of EcoFreq's
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet ecofreq==0.0.7

cat > "$folder/program.py" <<'PYTHON'
import argparse
import sys
from pathlib import Path

from ecofreq.ecofreq import read_config
from ecofreq.helpers.cpu import LinuxPowercapHelper
from ecofreq.monitors.energy import EnergyMonitor

SECOND_UJ = 1_000_000
LIMITS = {"max_energy_range_uj": 262143328850, "constraint_0_max_power_uw": 200_000_000}


def powercap(folder: Path) -> list[Path]:
    packages = [folder / f"intel-rapl:{number}" for number in (0, 1)]
    for number, package in enumerate(packages):
        package.mkdir()
        files = LIMITS | {"name": f"package-{number}", "energy_uj": 0, "enabled": 1}
        files["constraint_0_power_limit_uw"] = LIMITS["constraint_0_max_power_uw"]
        for name, text in files.items():
            (package / name).write_text(f"{text}\n")
    return packages


def advance(packages: list[Path], watts: int) -> None:
    for package in packages:
        counter = package / "energy_uj"
        counter.write_text(f"{int(counter.read_text()) + watts * SECOND_UJ}\n")


def powers(folder: Path, packages: list[Path], line: str) -> list[float]:
    text = f"[monitor]\nInterval=1\nPowerSensor=rapl\n[powercap]\n{line}\n"
    (folder / "ecofreq.cfg").write_text(text)
    names = dict.fromkeys(("co2token", "log_fname", "governor", "interval"))
    arguments = argparse.Namespace(cfg_file=str(folder / "ecofreq.cfg"), **names)
    (monitor,) = EnergyMonitor.from_config(read_config(arguments))
    found = []
    for watts in (100, 50):
        advance(packages, watts)
        monitor.update()
        found.append(round(monitor.get_last_avg_power(), 3))
    return found


def main(folder: Path) -> int:
    packages = powercap(folder)
    LinuxPowercapHelper.INTEL_RAPL_PATH = str(folder / "intel-rapl:")
    lines = ("", "EstimateFullPower=False", "EstimateFullPower=")
    found = {line: powers(folder, packages, line) for line in lines}
    for line, (first, second) in found.items():
        saved = 100 * (1 - second / first)
        print(f"{line or 'without the line'}: {first} W and {second} W, {saved:.0f} % saved")
    estimate, empty = [310, 185], [200, 100]
    return 0 if [*found.values()] == [estimate, estimate, empty] else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
PYTHON
"$folder/venv/bin/python" "$folder/program.py" "$folder"
