#!/usr/bin/env bash
# FINDING: EMT 0.1.0a1 counts the energy of a package twice where Linux shows it twice, and that of memory never.
# Its RAPLSoC adds up all zones of the first level under /sys/class/powercap. On machines with intel-rapl-mmio:0
# this is the same package as intel-rapl:0, read another way; the argument zone_pattern, "intel-rapl" by default, is
# not looked at. Memory is recognised by "dram" in the path of a zone, which is intel-rapl:0:0: the name is in a
# file that is not read for this. One would think that the sum is that of packages and memory. The energy of a
# processor is doubled by a driver, and a kernel bound by memory looks as cheap as one that is not.
#
# Seen with EMT 0.1.0a1, its trace, the files simulated, 100 J of a package and 40 J of its memory:
#   without intel-rapl-mmio: 100 J, no memory; with it: 200 J, no memory
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet emt==0.1.0a1 pandas==2.3.1 numpy==2.3.1

cat > "$folder/program.py" <<'PYTHON'
import asyncio
import sys
from pathlib import Path

from emt.power_groups.rapl import RAPLSoC

ZONES = {
    "intel-rapl:0": ("package-0", 100),
    "intel-rapl:0:0": ("dram", 40),
    "intel-rapl-mmio:0": ("package-0", 100),
}


async def energies_j(powercap: Path) -> dict[str, float]:
    """The sums of the columns of energies of a trace in which each counter moves on once."""
    RAPLSoC.RAPL_DIR = str(powercap)
    for zone in powercap.iterdir():
        (zone / "energy_uj").write_text("5000000")
    group = RAPLSoC(rate=50)
    task = asyncio.create_task(group.commence())
    await asyncio.sleep(0.5)
    for zone in powercap.iterdir():
        (zone / "energy_uj").write_text(str(5_000_000 + 1_000_000 * ZONES[zone.name][1]))
    await asyncio.sleep(0.5)
    task.cancel()
    columns = group.energy_trace
    return {name: sum(values) for name, values in columns.items() if "total_energy" in name}


def main(folder: Path) -> int:
    found = {}
    for case, zones in (("without", list(ZONES)[:2]), ("with", list(ZONES))):
        powercap = folder / case
        for zone in zones:
            (powercap / zone).mkdir(parents=True)
            (powercap / zone / "name").write_text(ZONES[zone][0] + "\n")
        found[case] = asyncio.run(energies_j(powercap))
        print(f"{case} intel-rapl-mmio: {found[case]}, of 100 J of a package and 40 J of memory")
    expected = {"without": {"total_energy_cpu": 100}, "with": {"total_energy_cpu": 200}}
    return 0 if found == expected else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
PYTHON
cd "$folder"
HOME="$folder" "$folder/venv/bin/python" "$folder/program.py" "$folder"
