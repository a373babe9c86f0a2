"""The driver: measures every point of a plan that is missing, also when workers are lost."""

from __future__ import annotations

import contextlib
import hashlib
import queue
import shutil
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from distributed.scheduler import KilledWorker

from analysis.dataset import COMPLETE, NODE_LOST
from campaign.launch.clusters import LOOPBACK_DASHBOARD, CantLaunch, cancel_jobs, configure_dask
from campaign.launch.outcome import Outcome, missing_points, outcome
from campaign.launch.partition_run import FinishedTask, PartitionRun
from campaign.launch.scratch import tidy_scratch
from campaign.launch.setup_record import planned_record
from campaign.launch.worker import TaskResult
from campaign.measure.point_life import PartitionSetup
from campaign.measurement import CAN_PASS, Measurement
from campaign.plan.plan import Plan
from campaign.plan.point import Point
from campaign.store.compaction import compact, equalize_generations
from campaign.store.earlier import keep_earlier
from campaign.store.journal import JournalWriter, encode
from campaign.store.layout import Store, driver_lock, writing
from campaign.store.mixtures import changes, refuse_changes
from campaign.store.planned import write_planned
from campaign.store.records import StoreContents, read_contents
from campaign.store.setups import setup_uses
from campaign.store.site_record import SiteRecord, write_site_record
from campaign.store.states import point_states
from campaign.store.verify import repair_samples
from sites.site_file import Site

COMPACT_AFTER = 20_000
TICK_S = 0.2
RESULT_S = 1.0


class Progress(Protocol):
    """Shows progress: points done, failed and left, by partition ("site/partition")."""

    def start(self, points: dict[str, int], dashboards: dict[str, str]) -> None:
        """The number of points to measure and the dashboard's address of each partition."""

    def point_finished(self, partition: str, status: str, will_retry: bool) -> None:
        """A point was measured, or failed."""

    def note(self, text: str) -> None:
        """Show a message."""

    def stop(self) -> None:
        """End the display."""


def plan_record(plan: Plan) -> dict[str, Any]:
    """The plan as the store keeps it in campaign.json, beside the points' ids."""
    return {
        "campaign": plan.campaign.model_dump(mode="json"),
        "sites": {name: site.model_dump(mode="json") for name, site in plan.sites.items()},
    }


def site_record(site: Site) -> SiteRecord:
    """What a fit and a prediction need to know about a site, for the store to keep."""
    return SiteRecord(
        classes={name: entry.domain for name, entry in site.classes.items()},
        device=site.clocks.device,
        legal={(s.core_mhz, s.mem_mhz): site.volts(s) for s in site.settings},
    )


def run(
    plan: Plan,
    store: Store,
    progress: Progress,
    retry_failed: bool = False,
    dashboard: str = LOOPBACK_DASHBOARD,
    accept_changes: bool = False,
) -> Outcome:
    """Measure every planned point that is not in the store yet.

    Damaged data in the store are reported, and their points are measured again. After SIGINT or
    SIGTERM the jobs are ended, what was measured is kept, and the outcome says ``interrupted``.

    Args:
        plan: the points.
        store: where measurements go.
        progress: shows progress and messages.
        retry_failed: also measure points again that failed.
        dashboard: host:port where Dask's dashboard of the first partition listens.
        accept_changes: measure also where the store's measurements were made in another way.

    Raises:
        StoreBusy: another process is using the store.
        StoreUnwritable: it cannot be written to, here or on a worker.
        DamagedStore: its index cannot be read.
        ChangedSetup: the store's measurements were made in another way.
        CantLaunch: a partition's jobs cannot be submitted.
    """
    configure_dask()
    tidy_scratch(plan)
    with driver_lock(store), _interrupts() as interrupted:
        with writing(store):
            for text in repair_samples(store):
                progress.note(text)
            _compact(store, progress, workers_gone=True)
            contents = read_contents(store)
            keep_earlier(store, contents.generation)
            if not accept_changes:
                _refuse_changes(plan, store, contents)
            ids = {
                f"{site}/{partition}": [p.id for p in plan.of_partition(site, partition)]
                for site, partition in plan.partitions
            }
            write_planned(store, plan_record(plan), ids)
            for name, site in plan.sites.items():
                write_site_record(store, name, site_record(site))
        state = point_states(store, contents)
        todo = missing_points(plan, state, retry_failed)
        if todo:
            _CampaignRun(
                plan=plan,
                store=store,
                progress=progress,
                todo=todo,
                retry_failed=retry_failed,
                interrupted=interrupted,
                dashboard=dashboard,
            ).run_until_done()
            with writing(store):
                _compact(store, progress)
            state = point_states(store)
            tidy_scratch(plan)
        with writing(store):
            equalize_generations(store)
        return outcome(plan, state, interrupted.is_set())


