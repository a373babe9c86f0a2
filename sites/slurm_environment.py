"""The environment in which Slurm's commands run: which of the user's variables they see.

Each command takes options from variables (section INPUT ENVIRONMENT VARIABLES of its manual):
``SBATCH_PARTITION`` moves a job to another partition, ``SQUEUE_STATES`` hides it, and
``SLURM_CPU_BIND`` of an interactive job makes every step of another job fail. So of these variables
a command gets only those that say how to reach Slurm (:data:`KEPT`): its options come from the site
file alone.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence

PREFIXES = (
    *("SALLOC", "SBATCH", "SRUN", "SLURM", "SLURMD"),
    *("SACCT", "SACCTMGR", "SCANCEL", "SCONTROL", "SINFO", "SPRIO", "SQUEUE", "SSTAT"),
)
"""``PREFIX_...`` is a variable of one of Slurm's commands, or of a job."""
KEPT = {
    "SLURM_CONF": "where Slurm's configuration is",
    "SLURM_CONF_SERVER": "from where a host without configuration files gets it",
    "SLURM_JWT": "the token of auth/jwt",
    "SLURM_SACK_JWKS": "the file of auth/slurm's keys",
    "SLURM_SACK_KEY": "the file of auth/slurm's key",
}
"""Slurm's variable -> its meaning. Of Slurm's variables, its commands see only these."""
LAUNCHER = ("PMI_", "PMIX_")
"""Variables by which an MPI launcher gives a process its rank; the driver's are wrong in a worker.
``PMIX_MCA_...`` are users' settings of PMIx."""
DEVICES = (
    *("CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES"),
    "ZE_AFFINITY_MASK",
)
"""Variables with the GPUs of a Slurm job; in a job, they hold for that job alone."""
IN_JOB = "SLURM_JOB_ID"
_SLURMS = re.compile(rf"(?:{'|'.join(PREFIXES)})_")


def is_slurms(name: str) -> bool:
    """Whether a variable would change the behaviour of one of Slurm's commands."""
    return _SLURMS.match(name) is not None and name not in KEPT


def slurm_environment(
    environment: Mapping[str, str] | None = None, conf: str | None = None
) -> dict[str, str]:
    """The environment for a command that queries Slurm or submits a job.

    A job inherits it, so it lacks the variables of a launcher or job in which this process runs.

    Args:
        environment: the variables to filter (default: this process's).
        conf: the path of the cluster's slurm.conf, where it is not the default of this host.
    """
    variables = os.environ if environment is None else environment
    dropped = DEVICES if IN_JOB in variables else ()
    passed_on = {
        name: value
        for name, value in variables.items()
        if not is_slurms(name)
        and name not in dropped
        and (not name.startswith(LAUNCHER) or name.startswith("PMIX_MCA_"))
    }
    return passed_on if conf is None else passed_on | {"SLURM_CONF": conf}


def step_environment(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment for ``srun`` inside a job, and for the program that it starts: the job's id,
    and all variables of this process that are not Slurm's or a launcher's. Slurm adds the step's
    variables."""
    variables = os.environ if environment is None else environment
    job = {name: value for name, value in variables.items() if name in (IN_JOB, *DEVICES)}
    return slurm_environment(variables) | job


def run_slurm(
    argv: Sequence[str], environment: Mapping[str, str], timeout_s: float, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run one of Slurm's commands to its end, with ``stdin`` as its input; bytes of the output that
    are not UTF-8 are replaced.

    Raises:
        OSError: it cannot be started.
        subprocess.TimeoutExpired: it did not end in time.
    """
    return subprocess.run(
        argv,
        input=stdin,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout_s,
        check=False,
        env=environment,
    )


REMOTE = (
    "for name in $(env | sed -n 's/^\\([A-Za-z_][A-Za-z0-9_]*\\)=.*/\\1/p'); do case $name in "
    f'{"|".join(KEPT)}) ;; {"|".join(f"{prefix}_*" for prefix in PREFIXES)}) unset "$name" ;; '
    'esac; done; exec "$@"'
)
"""The same filter where this process cannot set a command's environment: a script for ``sh -c``,
which starts its arguments."""
