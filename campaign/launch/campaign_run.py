"""One run of the driver: the clusters of all partitions, from the first job to the last result."""

from __future__ import annotations

import asyncio
import queue
import shutil
import threading
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from distributed import Future
from distributed.scheduler import KilledWorker

from campaign.launch.chooser import Chooser
from campaign.launch.dask_settings import LOOPBACK_DASHBOARD
from campaign.launch.job_queue import QueueWatch
from campaign.launch.live_status import LiveStatus
from campaign.launch.node_hours import NodeHours
from campaign.launch.partition_run import Attempt, PartitionRun, Task, partition_setup
from campaign.launch.progress import PlainProgress
from campaign.launch.scheduler import Phase, QueuedJob, Scheduler, job_name, scheduler_of
from campaign.launch.slurm_placement import PlacementError
from campaign.launch.snapshot import ENDING
from campaign.launch.worker import PointResult
from campaign.measure.subprocesses import UnwritableScratchError
from campaign.plan.plan import Plan, kernel_names
from campaign.plan.point import Point
from campaign.store.compaction import compact
from campaign.store.journal import JournalWriter, encode
from campaign.store.layout import Store, writing
from campaign.store.measurement import CAN_PASS, Measurement
from dvfs.dataset import COMPLETE, NODE_LOST

RESULT_S = 1.0
_AWAITED: dict[int, asyncio.Future[Any]] = {}
"""Identity of a future -> the request for its result, which keeps the future alive, so that no
other has the same identity."""
COMPACT_AFTER = 20_000
TICK_S = 0.2
SHOWN_S = 1.0


@dataclass(frozen=True)
class TaskEnd:
    """A task's result, or its error; neither if the scheduler dropped the task."""

    result: Any = None
    error: BaseException | None = None


def task_end(future: Future[Any], timeout_s: float = RESULT_S) -> TaskEnd | None:
    """The end of the task of ``future``; None if its result does not come in time.

    The worker that has the result may have died: then Dask runs the task again. The scheduler may
    drop the task during the wait. ``Future.result`` with a time limit then fails now and then with
    an ``UnboundLocalError``: ``distributed.utils.sync`` does not catch the
    ``asyncio.CancelledError`` of what it awaits. So this function awaits the result.

    A request without a result in time stays open: the next call continues to wait for it. Dask
    joins the requests of a client, and if one is cancelled before it is sent, all later ones wait
    for it and never get a result.
    """
    end: TaskEnd | None = future.client.sync(_end, future, timeout_s)
    return end


async def _end(future: Future[Any], timeout_s: float) -> TaskEnd | None:
    request = _AWAITED.get(id(future))
    if request is None:
        request = _AWAITED[id(future)] = asyncio.ensure_future(future.result())
    await asyncio.wait({request}, timeout=timeout_s)
    if not request.done():
        return None
    del _AWAITED[id(future)]
    error = None if request.cancelled() else request.exception()
    if not request.cancelled() and error is None:
        return TaskEnd(request.result())
    if future.cancelled():
        return TaskEnd()
    return None if error is None else TaskEnd(error=error)


