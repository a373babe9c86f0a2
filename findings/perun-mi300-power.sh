#!/usr/bin/env bash
# FINDING: perun 1.0.0 measures no power of an AMD MI300, only its memory. It asks the driver's library for the average
# power of the socket, which Instinct GPUs have up to the MI200. From the MI300 on, and this is in the library's
# documentation, they have the current power in its place, and the average is "N/A"; perun takes that for a GPU without
# a power sensor, and says so in a log line of the level info, which is not shown by default. One would think of the
# other field, or of a warning. An application that runs on the GPUs then gets the energy of the processors alone, and
# the same program on the same node seems to need less energy once it computes on the GPU.
#
# Seen with perun 1.0.0 and a stand-in for amdsmi, with the answers of an MI250 and of an MI300X at 700 W:
#   MI250: memory, power; 700 W
#   MI300X: memory
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet perun==1.0.0

mkdir "$folder/standin"
cat > "$folder/standin/amdsmi.py" <<'PYTHON'
import os


class AmdSmiException(Exception):
    pass


class AmdSmiInitFlags:
    INIT_AMD_GPUS = 2


class AmdSmiMemoryType:
    VRAM = 0


def amdsmi_init(flags):
    pass


def amdsmi_shut_down():
    pass


def amdsmi_get_lib_version():
    return {"major": 26, "minor": 0, "release": 0}


def amdsmi_get_processor_handles():
    return ["gpu"]


def amdsmi_get_gpu_device_uuid(handle):
    return "a1ff74a1-0000-1000-80ab-0123456789ab"


def amdsmi_get_gpu_board_info(handle):
    return {"product_name": os.environ["GPU"]}


def amdsmi_get_gpu_memory_usage(handle, kind):
    return 64 << 30


def amdsmi_get_gpu_memory_total(handle, kind):
    return 128 << 30


def amdsmi_get_power_info(handle):
    has_average = os.environ["GPU"] == "MI250"
    return {
        "average_socket_power": 700 if has_average else "N/A",
        "current_socket_power": "N/A" if has_average else 700,
        "power_limit": 750_000_000,
    }
PYTHON

cat > "$folder/program.py" <<'PYTHON'
import os

from perun.backend.rocmsmi import ROCMBackend

backend = ROCMBackend()
names = sorted(backend.availableSensors())
kinds = {"MEM": "memory", "POWER": "power"}
print(f"{os.environ['GPU']}: {', '.join(kinds[name.rsplit('_')[-1]] for name in names)}", end="")
for name in names:
    if name.endswith("POWER"):
        print(f"; {backend.getSensors({name})[0].read()} W", end="")
print()
PYTHON
for gpu in MI250 MI300X; do
    GPU=$gpu PYTHONPATH="$folder/standin" "$folder/venv/bin/python" "$folder/program.py" | tee -a "$folder/seen"
done
diff "$folder/seen" - <<'TEXT'
MI250: memory, power; 700 W
MI300X: memory
TEXT
