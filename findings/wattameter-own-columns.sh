#!/usr/bin/env bash
# FINDING: WattAMeter 0.9.3 reads its own files with the columns shifted, where NVLink's throughput is recorded. It
# names these columns "gpu-0[TX KiB]" and "gpu-0[RX KiB]"; its reader takes every space for the end of a column's
# name. A column of throughput becomes two names, the values after it move to the names before, and what is
# recorded last has no values. One would think that a tool's file_to_df returns what its tracker wrote. With
# throughput and power of one GPU, gpu-0[mW] is empty in the table, and the power is in "gpu-0[RX"; nothing is
# said, since empty values are filled in on purpose.
#
# Seen with WattAMeter 0.9.3, TX 11 KiB, RX 22 KiB and 300000 mW:
#   throughput and power: gpu-0[mW] nan, "gpu-0[RX" 300000; power alone: gpu-0[mW] 300000
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet wattameter==0.9.3 pandas==2.3.3

cat > "$folder/program.py" <<'PYTHON'
import math
import sys
from pathlib import Path

from wattameter.readers.nvml import DataThroughput, NVMLReader, Power
from wattameter.tracker import Tracker
from wattameter.utils.postprocessing import file_to_df


class OneGpu(NVMLReader):
    """The reader with the readings of one GPU in place of the driver's."""

    def __init__(self, *quantities: type) -> None:
        super().__init__(quantities)
        self.devices = [None]

    def read_power_on_device(self, i: int) -> int:
        return 300000

    def read_nvlink_throughput_on_device(self, i: int) -> tuple[int, int]:
        return 11, 22


def read_back(file: Path, *quantities: type) -> dict[str, float]:
    tracker = Tracker(OneGpu(*quantities), output=str(file))
    tracker.write_header()
    tracker.read()
    tracker.write()
    with file.open() as lines:
        table = file_to_df(lines)
    return {name: float(value) for name, value in zip(table, table.values[0]) if "gpu" in name}


def main(folder: Path) -> int:
    alone = read_back(folder / "alone", Power)
    both = read_back(folder / "both", DataThroughput, Power)
    print(f"power alone: {alone}")
    print(f"throughput and power: {both}")
    shifted = both["gpu-0[RX"] == 300000 and math.isnan(both["gpu-0[mW]"])
    return 0 if alone == {"gpu-0[mW]": 300000} and shifted else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
PYTHON
"$folder/venv/bin/python" "$folder/program.py" "$folder"
