#!/usr/bin/env bash
# FINDING: jpwr 0.0.10 reads the power twice as often as it is told to, in pairs. It means to sleep for what is left
# of the interval since the last reading, but takes the time since the one before its last sleep, so that it sleeps
# for an interval and then not at all. One would think that --interval 100 gives ten readings a second. A meter's
# own load, which the interval is there to keep low, is doubled; where a reading takes 20 ms there are 20 ms and 100
# ms between readings, and the rows of the table, which a mean or a quantile counts alike, stand for a sixth and for
# five sixths of the time.
#
# Seen with jpwr 0.0.10, a simulated clock, an interval of 100 ms and readings of 20 ms for 1.2 s:
#   time between readings 100, 20, 100, 20, ... ms; 20 readings, where one each 100 ms would be 12
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet jpwr==0.0.10 pandas==2.3.1 numpy==2.3.1

cat > "$folder/program.py" <<'PYTHON'
import queue
import sys
from itertools import pairwise

from jpwr import ctxmgr

INTERVAL_MS, READING_MS, RUN_MS = 100, 20, 1200


class Clock:
    """Stands in for the time module: what sleeps or reads moves it on."""

    def __init__(self) -> None:
        self.now_ms = 0.0

    def time(self) -> float:
        return self.now_ms / 1000

    def sleep(self, seconds: float) -> None:
        self.now_ms += 1000 * seconds


class Gpu:
    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def init(self, powers: dict) -> None:
        powers["gpu"] = []

    def measure(self, powers: dict) -> None:
        self.clock.sleep(READING_MS / 1000)
        powers["gpu"].append(300.0)

    def finalize(self, powers: dict) -> dict:
        return {}


class RunEnds:
    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def is_set(self) -> bool:
        return self.clock.now_ms >= RUN_MS


def main() -> int:
    clock, results = Clock(), queue.Queue()
    ctxmgr.time = clock
    options = {"ignore_measure_errors": False}
    ctxmgr.power_loop(results, RunEnds(clock), INTERVAL_MS, [Gpu(clock)], options)
    times = results.get()["timestamps"]
    gaps = [round(1000 * (b - a)) for a, b in pairwise(times)]
    print(f"interval {INTERVAL_MS} ms, {RUN_MS} ms: {len(times)} readings, {gaps} ms between them")
    return 0 if set(gaps[0::2]) == {100} and set(gaps[1::2]) == {20} else 1


if __name__ == "__main__":
    sys.exit(main())
PYTHON
"$folder/venv/bin/python" "$folder/program.py"
