#!/usr/bin/env bash
# The files of other tools in tests/data/other_tools, each made by the tool itself, pinned, in an
# environment of its own: tests/other_tools/make_files.sh FOLDER
#
# Debian's linux-perf (6.1) is taken from the machine, likwid (5.2.2) and lua5.3 from its packages,
# which are not installed. Of perf's energy event, which gives 0 J where the machine has no counter,
# 12.34 J (12.345678 J with -j) stand in its place. LIKWID's file is printed by its own code from
# counters given to it. The counters of CodeCarbon and perun, and Zeus' GPUs, are pretended. Caliper's
# profiles, which caliper_profiles.sh makes, are read where they are kept.
set -euo pipefail
out=$(realpath "$1")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
thicket="llnl-thicket==2026.1.1 llnl-hatchet==2026.2.0 caliper-reader==0.4.1"
for tool in codecarbon==3.3.2 perun==1.0.0 "$thicket" zeus==0.16.0 reframe-hpc==4.10; do
    python3 -m venv "$folder/${tool%%=*}"
    # shellcheck disable=SC2086
    "$folder/${tool%%=*}/bin/pip" install --quiet --disable-pip-version-check $tool
done
cp "$(dirname "$0")"/../data/other_tools/caliper_*.cali "$folder"
cd "$folder"

cat > codecarbon_runs.py <<'PYTHON'
"""Three runs of CodeCarbon in the working directory: emissions.csv.

python codecarbon_runs.py           as this machine is: without RAPL, from the load
python codecarbon_runs.py FOLDER    with a pretended counter of 40 W in FOLDER, in steps of 61 uJ
"""

import os
import sys
import threading
import time
from pathlib import Path

from codecarbon import OfflineEmissionsTracker
from codecarbon.core import cpu

WATTS, STEP_UJ = 40, 61


def pretend(folder: Path) -> None:
    zone = folder / "intel-rapl" / "intel-rapl:0"
    zone.mkdir(parents=True)
    (zone / "name").write_text("package-0\n")
    (zone / "max_energy_range_uj").write_text("262143328850\n")
    (folder / "intel-rapl:0").symlink_to(zone)
    began = time.time()

    def count() -> None:
        while True:
            uj = 1_000_000_000 + int((time.time() - began) * WATTS * 1e6) // STEP_UJ * STEP_UJ
            (zone / "next").write_text(f"{uj}\n")
            os.replace(zone / "next", zone / "energy_uj")
            time.sleep(0.005)

    threading.Thread(target=count, daemon=True).start()
    time.sleep(0.1)
    of_rapl, is_available = cpu.IntelRAPL.__init__, cpu.is_rapl_available
    where = str(folder / "intel-rapl")

    def init(self, rapl_dir: str = "", **options: object) -> None:
        of_rapl(self, rapl_dir=where, **options)

    cpu.IntelRAPL.__init__ = init
    cpu.is_rapl_available = lambda rapl_dir=None: is_available(where)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        pretend(Path(sys.argv[1]).resolve())
    for name, seconds in (("idle", 2), ("busy", 3), ("busy", 2)):
        tracker = OfflineEmissionsTracker(
            country_iso_code="DEU",
            project_name=name,
            measure_power_secs=1,
            log_level="error",
            allow_multiple_runs=True,
        )
        tracker.start()
        end = time.time() + seconds
        while time.time() < end:
            if name == "idle":
                time.sleep(0.1)
            else:
                sum(range(10_000))
        tracker.stop()
        print([getattr(part, "_mode", "") for part in tracker._hardware])
PYTHON

cat > perun_program.py <<'PYTHON'
"""A program with two regions, of which one is shorter than 20 sampling periods."""

import time

from perun import monitor


@monitor()
def triad() -> None:
    end = time.perf_counter() + 2.2
    while time.perf_counter() < end:
        sum(range(10_000))


@monitor()
def copy() -> None:
    time.sleep(0.3)


triad()
copy()
copy()
PYTHON

cat > perun_pretended.py <<'PYTHON'
"""perun with a pretended package of 40 W and its DRAM of 5 W in FOLDER: FOLDER WORD..."""

import multiprocessing
import os
import sys
import time
from pathlib import Path

from perun.api import cli
from perun.backend import powercap_rapl

WATTS = {"package-0": 40, "dram": 5}


def count(zones: dict[str, Path]) -> None:
    """perun keeps the counters open: they are written in place, always with ten digits."""
    files = {name: (zone / "energy_uj").open("w") for name, zone in zones.items()}
    began = time.time()
    while True:
        for name, file in files.items():
            uj = 1_000_000_000 + int((time.time() - began) * WATTS[name] * 1e6)
            os.pwrite(file.fileno(), b"%d\n" % uj, 0)
        time.sleep(0.002)


