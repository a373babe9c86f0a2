#!/usr/bin/env bash
# FINDING: batsim-py 1.0.5 keeps the time of a simulation in whole seconds, rounded down, and its monitors compute
# with them. Batsim sends fractions of a second. A host that computes from 0.05 s to 0.95 s has computed for 0 s, and
# consumed_joules has its idle power for this time; the same job has a runtime of 1 s in the table of jobs, which
# never has less. One would think that an energy by simulation is power times simulated time, whatever the length of
# the jobs. Short kernels then cost no more than idle does, at each clock, and a scheduler that packs them is compared
# by the seconds that it happens to cross.
#
# Seen with batsim-py 1.0.5 and pandas 2.2.3, a host of 100 W idle and 300 W busy for 20 s (Batsim is simulated):
#   simulated: 20 jobs of 0.9 s, 18 s computing, 5600 J
#   monitors: 0 s computing, 2000 J, mean runtime 1 s
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-deps batsim-py==1.0.5 pyzmq==27.1.0 procset==1.0 \
    pandas==2.2.3 numpy==1.26.4 python-dateutil==2.9.0.post0 pytz==2025.2 tzdata==2025.2 six==1.17.0

mkdir "$folder/bin"
cat > "$folder/bin/batsim" <<PYTHON
#!$folder/venv/bin/python
"""A stand-in for Batsim: a job is submitted at 0.05 s of each second, and ends 0.9 s later."""
import sys

import zmq

SECONDS = 20
socket = zmq.Context().socket(zmq.REQ)
socket.connect(sys.argv[sys.argv.index("-s") + 1])


def send(now: float, kind: str, data: dict) -> None:
    socket.send_json({"now": now, "events": [{"timestamp": now, "type": kind, "data": data}]})
    socket.recv_json()


powers = {"watt_per_state": "100.0:300.0"}
host = {"id": 0, "name": "host", "state": "idle", "properties": powers}
platform = {"nb_resources": 1, "nb_compute_resources": 1, "nb_storage_resources": 0, "compute_resources": [host]}
sharing = {"allow_compute_sharing": False, "allow_storage_sharing": True, "storage_resources": []}
names = ["redis-enabled", "redis-hostname", "redis-port", "redis-prefix", "profiles-forwarded-on-submission"]
names += ["dynamic-jobs-enabled", "dynamic-jobs-acknowledged", "profile-reuse-enabled", "forward-unknown-events"]
config = {"config": dict.fromkeys(names, False), "workloads": {}, "profiles": {}}
send(0, "SIMULATION_BEGINS", platform | sharing | config)
for second in range(SECONDS):
    name = f"w!{second}"
    job = {"profile": "p", "res": 1, "id": name, "subtime": second, "walltime": 10}
    profile = {"type": "delay", "delay": 0.9}
    send(second + 0.05, "JOB_SUBMITTED", {"job_id": name, "job": job, "profile": profile})
    done = {"job_id": name, "job_state": "COMPLETED_SUCCESSFULLY", "return_code": 0, "alloc": "0"}
    send(second + 0.95, "JOB_COMPLETED", done)
send(SECONDS, "SIMULATION_ENDS", {})
PYTHON
chmod +x "$folder/bin/batsim"

cat > "$folder/program.py" <<'PYTHON'
import sys

from batsim_py import SimulatorHandler
from batsim_py.monitors import HostMonitor, JobMonitor


def main() -> int:
    simulator = SimulatorHandler()
    hosts, jobs = HostMonitor(simulator), JobMonitor(simulator)
    simulator.start("platform.xml", "workload.json")
    while simulator.is_running:
        for job in simulator.queue:
            simulator.allocate(job.id, [0])
        simulator.proceed_time()
    table = jobs.to_dataframe()
    computing, energy = hosts.info["time_computing"], hosts.info["consumed_joules"]
    runtime = table["execution_time"].mean()
    print(f"simulated: {len(table)} jobs of 0.9 s, 18 s computing, {18 * 300 + 2 * 100} J")
    print(f"monitors: {computing} s computing, {energy:g} J, mean runtime {runtime:g} s")
    return 0 if (len(table), computing, energy, runtime) == (20, 0, 2000, 1) else 1


if __name__ == "__main__":
    sys.exit(main())
PYTHON
PATH="$folder/bin:$PATH" "$folder/venv/bin/python" -W ignore "$folder/program.py"
