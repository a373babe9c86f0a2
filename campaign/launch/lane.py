"""A lane: one partition's cluster, the points waiting for it, and those on their way."""

from __future__ import annotations

import contextlib
import itertools
import logging
import queue
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from distributed import Client, Future

from campaign.launch.clusters import (
    CantLaunch,
    Refused,
    queued_jobs,
    start_local,
    start_slurm,
)
from campaign.launch.worker import TASK_S, MeasuringPlugin, measure_points
from campaign.measure.life import Job
from campaign.plan.point import Point
from sites.site_file import Site

SUPERVISE_S = 3.0
START_GRACE_S = 20.0
IN_FLIGHT_A_WORKER = 4
MOST_POINTS = 64

Asked = tuple[Point, int]
"""A point and the number of the attempt at it."""


@dataclass(frozen=True)
class Landing:
    """What came of one submitted task: the future's result, or the error that it ended with."""

    lane: Lane
    key: str
    asked: tuple[Asked, ...]
    future: Future


@dataclass
class Lane:
    """One partition of one site while the campaign runs."""

    site: Site
    partition: str
    job: Job
    waiting: deque[Asked]
    landings: queue.SimpleQueue[Landing]
    job_name: str
    in_flight: dict[str, tuple[tuple[Asked, ...], Future]] = field(default_factory=dict)
    point_s: float | None = None
    """Seconds that the last points took, each; None before the first."""
    alone: set[str] = field(default_factory=set)
    """Points that were in a task that took its worker with it: each goes alone from then on."""
    answers: list[CantLaunch] = field(default_factory=list)
    """What sbatch said of jobs that it does not take now, or never."""
    cluster: Any = None
    client: Any = None
    _supervised: float = 0.0
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _absent_since: dict[str, float] = field(default_factory=dict)
    _told: set[str] = field(default_factory=set)

    @property
    def is_slurm(self) -> bool:
        """Whether the partition's nodes are had through Slurm."""
        return self.site.partitions[self.partition].scheduler == "slurm"

    @property
    def wanted(self) -> int:
        """How many workers there should be: no more than points are left."""
        return min(self.site.partitions[self.partition].nodes, self.left)

    @property
    def left(self) -> int:
        """Points that have not come back."""
        return len(self.waiting) + sum(len(asked) for asked, _ in self.in_flight.values())

    def open(self, store_root: Path, journals: Path, logs: Path, dashboard: str) -> None:
        """Start the cluster, and the plugin that measures on each of its workers."""
        partition = self.site.partitions[self.partition]
        if self.is_slurm:
            logs.mkdir(parents=True, exist_ok=True)
            tls = store_root / "tls"
            self.cluster = start_slurm(
                self.site, self.partition, self.job_name, logs, tls, dashboard, self.answers
            )
        else:
            self.cluster = start_local(partition, dashboard)
        self.client = Client(self.cluster, set_as_default=False)
        self.client.register_plugin(
            MeasuringPlugin(self.job.as_dict(), str(journals), partition.local_directory)
        )
        if self.is_slurm:
            self.cluster.scale(self.wanted)

    def dashboard(self) -> str:
        """Where the lane's Dask dashboard listens."""
        return str(self.cluster.dashboard_link)

    def top_up(self) -> None:
        """Keep the workers' queues short and full."""
        room = max(IN_FLIGHT_A_WORKER * max(self.wanted, 1), 8) - len(self.in_flight)
        while room > 0 and self.waiting:
            asked = tuple(self._next_task())
            # A key of its own: of one that it still knows, Dask gives the old result.
            key = f"{asked[0][0].id}-{next(self._numbers)}"
            future = self.client.submit(
                measure_points,
                [(point.as_dict(), number) for point, number in asked],
                key=key,
                pure=False,
            )
            self.in_flight[key] = (asked, future)
            future.add_done_callback(self._lander(key, asked))
            room -= 1

    def _next_task(self) -> Iterator[Asked]:
        """Take the points of the next task: one, or as many short ones as fill it, and no more
        than leave work for every worker."""
        share = -(-len(self.waiting) // max(self.wanted, 1))
        fitting = 1 if self.point_s is None else int(TASK_S / max(self.point_s, 1e-6))
        for i in range(max(1, min(fitting, MOST_POINTS, share))):
            if i and self.waiting[0][0].id in self.alone:
                return
            asked = self.waiting.popleft()
            yield asked
            if asked[0].id in self.alone:
                return

    def _lander(self, key: str, asked: tuple[Asked, ...]) -> Callable[[Future], None]:
        def land(future: Future) -> None:
            self.landings.put(Landing(self, key, asked, future))

        return land

    def supervise(self) -> None:
        """Bring the lane back to the workers that it should have.

        Of Slurm's, dask-jobqueue notices neither a job that was cancelled before its worker came
        up, nor one that Slurm holds back for two minutes after it was requeued. A worker is given
        up when it is not connected and its job is neither running nor waiting for its first
        start; scaling up again submits another.

        Raises:
            Refused: sbatch does not take the partition's jobs.
        """
        now = time.monotonic()
        if now - self._supervised < SUPERVISE_S:
            return
        self._supervised = now
        if not self.is_slurm:
            # A process that was killed and did not come back by itself.
            nodes = self.site.partitions[self.partition].nodes
            if len(self.cluster.workers) < nodes:
                self.cluster.scale(nodes)
            return
        for answer in self.answers:
            if isinstance(answer, Refused):
                raise answer
        connected = {str(w["id"]) for w in self.cluster.scheduler_info["workers"].values()}
        workers = dict(self.cluster.workers)
        absent = {str(name): job for name, job in workers.items() if str(name) not in connected}
        self._absent_since = {name: self._absent_since.get(name, now) for name in absent}
        if absent:
            try:
                queued = queued_jobs(self.site, self.job_name)
            except CantLaunch as error:
                logging.getLogger(__name__).warning("%s", error)
                return
            for name, job in absent.items():
                grace = now - self._absent_since[name] < START_GRACE_S
                if job.job_id in queued and (queued[job.job_id] == "PENDING" or grace):
                    continue
                if job.job_id is None and grace:
                    continue
                self._give_up(name, job)
        # A job that could not be submitted leaves a worker in the books that is none.
        if min(len(self.cluster.worker_spec), len(self.cluster.workers)) < self.wanted:
            self.cluster.scale(self.wanted)

    def delays(self) -> list[str]:
        """What sbatch said since the last call of jobs that it does not take now, each once."""
        later = (str(each) for each in self.answers if not isinstance(each, Refused))
        found = [text for text in dict.fromkeys(later) if text not in self._told]
        self._told.update(found)
        return found

    def _give_up(self, name: str, job: Any) -> None:
        """Cancel a lost worker's job, and take the worker out of the cluster's books."""
        for spec in [key for key in self.cluster.worker_spec if str(key) == name]:
            del self.cluster.worker_spec[spec]
        # It also submits jobs for workers that are missing: sbatch's answer to that is no news.
        with contextlib.suppress(CantLaunch, TimeoutError):
            self.cluster.sync(self.cluster._correct_state)
        self._absent_since.pop(name, None)

    def close(self) -> None:
        """Cancel what has not started, and end workers, jobs and scheduler."""
        for _, future in self.in_flight.values():
            with contextlib.suppress(Exception):
                future.cancel()
        for each in (self.client, self.cluster):
            if each is not None:
                with contextlib.suppress(Exception):
                    each.close(timeout=20)
