"""What starts the workers of a partition: an interface, with a file in this folder for each kind.

A new scheduler is a class in one file, and a line in :data:`sites.site_file.SCHEDULERS` or an
entry point of an installed package.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from campaign.store.hours import JobTime
from dvfs.errors import ArgumentError, UserError
from sites.site_file import SCHEDULERS, Site

if TYPE_CHECKING:
    from distributed import SpecCluster


class LaunchError(UserError):
    """A partition's workers cannot be started. The text contains the scheduler's error."""

    exit_code = 1


class SubmissionError(LaunchError):
    """The scheduler does not accept a partition's jobs as the site file describes them."""

    exit_code = 2


class Phase(Enum):
    """What a job does, by the scheduler's word for it."""

    WAITING = auto()
    RUNNING = auto()
    ENDING = auto()
    """It does not run any more, and its nodes are not free yet."""
    OVER = auto()
    OTHER = auto()
    """It may still run: it is being configured, suspended or requeued."""


@dataclass(frozen=True, kw_only=True)
class QueuedJob:
    """A job: ``state`` and ``reason`` in the scheduler's words, ``held`` where it waits for
    ever."""

    id: str
    name: str
    phase: Phase
    state: str
    reason: str
    time: JobTime
    held: bool = False


class Scheduler(ABC):
    """What starts the workers of a site's partitions.

    Without jobs (``has_jobs`` False) workers are processes of this machine, and what is below
    :meth:`start` answers that there are none.
    """

    title: ClassVar[str]
    """What people call it."""
    has_jobs: ClassVar[bool] = False

    def __init__(self, site: Site) -> None:
        self.site = site

    @abstractmethod
    def start(
        self, partition: str, job_name: str, store: Path, dashboard: str, errors: list[LaunchError]
    ) -> SpecCluster:
        """A Dask scheduler on this host, whose workers are on the partition's nodes.

        Args:
            partition: the partition's name in the site file.
            job_name: the name of its jobs.
            store: the store's folder, for logs and for the cluster's certificates.
            dashboard: host:port where Dask's dashboard listens.
            errors: errors of later submissions are added to it.

        Raises:
            LaunchError: it cannot start.
        """

    def tidy(self, partition: str) -> None:  # noqa: B027  (there may be nothing)
        """Remove what dead workers of a partition have left on this host."""

    def cluster_name(self) -> str | None:
        """The name of the site's cluster; None where it is not known."""
        return None

    def placement(self, partition: str, cluster: str | None) -> dict[str, Any] | None:
        """Where a partition's jobs should run, for its workers to check; None where that is not
        checked. ``cluster``: of :meth:`cluster_name`."""
        return None

    def queued_jobs(self, names: Iterable[str]) -> tuple[QueuedJob, ...]:
        """This user's jobs of these names, with those that have ended, as long as the scheduler
        lists them.

        Raises:
            LaunchError: the scheduler does not answer.
        """
        return ()

    def cancel_jobs(
        self, names: Sequence[str], only_id: str | None = None
    ) -> tuple[QueuedJob, ...]:
        """Cancel this user's jobs of these names, such as those that a killed driver left, or only
        the one of them that has an id. Returns :meth:`queued_jobs`; those that were cancelled are
        ending.

        Raises:
            LaunchError: the scheduler does not answer.
        """
        return ()

    def remedy(self, reason: str) -> str | None:
        """What to change where a job with this reason can never start; None where it may start."""
        return None

    def job_script(self, partition: str, job_name: str) -> str:
        """The script of a partition's job, to be shown; empty where there is none."""
        return ""

    def run_in_job(
        self, partition: str, job_name: str, script: str, minutes: int, timeout_s: float
    ) -> str:
        """What a shell script prints that runs on a node of a partition, in a job of its own.

        Raises:
            LaunchError: the job could not be started, failed, or did not end in ``timeout_s``.
        """
        raise LaunchError(f"{self.site.name}/{partition} has no jobs")

    def submit_driver(
        self,
        command: Sequence[str],
        name: str,
        log: Path,
        options: Sequence[str],
        workers: Iterable[str],
    ) -> str:
        """Submit a driver as a job; the job's id.

        Args:
            command: the driver's words.
            name: the job's name.
            log: the file for its output.
            options: the scheduler's options that the user adds.
            workers: the partitions of the site where the driver will start workers. It takes none
                of the nodes for which they wait, unless ``options`` say where it runs.

        Raises:
            ArgumentError: the workers want every node on which the driver's job can run.
            LaunchError: the scheduler does not accept the job.
        """
        raise ArgumentError(f"{self.site.name} has no jobs")


def scheduler_of(site: Site, partition: str) -> Scheduler:
    """The scheduler of a site's partition."""
    made: Scheduler = SCHEDULERS.load(site.partitions[partition].scheduler)(site)
    return made


def job_name(store_root: Path, site: str, partition: str) -> str:
    """A job name that only this store and this partition use."""
    digest = hashlib.sha256(f"{store_root.resolve()} {site} {partition}".encode()).hexdigest()
    return f"dvfs-{digest[:10]}"
