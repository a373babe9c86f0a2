#!/usr/bin/env bash
# FINDING: Expetator 0.3.35 writes an energy of -1 J, a time of -1 s and a power of -1 W for every run, where SciPy
# is 1.14 or later. Its add_energy integrates with scipy.integrate.trapz, which SciPy has removed, and catches
# any error as "no power was recorded". The power is there and read; nothing is said, the program ends with
# exit status 0 and the table is complete. One would think that a missing function ends the program. A
# campaign's table then has the same energy at all clocks, and a sum or a mean of it is a negative number.
#
# Seen with Expetator 0.3.35 and scipy 1.17.1, a run of 10 s at 100 W and one at 50 W:
#   energy -1, -1; time -1, -1; mean power -1, -1; exit status 0
#   by the same add_energy with a trapz in scipy.integrate: energy 1000, 500; time 10, 10
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet expetator==0.3.35 scipy==1.17.1 pandas==2.3.3 matplotlib==3.10.8

cat > "$folder/program.py" <<'PYTHON'
import json
import os
import subprocess
import sys
from pathlib import Path

import pandas
import scipy.integrate
from expetator.add_energy import add_energy

COLUMNS = ["energy", "time", "mean_power"]


def main(folder: Path) -> int:
    os.chdir(folder)
    os.mkdir("runs_power")
    rows = ["hostname fullname startTime hostlist"]
    for number, watts in enumerate((100, 50)):
        rows.append(f"n1.site solve {1000 + number} n1.site")
        trace = [["n1", list(range(11)), [watts] * 11]]
        Path(f"runs_power/n1.site_solve_{1000 + number}").write_text(json.dumps(trace))
    Path("runs").write_text("\n".join(rows) + "\n")
    done = subprocess.run([Path(sys.executable).parent / "add_energy", "runs"])
    found = pandas.read_csv("runs.csv", sep=" ")[COLUMNS].values.tolist()
    print(f"energy, time and mean power of the two runs: {found}; exit status {done.returncode}")
    scipy.integrate.trapz = scipy.integrate.trapezoid
    with_trapz = add_energy("runs")[COLUMNS].values.tolist()
    print(f"with a trapz in scipy.integrate: {with_trapz}")
    expected = [[1000, 10, 100], [500, 10, 50]]
    return 0 if found == [[-1, -1, -1]] * 2 and done.returncode == 0 and with_trapz == expected else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
PYTHON
"$folder/venv/bin/python" "$folder/program.py" "$folder"
