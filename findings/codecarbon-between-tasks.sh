#!/usr/bin/env bash
# FINDING: CodeCarbon 3.3.2 loses what is used before a task. start_task sets the time from which the next
# measurement counts, and measures nothing for the time since the last one. A tracker that runs from start() to
# stop() and has tasks in between reports, as the whole, the tasks and the time since the last of them; the
# seconds before each task are in nothing. The duration is that since the last start_task alone, so the energy
# and the duration are of different times, and an average power that is made of them is too high. One would
# think that tasks are parts of a tracker's whole and do not change it.
#
# Seen with codecarbon 3.3.2, 100 W of memory from start() to stop(), three times 2 s and a task of 1 s:
#   no tasks: 900 J of 900 J, duration 9 s of 9 s
#   tasks: 300 J of 900 J, duration 1 s of 9 s; the tasks have 300 J
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet codecarbon==3.3.2

cat > "$folder/program.py" <<'PYTHON'
import sys
import time

from codecarbon import OfflineEmissionsTracker

POWER_W, BEFORE_S, TASK_S, TASKS = 100, 2, 1, 3


def seen(name: str, with_tasks: bool) -> tuple[float, float]:
    tracker = OfflineEmissionsTracker(
        country_iso_code="FRA",
        force_cpu_power=100,
        force_ram_power=POWER_W,
        measure_power_secs=15,
        allow_multiple_runs=True,
        save_to_file=False,
        log_level="critical",
    )
    tracker.start()
    began = time.perf_counter()
    task_j = 0.0
    for number in range(TASKS):
        time.sleep(BEFORE_S)
        if with_tasks:
            tracker.start_task(f"solve {number}")
        time.sleep(TASK_S)
        if with_tasks:
            task_j += 3.6e6 * tracker.stop_task().ram_energy
    true_s = time.perf_counter() - began
    tracker.stop()
    whole = tracker.final_emissions_data
    energy_j = 3.6e6 * whole.ram_energy
    parts = f"; the tasks have {task_j:.0f} J" if with_tasks else ""
    print(
        f"{name}: {energy_j:.0f} J of {POWER_W * true_s:.0f} J, "
        f"duration {whole.duration:.0f} s of {true_s:.0f} s{parts}"
    )
    return energy_j / (POWER_W * true_s), whole.duration / true_s


def main() -> int:
    without = seen("no tasks", False)
    with_tasks = seen("tasks", True)
    return 0 if min(without) > 0.9 and max(with_tasks) < 0.5 else 1


if __name__ == "__main__":
    sys.exit(main())
PYTHON
"$folder/venv/bin/python" "$folder/program.py"
