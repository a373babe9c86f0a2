"""Slurm's queue: a campaign's jobs, by one squeue call for all partitions of a site."""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from campaign.launch.clusters import CantLaunch, call_slurm
from campaign.plan.estimate import walltime_s
from campaign.store.hours import JobTime
from sites.site_file import Site

LOOK_S = 10.0
SOON_S = 3.0
"""The interval of looks while a job is expected to start its worker."""
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
    """The jobs of these names, those too that have ended, as long as Slurm lists them.

    Raises:
        CantLaunch: squeue failed, or did not answer in time.
    """
    out = call_slurm(
        site,
        "squeue",
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


def cancel_jobs(site: Site, names: Sequence[str]) -> tuple[QueuedJob, ...]:
    """Cancel all jobs of these names, such as those that a killed driver left. Returns
    :func:`queued_jobs`; the jobs that were cancelled are ending.

    Raises:
        CantLaunch: squeue or scancel failed, or did not answer in time.
    """
    jobs = queued_jobs(site, names)
    left = [job.id for job in jobs if not job.over]
    if left:
        call_slurm(site, "scancel", *left)
    return tuple(
        job
        if job.over
        else replace(job, state=ENDING, time=job.time.model_copy(update={"ended": True}))
        for job in jobs
    )


@dataclass(frozen=True)
class Look:
    """What squeue printed when it was called at ``began_s`` (monotonic)."""

    began_s: float
    jobs: tuple[QueuedJob, ...]

    def named(self, name: str) -> dict[str, QueuedJob]:
        """Job id -> job, of those with this name that are not over."""
        return {job.id: job for job in self.jobs if job.name == name and not job.over}

    def node_s_since(self, name: str) -> float:
        """The node-seconds of running jobs of this name since then, until the next call is due."""
        nodes = sum(job.time.nodes for job in self.named(name).values() if job.state == "RUNNING")
        return nodes * min(time.monotonic() - self.began_s, LOOK_S)

    def times(self, name: str) -> dict[str, JobTime]:
        """Job id -> its time, of all jobs with this name."""
        return {job.id: job.time for job in self.jobs if job.name == name}


class QueueWatch:
    """Calls squeue now and then, in a thread: while Slurm does not answer, a call takes long."""

    def __init__(self, site: Site, names: Sequence[str]) -> None:
        self._site = site
        self._names = names
        self.look = Look(-1.0, ())
        """The last answer."""
        self.silent_since: float | None = None
        """When the first call began that Slurm has not answered; None after an answer."""
        self.problem = ""
        """The error of the last call, where it failed."""
        self.often = True
        """Whether to look every :data:`SOON_S`."""
        self._said_silent = False
        self._ended = threading.Event()
        threading.Thread(target=self._look_on, daemon=True).start()

    def news(self) -> str:
        """A message where Slurm has begun to answer, or not to, since the last call; or empty."""
        silent = self.silent_since is not None
        if silent == self._said_silent:
            return ""
        self._said_silent = silent
        if not silent:
            return f"{self._site.name}: Slurm answers again"
        return (
            f"{self._site.name}: Slurm does not answer ({self.problem}); it is asked again, "
            f"workers that are connected go on, and no jobs are submitted"
        )

    def stop(self) -> None:
        """Call squeue no more."""
        self._ended.set()

    def _look_on(self) -> None:
        while not self._ended.is_set():
            began_s = time.monotonic()
            try:
                self.look = Look(began_s, queued_jobs(self._site, self._names))
                self.silent_since = None
            except CantLaunch as error:
                self.problem = str(error)
                if self.silent_since is None:
                    self.silent_since = began_s
            until_s = began_s + (SOON_S if self.often else LOOK_S)
            while time.monotonic() < until_s and not self._ended.wait(0.2):
                if self.often:
                    until_s = min(until_s, began_s + SOON_S)
