"""Which of the user's variables Slurm's commands get: none that would change what they do."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sites.slurm_environment import (
    KEPT,
    REMOTE,
    is_slurms,
    slurm_environment,
    step_environment,
)
from tests.slurm_cluster import CLIENTS, find_program
from tests.slurm_fixtures import need_slurm

PRINTS = [sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))"]
USERS = {
    "PATH": "/opt/a b/bin:/usr/bin:/bin",
    "HOME": "/home/user",
    "OMP_NUM_THREADS": "8",
    "OMPI_MCA_btl": "self,vader",
    "PMIX_MCA_gds": "hash",
    "SLURMONIA": "no variable of Slurm",
    "MY_SBATCH_OPTIONS": "-p cpu",
    "LINES": "first\nSLURM_LOOKS=like one\nSBATCH_A-B",
    "CUDA_VISIBLE_DEVICES": "1",
    "EMPTY": "",
}
OF_SLURM = {
    "SBATCH_PARTITION": "debug",
    "SBATCH_EXPORT": "NONE",
    "SQUEUE_STATES": "PD",
    "SINFO_FORMAT": "%N",
    "SACCT_FORMAT": "jobid",
    "SCANCEL_STATE": "PENDING",
    "SRUN_CPUS_PER_TASK": "7",
    "SALLOC_PARTITION": "debug",
    "SLURM_CPU_BIND": "mask_cpu:0xC\nand a second line",
    "SLURM_MEM_PER_CPU": "2000",
    "SLURM_JOB_NODELIST": "n7",
    "SLURMD_NODENAME": "n7",
    "SLURM_TIME_FORMAT": "relative",
    "PMI_RANK": "3",
    "PMIX_RANK": "3",
}
REACHES_SLURM = {"SLURM_CONF": "/etc/slurm b/slurm.conf", "SLURM_JWT": "token"}
JOB = {"SLURM_JOB_ID": "12"}


def test_a_command_gets_what_reaches_slurm_and_the_users_own() -> None:
    assert slurm_environment(USERS | OF_SLURM | REACHES_SLURM) == USERS | REACHES_SLURM
    assert slurm_environment(USERS | REACHES_SLURM, "/b.conf")["SLURM_CONF"] == "/b.conf"


def test_a_job_does_not_get_what_the_drivers_job_has() -> None:
    """Which GPUs are the driver's, where Slurm has given it some."""
    without = {name: value for name, value in USERS.items() if name != "CUDA_VISIBLE_DEVICES"}
    assert slurm_environment(USERS | OF_SLURM | JOB) == without


def test_a_step_gets_its_job_and_the_workers_variables() -> None:
    """The GPUs of the worker's job are the step's too."""
    assert step_environment(USERS | OF_SLURM | REACHES_SLURM | JOB) == USERS | REACHES_SLURM | JOB


def test_a_remote_shell_leaves_out_the_same() -> None:
    """By the shell that ssh starts, with every variable that a shell can unset."""
    launcher = {name: v for name, v in OF_SLURM.items() if name.startswith("PMI")}
    done = subprocess.run(
        ["/bin/sh", "-c", REMOTE, "sh", *PRINTS],
        env=USERS | OF_SLURM | REACHES_SLURM,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    found = json.loads(done.stdout)
    ours = USERS | REACHES_SLURM | launcher
    assert {name: found.get(name) for name in ours} == ours
    assert not {name for name in found if is_slurms(name)}


@pytest.mark.slurm
def test_every_variable_that_slurms_programs_name_is_left_out() -> None:
    """The names stand in the programs themselves and in their library."""
    need_slurm()
    files = [str(find_program(name)) for name in CLIENTS]
    linked = subprocess.run(["ldd", files[0]], capture_output=True, text=True, check=True).stdout
    files += re.findall(r"(/\S*libslurm\S*)", linked)
    variable = (
        rb"(?<![A-Z_])((?:SLURM|SBATCH|SRUN|SALLOC|SQUEUE|SINFO|SCANCEL)_[A-Z_]{3,})(?=[\0=])"
    )
    texts = [Path(file).read_bytes() for file in files]
    names = {name.decode() for text in texts for name in re.findall(variable, text)}
    assert len(names) > 150
    assert slurm_environment(dict.fromkeys(names, "x")).keys() == names & KEPT.keys()
