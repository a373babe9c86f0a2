#!/usr/bin/env bash
# FINDING: cpufreq 0.3.5 sets all cores where it is told to set none. Its methods for clocks and governors take the list
# of cores rg, and an empty one means the same as no rg at all: every core that is online. A list whose cores are all
# offline, in contrast, sets none, without a word. One would think that rg is the cores that are set. A program that
# splits a node into cores that compute and cores that wait, and lowers the clock of the latter, lowers the clock of
# all where none waits: the run that was to be at the full clock is the slowest of all.
#
# Seen with cpufreq 0.3.5, a tree of files of 4 cores that are online and one that is not, all at 3000000 kHz:
#   rg=[2, 3]: 3000000 3000000 1200000 1200000
#   rg=[4], which is offline: 3000000 3000000 3000000 3000000
#   rg=[]: 1200000 1200000 1200000 1200000
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet cpufreq==0.3.5

cat > "$folder/program.py" <<'PYTHON'
import sys
from pathlib import Path

from cpufreq import cpuFreq

FULL_KHZ, LOW_KHZ, CORES = 3_000_000, 1_200_000, 5


def main(folder: Path) -> int:
    (folder / "online").write_text("0-3\n")
    (folder / "offline").write_text("4\n")
    (folder / "present").write_text("0-4\n")
    for core in range(CORES):
        files = {
            "scaling_driver": "acpi-cpufreq",
            "scaling_available_governors": "userspace performance",
            "scaling_available_frequencies": f"{FULL_KHZ} {LOW_KHZ}",
            "scaling_min_freq": str(LOW_KHZ),
        }
        (folder / f"cpu{core}" / "cpufreq").mkdir(parents=True)
        for name, text in files.items():
            (folder / f"cpu{core}" / "cpufreq" / name).write_text(f"{text}\n")
    cpuFreq.BASEDIR = str(folder)
    found = []
    for text, cores in (("[2, 3]", [2, 3]), ("[4], which is offline", [4]), ("[]", [])):
        for core in range(CORES):
            (folder / f"cpu{core}" / "cpufreq" / "scaling_max_freq").write_text(f"{FULL_KHZ}\n")
        cpuFreq().set_max_frequencies(LOW_KHZ, rg=cores)
        found.append(list(cpuFreq().get_max_freq().values()))
        print(f"rg={text}: {' '.join(map(str, found[-1]))}")
    expected = [[FULL_KHZ] * 2 + [LOW_KHZ] * 2, [FULL_KHZ] * 4, [LOW_KHZ] * 4]
    return 0 if found == expected else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
PYTHON
mkdir "$folder/cpu"
"$folder/venv/bin/python" "$folder/program.py" "$folder/cpu"
