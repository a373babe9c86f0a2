"""Slurm's commands, as a site runs them: submit a job, list a campaign's jobs, cancel them.

They run without the user's variables of Slurm (:mod:`sites.slurm_environment`), and what they print
is read from its parsable form. A job is cancelled only where it has a name of the campaign and is
this user's.
"""

from __future__ import annotations

import hashlib
import re
import shlex
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from campaign.measure.slurm_clocks import read_configuration
from campaign.plan.estimate import walltime_s
from campaign.store.hours import JobTime
from dvfs.errors import UserError
from sites.site_file import Site
from sites.slurm_environment import REMOTE, run_slurm, slurm_environment

CALL_TIMEOUT_S = 60.0
NOT_NOW = re.compile(
    "unable to contact|timed out|connection refused|zero bytes|temporarily"
    "|partition (configuration )?not available|MaxSubmit",
    re.IGNORECASE,
)
"""sbatch's errors when the controller does not answer, a partition is down, or a user has too many
jobs: submission is tried again."""
JOB_ID = re.compile(r"^(?:Submitted batch job )?(\d+)(?:;\S+| on cluster \S+)?\s*$", re.MULTILINE)
"""The line with a job's id, by ``sbatch --parsable`` and without it. A site may print other lines
before it."""
FORMAT = "%i|%j|%T|%M|%D|%r"
"""Id, name, state, elapsed time, nodes, and the reason, which may contain anything but a line's
end."""
JOB_LINE = re.compile(r"^(\d+)\|([^|\n]+)\|(\w+)\|([^|\n]*)\|([^|\n]*)\|(.*)$", re.MULTILINE)
ELAPSED = re.compile(r"(\d+-)?\d+(:\d+){1,2}")
OVER = (
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED"),
    *("NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT"),
)
"""The states of jobs that have ended (squeue's manual, JOB STATE CODES). Slurm lists such a job for
some time (MinJobAge)."""
ENDING = "COMPLETING"


class CantLaunch(UserError):
    """A partition's jobs cannot be submitted. The text contains Slurm's error."""

    exit_code = 1


class SubmissionRefused(CantLaunch):
    """Slurm does not accept a partition's jobs as the site file describes them."""

    exit_code = 2


def slurm_command(site: Site, *words: str) -> tuple[list[str], dict[str, str]]:
    """The command line of one of Slurm's commands, where the site's Slurm is, and its environment.

    Behind a prefix, such as ssh, a command cleans its environment itself. ssh passes its command to
    a shell of the other host, so that it is quoted as one word.
    """
    prefix = list(site.slurm.submit_prefix)
    if not prefix:
        return list(words), slurm_environment(conf=site.slurm.conf)
    command = ["sh", "-c", REMOTE, "sh"]
    if site.slurm.conf is not None:
        command += ["env", f"SLURM_CONF={site.slurm.conf}"]
    command += words
    if Path(prefix[0]).name == "ssh":
        command = [shlex.join(command)]
    return [*prefix, *command], slurm_environment()


def with_remedy(output: str) -> str:
    """What one of Slurm's commands printed as it failed, and a remedy where it knows no Slurm."""
    if "Could not establish a configuration source" not in output:
        return output
    return (
        f"{output}; Slurm cannot be reached from this host; run on a login node, or set slurm.conf "
        f"or slurm.submit_prefix in the site file"
    )


def call_slurm(site: Site, *words: str, stdin: str = "") -> str:
    """Run one of Slurm's commands at the site with a text as its input, and return its output.

    Raises:
        CantLaunch: it failed, or did not answer in time.
    """
    argv, environment = slurm_command(site, *words)
    try:
        done = run_slurm(argv, environment, CALL_TIMEOUT_S, stdin)
    except FileNotFoundError:
        raise CantLaunch(
            f"{site.name}: {argv[0]} is not on this host; run where Slurm's commands are, or set "
            f"slurm.submit_prefix in the site file"
        ) from None
    except subprocess.TimeoutExpired:
        raise CantLaunch(
            f"{site.name}: {words[0]} did not answer in {CALL_TIMEOUT_S:g} s; is the controller up?"
        ) from None
    if done.returncode != 0:
        output = with_remedy(done.stderr.strip() or done.stdout.strip())
        raise CantLaunch(f"{site.name}: {words[0]}: {output}")
    return done.stdout


