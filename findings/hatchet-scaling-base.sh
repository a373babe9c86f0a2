#!/usr/bin/env bash
# FINDING: Hatchet 1.4.1's Chopper.speedup_efficiency takes the first profile of the list for the base, not
# the one with the fewest processes. It sorts the profiles by their processes, and throws the sorted list away.
# Files listed by name are in the order 128, 16, 64: the base is then the largest run. The 128 processes have
# no column, and the others have efficiencies above one; a solver that loses a sixth of its efficiency on the
# way to 128 processes seems to gain from more. The columns name the processes of a run, and never those of
# the base.
#
# Seen with hatchet 1.4.1, a solver of 8 s, 2.2 s and 1.2 s on 16, 64 and 128 processes:
#   16, 64, 128: efficiency 0.91 with 64, 0.83 with 128
#   128, 16, 64: efficiency 1.20 with 16, 1.09 with 64
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet hatchet==1.4.1 pandas==2.2.3 numpy==1.26.4

cat > "$folder/program.py" <<'PYTHON'
import sys

import hatchet

SECONDS = {16: 8.0, 64: 2.2, 128: 1.2}


def profile(processes: int) -> hatchet.GraphFrame:
    time = SECONDS[processes]
    frame = {"name": "solve", "type": "function"}
    times = {"time": time, "time (inc)": time}
    graph = hatchet.GraphFrame.from_literal([{"frame": frame, "metrics": times}])
    graph.update_metadata(num_processes=processes)
    return graph


def efficiencies(order: list[int]) -> dict[int, float]:
    profiles = [profile(processes) for processes in order]
    table = hatchet.Chopper.speedup_efficiency(profiles, strong=True, efficiency=True)
    (row,) = table.filter(like="efficiency").to_dict("records")
    found = {int(name.split(".")[0]): value for name, value in row.items()}
    text = ", ".join(f"{value:.2f} with {processes}" for processes, value in found.items())
    print(f"{', '.join(map(str, order))}: efficiency {text}")
    return {processes: round(value, 2) for processes, value in found.items()}


def main() -> int:
    rising = efficiencies(sorted(SECONDS))
    by_name = efficiencies(sorted(SECONDS, key=str))
    return 0 if rising == {64: 0.91, 128: 0.83} and by_name == {16: 1.2, 64: 1.09} else 1


if __name__ == "__main__":
    sys.exit(main())
PYTHON
"$folder/venv/bin/python" -W ignore "$folder/program.py"
