#!/usr/bin/env bash
# FINDING: EnergAt 1.0.6 credits more energy than was used. What it writes as a process's energy above the
# node's idle is not in proportion to its share of the processor's time, but to the share's power of 0.3,
# and of the memory's to the power of 0.2. A process with a tenth of the time gets half of the energy; the
# energies of ten such processes, each traced by itself, add up to five times what the counters rose. With
# --gamma=1 --delta=1 they add up.
#
# Seen with energat 1.0.6, 100 J of the processor above idle; the shares are simulated:
#   gamma 0.3: share 0.50 gets 81 J, 2 processes 162 J
#   gamma 0.3: share 0.10 gets 50 J, 10 processes 501 J
#   gamma 0.3: share 0.01 gets 25 J, 100 processes 2512 J
#   gamma 1.0: share 0.10 gets 10 J, 10 processes 100 J
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet energat==1.0.6

cat > "$folder/program.py" <<'PYTHON'
import os
import sys
import threading
from types import SimpleNamespace

import numpy as np

from energat.common import FLAGS
from energat.target import TargetStatus
from energat.tracer import EnergyTracer

USED_J = 100


class SimulatedTracer(EnergyTracer):
    """A node with one processor, of which the traced process has a share."""

    def __init__(self, share: float) -> None:
        process = TargetStatus(os.getpid())
        process.cputime_delta = share
        process.numa_mem_samples = {0: [share]}
        self.targets_status = {os.getpid(): process}
        self.target_threads = set()
        self.num_cpu_sockets = 1
        self.server_numa_mem_samples = {0: [1.0]}
        self.mutex = threading.Lock()
        self.tracer_process = SimpleNamespace(pid=-1)
        self.tracer_daemon_thread = SimpleNamespace(native_id=-1)


def summed_j(processes: int) -> float:
    tracer = SimulatedTracer(1 / processes)
    used_j = np.array([[float(USED_J)], [0.0]])
    credited_j = float(tracer.ascribe_energy(used_j, np.array([1.0]))[0][0][0])
    print(
        f"gamma {FLAGS.gamma}: share {1 / processes:.2f} gets {credited_j:.0f} J, "
        f"{processes} processes {processes * credited_j:.0f} J"
    )
    return processes * credited_j


def main() -> int:
    wrong = [summed_j(processes) for processes in (2, 10, 100)]
    FLAGS.gamma = 1.0
    right = summed_j(10)
    return 0 if min(wrong) > 1.5 * USED_J and abs(right - USED_J) < 1e-6 else 1


if __name__ == "__main__":
    sys.exit(main())
PYTHON
cd "$folder" && "$folder/venv/bin/python" "$folder/program.py"
