#!/usr/bin/env bash
# FINDING: pyrsmi 1.1.0 gives -1 W as the power of an AMD GPU up to the MI200, where AMD's amdsmi package is installed.
# That package answers "N/A" for a field that a GPU does not have; the MI200 has the average power of the socket, and
# not the current one. pyrsmi looks at the current one first, by comparing it with 0; the comparison of a text fails,
# which is taken for an error of the library, logged at the level debug, and answered by -1. The average power, in the
# same answer, is not looked at. One would think that the field that is there is used, as the function's documentation
# says. With powers added up over time each GPU takes energy away from the node; with an MI300 the same program is
# right.
#
# Seen with pyrsmi 1.1.0 and a stand-in for amdsmi, with the answers of an MI250 at 500 W and of an MI300X at 700 W:
#   MI250: -1 W
#   MI300X: 700 W
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet pyrsmi==1.1.0

mkdir "$folder/standin"
cat > "$folder/standin/amdsmi.py" <<'PYTHON'
import os


def amdsmi_init():
    pass


def amdsmi_shut_down():
    pass


def amdsmi_get_processor_handles():
    return ["gpu"]


def amdsmi_get_power_info(handle):
    if os.environ["GPU"] == "MI250":
        current, average = "N/A", 500
    else:
        current, average = 700, "N/A"
    return {
        "socket_power": 500 if current == "N/A" else current,
        "current_socket_power": current,
        "average_socket_power": average,
    }
PYTHON

cat > "$folder/program.py" <<'PYTHON'
import os

from pyrsmi import rocml

rocml.smi_initialize()
print(f"{os.environ['GPU']}: {rocml.smi_get_device_average_power(0):.0f} W")
rocml.smi_shutdown()
PYTHON
for gpu in MI250 MI300X; do
    GPU=$gpu PYTHONPATH="$folder/standin" "$folder/venv/bin/python" "$folder/program.py" | tee -a "$folder/seen"
done
diff "$folder/seen" - <<'TEXT'
MI250: -1 W
MI300X: 700 W
TEXT
