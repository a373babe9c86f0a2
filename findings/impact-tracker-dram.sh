#!/usr/bin/env bash
# FINDING: experiment-impact-tracker 0.1.8 credits a job that has a node's processor to itself with less
# power than the processor draws, the less the more the memory draws. It takes RAPL's dram domain out of the
# package's power, although its own comment says that the domain is no part of it, and credits the job with
# its share of the memory of that. The memory's power is never added, nor is it in
# rapl_power_draw_absolute. The share itself is counted twice: the pages that are the job's alone are in
# uss and in pss, which it adds up.
#
# Seen with experiment-impact-tracker 0.1.8, a job with all of the processor's time and a fortieth of the
# memory (simulated):
#   package 100 W, dram 0 W: absolute 100 W, credited to the job 100 W
#   package 100 W, dram 20 W: absolute 100 W, credited to the job 81 W
#   package 100 W, dram 60 W: absolute 100 W, credited to the job 43 W
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet experiment-impact-tracker==0.1.8 pandas==1.5.3 numpy==1.26.4

cat > "$folder/program.py" <<'PYTHON'
import sys
from types import SimpleNamespace
from typing import NamedTuple

from experiment_impact_tracker.cpu import intel

MEMORY, JOB_MEMORY = 100, 2.5


class Times(NamedTuple):
    user: float
    system: float


class Memory(NamedTuple):
    uss: float
    pss: float


class SimulatedNode:
    """A node whose processor is busy with one job, and the job, whose pages are all its own."""

    NoSuchProcess = LookupError
    seconds = 0.0

    def Process(self, pid: int) -> "SimulatedNode":
        return self

    def cpu_times(self) -> Times:
        return Times(self.seconds, 0.0)

    def memory_full_info(self) -> Memory:
        return Memory(JOB_MEMORY, JOB_MEMORY)

    def virtual_memory(self) -> SimpleNamespace:
        return SimpleNamespace(total=MEMORY, available=0)


def energy(name: str, joules: float, *domains: object) -> intel.rapl.RAPLDomain:
    domain = intel.rapl.RAPLDomain()
    domain.name = domain.id = name
    domain.values = {"energy_uj": 1e6 * joules}
    domain.subdomains = {d.name: d for d in domains}
    return domain


def credited_w(dram_w: float) -> tuple[int, int]:
    node = intel.psutil = SimulatedNode()

    def sleep(seconds: float) -> None:
        node.seconds += seconds

    class Sample:
        def __sub__(self, other: object) -> intel.rapl.RAPLDifference:
            used = intel.rapl.RAPLDifference()
            used.duration = node.seconds
            dram = energy("dram", dram_w * node.seconds)
            used.domains = {"package-0": energy("package-0", 100 * node.seconds, dram)}
            return used

    intel.time = SimpleNamespace(sleep=sleep)
    intel._timer = lambda: node.seconds
    intel.rapl.RAPLMonitor.sample = Sample
    seen = intel.get_rapl_power([1])
    absolute_w = round(seen["rapl_power_draw_absolute"])
    job_w = round(seen["rapl_estimated_attributable_power_draw"])
    print(
        f"package 100 W, dram {dram_w} W: absolute {absolute_w} W, credited to the job {job_w} W"
    )
    return absolute_w, job_w


def main() -> int:
    seen = [credited_w(dram_w) for dram_w in (0, 20, 60)]
    return 0 if seen == [(100, 100), (100, 81), (100, 43)] else 1


if __name__ == "__main__":
    sys.exit(main())
PYTHON
HOME=$folder "$folder/venv/bin/python" "$folder/program.py" 2> "$folder/log" | grep "^package"
