#!/usr/bin/env bash
# FINDING: slurm-sweeps 0.1.3 runs as many settings of a grid as n_trials says, 1 by default, and its documentation
# says of n_trials that it is ignored for grids. The grid is expanded whole, and the log states its size as the total
# number of trials; the loop that starts them ends at n_trials. One would think that a sweep over a grid that ends
# without an error, and with "Terminated trials" as many as its last summary counts, has measured the grid. A grid of
# four clocks has one measurement, of the first clock, which is then the best; with n_trials=2 the two highest clocks
# are never tried.
#
# Seen with slurm-sweeps 0.1.3, a grid of four clocks, whose energy falls with the clock from 400 J to 100 J:
#   run(): "total number of trials: 4"; 1 clock measured, 2.0 GHz; best 400 J
#   run(n_trials=2): "total number of trials: 4"; 2 clocks measured, 2.0 GHz, 1.7 GHz; best 300 J
#   run(n_trials=4): "total number of trials: 4"; 4 clocks measured, 2.0 GHz, 1.7 GHz, 1.4 GHz, 1.1 GHz; best 100 J
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-deps slurm-sweeps==0.1.3 cloudpickle==3.1.1 pyyaml==6.0.2 \
    pandas==2.2.3 numpy==1.26.4 python-dateutil==2.9.0.post0 pytz==2025.2 tzdata==2025.2 six==1.17.0

cat > "$folder/program.py" <<'PYTHON'
import io
import logging
import re
import sys

import slurm_sweeps
from slurm_sweeps.backend import Backend

ENERGY_J = {2.0: 400.0, 1.7: 300.0, 1.4: 200.0, 1.1: 100.0}


def measure(cfg: dict) -> None:
    import slurm_sweeps

    slurm_sweeps.log({"clock": cfg["clock"], "joules": cfg["energies"][str(cfg["clock"])]}, 0)


def main(folder: str) -> int:
    logged = io.StringIO()
    for handler in logging.getLogger("slurm_sweeps").handlers:
        handler.setStream(logged)
    energies = {str(clock): energy for clock, energy in ENERGY_J.items()}
    found = {}
    for call in ({}, {"n_trials": 2}, {"n_trials": 4}):
        logged.seek(0)
        logged.truncate()
        cfg = {"clock": slurm_sweeps.Grid(list(ENERGY_J)), "energies": energies}
        experiment = slurm_sweeps.Experiment(measure, cfg, local_dir=folder, backend=Backend(), overwrite=True)
        table = experiment.run(max_concurrent_trials=1, **call)
        total = re.search(r"total number of trials: \d+", logged.getvalue())[0]
        name = ", ".join(f"{key}={value}" for key, value in call.items())
        clocks = ", ".join(f"{clock} GHz" for clock in table["clock"])
        best = table["joules"].min()
        print(f'run({name}): "{total}"; {len(table)} clocks measured, {clocks}; best {best:g} J')
        found[name] = (total[-1], len(table), best)
    expected = {"": ("4", 1, 400), "n_trials=2": ("4", 2, 300), "n_trials=4": ("4", 4, 100)}
    return 0 if found == expected else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
PYTHON
PATH="$folder/venv/bin:$PATH" "$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder/sweeps"
