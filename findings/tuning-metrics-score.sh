#!/usr/bin/env bash
# FINDING: tuning-metrics 0.1.2 gives a kernel a better score the slower it is, where the score is that of a time.
# Its tuning_score_size is the square root of the best value of a space over what is achievable. Its reader of
# Kernel Tuner's files takes "time" by default, and marks the space as one in which lower is better; the score of
# the distribution looks at this mark, that of the size does not. One would think that both scores of one space have
# the same direction. A kernel that needs 4 times as long as it could has a score of 2 with its times, and of 0.5
# with its flop/s. Energies have the direction of times.
#
# Seen with tuning-metrics 0.1.2, files of Kernel Tuner, best possible 1 ms and 1000 Gflop/s:
#   best at 4 ms: 2 by time, 0.5 by flop/s; best at 1 ms: 1 by both
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet tuning-metrics==0.1.2 numpy==2.3.1

cat > "$folder/program.py" <<'PYTHON'
import json
import sys
from pathlib import Path

from tuning_metrics.utils import load_kernel_tuner
from tuning_metrics.metrics import tuning_score_size

PEAK = {"time": 1, "gflops": 1000}


def scores(path: Path, times_ms: list[float]) -> tuple[float, float]:
    rows = [{"block_size_x": 32 * (1 + i), "time": t} for i, t in enumerate(times_ms)]
    path.write_text(json.dumps([row | {"gflops": 1000 / row["time"]} for row in rows]))
    by_time = load_kernel_tuner(str(path))
    by_flops = load_kernel_tuner(str(path), key="gflops", ascending_metric=True)
    return (
        tuning_score_size(by_time, PEAK["time"]),
        tuning_score_size(by_flops, PEAK["gflops"]),
    )


def main(folder: Path) -> int:
    found = {best: scores(folder / "space.json", [best, best + 1, best + 4]) for best in (1, 4)}
    for best, (by_time, by_flops) in found.items():
        print(f"best of the space {best} ms: score {by_time:g} by time, {by_flops:g} by flop/s")
    return 0 if found == {1: (1, 1), 4: (2, 0.5)} else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
PYTHON
"$folder/venv/bin/python" "$folder/program.py" "$folder"
