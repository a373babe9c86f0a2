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
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
"""The longest task of points of one setting, if each change of the setting costs a job step."""
TASK_S_A_WORKER = 0.1
"""With many workers a task takes at least this time for each of them: Dask's scheduler needs some
milliseconds for a task. A worker that dies loses no measured point, but all points of its task may
be measured again."""
QUIET_S = 45.0
"""A message reports no finished task for this time, or for three times that of the last task."""

Attempt = tuple[Point, int]
"""A point and the number of the attempt to measure it, from 0."""


@dataclass(frozen=True)
class Task:
    """A submitted task."""

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
    finished_tasks: queue.SimpleQueue[Task]
    """The tasks that have ended: their futures have a result or an error."""
    job_name: str
    starts: int
    """The most starts that may fail in a row."""
    kernel_names: Mapping[tuple[str, str], str]
    """(label, parameters) -> the kernel's name for people."""
    in_flight: dict[str, Task] = field(default_factory=dict)
    """Key -> task."""
    points_in_flight: int = 0
    cluster_name: str | None = None
    """The name of the site's cluster by the scheduler; None if unknown."""
    point_s: float | None = None
    """Mean seconds of a point in the last finished task; None before the first."""
    task_s: float = 0.0
    """Seconds of the last finished task."""
    alone: set[str] = field(default_factory=set)
    """The ids of points from a task whose worker died: each is submitted in a separate task."""
    submission_errors: list[LaunchError] = field(default_factory=list)
    """The scheduler's errors for jobs that it did not accept."""
    watch: QueueWatch | None = None
    """The watch on the queue of its jobs; None without jobs."""
    cluster: Any = None
    client: Any = None
    job_workers: JobWorkers | None = None
    stopping: str = ""
    """Why no more points begin here in this run, while the last ones finish; empty otherwise."""
    given_up: str = ""
    """Why this run measures nothing more here; empty otherwise."""
    problem: str = ""
    """Why jobs may remain after the end; empty otherwise."""
    kept_workers: int = 0
    """The workers that stay while further points may be chosen."""
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
    """The time when a task last finished, or the workers last changed."""
    _said_quiet: bool = False

    @property
    def label(self) -> str:
        """site/partition."""
        return f"{self.site.name}/{self.partition}"

    @property
    def starting(self) -> bool:
        """Whether to ask the scheduler more often, because a job is expected to start."""
        return self.job_workers is not None and self.job_workers.starting

    def now(self) -> PartitionNow:
        """The partition's jobs, workers and current point, for people."""
        if self.job_workers is None:
            now = PartitionNow(workers=len(self.cluster.scheduler_info["workers"]))
        else:
            now = self.job_workers.now()
        return replace(now, measuring=self._measured_now())

    def _measured_now(self) -> str:
        """The kernel and setting of the first point that a worker reports; empty without one."""
        points = {p.id: p for task in self.in_flight.values() for p, _ in task.attempts}
        for worker in list(self.cluster.scheduler.workers.values()):
            point = points.get(worker.metrics.get(MEASURING, ""))
            if point is not None:
                name = self.kernel_names[point.label, point.params]
                return f"{name} at {point.setting}"
        return ""

    @property
    def active(self) -> bool:
        """Whether points remain and may be measured."""
        return bool(self.left) and not self.given_up

    @property
    def wanted(self) -> int:
        """The number of workers that should run: at most those of the site file, and at most one
        for each remaining point, unless further points may be chosen."""
        if self.stopping:
            return 0
        return min(self.site.workers(self.partition), max(self.left, self.kept_workers))

    @property
    def left(self) -> int:
        """The number of points that are not measured yet."""
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
        """Job id -> its time, as far as known. Without jobs there is one entry for each worker,
        which has the machine from the start to the end."""
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
        """The node-seconds since the last look, which :meth:`job_times` lacks."""
        return 0.0 if self.watch is None else self.watch.look.node_s_since(self.job_name)

    def dashboard(self) -> str:
        """The address of the partition's Dask dashboard."""
        server = self.cluster.scheduler.services["dashboard"]
        every_address = ipaddress.ip_address(server.address).is_unspecified
        host = platform.node() if every_address else server.address
        return f"http://{f'[{host}]' if ':' in host else host}:{server.port}/status"

    def task_finished(self, seconds: float, points: int) -> None:
        """Record the duration of a task with this number of points; it sizes the next tasks."""
        self._progress_s, self._said_quiet = time.monotonic(), False
        if points:
            self.task_s, self.point_s = seconds, seconds / points

    def submit_tasks(self) -> None:
        """If there is room for one more task for each worker, submit tasks until each has a few
        waiting: many at once cost less."""
        workers = max(self.wanted, 1)
        tasks_per_worker = 1 if self.point_s is None else IN_FLIGHT_A_WORKER
        room = max(tasks_per_worker * workers, 8) - len(self.in_flight)
        if room < workers:
            return
        most_s = STEP_TASK_S if self.site.clocks.in_steps else TASK_S
        most_s = max(most_s, TASK_S_A_WORKER * workers)
        tasks: dict[str, tuple[Attempt, ...]] = {}
        while len(tasks) < room and self.waiting:
            # The number is new each time: for an earlier key Dask returns the earlier result. The
            # word is the same each time: for each word before a number Dask's scheduler keeps a
            # group for ever, and scans all groups now and then.
            tasks[f"measure-{next(self._numbers)}"] = tuple(self._next_task(workers, most_s))
        if not tasks:
            return
        inputs = [[(p.as_dict(), number) for p, number in attempts] for attempts in tasks.values()]
        futures = self.client.map(
            measure_points, inputs, key=list(tasks), pure=False, most_s=most_s
        )
        for (key, attempts), future in zip(tasks.items(), futures, strict=True):
            task = self.in_flight[key] = Task(self, key, attempts, future)
            self.points_in_flight += len(attempts)
            future.add_done_callback(lambda _, task=task: self.finished_tasks.put(task))

    def ended(self, task: Task) -> None:
        """Remove a task that has ended from those in flight."""
        del self.in_flight[task.key]
        self.points_in_flight -= len(task.attempts)

    def _next_task(self, workers: int, most_s: float) -> Iterator[Attempt]:
        """The points of the next task, removed from the waiting ones: one, or as many short ones as
        fit into ``most_s``; or, if each change of the setting costs a job step, the next ones of
        one setting. But at most a share that leaves work for every worker."""
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

    def supervise(self) -> list[Note]:
        """Replace lost workers. Returns messages for people.

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
            # Dask does not always replace a killed process.
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
        """A message, once, if workers are connected and no task has finished for long."""
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
        """The scheduler's new messages about jobs that it does not accept now, each once."""
        texts = (
            str(error) for error in self.submission_errors if not isinstance(error, SubmissionError)
        )
        new_texts = [text for text in dict.fromkeys(texts) if text not in self._reported]
        self._reported.update(new_texts)
        who = self.scheduler.title
        return [f"{text}; submission is repeated until {who} accepts the job" for text in new_texts]

    def stop(self, reason: str) -> None:
        """Let no more points begin, and give the partition up when the running ones have
        finished."""
        if not self.stopping:
            self.stopping, self._supervised = reason, -SUPERVISE_S

    def _stop_workers(self) -> None:
        """Stop all connected workers, including new ones since the last call. A lost worker does
        not answer, and the client may be closed meanwhile."""
        with contextlib.suppress(Exception):
            self.client.run(stop_measuring, on_error="ignore")

    @property
    def stopped(self) -> bool:
        """Whether :meth:`stop` was called and no point is being measured."""
        return bool(self.stopping) and not (
            self.in_flight and self.cluster.scheduler_info["workers"]
        )

    def give_up(self, reason: str) -> None:
        """Measure no more here in this run; another run can measure the remaining points."""
        self.given_up = reason
        futures = [task.future for task in self.in_flight.values()]
        for task in self.in_flight.values():
            self.waiting.extend(task.attempts)
        self.in_flight.clear()
        self.points_in_flight = 0
        self.release(futures)

    def release(self, futures: Sequence[Future[TaskResult]] = ()) -> None:
        """Start to end the partition's workers, jobs and scheduler, in a thread."""
        if self._closing is None:
            futures = [*futures, *(task.future for task in self.in_flight.values())]
            self._closing = threading.Thread(target=self._close, args=(futures,))
            self._closing.start()

    def wait_released(self) -> None:
        """Wait for the end of :meth:`release`."""
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
            except LaunchError as error:  # the next run cancels them before it submits new ones
                self.problem = f"{error}; jobs named {self.job_name} may be left"
        self._closed_s = time.monotonic()


def partition_setup(
    plan: Plan, store: Store, site: str, partition: str, kernels: Iterable[str]
) -> PartitionSetup:
    """The set-up for the workers of a partition. The values of the partition's variables are in
    their environment only."""
    return PartitionSetup(
        site=recorded_site(store, plan.sites[site]),
        protocol=plan.campaign.protocol,
        kernels=tuple(sorted(set(kernels))),
        campaign=plan.campaign.name,
        partition=partition,
    )
