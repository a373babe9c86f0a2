"""The interface of schedulers, which start the workers of a partition. Each kind is a file here.

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
    """The phase of a job, from the scheduler's state."""

    WAITING = auto()
    RUNNING = auto()
    ENDING = auto()
    """The job has stopped, and its nodes are not free yet."""
    OVER = auto()
    OTHER = auto()
    """The job may still run: it is being configured, suspended or requeued."""


@dataclass(frozen=True, kw_only=True)
class QueuedJob:
    """A job. ``state``, ``reason``: in the scheduler's words. ``held``: whether it waits for
    ever."""

    id: str
    name: str
    phase: Phase
    state: str
    reason: str
    time: JobTime
    held: bool = False


class Scheduler(ABC):
    """A scheduler: it starts the workers of a site's partitions.

    Without jobs (``has_jobs`` False) workers are processes of this machine, and the methods below
    :meth:`start` answer that there are no jobs.
    """

    title: ClassVar[str]
    """Its name for people."""
    has_jobs: ClassVar[bool] = False

    def __init__(self, site: Site) -> None:
        self.site = site

    @abstractmethod
    def start(
        self, partition: str, job_name: str, store: Path, dashboard: str, errors: list[LaunchError]
    ) -> SpecCluster:
        """Start a Dask scheduler on this host, with workers on the partition's nodes.

        Args:
            partition: the partition's name in the site file.
            job_name: the name of its jobs.
            store: the store's folder, for logs and for the cluster's certificates.
            dashboard: host:port of Dask's dashboard.
            errors: the list to which errors of later submissions are appended.

        Raises:
            LaunchError: the workers cannot start.
        """

    def tidy(self, partition: str) -> None:  # noqa: B027  (there may be nothing)
        """Remove the files of a partition's dead workers on this host."""

    def cluster_name(self) -> str | None:
        """The name of the site's cluster; None if unknown."""
        return None

    def placement(self, partition: str, cluster: str | None) -> dict[str, Any] | None:
        """The planned placement of a partition's jobs, for its workers to check; None for no check.
        ``cluster``: that of :meth:`cluster_name`."""
        return None

    def queued_jobs(self, names: Iterable[str]) -> tuple[QueuedJob, ...]:
        """This user's jobs with these names, including ended ones that the scheduler still lists.

        Raises:
            LaunchError: the scheduler does not answer.
        """
        return ()

    def cancel_jobs(
        self, names: Sequence[str], only_id: str | None = None
    ) -> tuple[QueuedJob, ...]:
        """Cancel this user's jobs with these names, such as those of a killed driver; with
        ``only_id``, only that one. Returns :meth:`queued_jobs`, with cancelled ones as ending.

        Raises:
            LaunchError: the scheduler does not answer.
        """
        return ()

    def remedy(self, reason: str) -> str | None:
        """The remedy if a job with this reason can never start; None if it may start."""
        return None

    def job_script(self, partition: str, job_name: str) -> str:
        """The script of a partition's job, for display; empty without jobs."""
        return ""

    def run_in_job(
        self, partition: str, job_name: str, script: str, minutes: int, timeout_s: float
    ) -> str:
        """Run a shell script in a separate job on a node of a partition, and return its output.

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
        """Submit a driver as a job, and return the job's id.

        Args:
            command: the driver's command line.
            name: the job's name.
            log: the file for its output.
            options: the user's options for the scheduler.
            workers: the partitions of the site where the driver will start workers. The driver's
                job avoids the nodes for which they wait, unless ``options`` choose its nodes.

        Raises:
            ArgumentError: the workers need every node on which the driver's job can run.
            LaunchError: the scheduler does not accept the job.
        """
        raise ArgumentError(f"{self.site.name} has no jobs")


def scheduler_of(site: Site, partition: str) -> Scheduler:
    """The scheduler of a site's partition."""
    scheduler: Scheduler = SCHEDULERS.load(site.partitions[partition].scheduler)(site)
    return scheduler


def job_name(store_root: Path, site: str, partition: str) -> str:
    """A job name that only this store and this partition use."""
    digest = hashlib.sha256(f"{store_root.resolve()} {site} {partition}".encode()).hexdigest()
    return f"dvfs-{digest[:10]}"
