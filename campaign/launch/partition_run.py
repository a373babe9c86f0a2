"""One partition while a campaign runs: its cluster, waiting points, and submitted tasks."""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
import platform
import queue
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from distributed import Client, Future
from distributed.core import Status

from campaign.launch.job_queue import QueueWatch
from campaign.launch.job_workers import JobWorkers, Note, Starts
from campaign.launch.scheduler import LaunchError, Scheduler, SubmissionError
from campaign.launch.snapshot import PartitionNow, duration
from campaign.launch.worker import (
    MEASURING,
    TASK_S,
    MeasuringPlugin,
    TaskResult,
    measure_points,
    stop_measuring,
)
from campaign.measure.point_life import PartitionSetup
from campaign.plan.plan import Plan
from campaign.plan.point import Point
from campaign.store.environment_variables import recorded_site
from campaign.store.hours import JobTime
from campaign.store.layout import Store
from sites.site_file import Site

SUPERVISE_S = 3.0
IN_FLIGHT_A_WORKER = 4
MOST_POINTS = 64
STEP_TASK_S = 20.0
"""The points of a setting share a task up to this duration where each change costs a job step."""
TASK_S_A_WORKER = 0.1
"""With many workers a task takes at least so long for each of them: Dask's scheduler needs some
milliseconds a task. A worker that dies loses no point that it has measured, but as many as are in
its task may be measured again."""
QUIET_S = 45.0
"""People are told where no task has finished for so long, or for three times as long as the last
one took."""

Attempt = tuple[Point, int]
"""A point and the number of the attempt to measure it, from 0."""


@dataclass(frozen=True)
class FinishedTask:
    """A submitted task that has ended: its future has a result or an error."""

    partition: PartitionRun
    key: str
    attempts: tuple[Attempt, ...]
    future: Future[TaskResult]


