#!/usr/bin/env bash
# FINDING: WattAMeter 0.9.3's power in a row is that of the time after the row, and the last row of each
# block that it writes has none. From a RAPL counter it derives the power between two readings and puts it
# into the row of the first one; the readings of two blocks (freq_write readings each) are never joined. With
# freq_write=1, a file that is always up to date, there is no power at all, and the mean of the
# column is that of nothing; with 4, a quarter of the powers is missing from their sum. One would
# think that the power beside a counter's value is that of the time before it, and of every interval.
#
# Seen with WattAMeter 0.9.3, a counter that advances by 10, 20, 30, ... J in seconds 1, 2, 3, ... 8:
#   one block: the row of second 0 has 10 W; blocks of 4: 240 of 360 J; blocks of 1: no power
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet wattameter==0.9.3

cat > "$folder/program.py" <<'PYTHON'
import sys
from pathlib import Path

from wattameter.readers.rapl import RAPLReader
from wattameter.tracker import Tracker

SECONDS = 8


def powers(folder: Path, block: int) -> list[float | None]:
    """The power column of the file that a tracker writes, a reading a second by the file's clock."""
    package = folder / "powercap/intel-rapl:0"
    package.mkdir(parents=True, exist_ok=True)
    (package / "name").write_text("package-0\n")
    (package / "max_energy_range_uj").write_text("262143328850\n")
    counter = package / "energy_uj"
    counter.write_text("0\n")
    output = folder / f"block-{block}.log"
    tracker = Tracker(RAPLReader(str(folder / "powercap")), output=str(output))
    tracker.write_header()
    for second in range(SECONDS + 1):
        counter.write_text(f"{sum(range(second + 1)) * 10_000_000}\n")
        tracker.read()
        tracker.time_series[-1] = second * 1_000_000_000
        if (second + 1) % block == 0:
            tracker.write()
    tracker.write()
    header, *rows = [line.split() for line in output.read_text().splitlines()]
    column = header.index("cpu-0[W]") - 1
    return [round(float(row[column]), 3) if len(row) > column else None for row in rows]


def main(folder: Path) -> int:
    found = {block: powers(folder, block) for block in (100, 4, 1)}
    for block, column in found.items():
        energy = sum(power or 0 for power in column)
        print(f"blocks of {block}: powers {column} W, {energy} J of {sum(range(SECONDS + 1)) * 10} J")
    four = [10, 20, 30, None, 50, 60, 70, None, None]
    expected = {100: [10, 20, 30, 40, 50, 60, 70, 80, None], 4: four, 1: [None] * 9}
    return 0 if found == expected else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
PYTHON
"$folder/venv/bin/python" "$folder/program.py" "$folder"
