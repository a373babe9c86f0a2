"""A watch on Slurm's queue: a campaign's jobs, by one squeue call for all partitions of a site, and
what to change where a job can never start as it is.

The reasons that say so are those of squeue's manual (JOB REASON CODES) and of Slurm's
job_state_reason_string. Any other reason may pass: resources, priorities, other jobs of the same
user, reservations, nodes or partitions that are down."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from campaign.launch.slurm import CantLaunch, QueuedJob, queued_jobs
from campaign.store.hours import JobTime
from sites.site_file import Site

LOOK_S = 10.0
SOON_S = 3.0
"""The interval of looks while a job is expected to start its worker."""


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


REMEDIES = (
    (
        r"PartitionTimeLimit|.*MaxWallDurationPerJobLimit|QOSTimeLimit|AssociationTimeLimit",
        "set a shorter walltime in the site file",
    ),
    (
        r"PartitionNodeLimit|PartitionConfig",
        "the partition's limits or nodes do not allow a job of one node; see: scontrol show "
        "partition; then correct the site file or name another partition",
    ),
    (r"MaxMemPerLimit|(Assoc|QOS)MaxMem(ory)?Per(Job|Node)", "set less memory in the site file"),
    (
        r"(Assoc|QOS)Max\w+Per(Job|Node)(Limit)?",
        "ask for less in the site file (cores, memory, walltime), or set another account or qos",
    ),
    (r"QOSMin\w+", "ask for more cores or memory in the site file, or set another qos"),
    (r"AccountNotAllowed|InvalidAccount", "set an account that the partition allows"),
    (r"QOSNotAllowed|InvalidQOS", "set a qos that the partition and the account allow"),
    (
        r"BadConstraints|DependencyNeverSatisfied|ReservationDeleted|DeadLine",
        "correct the partition's directives, cores or memory in the site file",
    ),
)
"""Reason -> what to change."""


def remedy(reason: str) -> str | None:
    """What to change where a job with this reason can never start; None where it may start."""
    for words, change in REMEDIES:
        if re.fullmatch(words, reason):
            return change
    return None
