#!/usr/bin/env bash
# FINDING: traces 0.7.0, for time series at uneven times, gives mean powers of megawatts where the times of the
# intervals are whole seconds. sample_interval(idx=...) takes the times of intervals as a pandas DatetimeIndex, and
# computes with them and with the times of the samples as integers, as if both were of one unit. Python's dates are in
# microseconds in pandas; an index of numpy's dates of whole seconds is in seconds, and stays so. One would think that a
# date is a date. A steady power is off by a percent, as differences of numbers of 1e15 are left; a step of power is off
# by many orders of magnitude, with either sign. Nothing is said. With idx.as_unit("us"), or with a period in place of
# idx, the means are right.
#
# Seen with traces 0.7.0, pandas 3.1.1 and numpy 2.4.6, intervals of 10 s, 100 W but for 300 W from 22 s to 28 s:
#   microseconds: 100.0 W, 100.0 W, 220.0 W, 100.0 W
#   seconds: 99.2 W, 100.0 W, 120000102.4 W, 99.2 W
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet traces==0.7.0 pandas==3.1.1 numpy==2.4.6

cat > "$folder/program.py" <<'PYTHON'
import sys
from datetime import datetime, timedelta

import numpy as np
import pandas as pd
from traces import TimeSeries

START = datetime(2026, 1, 1)
SAMPLES_W = {0: 100.0, 7: 100.0, 22: 300.0, 28: 100.0, 36: 100.0, 40: 100.0}


def main() -> int:
    power = TimeSeries({START + timedelta(seconds=at): watts for at, watts in SAMPLES_W.items()})
    seconds = pd.DatetimeIndex(np.datetime64(START, "s") + 10 * np.arange(5))
    means = {}
    for name, index in (("microseconds", seconds.as_unit("us")), ("seconds", seconds)):
        means[name] = power.sample_interval(idx=index).to_numpy(dtype=float)
        print(f"{name}: {', '.join(f'{watts:.1f} W' for watts in means[name])}")
    right = np.allclose(means["microseconds"], [100, 100, 220, 100])
    steady = means["seconds"][[0, 1, 3]]
    still = (abs(steady - 100) > 0.5).any() and means["seconds"][2] > 1e6
    return 0 if right and still else 1


if __name__ == "__main__":
    sys.exit(main())
PYTHON
"$folder/venv/bin/python" "$folder/program.py"
