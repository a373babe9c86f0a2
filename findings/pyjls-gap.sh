#!/usr/bin/env bash
# FINDING: pyjls 0.17.0, for the power traces of Joulescopes, loses what was before a gap. Where samples are missing,
# the file has NaN in their place. fsr_statistics over a range with a gap that fills an entry of the file's summaries,
# from some hundred samples on (some thousand in a long range), gives NaN for the mean, and the lowest and highest power
# of what follows the gap alone; its documentation calls the statistics of one range sample-accurate. One would think of
# the statistics of the samples that are there, as they are for a gap of one sample, or of NaN for all. A trace with its
# load before and its idle time after the gap has the idle power as its highest; the idle power before is not the
# lowest. With integers in place of floating point numbers a gap is 0 W, and counts for mean and lowest power.
#
# Seen with pyjls 0.17.0 and numpy 2.3.5, 50 s of 300 W, a gap, then 100 W up to 100 s, 1000 samples a second:
#   gap of 1 sample: mean 200.0 W, lowest 100 W, highest 300 W
#   gap of 5000 samples: mean nan W, lowest 100 W, highest 100 W; of the samples: 205.3 W, 100 W, 300 W
#   gap of 5000 samples, integers: mean 195.0 W, lowest 0 W, highest 300 W
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet pyjls==0.17.0 numpy==2.3.5

cat > "$folder/program.py" <<'PYTHON'
import sys
from pathlib import Path

import numpy as np
from pyjls import DataType, Reader, Writer

RATE, SAMPLES, LOAD = 1000, 100_000, 50_000


def main(folder: Path) -> int:
    found = []
    cases = [
        (1, DataType.F32, np.float32, ""),
        (5000, DataType.F32, np.float32, ""),
        (5000, DataType.I16, np.int16, ", integers"),
    ]
    for number, (gap, data_type, dtype, text) in enumerate(cases):
        path = folder / f"{number}.jls"
        with Writer(str(path)) as writer:
            writer.source_def(
                source_id=1, name="meter", vendor="", model="", version="", serial_number=""
            )
            writer.signal_def(
                signal_id=1, source_id=1, sample_rate=RATE, name="power", units="W",
                data_type=data_type,
            )
            writer.fsr(1, 0, np.full(LOAD, 300, dtype))
            writer.fsr(1, LOAD + gap, np.full(SAMPLES - LOAD - gap, 100, dtype))
        with Reader(str(path)) as reader:
            mean, _, lowest, highest = reader.fsr_statistics(1, 0, SAMPLES, 1)[0]
            samples = reader.fsr(1, 0, SAMPLES).astype(float)
        found.append((round(float(mean), 1), float(lowest), float(highest)))
        name = f"gap of {gap} sample{'s' if gap > 1 else ''}{text}"
        print(f"{name}: mean {mean:.1f} W, lowest {lowest:.0f} W, highest {highest:.0f} W", end="")
        if np.isnan(mean):
            print(f"; of the samples: {np.nanmean(samples):.1f} W, ", end="")
            print(f"{np.nanmin(samples):.0f} W, {np.nanmax(samples):.0f} W", end="")
        print()
    one, many, integers = found
    right = one == (200.0, 100.0, 300.0) and integers == (195.0, 0.0, 300.0)
    return 0 if right and np.isnan(many[0]) and many[1:] == (100.0, 100.0) else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
PYTHON
"$folder/venv/bin/python" "$folder/program.py" "$folder" 2> /dev/null
