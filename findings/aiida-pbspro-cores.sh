#!/usr/bin/env bash
# FINDING: AiiDA 2.9.4 asks PBS Pro for processes without cores. A calculation on num_machines=2 with
# num_mpiprocs_per_machine=8, the two resources that tutorials give, is 16 tasks for Slurm and nodes=2:ppn=8 for Torque,
# 16 cores each. For PBS Pro it is select=2:mpiprocs=8, without ncpus, and a chunk without ncpus has the server's
# default_chunk.ncpus: 1, unless a site changes it. One would think that the same resources are the same cores. The 8
# processes of a machine then share one core, or, where PBS does not bind them, take cores that other jobs are given;
# their time is another one than elsewhere, and PBS accounts for 2 cores. With num_cores_per_mpiproc=1 in addition,
# which asks Slurm and Torque for nothing more, PBS Pro is asked for the 16.
#
# Seen with aiida-core 2.9.4:
#   slurm: --nodes=2 --ntasks-per-node=8; with num_cores_per_mpiproc=1: --nodes=2 --ntasks-per-node=8 --cpus-per-task=1
#   torque: nodes=2:ppn=8; with num_cores_per_mpiproc=1: nodes=2:ppn=8
#   pbspro: select=2:mpiprocs=8; with num_cores_per_mpiproc=1: select=2:mpiprocs=8:ncpus=8
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet aiida-core==2.9.4

cat > "$folder/program.py" <<'PYTHON'
import re
import sys

from aiida.common.datastructures import CodeRunMode
from aiida.schedulers.datastructures import JobTemplate
from aiida.schedulers.plugins.pbspro import PbsproScheduler
from aiida.schedulers.plugins.slurm import SlurmScheduler
from aiida.schedulers.plugins.torque import TorqueScheduler

ASKED = re.compile(r"--nodes=\S+|--ntasks\S+|--cpus\S+|select=\S+|nodes=[^,\s]+")


def asked(scheduler, **more: int) -> str:
    template = JobTemplate()
    template.codes_info, template.codes_run_mode = [], CodeRunMode.SERIAL
    template.job_resource = scheduler.create_job_resource(
        num_machines=2, num_mpiprocs_per_machine=8, **more
    )
    return " ".join(ASKED.findall(scheduler.get_submit_script(template)))


def main() -> int:
    seen = {}
    schedulers = {"slurm": SlurmScheduler, "torque": TorqueScheduler, "pbspro": PbsproScheduler}
    for name, scheduler in schedulers.items():
        plain, with_cores = asked(scheduler()), asked(scheduler(), num_cores_per_mpiproc=1)
        print(f"{name}: {plain}; with num_cores_per_mpiproc=1: {with_cores}")
        seen[name] = plain, with_cores
    right = seen["slurm"][0] == "--nodes=2 --ntasks-per-node=8" and seen["torque"][0] == "nodes=2:ppn=8"
    still = seen["pbspro"] == ("select=2:mpiprocs=8", "select=2:mpiprocs=8:ncpus=8")
    return 0 if right and still else 1


if __name__ == "__main__":
    sys.exit(main())
PYTHON
AIIDA_PATH=$folder "$folder/venv/bin/python" -W ignore "$folder/program.py"
