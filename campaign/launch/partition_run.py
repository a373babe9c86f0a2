"""One partition while a campaign runs: its cluster, waiting points, and submitted tasks."""

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
    SubmissionRefused,
    queued_jobs,
    start_local,
    start_slurm,
)
from campaign.launch.worker import TASK_S, MeasuringPlugin, measure_points
from campaign.measure.point_life import PartitionSetup
from campaign.plan.point import Point
from sites.site_file import Site

SUPERVISE_S = 3.0
START_GRACE_S = 20.0
IN_FLIGHT_A_WORKER = 4
MOST_POINTS = 64

Attempt = tuple[Point, int]
"""A point and the number of the attempt to measure it, from 0."""


@dataclass(frozen=True)
class FinishedTask:
    """A submitted task that has ended: its future has a result or an error."""

    partition: PartitionRun
    key: str
    attempts: tuple[Attempt, ...]
    future: Future


@dataclass(kw_only=True)
class PartitionRun:
    """One partition of one site while the campaign runs."""

    site: Site
    partition: str
    setup: PartitionSetup
    waiting: deque[Attempt]
    finished_tasks: queue.SimpleQueue[FinishedTask]
    job_name: str
    in_flight: dict[str, tuple[tuple[Attempt, ...], Future]] = field(default_factory=dict)
    point_s: float | None = None
    """Mean seconds of a point in the last finished task; None before the first."""
    alone: set[str] = field(default_factory=set)
    """Ids of points from a task whose worker died: each is submitted in a task of its own."""
    submission_errors: list[CantLaunch] = field(default_factory=list)
    """sbatch's errors for jobs that it did not accept."""
    cluster: Any = None
    client: Any = None
    _supervised: float = 0.0
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _absent_since: dict[str, float] = field(default_factory=dict)
    _reported: set[str] = field(default_factory=set)

    @property
    def is_slurm(self) -> bool:
        """Whether the partition's nodes are allocated by Slurm."""
        return self.site.partitions[self.partition].scheduler == "slurm"

    @property
    def wanted(self) -> int:
        """How many workers there should be: at most one a node, and one a point left."""
        return min(self.site.partitions[self.partition].nodes, self.left)

    @property
    def left(self) -> int:
        """Points that are not measured yet."""
        return len(self.waiting) + sum(len(attempts) for attempts, _ in self.in_flight.values())

    def open(self, store_root: Path, journals: Path, logs: Path, dashboard: str) -> None:
        """Start the cluster and register the measuring plugin on its workers."""
        partition = self.site.partitions[self.partition]
        if self.is_slurm:
            logs.mkdir(parents=True, exist_ok=True)
            tls = store_root / "tls"
            self.cluster = start_slurm(
                site=self.site,
                partition_name=self.partition,
                job_name=self.job_name,
                log_folder=logs,
                tls_folder=tls,
                dashboard=dashboard,
                errors=self.submission_errors,
            )
        else:
            self.cluster = start_local(partition, dashboard)
        self.client = Client(self.cluster, set_as_default=False)
        self.client.register_plugin(
            MeasuringPlugin(self.setup.as_dict(), str(journals), partition.local_directory)
        )
        if self.is_slurm:
            self.cluster.scale(self.wanted)

    def dashboard(self) -> str:
        """The address of the partition's Dask dashboard."""
        return str(self.cluster.dashboard_link)

    def submit_tasks(self) -> None:
        """Submit tasks until each worker has a few waiting."""
        room = max(IN_FLIGHT_A_WORKER * max(self.wanted, 1), 8) - len(self.in_flight)
        while room > 0 and self.waiting:
            attempts = tuple(self._next_task())
            # The key is new each time: for a known key Dask returns the earlier result.
            key = f"{attempts[0][0].id}-{next(self._numbers)}"
            future = self.client.submit(
                measure_points,
                [(point.as_dict(), number) for point, number in attempts],
                key=key,
                pure=False,
            )
            self.in_flight[key] = (attempts, future)
            future.add_done_callback(self._when_done(key, attempts))
            room -= 1

    def _next_task(self) -> Iterator[Attempt]:
        """The points of the next task, removed from those waiting: one, or as many short ones as
        fit into :data:`TASK_S`, but no more than leaves work for every worker."""
        share = -(-len(self.waiting) // max(self.wanted, 1))
        fitting = 1 if self.point_s is None else int(TASK_S / max(self.point_s, 1e-6))
        for i in range(max(1, min(fitting, MOST_POINTS, share))):
            if i and self.waiting[0][0].id in self.alone:
                return
            point, number = self.waiting.popleft()
            yield point, number
            if point.id in self.alone:
                return

    def _when_done(self, key: str, attempts: tuple[Attempt, ...]) -> Callable[[Future], None]:
        def report(future: Future) -> None:
            self.finished_tasks.put(FinishedTask(self, key, attempts, future))

        return report

    def supervise(self) -> None:
        """Replace workers that were lost.

        dask-jobqueue notices neither a Slurm job that was cancelled before its worker connected,
        nor one that Slurm holds back for two minutes after a requeue. A worker is given up when
        it is not connected and its job is neither running nor waiting for its first start;
        scaling up then submits another job.

        Raises:
            SubmissionRefused: sbatch does not accept the partition's jobs.
        """
        now = time.monotonic()
        if now - self._supervised < SUPERVISE_S:
            return
        self._supervised = now
        if not self.is_slurm:
            # Dask itself does not always replace a process that was killed.
            nodes = self.site.partitions[self.partition].nodes
            if len(self.cluster.workers) < nodes:
                self.cluster.scale(nodes)
            return
        for error in self.submission_errors:
            if isinstance(error, SubmissionRefused):
                raise error
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
        # After a failed submission Dask lists a worker that does not exist.
        if min(len(self.cluster.worker_spec), len(self.cluster.workers)) < self.wanted:
            self.cluster.scale(self.wanted)

    def submission_delays(self) -> list[str]:
        """sbatch's messages since the last call about jobs that it does not accept now, each
        once."""
        texts = (
            str(error)
            for error in self.submission_errors
            if not isinstance(error, SubmissionRefused)
        )
        new_texts = [text for text in dict.fromkeys(texts) if text not in self._reported]
        self._reported.update(new_texts)
        return new_texts

    def _give_up(self, name: str, job: Any) -> None:
        """Remove a lost worker from the cluster, which cancels its job."""
        for spec in [key for key in self.cluster.worker_spec if str(key) == name]:
            del self.cluster.worker_spec[spec]
        # This also submits jobs for missing workers; sbatch's errors are kept already.
        with contextlib.suppress(CantLaunch, TimeoutError):
            self.cluster.sync(self.cluster._correct_state)
        self._absent_since.pop(name, None)

    def close(self) -> None:
        """Cancel tasks that have not started, and end workers, jobs and scheduler."""
        for _, future in self.in_flight.values():
            with contextlib.suppress(Exception):
                future.cancel()
        for part in (self.client, self.cluster):
            if part is not None:
                with contextlib.suppress(Exception):
                    part.close(timeout=20)
