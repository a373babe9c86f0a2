"""Examining a node of a Slurm partition through one short job."""

from __future__ import annotations

import contextlib
import json
import secrets
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from campaign.doctor.node_examination import NodeExamination
from campaign.launch.clusters import prologue
from campaign.launch.interrupts import ignore_further
from campaign.launch.slurm import CantLaunch, cancel_jobs, slurm_command, with_remedy
from sites.site_file import Partition, Site
from sites.slurm_environment import run_slurm

JOB_MINUTES = 10
JOB_TIMEOUT_S = 1800.0
"""How long the job may take, in the queue and on its node."""
MAX_OUTPUT_CHARS = 500


def examine_partition(site: Site, site_path: Path, partition_name: str) -> NodeExamination:
    """What a node of a Slurm partition can measure and set.

    Args:
        site: the site.
        site_path: its file, which the node must be able to read under this path.
        partition_name: one of the site's Slurm partitions.

    Raises:
        CantLaunch: the job could not be started, failed, or did not end in time.
    """
    partition = site.partitions[partition_name]
    job_name = f"campaign-doctor-{secrets.token_hex(4)}"
    argv, environment = slurm_command(
        site,
        "srun",
        *_srun_options(partition, partition_name),
        f"--job-name={job_name}",
        "bash",
        "-s",
    )
    python = shlex.quote(partition.environment.python or sys.executable)
    command = (
        f"{python} -m campaign.doctor.node_examination {shlex.quote(str(site_path.resolve()))}"
    )
    script = "\n".join([*prologue(partition), command]) + "\n"
    where = f"{site.name}/{partition_name}"
    try:
        done = run_slurm(argv, environment, JOB_TIMEOUT_S, script)
    except FileNotFoundError:
        raise CantLaunch(
            f"{where}: {argv[0]} is not on this host; run where Slurm's commands are, or examine "
            f"only this node with --here"
        ) from None
    except KeyboardInterrupt:
        ignore_further()
        _cancel(site, job_name)
        raise
    except subprocess.TimeoutExpired:
        _cancel(site, job_name)
        raise CantLaunch(f"{where}: the job did not end within {JOB_TIMEOUT_S:g} s") from None
    begin = done.stdout.find("{")  # modules may print lines before it
    if done.returncode != 0 or begin < 0:
        output = (done.stderr.strip() or done.stdout.strip())[-MAX_OUTPUT_CHARS:]
        raise CantLaunch(f"{where}: srun ended with {done.returncode}: {with_remedy(output)}")
    examination = NodeExamination.from_dict(json.loads(done.stdout[begin:]))
    return replace(examination, partition=partition_name)


def _cancel(site: Site, job_name: str) -> None:
    """Take the job out of the queue; a signal to this host's srun may not have reached it."""
    with contextlib.suppress(CantLaunch):
        cancel_jobs(site, [job_name])


def _srun_options(partition: Partition, name: str) -> list[str]:
    options = [f"--partition={name}", "--nodes=1", "--ntasks=1", f"--time={JOB_MINUTES}"]
    options += ["--quiet", "--mpi=none", "--export=ALL"]
    if partition.exclusive:
        options.append("--exclusive")
    if partition.account is not None:
        options.append(f"--account={partition.account}")
    if partition.qos is not None:
        options.append(f"--qos={partition.qos}")
    return [*options, *(word for line in partition.directives for word in shlex.split(line))]