def submit(site: Site, script: str, *options: str) -> str:
    """Submit a batch script's text, which need not be on the host that submits; the job's id.

    Raises:
        SubmissionRefused: Slurm does not accept the job, or no id can be read from what sbatch
            prints.
        CantLaunch: Slurm does not accept it now.
    """
    try:
        printed = call_slurm(site, "sbatch", "--parsable", *options, stdin=script)
    except CantLaunch as error:
        raise error if NOT_NOW.search(str(error)) else SubmissionRefused(str(error)) from None
    ids = JOB_ID.findall(printed)
    if not ids:
        raise SubmissionRefused(
            f"{site.name}: sbatch: no line of its output is a job's id: {printed.strip()!r}"
        )
    return str(ids[-1])


def cluster_name(site: Site) -> str | None:
    """The name of the site's cluster; None where Slurm does not say it."""
    try:
        printed = call_slurm(site, "scontrol", "show", "config")
    except CantLaunch:
        return None
    return read_configuration(printed).get("ClusterName")


@dataclass(frozen=True, kw_only=True)
class QueuedJob:
    """A job: ``state`` and ``reason`` as squeue prints them."""

    id: str
    name: str
    state: str
    reason: str
    time: JobTime

    @property
    def over(self) -> bool:
        """Whether it is neither queued nor running, nor ending."""
        return self.state in OVER


def job_name(store_root: Path, site: str, partition: str) -> str:
    """A Slurm job name that only this store and this partition use."""
    digest = hashlib.sha256(f"{store_root.resolve()} {site} {partition}".encode()).hexdigest()
    return f"dvfs-{digest[:10]}"


def queued_jobs(site: Site, names: Iterable[str]) -> tuple[QueuedJob, ...]:
    """This user's jobs of these names, those too that have ended, as long as Slurm lists them.

    Raises:
        CantLaunch: squeue failed, or did not answer in time.
    """
    out = call_slurm(
        site,
        "squeue",
        "--me",
        "--noheader",
        "--states=all",
        f"--name={','.join(names)}",
        f"--format={FORMAT}",
    )
    return tuple(
        QueuedJob(
            id=job_id,
            name=name,
            state=state,
            reason=reason.strip(),
            time=_job_time(state, elapsed, nodes),
        )
        for job_id, name, state, elapsed, nodes, reason in JOB_LINE.findall(out)
    )


def _job_time(state: str, elapsed: str, nodes: str) -> JobTime:
    """The time of a job. Slurm stops counting when a job begins to end."""
    known = ELAPSED.fullmatch(elapsed) is not None
    return JobTime(
        elapsed_s=walltime_s(elapsed) if known else 0.0,
        nodes=int(nodes) if nodes.isdecimal() else 1,
        ended=known and state in (*OVER, ENDING),
    )


def cancel_jobs(
    site: Site, names: Sequence[str], only_id: str | None = None
) -> tuple[QueuedJob, ...]:
    """Cancel this user's jobs of these names, such as those that a killed driver left, or only the
    one of them that has an id. Returns :func:`queued_jobs`; those that were cancelled are ending.

    Raises:
        CantLaunch: squeue or scancel failed, or did not answer in time.
    """
    jobs = queued_jobs(site, names)
    left = [job.id for job in jobs if not job.over and only_id in (None, job.id)]
    if left:
        call_slurm(site, "scancel", *left)
    return tuple(
        replace(job, state=ENDING, time=job.time.model_copy(update={"ended": True}))
        if job.id in left
        else job
        for job in jobs
    )
