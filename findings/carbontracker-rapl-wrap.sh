#!/usr/bin/env bash
# FINDING: carbontracker 2.4.7 takes the power of a processor from two readings of RAPL, a second
# apart. Where a counter wraps between them, the difference is negative. Its "retry up to three times"
# computes the same two readings again, and it then gives 0 W for every package, the other sockets
# too. Nothing is said: 0 W enters the sum as if nothing had run.
#
# Seen with carbontracker 2.4.7, two packages of 200 W, of which the first wraps:
#   while one counter wraps: 0.0 W, 0.0 W
#   a second later: 199.3 W, 199.3 W
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet carbontracker==2.4.7

cat > "$folder/program.py" <<'PYTHON'
import sys
import threading
import time
from pathlib import Path

from carbontracker.components.cpu import intel

RANGE_UJ, WATTS = 262_143_328_850, 200.0


def main(folder: Path) -> int:
    counters = {}
    for package, first_uj in ((0, RANGE_UJ - 100_000_000), (1, 5_000_000_000)):
        own = folder / f"intel-rapl:{package}"
        own.mkdir(parents=True)
        (own / "name").write_text(f"package-{package}\n")
        (own / "max_energy_range_uj").write_text(f"{RANGE_UJ}\n")
        (own / "energy_uj").write_text(f"{first_uj}\n")
        counters[own] = first_uj
    intel.RAPL_DIR = str(folder)
    cpu = intel.IntelCPU(pids=[], devices_by_pid=False)
    cpu.init()
    began = time.monotonic()

    def advance() -> None:
        while True:
            used_uj = (time.monotonic() - began) * WATTS * 1e6
            for own, first_uj in counters.items():
                (own / "new").write_text(f"{int(first_uj + used_uj) % RANGE_UJ}\n")
                (own / "new").rename(own / "energy_uj")
            time.sleep(0.005)

    threading.Thread(target=advance, daemon=True).start()
    wrapped = cpu.power_usage()
    later = cpu.power_usage()
    print("while one counter wraps:", ", ".join(f"{w:.1f} W" for w in wrapped))
    print("a second later:", ", ".join(f"{w:.1f} W" for w in later))
    right = all(abs(w - WATTS) < 0.1 * WATTS for w in later)
    return 0 if wrapped == [0.0, 0.0] and right else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
PYTHON
"$folder/venv/bin/python" "$folder/program.py" "$folder/powercap"
