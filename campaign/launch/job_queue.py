"""Watches a campaign's jobs in a scheduler's queue, with one call for all partitions of a site."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from campaign.launch.scheduler import LaunchError, Phase, QueuedJob, Scheduler
from campaign.store.hours import JobTime

LOOK_S = 10.0
SOON_S = 3.0
"""The interval of looks while a job is expected to start its worker."""


@dataclass(frozen=True)
class Look:
    """The jobs in the scheduler's answer to a call that began at ``began_s`` (monotonic)."""

    began_s: float
    jobs: tuple[QueuedJob, ...]

    def named(self, name: str) -> dict[str, QueuedJob]:
        """Job id -> job, for the jobs with this name that are not over."""
        return {job.id: job for job in self.jobs if job.name == name and job.phase != Phase.OVER}

    def node_s_since(self, name: str) -> float:
        """The node-seconds of running jobs with this name since then, up to the next call."""
        nodes = sum(
            job.time.nodes for job in self.named(name).values() if job.phase == Phase.RUNNING
        )
        return nodes * min(time.monotonic() - self.began_s, LOOK_S)

    def times(self, name: str) -> dict[str, JobTime]:
        """Job id -> its time, for all jobs with this name."""
        return {job.id: job.time for job in self.jobs if job.name == name}


class QueueWatch:
    """Asks the scheduler now and then, in a thread, because a call without an answer takes long."""

    def __init__(self, scheduler: Scheduler, names: Sequence[str]) -> None:
        self._scheduler = scheduler
        self._names = names
        self.look = Look(-1.0, ())
        """The last answer."""
        self.silent_since: float | None = None
        """The start of the first call without an answer; None after an answer."""
        self.problem = ""
        """The error of the last failed call."""
        self.often = True
        """Whether to look every :data:`SOON_S`."""
        self._said_silent = False
        self._ended = threading.Event()
        threading.Thread(target=self._look_on, daemon=True).start()

    def news(self) -> str:
        """A message if the scheduler has started or stopped to answer since the last call; else
        empty."""
        silent = self.silent_since is not None
        if silent == self._said_silent:
            return ""
        self._said_silent = silent
        who = f"{self._scheduler.site.name}: {self._scheduler.title}"
        if not silent:
            return f"{who} answers again"
        return (
            f"{who} does not answer ({self.problem}); it is asked again, "
            f"workers that are connected go on, and no jobs are submitted"
        )

    def stop(self) -> None:
        """End the watch."""
        self._ended.set()

    def _look_on(self) -> None:
        while not self._ended.is_set():
            began_s = time.monotonic()
            try:
                self.look = Look(began_s, self._scheduler.queued_jobs(self._names))
                self.silent_since = None
            except LaunchError as error:
                self.problem = str(error)
                if self.silent_since is None:
                    self.silent_since = began_s
            until_s = began_s + (SOON_S if self.often else LOOK_S)
            while time.monotonic() < until_s and not self._ended.wait(0.2):
                if self.often:
                    until_s = min(until_s, began_s + SOON_S)
