#!/usr/bin/env bash
# FINDING: Kernel Tuner 1.5.0 does not set a Jetson's core clock where the GPU happens to run at it.
# tegra_gr_clock is compared with the clock of the moment, and not with the limits; if they are equal,
# no limit is written. An idle GPU is at its lowest clock, so the first setting, if it is the lowest, is
# measured at whatever clock the governor picks once the kernel runs.
#
# Seen with kernel-tuner 1.5.0 and numpy 2.2.6, the GPU's devfreq files simulated (with numpy 2.4.6, which
# it accepts, they cannot be read at all: TypeError):
#   idle at 114750000 Hz, 114750000 Hz set: limits 114750000 to 1300500000 Hz
#   idle at 114750000 Hz, 624750000 Hz set: limits 624750000 to 624750000 Hz
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet kernel-tuner==1.5.0 numpy==2.2.6

mkdir "$folder/bin"
printf '#!/bin/sh\nexec "$@"\n' > "$folder/bin/sudo"
chmod +x "$folder/bin/sudo"
cat > "$folder/program.py" <<'PYTHON'
import sys
import threading
import time
from pathlib import Path

from kernel_tuner.observers.tegra import tegra

CLOCKS_HZ = (114_750_000, 624_750_000, 1_300_500_000)


class Simulated(tegra):
    def __init__(self, folder: Path) -> None:
        self.get_dev_path = lambda: folder
        self.get_gpu_channel = lambda: "1"
        super().__init__(power_path=str(folder), temp_path=str(folder))

    def __del__(self) -> None:
        """The files are gone by then."""


def govern(folder: Path) -> None:
    """An idle GPU runs at the lowest clock that the limits allow."""
    while True:
        lowest = (folder / "min_freq").read_text()
        if lowest.strip():
            (folder / "new").write_text(lowest)
            (folder / "new").rename(folder / "cur_freq")
        time.sleep(0.001)


def limits_hz(folder: Path, clock_hz: int) -> list[int]:
    (folder / "device").mkdir(parents=True)
    for name, value in {
        "min_freq": CLOCKS_HZ[0],
        "max_freq": CLOCKS_HZ[-1],
        "cur_freq": CLOCKS_HZ[0],
        "available_frequencies": " ".join(map(str, CLOCKS_HZ)),
        "device/railgate_enable": 1,
    }.items():
        (folder / name).write_text(f"{value}\n")
    threading.Thread(target=govern, args=(folder,), daemon=True).start()
    Simulated(folder).gr_clock = clock_hz
    limits = [int((folder / f"{end}_freq").read_text()) for end in ("min", "max")]
    print(
        f"idle at {CLOCKS_HZ[0]} Hz, {clock_hz} Hz set: limits {limits[0]} to {limits[1]} Hz"
    )
    return limits


def main(folder: Path) -> int:
    lowest, higher = (limits_hz(folder / str(hz), hz) for hz in CLOCKS_HZ[:2])
    return 0 if lowest == [CLOCKS_HZ[0], CLOCKS_HZ[-1]] and higher == [CLOCKS_HZ[1]] * 2 else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
PYTHON
PATH="$folder/bin:$PATH" "$folder/venv/bin/python" "$folder/program.py" "$folder/gpus"
