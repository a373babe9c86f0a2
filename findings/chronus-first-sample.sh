#!/usr/bin/env bash
# FINDING: chronus 0.3.13 counts half of a run's first power for all of the run. Its Run joins the powers of two
# samples as a trapezoid, but the earlier power of each is that of the run's first sample, which is never replaced:
# the energy is the mean of the first power and of the real one, times the time. The first sample is taken when
# sbatch has returned, before the job uses the node. One would think of the energy under the samples; nothing looks
# wrong in it, as it grows with the time and lies between idle and full power. Its optimizer, which is to find the
# cores and the clock with the most Gflop/s per watt, then sees half of what a high clock costs, and recommends it.
#
# Seen with chronus 0.3.13, 60 s at 400 W (10 Gflop/s) and at 220 W (6 Gflop/s), each after a sample of 100 W:
#   2.5 GHz: 15000 J, 0.0400 Gflop/s per watt; under the samples 23550 J, 0.0255
#   1.5 GHz: 9600 J, 0.0375 Gflop/s per watt; under the samples 13020 J, 0.0276
#   recommended: 2.5 GHz; by the energy under the samples: 1.5 GHz
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-deps chronus==0.3.13 dataclasses-json==0.5.14 \
    marshmallow==3.26.1 packaging==25.0 typing-inspect==0.9.0 mypy-extensions==1.1.0 typing-extensions==4.15.0

cat > "$folder/program.py" <<'PYTHON'
import datetime
import sys

from chronus.domain.Run import Run
from chronus.domain.system_sample import SystemSample
from chronus.SystemIntegration.optimizers.bruteforce_optmizer import BruteForceOptimizer

SECONDS, STEP, IDLE_W = 60, 3, 100.0
START = datetime.datetime(2026, 11, 1)
SETTINGS = {2_500_000: (400.0, 10.0), 1_500_000: (220.0, 6.0)}


def measured(frequency: int) -> tuple[Run, float]:
    """A run with a sample each 3 s, the first one before the job, and the energy under its samples."""
    power, gflops = SETTINGS[frequency]
    run = Run(cores=32, frequency=frequency, gflops=gflops)
    run.start_time = START
    powers = [IDLE_W] + [power] * (SECONDS // STEP)
    for number, value in enumerate(powers):
        run.add_sample(SystemSample(START + datetime.timedelta(seconds=STEP * number), value))
    run.finish(START + datetime.timedelta(seconds=SECONDS))
    return run, sum((a + b) / 2 * STEP for a, b in zip(powers, powers[1:]))


def main(folder: str) -> int:
    runs = {frequency: measured(frequency) for frequency in SETTINGS}
    real = {}
    for frequency, (run, energy) in runs.items():
        real[frequency] = run.gflops * SECONDS / energy
        print(
            f"{frequency / 1e6} GHz: {run.energy_used_joules:.0f} J, {run.gflops_per_watt:.4f} Gflop/s per watt; "
            f"under the samples {energy:.0f} J, {real[frequency]:.4f}"
        )
    optimizer = BruteForceOptimizer()
    optimizer.make_model([run for run, _ in runs.values()])
    optimizer.save(f"{folder}/model")
    chosen = optimizer.run(f"{folder}/model").frequency
    best = max(real, key=real.get)
    print(f"recommended: {chosen / 1e6} GHz; by the energy under the samples: {best / 1e6} GHz")
    energies = [round(run.energy_used_joules) for run, _ in runs.values()]
    return 0 if energies == [15000, 9600] and (chosen, best) == (2_500_000, 1_500_000) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
PYTHON
"$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder"
