#!/usr/bin/env bash
# FINDING: Expetator 0.3.35 writes the GPU's power of a run in winter an hour before the run. Its powergpu monitor
# takes the times of day that nvidia-smi recorded for Central European Summer Time, whatever the season. In
# winter the zone's clock is an hour behind that, and each power gets a time that is 3600 s too early; the
# benchmark's own begin, and the powers of all other monitors, are right. One would think that traces of one run
# can be laid on each other all year round. In January the GPU's trace ends before the kernel
# begins, and the energy inside the kernel's window is empty; in July the same code is right.
#
# Seen with Expetator 0.3.35, a zone with summer time (Europe/Paris), samples from the run's begin on:
#   a run in July: first sample 0 s after the begin; a run in January: -3600 s
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet expetator==0.3.35

cat > "$folder/nvidia-smi" <<'PYTHON'
#!/usr/bin/env python3
"""Stands in for "nvidia-smi replay": writes the samples as its -r file, with the local time of day."""
import os
import sys
import time

begin = int(os.environ["BEGIN"])
with open(sys.argv[sys.argv.index("-r") + 1], "w") as file:
    file.write("#Time gpu pwr\n#HH:MM:SS Idx W\n")
    for second in range(3):
        file.write(time.strftime("%H:%M:%S", time.localtime(begin + second)) + " 0 300\n")
PYTHON
chmod +x "$folder/nvidia-smi"

cat > "$folder/program.py" <<'PYTHON'
import calendar
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

from expetator.monitors.powergpu import Power


class Local:
    hostnames = ["n1"]

    def local(self, command: str, root: bool = False) -> None:
        subprocess.run(command, shell=True, check=True)


def first_sample(folder: Path, month: int) -> int:
    begin = calendar.timegm((2026, month, 15, 11, 0, 0))
    os.environ["BEGIN"] = str(begin)
    monitor = Power()
    monitor.build(Local())
    monitor.cwd = str(folder)
    (folder / monitor.df).touch()
    monitor.save(SimpleNamespace(output_file=str(folder / "runs")), "solve", begin)
    lines = (folder / f"runs_mojitos/n1_solve_{begin}").read_text().splitlines()
    return int(lines[1].split()[0]) - begin


def main(folder: Path) -> int:
    os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"
    # Europe/Paris, spelt out: summer time from the last Sunday of March to that of October.
    os.environ["TZ"] = "CET-1CEST,M3.5.0,M10.5.0/3"
    time.tzset()
    found = {name: first_sample(folder, month) for name, month in (("July", 7), ("January", 1))}
    for name, late in found.items():
        print(f"a run in {name}: first sample {late} s after the begin")
    return 0 if found == {"July": 0, "January": -3600} else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
PYTHON
"$folder/venv/bin/python" "$folder/program.py" "$folder"