def _refuse_changes(plan: Plan, store: Store, contents: StoreContents) -> None:
    """Raise an error where the store's measurements were made otherwise than this run's would be.

    Raises:
        ChangedSetup: they were.
    """
    summary = {} if contents.generation is None else contents.generation.summary
    uses, _ = setup_uses(store, summary.get("setups", {}), contents.tail.setups)
    kernels = {entry.kernel for entry in plan.campaign.kernels}
    if uses:
        planned = [planned_record(_setup(plan, *names, kernels)) for names in plan.partitions]
        refuse_changes(str(store.root), changes(uses, planned))


def _setup(plan: Plan, site: str, partition: str, kernels: Iterable[str]) -> PartitionSetup:
    return PartitionSetup(
        site=plan.sites[site],
        protocol=plan.campaign.protocol,
        kernels=tuple(sorted(set(kernels))),
        campaign=plan.campaign.name,
        partition=partition,
    )


def _compact(store: Store, progress: Progress, workers_gone: bool = False) -> None:
    """Compact the store, and report what was damaged."""
    for text in compact(store).messages(workers_gone):
        progress.note(text)


@contextlib.contextmanager
def _interrupts() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set; a second one ends the process at once."""
    stop_requested = threading.Event()

    def request_stop(number: int, frame: FrameType | None) -> None:
        if stop_requested.is_set():
            raise KeyboardInterrupt
        stop_requested.set()

    if threading.current_thread() is not threading.main_thread():
        yield stop_requested
        return
    before = {
        number: signal.signal(number, request_stop) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stop_requested
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _CampaignRun:
    """One run of the driver, from its first submission to its last finished task."""

    def __init__(
        self,
        plan: Plan,
        store: Store,
        progress: Progress,
        todo: list[tuple[Point, int]],
        retry_failed: bool,
        interrupted: threading.Event,
        dashboard: str,
    ) -> None:
        self.store = store
        self.dashboard = dashboard
        self.progress = progress
        self.interrupted = interrupted
        self.finished_tasks: queue.SimpleQueue[FinishedTask] = queue.SimpleQueue()
        # With --retry-failed the limit on attempts holds for this run, otherwise over all runs.
        self.last_attempt = {
            p.id: (n if retry_failed else 0) + plan.campaign.retries.max for p, n in todo
        }
        self.partitions = _partition_runs(plan, store, todo, self.finished_tasks)
        self.journal: JournalWriter | None = None

    def run_until_done(self) -> None:
        """Start the partitions' clusters, run until nothing is left or an interrupt comes, and
        close the clusters."""
        try:
            self._open()
            points_since = 0
            while (
                any(partition.left for partition in self.partitions)
                and not self.interrupted.is_set()
            ):
                for partition in self.partitions:
                    partition.submit_tasks()
                    partition.supervise()
                    for text in partition.submission_delays():
                        self.progress.note(
                            f"{text}; submission is repeated until Slurm accepts the job"
                        )
                points_since += self._collect_finished()
                if points_since >= COMPACT_AFTER:
                    with writing(self.store):
                        _compact(self.store, self.progress)
                    points_since = 0
        finally:
            self.progress.stop()
            closing = [threading.Thread(target=partition.close) for partition in self.partitions]
            for thread in closing:
                thread.start()
            for thread in closing:
                thread.join()
            for partition in self.partitions:
                if partition.is_slurm and partition.cluster is not None:
                    try:
                        cancel_jobs(partition.site, partition.job_name)
                    except (
                        CantLaunch
                    ) as error:  # the next run cancels them before it submits its own
                        self.progress.note(f"{error}; jobs named {partition.job_name} may be left")
            if self.journal is not None:
                self.journal.close()

    def _open(self) -> None:
        shutil.rmtree(
            self.store.root / "tls", ignore_errors=True
        )  # left by a driver that was killed
        for partition in self.partitions:
            if partition.is_slurm:
                cancel_jobs(partition.site, partition.job_name)
        for number, partition in enumerate(self.partitions):
            dashboard = LOOPBACK_DASHBOARD if number else self.dashboard
            partition.open(
                self.store.root, self.store.journals, self.store.root / "logs", dashboard
            )
        self.progress.start(
            {_name(partition): partition.left for partition in self.partitions},
            {_name(partition): partition.dashboard() for partition in self.partitions},
        )

    def _collect_finished(self) -> int:
        """Account for the tasks that have ended; returns how many points came back."""
        points = 0
        wait_s = TICK_S
        while True:
            try:
                task = self.finished_tasks.get(timeout=wait_s)
            except queue.Empty:
                return points
            wait_s = 0.0
            in_flight = task.partition.in_flight.get(task.key)
            if in_flight is None or in_flight[1] is not task.future:
                continue
            error, result = None, None
            try:
                if not task.future.cancelled():
                    error = task.future.exception(timeout=RESULT_S)
                    result = None if error is not None else task.future.result(timeout=RESULT_S)
            except TimeoutError:  # its worker died with the result; Dask runs the task again
                self.finished_tasks.put(task)
                return points
            points += self._account_for(task, error, result)

    def _account_for(
        self, task: FinishedTask, error: BaseException | None, result: TaskResult | None
    ) -> int:
        """Update the books with a task's error or result; returns how many points came back."""
        partition, attempts = task.partition, task.attempts
        del partition.in_flight[task.key]
        if task.future.cancelled():
            # The scheduler dropped the task; it says nothing about the points.
            partition.waiting.extendleft(reversed(attempts))
            return 0
        if isinstance(error, KilledWorker):
            if len(attempts) > 1:  # one of them may be the cause: run each in a task of its own
                partition.alone.update(point.id for point, _ in attempts)
                partition.waiting.extendleft(reversed(attempts))
                return 0
            times = error.allowed_failures + 1
            status, text = NODE_LOST, f"the worker died {times} times while it measured this point"
            point, attempt = attempts[0]
            self._record(Measurement(point=point, status=status, text=text, attempt=attempt))
            results = [(status, text)]
        elif result is None:
            assert error is not None  # noqa: S101
            raise error
        else:
            results = result.results
            if results:
                partition.point_s = result.seconds / len(results)
        task.future.release()
        partition.waiting.extendleft(reversed(attempts[len(results) :]))
        for (point, attempt), (status, text) in zip(attempts, results, strict=False):
            self._finish_point(partition, point, attempt, status, text)
        return len(results)

    def _finish_point(
        self, partition: PartitionRun, point: Point, attempt: int, status: str, text: str
    ) -> None:
        again = status in CAN_PASS and attempt < self.last_attempt[point.id]
        if again:
            partition.waiting.append((point, attempt + 1))
        if status not in COMPLETE:
            self.progress.note(
                f"{point.label} {point.params} at {point.setting}: {status}: "
                f"{(text.splitlines() or [''])[-1]}{' (will be tried again)' if again else ''}"
            )
        self.progress.point_finished(_name(partition), status, again)

    def _record(self, measurement: Measurement) -> None:
        """Write a failure that only the driver knows of into the driver's own journal."""
        with writing(self.store):
            if self.journal is None:
                self.journal = JournalWriter(self.store.journals)
            self.journal.append(encode(measurement))


def _partition_runs(
    plan: Plan,
    store: Store,
    todo: list[tuple[Point, int]],
    finished_tasks: queue.SimpleQueue[FinishedTask],
) -> list[PartitionRun]:
    by_partition: dict[tuple[str, str], deque[tuple[Point, int]]] = {}
    for point, attempt in todo:
        by_partition.setdefault((point.site, point.partition), deque()).append((point, attempt))
    partitions = []
    for (site, partition), waiting in by_partition.items():
        partitions.append(
            PartitionRun(
                site=plan.sites[site],
                partition=partition,
                setup=_setup(plan, site, partition, (point.kernel for point, _ in waiting)),
                waiting=waiting,
                finished_tasks=finished_tasks,
                job_name=job_name(store.root, site, partition),
            )
        )
    return partitions


def job_name(store_root: Path, site: str, partition: str) -> str:
    """A Slurm job name that only this store and this partition use."""
    digest = hashlib.sha256(f"{store_root.resolve()} {site} {partition}".encode()).hexdigest()
    return f"dvfs-{digest[:10]}"


def _name(partition: PartitionRun) -> str:
    return f"{partition.site.name}/{partition.partition}"
