#!/usr/bin/env bash
# FINDING: Hatchet 2026.2.0, when one profile is divided by another, gives a region that only the first has
# its time in seconds as the quotient: a solver that the second run did not call is "300 times faster".
# Multiplied, too, it is its own time. A region that only the second profile has becomes NaN in every
# operation, so the differences of all regions no longer add up to the difference of the runs, and
# a region that is new in the second run costs nothing. The column _missing_node (1: only in the first,
# 2: only in the second) is all that tells them apart.
#
# Seen with llnl-hatchet 2026.2.0, two runs of 400 s and 250 s:
#   first / second: solve 2.0, check 300.0, reduce nan
#   first - second: solve 50.0, check 300.0, reduce nan, sum 350.0; main (inc) 150.0
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet llnl-hatchet==2026.2.0

cat > "$folder/program.py" <<'PYTHON'
import math
import sys

from hatchet import GraphFrame


def profile(times_s: dict[str, float]) -> GraphFrame:
    children = [
        {"frame": {"name": name}, "metrics": {"time": t, "time (inc)": t}}
        for name, t in times_s.items()
    ]
    total = {"time": 0.0, "time (inc)": sum(times_s.values())}
    main = {"frame": {"name": "main"}, "metrics": total, "children": children}
    return GraphFrame.from_literal([main])


def runs() -> tuple[GraphFrame, GraphFrame]:
    first = profile({"solve": 100.0, "check": 300.0})
    return first, profile({"solve": 50.0, "reduce": 200.0})


def table(profile: GraphFrame) -> dict[str, float]:
    times = profile.dataframe.set_index("name")["time"]
    return {name: float(times[name]) for name in ("solve", "check", "reduce")}


def text(values: dict[str, float]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


first, second = runs()
quotient = table(first / second)
print(f"first / second: {text(quotient)}")
first, second = runs()
changed = first - second
difference = table(changed)
total = float(changed.dataframe.set_index("name")["time (inc)"]["main"])
added = sum(v for v in difference.values() if not math.isnan(v))
print(f"first - second: {text(difference)}, sum {added}; main (inc) {total}")
still = quotient["check"] == 300 and math.isnan(quotient["reduce"])
sys.exit(0 if still and math.isnan(difference["reduce"]) and added != total else 1)
PYTHON
"$folder/venv/bin/python" "$folder/program.py"