@dataclass(kw_only=True)
class PartitionRun:
    """One partition of one site while the campaign runs."""

    site: Site
    partition: str
    scheduler: Scheduler
    setup: PartitionSetup
    waiting: deque[Attempt]
    finished_tasks: queue.SimpleQueue[FinishedTask]
    job_name: str
    starts: int
    """How many starts may fail in a row."""
    kernel_names: Mapping[tuple[str, str], str]
    """(label, parameters) -> the kernel's name for people."""
    in_flight: dict[str, tuple[tuple[Attempt, ...], Future[TaskResult]]] = field(
        default_factory=dict
    )
    points_in_flight: int = 0
    cluster_name: str | None = None
    """The site's cluster, by the scheduler; None where it is not known."""
    point_s: float | None = None
    """Mean seconds of a point in the last finished task; None before the first."""
    task_s: float = 0.0
    """Seconds of the last finished task."""
    alone: set[str] = field(default_factory=set)
    """Ids of points from a task whose worker died: each is submitted in a task of its own."""
    submission_errors: list[LaunchError] = field(default_factory=list)
    """The scheduler's errors for jobs that it did not accept."""
    watch: QueueWatch | None = None
    """Of the queue that its jobs are in; None without jobs."""
    cluster: Any = None
    client: Any = None
    job_workers: JobWorkers | None = None
    stopping: str = ""
    """Why no more points begin here in this run, while the last ones finish."""
    given_up: str = ""
    """Why nothing more is measured here in this run; empty where that is not so."""
    problem: str = ""
    """Why jobs may be left."""
    kept_workers: int = 0
    """So many workers are kept while further points may be chosen."""
    _opened_s: float = 0.0
    _closed_s: float | None = None
    _last_times: dict[str, JobTime] = field(default_factory=dict)
    _workers_id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    _closing: threading.Thread | None = None
    _supervised: float = 0.0
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _reported: set[str] = field(default_factory=set)
    _seen_workers: frozenset[str] = frozenset()
    _progress_s: float = field(default_factory=time.monotonic)
    """When a task finished, or a worker came or went."""
    _said_quiet: bool = False

    @property
    def label(self) -> str:
        """site/partition."""
        return f"{self.site.name}/{self.partition}"

    @property
    def starting(self) -> bool:
        """Whether the scheduler should be asked more often, since a job is expected to start."""
        return self.job_workers is not None and self.job_workers.starting

    def now(self) -> PartitionNow:
        """The partition's jobs, workers and current point, for people."""
        if self.job_workers is None:
            now = PartitionNow(workers=len(self.cluster.scheduler_info["workers"]))
        else:
            now = self.job_workers.now()
        return replace(now, measuring=self._measured_now())

    def _measured_now(self) -> str:
        """The first point that a worker says it measures; empty where none does."""
        points = {
            point.id: point for attempts, _ in self.in_flight.values() for point, _ in attempts
        }
        for worker in list(self.cluster.scheduler.workers.values()):
            point = points.get(worker.metrics.get(MEASURING, ""))
            if point is not None:
                name = self.kernel_names[point.label, point.params]
                return f"{name} at {point.setting}"
        return ""

    @property
    def active(self) -> bool:
        """Whether points are left and may be measured."""
        return bool(self.left) and not self.given_up

    @property
    def wanted(self) -> int:
        """How many workers there should be: at most those of the site file, and one a point left,
        unless further points may be chosen."""
        if self.stopping:
            return 0
        return min(self.site.workers(self.partition), max(self.left, self.kept_workers))

    @property
    def left(self) -> int:
        """Points that are not measured yet."""
        return len(self.waiting) + self.points_in_flight

    def open(self, store: Store, dashboard: str) -> None:
        """Start the cluster and register the measuring plugin on its workers."""
        self._opened_s = time.monotonic()
        partition = self.site.partitions[self.partition]
        self.cluster = self.scheduler.start(
            self.partition, self.job_name, store.root, dashboard, self.submission_errors
        )
        planned = self.scheduler.placement(self.partition, self.cluster_name)
        self.client = Client(self.cluster, set_as_default=False)
        self.client.register_plugin(
            MeasuringPlugin(
                self.setup.as_dict(), str(store.journals), partition.local_directory, planned
            )
        )
        if self.watch is not None:
            self.job_workers = JobWorkers(
                cluster=self.cluster,
                scheduler=self.scheduler,
                label=self.label,
                job_name=self.job_name,
                logs=store.root / "logs",
                watch=self.watch,
                starts=Starts(self.starts),
                no_answer_s=self.site.slurm.no_answer_s,
            )
            self.cluster.scale(self.wanted)

    def job_times(self) -> dict[str, JobTime]:
        """The time of each job by its id, as far as it is known now; without jobs of each worker,
        which has the machine from the begin to the end."""
        if self.scheduler.has_jobs:
            return ({} if self.watch is None else self.watch.look.times(self.job_name)) | (
                self._last_times
            )
        if self.cluster is None:
            return {}
        elapsed_s = (self._closed_s or time.monotonic()) - self._opened_s
        job_time = JobTime(elapsed_s=elapsed_s, ended=self._closed_s is not None)
        workers = self.site.workers(self.partition)
        return {f"{self._workers_id}-{i}": job_time for i in range(workers)}

    @property
    def node_s_since_look(self) -> float:
        """The node-seconds that :meth:`job_times` does not have yet, as far as is known."""
        return 0.0 if self.watch is None else self.watch.look.node_s_since(self.job_name)

    def dashboard(self) -> str:
        """The address at which the partition's Dask dashboard listens."""
        server = self.cluster.scheduler.services["dashboard"]
        every_address = ipaddress.ip_address(server.address).is_unspecified
        host = platform.node() if every_address else server.address
        return f"http://{f'[{host}]' if ':' in host else host}:{server.port}/status"

    def task_finished(self, seconds: float, points: int) -> None:
        """Take the duration of a task of so many points, for the size of the next ones."""
        self._progress_s, self._said_quiet = time.monotonic(), False
        if points:
            self.task_s, self.point_s = seconds, seconds / points

    def submit_tasks(self) -> None:
        """Submit tasks until each worker has a few waiting, once there is room for one more for
        each: many at once cost less."""
        workers = max(self.wanted, 1)
        each = 1 if self.point_s is None else IN_FLIGHT_A_WORKER
        room = max(each * workers, 8) - len(self.in_flight)
        if room < workers:
            return
        most_s = STEP_TASK_S if self.site.clocks.in_steps else TASK_S
        most_s = max(most_s, TASK_S_A_WORKER * workers)
        tasks: dict[str, tuple[Attempt, ...]] = {}
        while len(tasks) < room and self.waiting:
            # New each time: for a known key Dask returns the earlier result. The same word each
            # time: for each word before a number Dask's scheduler keeps a group for ever, and looks
            # at all groups now and then.
            tasks[f"measure-{next(self._numbers)}"] = tuple(self._next_task(workers, most_s))
        if not tasks:
            return
        given = [[(p.as_dict(), number) for p, number in attempts] for attempts in tasks.values()]
        futures = self.client.map(measure_points, given, key=list(tasks), pure=False, most_s=most_s)
        for (key, attempts), future in zip(tasks.items(), futures, strict=True):
            self.in_flight[key] = (attempts, future)
            self.points_in_flight += len(attempts)
            future.add_done_callback(self._when_done(key, attempts))

    def ended(self, key: str) -> None:
        """Forget a task that has ended."""
        attempts, _ = self.in_flight.pop(key)
        self.points_in_flight -= len(attempts)

    def _next_task(self, workers: int, most_s: float) -> Iterator[Attempt]:
        """The points of the next task, removed from those waiting: one, or as many short ones as
        fit into ``most_s``, or those of one setting that follow each other where each change
        costs a job step; but no more than leaves work for every worker."""
        share = -(-len(self.waiting) // workers)
        fitting = 1 if self.point_s is None else int(most_s / max(self.point_s, 1e-6))
        in_steps = self.site.clocks.in_steps
        setting = self.waiting[0][0].setting
        for i in range(max(1, min(MOST_POINTS, MOST_POINTS if in_steps else fitting, share))):
            following = self.waiting[0][0]
            if i and (following.id in self.alone or (in_steps and following.setting != setting)):
                return
            point, number = self.waiting.popleft()
            yield point, number
            if point.id in self.alone:
                return

    def _when_done(
        self, key: str, attempts: tuple[Attempt, ...]
    ) -> Callable[[Future[TaskResult]], None]:
        def report(future: Future[TaskResult]) -> None:
            self.finished_tasks.put(FinishedTask(self, key, attempts, future))

        return report

    def supervise(self) -> list[Note]:
        """Replace workers that were lost; messages for people.

        Raises:
            SubmissionError: the scheduler does not accept the partition's jobs.
        """
        now = time.monotonic()
        if now - self._supervised < SUPERVISE_S:
            return []
        self._supervised = now
        if self.stopping:
            threading.Thread(target=self._stop_workers, daemon=True).start()
        if self.job_workers is None:
            # Dask itself does not always replace a process that was killed.
            workers = self.site.workers(self.partition)
            if not self.stopping and len(self.cluster.workers) < workers:
                self.cluster.scale(workers)
            return self._quiet(now)
        for error in self.submission_errors:
            if isinstance(error, SubmissionError):
                raise error
        messages = self.job_workers.supervise(self.wanted)
        if self.job_workers.given_up:
            self.give_up(self.job_workers.given_up)
        delays = ((text,) for text in self._submission_delays())
        return [*messages, *delays, *self._quiet(now)]

    def _quiet(self, now_s: float) -> list[Note]:
        """A message, once, where workers are connected and no task has finished for long."""
        workers = {worker.name: worker for worker in self.cluster.scheduler.workers.copy().values()}
        names = frozenset(map(str, workers))
        if names != self._seen_workers or not names or not self.in_flight:
            self._seen_workers, self._progress_s = names, now_s
            return []
        quiet_s = now_s - self._progress_s
        if self._said_quiet or quiet_s < max(QUIET_S, 3.0 * self.task_s):
            return []
        self._said_quiet = True
        paused = sum(worker.status == Status.paused for worker in workers.values())
        doing = self._measured_now()
        return [
            (
                f"{self.label}: no point has finished for {duration(quiet_s)}; "
                f"{len(names)} worker{'s' * (len(names) != 1)} connected, {paused} paused by Dask; "
                + (f"measuring {doing}" if doing else "none says that it measures a point")
                + f"; a point may take {self.setup.protocol.timeout_s:g} s",
            )
        ]

    def _submission_delays(self) -> list[str]:
        """The scheduler's messages since the last call about jobs that it does not accept now,
        each once."""
        texts = (
            str(error) for error in self.submission_errors if not isinstance(error, SubmissionError)
        )
        new_texts = [text for text in dict.fromkeys(texts) if text not in self._reported]
        self._reported.update(new_texts)
        who = self.scheduler.title
        return [f"{text}; submission is repeated until {who} accepts the job" for text in new_texts]

    def stop(self, reason: str) -> None:
        """Let no more points begin: the partition is given up when those that are measured now have
        finished."""
        if not self.stopping:
            self.stopping, self._supervised = reason, -SUPERVISE_S

    def _stop_workers(self) -> None:
        """Stop all workers that are connected, those too that have connected since the last call.
        One that is lost does not answer, and the client may be closed meanwhile."""
        with contextlib.suppress(Exception):
            self.client.run(stop_measuring, on_error="ignore")

    @property
    def stopped(self) -> bool:
        """Whether no point is measured any more after :meth:`stop`."""
        return bool(self.stopping) and not (
            self.in_flight and self.cluster.scheduler_info["workers"]
        )

    def give_up(self, reason: str) -> None:
        """Measure no more here in this run: what is left, another run can measure."""
        self.given_up = reason
        futures = [future for _, future in self.in_flight.values()]
        for attempts, _ in self.in_flight.values():
            self.waiting.extend(attempts)
        self.in_flight.clear()
        self.points_in_flight = 0
        self.release(futures)

    def release(self, futures: Sequence[Future[TaskResult]] = ()) -> None:
        """Begin to end the partition's workers, jobs and scheduler, in a thread."""
        if self._closing is None:
            futures = [*futures, *(future for _, future in self.in_flight.values())]
            self._closing = threading.Thread(target=self._close, args=(futures,))
            self._closing.start()

    def wait_released(self) -> None:
        """Wait until :meth:`release` is done."""
        if self._closing is not None:
            self._closing.join()

    def _close(self, futures: Sequence[Future[TaskResult]]) -> None:
        """Cancel tasks that have not started, and end workers, jobs and scheduler."""
        for future in futures:
            with contextlib.suppress(Exception):
                future.cancel()
        for part in (self.client, self.cluster):
            if part is not None:
                with contextlib.suppress(Exception):
                    part.close(timeout=20)
        if self.cluster is not None:
            try:
                jobs = self.scheduler.cancel_jobs([self.job_name])
                self._last_times = {job.id: job.time for job in jobs}
            except LaunchError as error:  # the next run cancels them before it submits its own
                self.problem = f"{error}; jobs named {self.job_name} may be left"
        self._closed_s = time.monotonic()


def partition_setup(
    plan: Plan, store: Store, site: str, partition: str, kernels: Iterable[str]
) -> PartitionSetup:
    """What the workers of a partition must know to measure. The values of its variables are in
    their environment, and nowhere else."""
    return PartitionSetup(
        site=recorded_site(store, plan.sites[site]),
        protocol=plan.campaign.protocol,
        kernels=tuple(sorted(set(kernels))),
        campaign=plan.campaign.name,
        partition=partition,
    )
