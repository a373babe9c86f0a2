#!/usr/bin/env bash
# FINDING: PyGPUEnergy 0.1.1 records two powers of a GPU and computes the energy of a region from the one that lags.
# Its log has power.draw, which is the mean over the last second on recent GPUs, and power.draw.instant beside it;
# plot_gpu_metrics, which returns the energies, takes the first. One would think that a tool that asks for the power
# at the instant uses it for the energy of a region. A region of a second begins with the mean of the idle time
# before it: almost half of its energy is missing, and the idle region after it gets that, several times its own.
# The shorter the kernels, the more alike they are, whatever their clocks.
#
# Seen with PyGPUEnergy 0.1.1, a GPU of 600 W in a kernel of 1 s and 60 W before and after:
#   energy of the kernel 329 J, where power.draw.instant gives 594 J; of the idle second after it 324 J, not 59 J
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
# Its list of requirements has torch, which this does not use.
"$folder/venv/bin/pip" install --quiet --no-deps pygpuenergy==0.1.1
"$folder/venv/bin/pip" install --quiet pandas==2.3.1 numpy==2.3.1 matplotlib==3.10.3

cat > "$folder/program.py" <<'PYTHON'
import json
import sys
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
from PyGPUEnergy import plot_gpu_metrics

BEGIN = datetime(2026, 7, 1, 12)
STEP_S = 0.01
HEADER = """timestamp, utilization.gpu [%], pstate, temperature.gpu, clocks.current.sm [MHz],
    power.draw [W], power.draw.instant [W]"""
# Offsets in s from the log's begin. The kernel begins with its first sample at 600 W.
REGIONS = {"kernel": (2.01, 3), "idle after it": (3.01, 4)}


def log_and_records(folder: Path) -> np.ndarray:
    """Writes the files that the monitor leaves, and returns the power at each sample."""
    times = np.arange(501) * STEP_S
    power = np.where((times > 2.005) & (times < 3.005), 600.0, 60.0)
    lines = [" ".join(HEADER.split())]
    for i, watts in enumerate(power):
        mean = power[max(0, i - 99) : i + 1].mean()
        stamp = (BEGIN + timedelta(seconds=times[i])).strftime("%Y/%m/%d %H:%M:%S.%f")[:-3]
        lines.append(f"{stamp}, 100, P0, 60, 1980, {mean:.2f}, {watts:.2f}")
    (folder / "log.csv").write_text("\n".join(lines) + "\n")
    (folder / "t0.txt").write_text(str(BEGIN.timestamp()))
    records = [
        {"type": "region", "name": name, "start_offset": begin, "end_offset": end}
        for name, (begin, end) in REGIONS.items()
    ]
    (folder / "records.json").write_text(json.dumps(records))
    return power


def main(folder: Path) -> int:
    power = log_and_records(folder)
    _, energies = plot_gpu_metrics(
        folder / "log.csv", folder / "records.json", folder / "t0.txt", show=False
    )
    found = {}
    for record in energies:
        begin, end = (round(at / STEP_S) for at in REGIONS[record["name"]])
        instant_j = float(np.trapezoid(power[begin : end + 1], dx=STEP_S))
        found[record["name"]] = (round(record["energy_joules"]), round(instant_j))
        reported_j, right_j = found[record["name"]]
        print(f"{record['name']}: {reported_j} J; of power.draw.instant: {right_j} J")
    return 0 if found == {"kernel": (329, 594), "idle after it": (324, 59)} else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
PYTHON
MPLBACKEND=Agg "$folder/venv/bin/python" "$folder/program.py" "$folder"
