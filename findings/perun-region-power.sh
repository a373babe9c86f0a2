#!/usr/bin/env bash
# FINDING: the power that perun 1.0.0 reports of a region (a function with @monitor()) is not that of
# the region. It takes the mean of the powers at the region's two ends and at the samples between, each
# being the mean power of the sampling period before it; and the samples' clock starts up to half a
# period later than the regions'. With the default period of 1 s, a region of 1 s at 200 W between 20 W
# is given a little more than half of its power, and the waiting after it more than it had. A region
# shorter than a period has about the mean of what is around it.
#
# Here the counter is a file that a process advances by 200 W while the region runs, else by 20 W.
#
# Seen with perun 1.0.0, a sample a second:
#   busy, 1 s: 200 W by the counter; perun: 110 W
#   waiting, 2 s: 20 W by the counter; perun: 54 W
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet perun==1.0.0

cat > "$folder/regions.py" <<'PYTHON'
import os
import time
from pathlib import Path

from perun import monitor

FOLDER = Path(os.environ["FOLDER"])


def used_j() -> float:
    return int((FOLDER / "intel-rapl:0/energy_uj").read_text()) * 1e-6


@monitor()
def waiting() -> None:
    time.sleep(2)


@monitor()
def busy() -> None:
    (FOLDER / "busy").touch()
    before_j = used_j()
    time.sleep(1)
    (FOLDER / "by_counter").write_text(str(used_j() - before_j))
    (FOLDER / "busy").unlink()


waiting()
busy()
waiting()
PYTHON
cat > "$folder/program.py" <<'PYTHON'
import multiprocessing
import os
import sys
import time
from pathlib import Path

from perun.api import cli
from perun.backend import powercap_rapl
from perun.io.io import IOFormat, importFrom


def count(folder: Path) -> None:
    with (folder / "intel-rapl:0/energy_uj").open("w") as file:  # perun keeps it open: ten digits
        uj, before_s = 1_000_000_000.0, time.perf_counter()
        while True:
            now_s = time.perf_counter()
            uj += (now_s - before_s) * (200e6 if (folder / "busy").exists() else 20e6)
            before_s = now_s
            os.pwrite(file.fileno(), b"%d\n" % int(uj), 0)
            time.sleep(0.001)


def main(folder: Path) -> int:
    zone = folder / "intel-rapl:0"
    zone.mkdir()
    (zone / "name").write_text("package-0\n")
    (zone / "max_energy_range_uj").write_text("262143328850\n")
    multiprocessing.Process(target=count, args=(folder,), daemon=True).start()
    time.sleep(0.2)
    powercap_rapl.RAPL_PATH = str(folder)
    options = ["--sampling-period", "1", "--app-name", "regions", "--format", "hdf5"]
    script = str(folder / "regions.py")
    sys.argv = ["perun", "monitor", *options, "--data-out", str(folder), script]
    cli.cli()
    (group,) = importFrom(folder / "regions.hdf5", IOFormat.HDF5).nodes.values()
    (run,) = group.nodes.values()
    watts = {
        name: float(metric.mean)
        for name, region in run.regions.items()
        for metric in region.metrics.values()
        if metric.type == "power"
    }
    by_counter_w = float((folder / "by_counter").read_text())
    print(f"busy, 1 s: {by_counter_w:.0f} W by the counter; perun: {watts['busy']:.0f} W")
    print(f"waiting, 2 s: 20 W by the counter; perun: {watts['waiting']:.0f} W")
    return 0 if by_counter_w > 190 and watts["busy"] < 0.9 * by_counter_w else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
PYTHON
FOLDER=$folder "$folder/venv/bin/python" "$folder/program.py" "$folder" 2> /dev/null | grep counter