if __name__ == "__main__":
    folder = Path(sys.argv.pop(1)).resolve()
    package = folder / "intel-rapl:0"
    zones = {"package-0": package, "dram": package / "intel-rapl:0:0"}
    for name, zone in zones.items():
        zone.mkdir(parents=True, exist_ok=True)
        (zone / "name").write_text(f"{name}\n")
        (zone / "max_energy_range_uj").write_text("262143328850\n")
    multiprocessing.Process(target=count, args=(zones,), daemon=True).start()
    time.sleep(0.2)
    powercap_rapl.RAPL_PATH = str(folder)
    cli.cli()
PYTHON

cat > zeus_files.py <<'PYTHON'
"""The files that Zeus writes of two GPUs that this pretends: windows.csv and limits.json."""

import sys
import time
import types
from pathlib import Path

from zeus.monitor import energy
from zeus.optimizer import power_limit

WATTS = (212.5, 198.25)


class Gpus:
    """What ZeusMonitor asks of the devices."""

    def __len__(self) -> int:
        return len(WATTS)

    def __getattr__(self, name: str) -> object:
        if name.startswith("supports"):
            return lambda *_: True
        if "energy" in name.lower():
            return lambda index, *_: time.time() * WATTS[index] * 1000.0
        return lambda index=0, *_: WATTS[index] * 1000.0


def main(folder: Path) -> None:
    energy.get_gpus = lambda *_, **__: Gpus()
    monitor = energy.ZeusMonitor(
        gpu_indices=[0, 1], cpu_indices=[], log_file=folder / "windows.csv"
    )
    for name in ("epoch", "epoch", "evaluate"):
        monitor.begin_window(name, sync_execution=False)
        time.sleep(0.25)
        print(monitor.end_window(name, sync_execution=False))
    measurements = [
        power_limit.PowerLimitMeasurement(power_limit=w, energy=e, time=s)
        for w, e, s in ((300, 5123.25, 21.5), (250, 4801.125, 22.25), (200, 4700.5, 25.125))
    ]
    state = power_limit.Done(optimal_power_limit=200)
    optimizer = types.SimpleNamespace(
        profile_path=folder / "limits.json", measurements=measurements, state=state
    )
    power_limit.GlobalPowerLimitOptimizer._save_profile(optimizer)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
PYTHON

cat > reframe_checks.py <<'PYTHON'
"""A test of ReFrame with a time and an energy as performance variables, at two clocks."""

import reframe as rfm
import reframe.utility.sanity as sn


@rfm.simple_test
class stream(rfm.RunOnlyRegressionTest):
    core_mhz = parameter([1200, 2400, 9999])
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "printf"

    @run_before("run")
    def say(self) -> None:
        if self.core_mhz == 9999:  # no such clock: it fails, without an energy
            self.executable_opts = ["'no such clock\\n'"]
            return
        self.executable_opts = [f"'elapsed 1.{self.core_mhz} s energy {self.core_mhz / 10} J\\n'"]

    @sanity_function
    def ended(self) -> object:
        return sn.assert_found(r"energy", self.stdout)

    @performance_function("s")
    def elapsed(self) -> object:
        return sn.extractsingle(r"elapsed (\S+)", self.stdout, 1, float)

    @performance_function("J")
    def energy(self) -> object:
        return sn.extractsingle(r"energy (\S+)", self.stdout, 1, float)
PYTHON

