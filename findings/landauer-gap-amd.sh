#!/usr/bin/env bash
# FINDING: landauer-gap 0.8.0 measures other AMD GPUs than the ones that a process has. Where ROCR_VISIBLE_DEVICES
# and HIP_VISIBLE_DEVICES are both set, it takes HIP's numbers for numbers of the node. They count inside
# the devices that ROCR leaves visible: with a scheduler's ROCR_VISIBLE_DEVICES=4,5 and a launcher's
# HIP_VISIBLE_DEVICES=0, the process runs on GPU 4, and the energy is that of GPU 0, idle or another
# job's. UUIDs in ROCR_VISIBLE_DEVICES are passed over, and all GPUs of the node are added up. One would think
# that what a process can see is what is measured. A job of one GPU is then credited with six.
#
# Seen with landauer-gap 0.8.0 on a stand-in node of 6 GPUs:
#   ROCR 4,5: GPUs 4 and 5; ROCR 4,5 and HIP 0: GPU 0; ROCR GPU-5d51c0ffee000004: all 6 GPUs
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet landauer-gap==0.8.0

cat > "$folder/program.py" <<'PYTHON'
import os
import sys
from pathlib import Path

from joules.meters import discover_amdgpu

GPUS = 6


def node(folder: Path) -> None:
    for gpu in range(GPUS):
        device = folder / f"class/drm/card{gpu}/device"
        hwmon = device / f"hwmon/hwmon{gpu}"
        hwmon.mkdir(parents=True)
        (device / "unique_id").write_text(f"5d51c0ffee{gpu:06d}\n")
        (hwmon / "name").write_text("amdgpu\n")
        (hwmon / "power1_average").write_text(f"{100 * (gpu + 1)}000000\n")


def measured(rocr: str, hip: str | None = None) -> list[int]:
    os.environ["ROCR_VISIBLE_DEVICES"] = rocr
    os.environ.pop("HIP_VISIBLE_DEVICES", None)
    if hip is not None:
        os.environ["HIP_VISIBLE_DEVICES"] = hip
    return [int(meter.read_w()) // 100 - 1 for meter in discover_amdgpu([])]


def main(folder: Path) -> int:
    node(folder)
    os.environ["JOULES_SYSFS"] = str(folder)
    by_rocr = measured("4,5")
    by_both = measured("4,5", hip="0")
    by_uuid = measured("GPU-5d51c0ffee000004")
    print(f"ROCR_VISIBLE_DEVICES=4,5: GPUs {by_rocr}")
    print(f"with HIP_VISIBLE_DEVICES=0 as well: GPUs {by_both}")
    print(f"ROCR_VISIBLE_DEVICES=GPU-5d51c0ffee000004: GPUs {by_uuid}")
    return 0 if (by_rocr, by_both, by_uuid) == ([4, 5], [0], [*range(GPUS)]) else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
PYTHON
"$folder/venv/bin/python" "$folder/program.py" "$folder/sys"
