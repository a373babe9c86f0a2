#!/usr/bin/env bash
# FINDING: Thicket 2026.1.1 gives confidence intervals of repeated runs that are far too narrow. It counts
# the profiles in which a region does not occur as measurements of it, and takes the normal distribution's
# quantile whatever the number of runs. Of a region measured in 2 of 20 runs the interval of 95% is
# a twentieth as wide as Student's; of one measured in all of 3 runs it is less than half as wide. Two
# settings then seem to differ that do not.
#
# Seen with llnl-thicket 2026.1.1, times of 5 s and 6 s, half the width of the interval of 95%:
#   3 of 3 runs: 0.65 s, Student's for 3 runs 1.43 s
#   2 of 2 runs: 0.98 s, Student's for 2 runs 6.35 s
#   2 of 20 runs: 0.31 s, Student's for 2 runs 6.35 s
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet llnl-thicket==2026.1.1 llnl-hatchet==2026.2.0

cat > "$folder/program.py" <<'PYTHON'
import sys

import thicket
from hatchet import GraphFrame
from scipy.stats import sem, t


def profile(times_s: dict[str, float]) -> GraphFrame:
    children = [
        {"frame": {"name": name, "type": "region"}, "metrics": {"time": time_s}}
        for name, time_s in times_s.items()
    ]
    main = {"frame": {"name": "main", "type": "region"}, "metrics": {"time": 1.0}}
    return GraphFrame.from_literal([main | {"children": children}])


def widths(times_s: list[float], runs: int) -> tuple[float, float]:
    profiles = [profile({"solve": time_s}) for time_s in times_s]
    profiles += [profile({"other": 1.0}) for _ in range(runs - len(times_s))]
    thickets = [
        thicket.Thicket.thicketize_graphframe(p, f"run {i}") for i, p in enumerate(profiles)
    ]
    ensemble = thicket.Thicket.concat_thickets(thickets)
    (column,) = thicket.stats.confidence_interval(ensemble, ["time"], confidence_level=0.95)
    low, high = ensemble.statsframe.dataframe.set_index("name")[column]["solve"]
    seen, measured = (high - low) / 2, len(times_s)
    students = sem(times_s) * t.ppf(0.975, measured - 1)
    print(
        f"{measured} of {runs} runs: {seen:.2f} s, "
        f"Student's for {measured} runs {students:.2f} s"
    )
    return seen, students


def main() -> int:
    three = widths([5.0, 6.0, 6.0], 3)
    two, of_twenty = widths([5.0, 6.0], 2), widths([5.0, 6.0], 20)
    narrow = all(seen < students / 2 for seen, students in (three, two, of_twenty))
    return 0 if narrow and abs(two[0] / of_twenty[0] - 10**0.5) < 1e-6 else 1


if __name__ == "__main__":
    sys.exit(main())
PYTHON
"$folder/venv/bin/python" -W ignore "$folder/program.py" 2> /dev/null