@dataclass(kw_only=True, eq=False)
class CampaignRun:
    """One run of the driver, from its first submission to its last finished task."""

    plan: Plan
    store: Store
    progress: PlainProgress
    live: LiveStatus
    hours: NodeHours
    todo: list[Attempt]
    retry_failed: bool
    interrupted: threading.Event
    dashboard: str
    chooser: Chooser | None
    finished_tasks: queue.SimpleQueue[Task] = field(default_factory=queue.SimpleQueue)
    watches: list[QueueWatch] = field(default_factory=list)
    journal: JournalWriter | None = None
    _shown_s: float = 0.0
    _stopping: bool = False
    _not_ours: dict[str, frozenset[str]] = field(default_factory=dict)
    """ "site/partition" -> the ids of jobs that are not this store's."""

    def __post_init__(self) -> None:
        """Limit the attempts, and divide the points by partition."""
        retries = self.plan.campaign.retries.max
        # With --retry-failed the limit on attempts holds for this run, otherwise over all runs.
        self.last_attempt = {p.id: n * self.retry_failed + retries for p, n in self.todo}
        self.partitions = self._partition_runs()

    def _partition_runs(self) -> list[PartitionRun]:
        waiting: dict[tuple[str, str], deque[Attempt]] = {}
        for point, attempt in self.todo:
            waiting.setdefault((point.site, point.partition), deque()).append((point, attempt))
        names = kernel_names(self.plan)
        return [
            PartitionRun(
                site=self.plan.sites[site],
                partition=partition,
                scheduler=scheduler_of(self.plan.sites[site], partition),
                setup=partition_setup(
                    self.plan, self.store, site, partition, (point.kernel for point, _ in attempts)
                ),
                waiting=attempts,
                finished_tasks=self.finished_tasks,
                job_name=job_name(self.store.root, site, partition),
                kernel_names=names,
                starts=self.plan.campaign.retries.starts,
            )
            for (site, partition), attempts in waiting.items()
        ]

    def run_until_done(self) -> dict[str, str]:
        """Start the partitions' clusters, run until no point is left or an interrupt comes, and
        close the clusters. Returns "site/partition" -> why the partition was given up."""
        try:
            if reached := self.hours.reached():
                for partition in self.partitions:
                    partition.give_up(reached)
            else:
                self._open()
            points_since = 0
            while not self.interrupted.is_set():
                self._choose_more()
                if not any(partition.active for partition in self.partitions):
                    break
                self._attend_to_partitions()
                points_since += self._collect_finished()
                if points_since >= COMPACT_AFTER:
                    with writing(self.store):
                        compact_store(self.store, self.progress)
                    points_since = 0
        finally:
            self.progress.stop()
            self.live.enter(ENDING)
            for partition in self.partitions:
                partition.release()
            for partition in self.partitions:
                partition.wait_released()
                if partition.problem:
                    self.progress.note(partition.problem)
                self._count_hours(partition)
                self.hours.end(partition.label, not partition.problem)
            self.hours.write(now=True)
            self.live.spent = self.hours.spent()
            for watch in self.watches:
                watch.stop()
            if self.journal is not None:
                self.journal.close()
        return {p.label: p.given_up for p in self.partitions if p.given_up and p.left}

    def _choose_more(self) -> None:
        """Let the chooser choose the next points of the partitions that have no points left."""
        if self.chooser is None:
            return
        for partition in self.partitions:
            # Also if it stops at its limit: its remaining points show that the search is not over.
            if partition.left or partition.given_up or not partition.kept_workers:
                continue
            points = self.chooser.next_points(partition.site.name, partition.partition)
            if not points:
                partition.kept_workers = 0
            retries = self.plan.campaign.retries.max
            self.last_attempt |= {point.id: retries for point in points}
            partition.waiting.extend((point, 0) for point in points)
            self.live.add(points)

    def _attend_to_partitions(self) -> None:
        for partition in self.partitions:
            if not partition.left:
                partition.release()  # its nodes, while other partitions go on
            elif partition.active:
                if partition.stopped:
                    partition.give_up(partition.stopping)
                    continue
                if not partition.stopping:
                    partition.submit_tasks()
                for note in partition.supervise():
                    self.progress.note(*note)
        for watch in self.watches:
            watch.often = any(p.starting for p in self.partitions if p.watch is watch)
            if text := watch.news():
                self.progress.note(text)
        now_s = time.monotonic()
        if now_s - self._shown_s >= SHOWN_S:
            self._shown_s = now_s
            self._attend_to_hours()
            now = {p.label: p.now() for p in self.partitions if p.active}
            self.progress.show(now)
            self.live.show(now)

    def _attend_to_hours(self) -> None:
        """Count the node-hours, and let no more points begin once the limit is reached."""
        for partition in self.partitions:
            self._count_hours(partition)
        self.hours.write()
        self.live.spent = self.hours.spent()
        since_look_s = sum(p.node_s_since_look for p in self.partitions if p.active)
        reached = self.hours.reached(since_look_s)
        if reached and not self._stopping:
            self._stopping = True
            self.progress.note(f"{reached}: no more points begin, and those that run finish")
            for partition in self.partitions:
                partition.stop(reached)

    def _count_hours(self, partition: PartitionRun) -> None:
        times = partition.job_times()
        not_ours = self._not_ours.get(partition.label, frozenset())
        self.hours.add(
            partition.label, {job: time for job, time in times.items() if job not in not_ours}
        )

    def _open(self) -> None:
        shutil.rmtree(self.store.root / "tls", ignore_errors=True)  # of a killed driver
        # One queue for all partitions of a site with the same scheduler.
        queues: dict[tuple[str, type[Scheduler]], list[PartitionRun]] = {}
        for partition in self.partitions:
            if partition.scheduler.has_jobs:
                key = partition.site.name, type(partition.scheduler)
                queues.setdefault(key, []).append(partition)
        for partitions in queues.values():
            scheduler = partitions[0].scheduler
            names = [partition.job_name for partition in partitions]
            before = scheduler.cancel_jobs(names)
            cluster = scheduler.cluster_name()
            watch = QueueWatch(scheduler, names)
            self.watches.append(watch)
            for partition in partitions:
                self._count_earlier_jobs(partition, before)
                partition.cluster_name = cluster
                partition.watch = watch
        for number, partition in enumerate(self.partitions):
            if self.chooser is not None:
                partition.kept_workers = partition.wanted
            dashboard = LOOPBACK_DASHBOARD if number else self.dashboard
            partition.open(self.store, dashboard)
        n_points = {
            p.label: self.chooser.most(p.site.name, p.partition) if self.chooser else p.left
            for p in self.partitions
        }
        self.progress.start(n_points, {p.label: p.dashboard() for p in self.partitions})

    def _count_earlier_jobs(self, partition: PartitionRun, jobs: Iterable[QueuedJob]) -> None:
        """Count the jobs of a killed driver, which have just been cancelled. Jobs that had ended
        before may belong to a removed store that had the same path."""
        partition_jobs = [job for job in jobs if job.name == partition.job_name]
        self._not_ours[partition.label] = frozenset(
            job.id
            for job in partition_jobs
            if job.phase == Phase.OVER and not self.hours.knows(partition.label, job.id)
        )
        self.hours.add(
            partition.label,
            {job.id: job.time for job in partition_jobs if job.phase != Phase.OVER},
        )

    def _collect_finished(self) -> int:
        """Process the tasks that have ended. Returns the number of their points."""
        points = 0
        wait_s = TICK_S
        while True:
            try:
                task = self.finished_tasks.get(timeout=wait_s)
            except queue.Empty:
                return points
            wait_s = 0.0
            if task.partition.in_flight.get(task.key) is not task:
                continue
            end = task_end(task.future)
            if end is None:  # its worker died with the result; Dask runs the task again
                self.finished_tasks.put(task)
                return points
            points += self._account_for(task, end)

    def _account_for(self, task: Task, end: TaskEnd) -> int:
        """Process the end of a task. Returns the number of its points with a result."""
        partition, attempts, error = task.partition, task.attempts, end.error
        partition.ended(task)
        if end.result is None and error is None:
            # The scheduler dropped the task, which tells nothing about the points.
            partition.waiting.extendleft(reversed(attempts))
            return 0
        if isinstance(error, KilledWorker):
            if len(attempts) > 1:  # one of them may be the cause: run each in a separate task
                partition.alone.update(point.id for point, _ in attempts)
                partition.waiting.extendleft(reversed(attempts))
                return 0
            times = error.allowed_failures + 1
            status, text = NODE_LOST, f"the worker died {times} times while it measured this point"
            point, attempt = attempts[0]
            self._record(Measurement(point=point, status=status, text=text, attempt=attempt))
            results: list[PointResult] = [(status, text, None)]
        elif isinstance(error, UnwritableScratchError | PlacementError):
            partition.waiting.extendleft(reversed(attempts))
            partition.give_up(str(error))
            self.progress.note(f"{partition.label}: {partition.given_up}")
            return 0
        elif error is not None:
            raise error
        else:
            results = end.result.results
            partition.task_finished(end.result.seconds, len(results))
        task.future.release()
        partition.waiting.extendleft(reversed(attempts[len(results) :]))
        for (point, attempt), result_of_point in zip(attempts, results, strict=False):
            self._finish_point(partition, point, attempt, result_of_point)
        return len(results)

    def _finish_point(
        self, partition: PartitionRun, point: Point, attempt: int, result: PointResult
    ) -> None:
        status, text, energy_j = result
        will_retry = status in CAN_PASS and attempt < self.last_attempt[point.id]
        if will_retry:
            partition.waiting.append((point, attempt + 1))
        if status not in COMPLETE:
            name = partition.kernel_names[point.label, point.params]
            self.progress.note(
                f"{name} at {point.setting}: {status}: "
                f"{(text.splitlines() or [''])[-1]}{' (will be tried again)' if will_retry else ''}"
            )
        self.progress.point_finished(partition.label, status, will_retry)
        self.live.point_finished(point, status, energy_j, will_retry)

    def _record(self, measurement: Measurement) -> None:
        """Write a failure that only the driver has noticed into the driver's journal."""
        with writing(self.store):
            if self.journal is None:
                self.journal = JournalWriter(self.store.journals)
            self.journal.append(encode(measurement))


def compact_store(store: Store, progress: PlainProgress, workers_gone: bool = False) -> None:
    """Compact the store, and report damage."""
    for text in compact(store).messages(workers_gone):
        progress.note(text)