cat > likwid_print.lua <<'LUA'
-- LIKWID's own printing code, given counters: lua5.3 likwid_print.lua FOLDER MARKER
local folder, marker = arg[1], arg[2] == "marker"
local file = io.open(folder .. "/usr/share/lua/likwid.lua")
local source = file:read("a"):gsub('require%("liblikwid"%)', "")
setmetatable(_G, {__index = function(_, name)
  if name:match("^likwid_") then return function() return 0 end end
end})
function likwid_getCpuInfo() return {osname = "Intel(R) Xeon(R) Gold 6148", name = "Intel Skylake SP processor"} end
local likwid = load(source)()
local metrics = {"Runtime (RDTSC) [s]", "Clock [MHz]", "Energy [J]", "Power [W]", "Energy PP0 [J]", "Energy DRAM [J]"}
local events = {{"INSTR_RETIRED_ANY", "FIXC0"}, {"PWR_PKG_ENERGY", "PWR0"}, {"PWR_DRAM_ENERGY", "PWR3"}}
likwid.getCpuClock = function() return 2.4e9 end
likwid.markerRegionTag = function(r) return ({"triad", "copy"})[r] end
likwid.markerRegionThreads = function() return 2 end
likwid.markerRegionCpulist = function() return {0, 20} end
likwid.markerRegionTime = function(r, c) return 1.25 * r + 0.001 * c end
likwid.markerRegionCount = function() return 3 end
likwid.getRuntimeOfGroup = function() return 2.5 end
likwid.getNameOfGroup = function() return "ENERGY" end
likwid.getNumberOfMetrics = function() return #metrics end
likwid.getNameOfMetric = function(_, m) return metrics[m] end
likwid.getNameOfEvent = function(_, e) return events[e][1] end
likwid.getNameOfCounter = function(_, e) return events[e][2] end
use_csv, outfile = true, nil
local function one(scale)
  return {{{1e9, 1.1e9}, {85.5 * scale, 80.25 * scale}, {12.5 * scale, 11.75 * scale}}},
    {{{2.5 * scale, 2.5 * scale + 0.001}, {2394.5, 2401.5}, {85.5 * scale, 80.25 * scale},
      {34.2, 32.1}, {50.5, 49.5}, {12.5 * scale, 11.75 * scale}}}
end
for region = 1, marker and 2 or 1 do
  local counts, values = one(region)
  likwid.printOutput(counts, values, {0, 20}, marker and region or nil, false)
end
LUA

mkdir load rapl
(cd load && ../codecarbon/bin/python ../codecarbon_runs.py)
(cd rapl && ../codecarbon/bin/python ../codecarbon_runs.py powercap)
cp load/emissions.csv "$out/codecarbon_load.csv"
cp rapl/emissions.csv "$out/codecarbon_rapl.csv"

export PERUN_EXCLUDE_SENSORS="CPU_ RAM_ NET_ DISK_"
perun() {
    perun/bin/python perun_pretended.py rapl_of_perun monitor --sampling-period 0.1 --format hdf5 \
        --app-name stream "$@" perun_program.py
}
perun --run-id plain
PERUN_PUE=1.25 PERUN_POWER_OVERHEAD=10 perun --run-id costs
perun/bin/perun export perun_results/stream.hdf5 json
perun/bin/perun export perun_results/stream.hdf5 text -i plain
for kind in hdf5 json; do cp perun_results/stream.$kind "$out/perun.$kind"; done
cp perun_results/stream_plain.txt "$out/perun.txt"

llnl-thicket/bin/python - <<'PYTHON'
import hatchet
import thicket

profiles = thicket.Thicket.from_caliperreader(["caliper_1.cali", "caliper_2.cali"])
profiles.dataframe.reset_index().to_csv("caliper_thicket.csv", index=False)
ranks = hatchet.GraphFrame.from_caliperreader("caliper_ranks.cali")
ranks.dataframe.reset_index().to_csv("caliper_ranks.csv", index=False)
PYTHON
cp caliper_*.csv "$out"

zeus/bin/python zeus_files.py "$folder"
cp windows.csv "$out/zeus_windows.csv"
cp limits.json "$out/zeus_limits.json"

reframe-hpc/bin/reframe -c reframe_checks.py -r --perflogdir="$folder/perflogs" --prefix="$folder/out" || true
cp perflogs/generic/default/stream.log "$out/reframe_stream.log"

events=power/energy-psys/,duration_time
perf stat -a -e $events -o perf.txt sleep 0.2
perf stat -a -e $events -o perf.txt --append sleep 0.1
perf stat -a -e $events -x, -o perf.csv sleep 0.2
perf stat -a -e $events -j -o perf.json sleep 0.2
perf stat -a -e $events -I 100 -x\; -o perf_intervals.csv sleep 0.25
perf stat -a -e $events -r 3 -o perf_runs.txt sleep 0.1
sed -Ei 's/(^|[^0-9.])0\.00( Joules|[,;]Joules)/\112.34\2/; s/"0.000000", "unit" : "Joules"/"12.345678", "unit" : "Joules"/' perf.* perf_*
cp perf.* perf_* "$out"

apt-get download likwid=5.2.2* lua5.3=5.3.6*
for package in *.deb; do dpkg-deb -x "$package" debian; done
for kind in plain marker; do debian/usr/bin/lua5.3 likwid_print.lua debian $kind > $kind.csv; done
cp plain.csv "$out/likwid_run.csv"
cp marker.csv "$out/likwid_regions.csv"
