#!/usr/bin/env bash
# FINDING: Expetator 0.3.35 puts two traces of a run together by their first samples, not by their times. Its
# merge_timeseries reads the added trace at the times of the first one, less the difference between the
# two first times. Both traces have times of the same clock. One would think that a power at 1010 s comes to
# the row of 1010 s. A trace that began 3 s late comes 3 s early: what
# the added meter saw of a phase is in the rows of the phase before, and the energies of the phases are wrong.
#
# Seen with Expetator 0.3.35, a step from 50 to 100 W at 1010 s, by a meter from 1000 s and one from 1003 s:
#   the first meter's step at 1010 s, the second's at 1007 s in the merged table, at 1010 s in its own
#   energy by the second meter from 1007 to 1010 s: 300 J, it measured 150 J
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet expetator==0.3.35 pandas==2.3.3

cat > "$folder/program.py" <<'PYTHON'
import sys

import pandas
from expetator.bundle import merge_timeseries

STEP_S, FIRST_S, LAST_S, LATE_S = 1010, 1000, 1020, 3


def trace(name: str, begin_s: int) -> pandas.DataFrame:
    times = range(begin_s, LAST_S + 1)
    powers = [50.0 if time < STEP_S else 100.0 for time in times]
    return pandas.DataFrame({"#timestamp": times, name: powers})


def step(table: pandas.DataFrame, name: str) -> int:
    return int(table["#timestamp"][table[name] > 75].iloc[0])


def energy(table: pandas.DataFrame, name: str) -> float:
    rows = (table["#timestamp"] >= STEP_S - LATE_S) & (table["#timestamp"] < STEP_S)
    return float(table[name][rows].sum())


def main() -> int:
    first, second = trace("power", FIRST_S), trace("gpu", FIRST_S + LATE_S)
    merged = merge_timeseries(first, second)
    steps = [step(merged, "power"), step(merged, "add_gpu"), step(second, "gpu")]
    energies = [energy(merged, "add_gpu"), energy(second, "gpu")]
    print(f"step of the first meter {steps[0]} s, of the second {steps[1]} s merged, {steps[2]} s its own")
    print(f"second meter, the {LATE_S} s before the step: merged {energies[0]} J, measured {energies[1]} J")
    return 0 if steps == [1010, 1007, 1010] and energies == [300, 150] else 1


if __name__ == "__main__":
    sys.exit(main())
PYTHON
"$folder/venv/bin/python" "$folder/program.py"
