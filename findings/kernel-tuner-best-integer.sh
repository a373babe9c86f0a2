#!/usr/bin/env bash
# FINDING: Kernel Tuner 1.5.0 passes over results whose objective is an integer when it picks the best
# configuration. Energy counters are integers (mJ of NVML, uJ of RAPL): with an observer or a metric that
# hands them on, env["best_config"], which is also printed, is the first configuration. Nothing is said.
# If some results are integers and some are not, it is the best of the others.
#
# Seen with kernel-tuner 1.5.0, in simulation mode:
#   energy_uj of 3 threads: {1: 900000, 2: 400000, 3: 700000}; best: 1 thread(s)
#   energy_uj of 3 threads: {1: 900000.0, 2: 400000, 3: 700000.0}; best: 3 thread(s)
#   energy_uj of 3 threads: {1: 900000.0, 2: 400000.0, 3: 700000.0}; best: 2 thread(s)
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet kernel-tuner==1.5.0

cat > "$folder/program.py" <<'PYTHON'
import json
import sys
from pathlib import Path

import kernel_tuner


def best(cache: Path, energy_uj: dict[int, float]) -> int:
    results = {
        str(n): {"threads": n, "time": 1.0 / n, "times": [1.0 / n], "energy_uj": uj}
        | dict.fromkeys(("compile_time", "verification_time", "benchmark_time"), 1.0)
        | dict.fromkeys(("strategy_time", "framework_time"), 0.0)
        | {"timestamp": "2026-11-30T00:00:00+00:00"}
        for n, uj in energy_uj.items()
    }
    run = {
        "device_name": "simulated",
        "kernel_name": "kernel",
        "problem_size": 1,
        "tune_params_keys": ["threads"],
        "tune_params": {"threads": list(energy_uj)},
        "objective": "energy_uj",
        "cache": results,
    }
    cache.write_text(json.dumps(run))
    _, env = kernel_tuner.tune_kernel(
        "kernel",
        "void kernel() {}",
        1,
        [],
        run["tune_params"],
        lang="C",
        objective="energy_uj",
        objective_higher_is_better=False,
        simulation_mode=True,
        cache=str(cache),
        quiet=True,
    )
    found = env["best_config"]["threads"]
    print(f"energy_uj of 3 threads: {energy_uj}; best: {found} thread(s)")
    return found


def main(folder: Path) -> int:
    whole = {1: 900_000, 2: 400_000, 3: 700_000}
    floats = {n: float(uj) for n, uj in whole.items()}
    one_whole = floats | {2: whole[2]}
    found = [best(folder / "cache.json", uj) for uj in (whole, one_whole, floats)]
    return 0 if found == [1, 3, 2] else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
PYTHON
"$folder/venv/bin/python" "$folder/program.py" "$folder"
