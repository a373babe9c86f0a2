#!/usr/bin/env bash
# FINDING: Zeus 0.16.0 counts the wraps of a RAPL counter in a process that looks once a second, and
# ten times a second only while less than 100 J are left to the counter's range. A processor of more
# than 100 W passes these 100 J between two looks. Until the next look, for up to a second, each
# reading lacks the whole range: energies fall by 262 kJ (max_energy_range_uj of many servers), and a
# window that ends there has a negative energy, without a warning. A node of 300 W wraps every 15
# minutes.
#
# Here the counter is a file that a thread advances as a package of 300 W would, from some seconds before
# the end of its range on.
#
# Seen with zeus 0.16.0:
#   largest fall from one reading to the next, 10 ms later: -262142 J
#   readings that lack the range: 40; the last one is right: True
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet zeus==0.16.0

cat > "$folder/program.py" <<'PYTHON'
import sys
import threading
import time
from pathlib import Path

from zeus.device.cpu.rapl import RAPLFile

RANGE_UJ, WATTS = 262_143_328_850, 300.0


def main(folder: Path) -> int:
    counter = folder / "energy_uj"
    began = time.monotonic()
    first_uj = RANGE_UJ - 290e6 - 4.0 * WATTS * 1e6  # Zeus needs a few seconds to start its process

    def advance() -> None:
        while True:
            used_uj = (time.monotonic() - began) * WATTS * 1e6
            new = folder / "new"
            new.write_text(f"{int(first_uj + used_uj) % RANGE_UJ}\n")
            new.rename(counter)
            time.sleep(0.005)

    (folder / "name").write_text("package-0\n")
    (folder / "max_energy_range_uj").write_text(f"{RANGE_UJ}\n")
    counter.write_text(f"{int(first_uj)}\n")
    threading.Thread(target=advance, daemon=True).start()
    package = RAPLFile(str(folder))
    readings_j = []
    while time.monotonic() - began < 8.0:
        readings_j.append(package.read() / 1000.0)
        time.sleep(0.01)
    falls = [later - earlier for earlier, later in zip(readings_j, readings_j[1:])]
    wrong = sum(reading < readings_j[0] for reading in readings_j)
    print(f"largest fall from one reading to the next, 10 ms later: {min(falls):.0f} J")
    print(f"readings that lack the range: {wrong}; the last one is right: "
          f"{readings_j[-1] > readings_j[0]}")
    return 0 if min(falls) < -0.99 * RANGE_UJ / 1e6 and readings_j[-1] > readings_j[0] else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
PYTHON
mkdir "$folder/package"
"$folder/venv/bin/python" "$folder/program.py" "$folder/package"
