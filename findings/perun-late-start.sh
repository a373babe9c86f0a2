#!/usr/bin/env bash
# FINDING: perun 1.0.0 can lose the start of a run, up to half a sampling period (0.5 s by default): the
# process that samples sleeps so long between looks whether the program has started, and its clock
# begins then. Runtime and energy are those of what is left. A program of 0.2 s is reported with a runtime
# of a millisecond, and 0 J. Nothing is said.
#
# Here the counter is a file that a process advances as a package of 100 W would.
#
# Seen with perun 1.0.0, a sample a second:
#   program: 0.20 s, 20 J; perun: 0.00 s, 0 J
# How much a longer program loses depends on when it starts within a sampling period.
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet perun==1.0.0

cat > "$folder/program.py" <<'PYTHON'
import multiprocessing
import os
import sys
import time
from pathlib import Path

from perun.api import cli
from perun.backend import powercap_rapl
from perun.io.io import IOFormat, importFrom

WATTS = 100.0


def count(zone: Path) -> None:
    with (zone / "energy_uj").open("w") as file:  # perun keeps it open: always ten digits
        while True:
            uj = 1_000_000_000 + int(time.perf_counter() * WATTS * 1e6) % 5_000_000_000
            os.pwrite(file.fileno(), b"%d\n" % uj, 0)
            time.sleep(0.002)


def main(folder: Path, seconds: float) -> int:
    zone = folder / "intel-rapl:0"
    zone.mkdir(parents=True)
    (zone / "name").write_text("package-0\n")
    (zone / "max_energy_range_uj").write_text("262143328850\n")
    multiprocessing.Process(target=count, args=(zone,), daemon=True).start()
    time.sleep(0.2)
    powercap_rapl.RAPL_PATH = str(folder)
    script = folder / "sleeps.py"
    script.write_text(f"import time\ntime.sleep({seconds})\n")
    options = ["--sampling-period", "1", "--app-name", "sleeps", "--format", "hdf5"]
    sys.argv = ["perun", "monitor", *options, "--data-out", str(folder), str(script)]
    cli.cli()
    (group,) = importFrom(folder / "sleeps.hdf5", IOFormat.HDF5).nodes.values()
    (run,) = group.nodes.values()
    seen_s, seen_j = (float(run.metrics[name].value) for name in ("runtime", "energy"))
    print(
        f"program: {seconds:.2f} s, {seconds * WATTS:.0f} J; perun: {seen_s:.2f} s, {seen_j:.0f} J"
    )
    return 0 if seen_s < seconds - 0.1 and seen_j < (seconds - 0.1) * WATTS else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), float(sys.argv[2])))
PYTHON
for seconds in 0.2; do
    "$folder/venv/bin/python" "$folder/program.py" "$folder/of_$seconds" "$seconds" 2> /dev/null | grep program
done
