"""The driver: runs what a plan still lacks, to its end, through any loss of workers."""

from __future__ import annotations

import contextlib
import hashlib
import queue
import shutil
import signal
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from distributed.scheduler import KilledWorker

from analysis.dataset import DAMAGED, OK
from campaign.launch.clusters import LOOPBACK_DASHBOARD, CantLaunch, cancel_jobs, configure_dask
from campaign.launch.lane import Landing, Lane
from campaign.launch.worker import Batch
from campaign.measure.life import Job
from campaign.measure.subprocesses import remove_dead_scratch
from campaign.measurement import CAN_PASS, Measurement
from campaign.plan.plan import Plan
from campaign.plan.point import Point
from campaign.store.compaction import compact, settle
from campaign.store.journal import JournalWriter, encode
from campaign.store.layout import Store, driver_lock, writing
from campaign.store.planned import write_planned
from campaign.store.states import NEVER, State, point_states
from campaign.store.verify import mend
from sites.site_file import Site

COMPACT_AFTER = 20_000
TICK_S = 0.2
RESULT_S = 1.0


class Progress(Protocol):
    """Who shows how it goes: done, failed and left, a partition at a time."""

    def start(self, lanes: dict[str, int], dashboards: dict[str, str]) -> None:
        """The points to run and the dashboard's address of every lane."""

    def landed(self, lane: str, status: str, will_retry: bool) -> None:
        """A point came back."""

    def note(self, text: str) -> None:
        """Something that a person should know."""

    def stop(self) -> None:
        """No more will be shown."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended: of all planned points, how many are in what state."""

    planned: int
    ok: int
    failed: int
    left: int
    interrupted: bool

    @property
    def complete(self) -> bool:
        """Whether every planned point has a measurement that is ok."""
        return self.ok == self.planned


def plan_record(plan: Plan) -> dict[str, Any]:
    """What a store remembers of the plan that it holds, beside the points' ids."""
    return {
        "campaign": plan.campaign.model_dump(mode="json"),
        "sites": {name: site.model_dump(mode="json") for name, site in plan.sites.items()},
    }


def site_facts(site: Site) -> dict[str, Any]:
    """What a fit and a pick need of a site: its classes' domains, its device, legal settings.

    ``legal``: (core MHz, memory MHz, core V, memory V) of every legal setting; None is missing.
    """
    return {
        "classes": {name: entry.domain for name, entry in site.classes.items()},
        "device": site.clocks.device,
        "legal": [[s.core_mhz, s.mem_mhz, *site.volts(s)] for s in site.settings],
    }


def missing_points(
    plan: Plan, state: Mapping[str, State], retry_failed: bool
) -> list[tuple[Point, int]]:
    """(point, number of the attempt) of every planned point that is still to be measured."""
    found = []
    for point in plan.points:
        held, attempt = state.get(point.id, NEVER)
        if held == OK:
            continue
        can_pass = held is None or held in CAN_PASS
        if held == DAMAGED or retry_failed or (can_pass and attempt <= plan.campaign.retries.max):
            found.append((point, attempt))
    return found


def run(
    plan: Plan,
    store: Store,
    progress: Progress,
    retry_failed: bool = False,
    dashboard: str = LOOPBACK_DASHBOARD,
) -> Outcome:
    """Measure every point that the store lacks. ``dashboard``: the address, host:port, where
    Dask's dashboard of the first partition listens.

    What is damaged in the store is told, and measured again. Interrupted by SIGINT or SIGTERM, it
    ends its jobs, keeps what was measured, and says so.

    Raises:
        StoreBusy: another driver runs on this store.
        StoreUnwritable: it can't be written to, here or on a worker.
        DamagedStore: its index can't be read.
        CantLaunch: a partition's jobs can't be submitted.
    """
    configure_dask()
    _tidy_scratch(plan)
    with driver_lock(store), _interrupts() as interrupted:
        with writing(store):
            for text in mend(store):
                progress.note(text)
            _compact(store, progress, workers_gone=True)
            ids = {
                f"{site}/{partition}": [p.id for p in plan.of_partition(site, partition)]
                for site, partition in plan.partitions
            }
            write_planned(store, plan_record(plan), ids)
            for name, site in plan.sites.items():
                store.write_json(f"sites/{name}.json", site_facts(site))
        state = point_states(store)
        todo = missing_points(plan, state, retry_failed)
        if todo:
            _Run(plan, store, progress, todo, retry_failed, interrupted, dashboard).to_the_end()
            with writing(store):
                _compact(store, progress)
            state = point_states(store)
            _tidy_scratch(plan)
        with writing(store):
            settle(store)
        return outcome(plan, state, interrupted.is_set())


def _tidy_scratch(plan: Plan) -> None:
    """Remove what killed workers left on this host; a Slurm node's, its next worker removes."""
    for name, partition in plan.partitions:
        entry = plan.sites[name].partitions[partition]
        if entry.scheduler == "local":
            remove_dead_scratch(Path(entry.local_directory))


def _compact(store: Store, progress: Progress, workers_gone: bool = False) -> None:
    """Compact, and tell what was damaged."""
    for text in compact(store).told(workers_gone):
        progress.note(text)


def outcome(plan: Plan, state: Mapping[str, State], interrupted: bool) -> Outcome:
    """Count the planned points by what the store holds of them."""
    ok = sum(state.get(p.id, NEVER)[0] == OK for p in plan.points)
    left = len(missing_points(plan, state, False))
    failed = len(plan.points) - ok - left
    return Outcome(len(plan.points), ok, failed, left, interrupted and ok < len(plan.points))


@contextlib.contextmanager
def _interrupts() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set; a second one ends the process at once."""
    asked = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Run:
    """One run of the driver, from its first submission to its last landing."""

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
        self.landings: queue.SimpleQueue[Landing] = queue.SimpleQueue()
        # Attempts are bounded a run where failures are retried on request, else over all runs.
        self.last_attempt = {
            p.id: (n if retry_failed else 0) + plan.campaign.retries.max for p, n in todo
        }
        self.lanes = _lanes(plan, store, todo, self.landings)
        self.journal: JournalWriter | None = None

    def to_the_end(self) -> None:
        """Open the lanes, run until nothing is left or somebody asks to stop, close them."""
        try:
            self._open()
            since = 0
            while any(lane.left for lane in self.lanes) and not self.interrupted.is_set():
                for lane in self.lanes:
                    lane.top_up()
                    lane.supervise()
                    for text in lane.delays():
                        self.progress.note(f"{text}; tried again until it is taken")
                since += self._land()
                if since >= COMPACT_AFTER:
                    with writing(self.store):
                        _compact(self.store, self.progress)
                    since = 0
        finally:
            self.progress.stop()
            closing = [threading.Thread(target=lane.close) for lane in self.lanes]
            for thread in closing:
                thread.start()
            for thread in closing:
                thread.join()
            for lane in self.lanes:
                if lane.is_slurm and lane.cluster is not None:
                    try:
                        cancel_jobs(lane.site, lane.job_name)
                    except CantLaunch as error:  # the next run cancels them, before its own
                        self.progress.note(f"{error}; jobs {lane.job_name} may be left")
            if self.journal is not None:
                self.journal.close()

    def _open(self) -> None:
        shutil.rmtree(self.store.root / "tls", ignore_errors=True)  # of a driver that was killed
        for lane in self.lanes:
            if lane.is_slurm:
                cancel_jobs(lane.site, lane.job_name)
        for number, lane in enumerate(self.lanes):
            dashboard = LOOPBACK_DASHBOARD if number else self.dashboard
            lane.open(self.store.root, self.store.journals, self.store.root / "logs", dashboard)
        self.progress.start(
            {_name(lane): lane.left for lane in self.lanes},
            {_name(lane): lane.dashboard() for lane in self.lanes},
        )

    def _land(self) -> int:
        """Take the points that have come back; how many."""
        landed = 0
        wait_s = TICK_S
        while True:
            try:
                landing = self.landings.get(timeout=wait_s)
            except queue.Empty:
                return landed
            wait_s = 0.0
            held = landing.lane.in_flight.get(landing.key)
            if held is None or held[1] is not landing.future:
                continue
            error, batch = None, None
            try:
                if not landing.future.cancelled():
                    error = landing.future.exception(timeout=RESULT_S)
                    batch = None if error is not None else landing.future.result(timeout=RESULT_S)
            except TimeoutError:  # its worker died with the result: Dask runs it once more
                self.landings.put(landing)
                return landed
            landed += self._take(landing, error, batch)

    def _take(self, landing: Landing, error: BaseException | None, batch: Batch | None) -> int:
        """Book what came of a task's points, its error or its results; how many came back."""
        lane, asked = landing.lane, landing.asked
        del lane.in_flight[landing.key]
        if landing.future.cancelled():
            # Its scheduler lost it without a verdict: nothing was said of the points.
            lane.waiting.extendleft(reversed(asked))
            return 0
        if isinstance(error, KilledWorker):
            if len(asked) > 1:  # one of them may have done it: each on its own will tell
                lane.alone.update(point.id for point, _ in asked)
                lane.waiting.extendleft(reversed(asked))
                return 0
            times = error.allowed_failures + 1
            status, text = "node lost", f"the worker died with it {times} times"
            self._record(Measurement(asked[0][0], status, text, asked[0][1]))
            results = [(status, text)]
        elif batch is None:
            assert error is not None  # noqa: S101
            raise error
        else:
            results = batch.results
            if results:
                lane.point_s = batch.seconds / len(results)
        landing.future.release()
        lane.waiting.extendleft(reversed(asked[len(results) :]))
        for (point, attempt), (status, text) in zip(asked, results, strict=False):
            self._land_point(lane, point, attempt, status, text)
        return len(results)

    def _land_point(self, lane: Lane, point: Point, attempt: int, status: str, text: str) -> None:
        again = status in CAN_PASS and attempt < self.last_attempt[point.id]
        if again:
            lane.waiting.append((point, attempt + 1))
        if status != OK:
            self.progress.note(
                f"{point.label} {point.params} at {point.setting}: {status}: "
                f"{(text.splitlines() or [''])[-1]}{' (will be tried again)' if again else ''}"
            )
        self.progress.landed(_name(lane), status, again)

    def _record(self, measurement: Measurement) -> None:
        """Write what only the driver knows into a journal of its own."""
        with writing(self.store):
            if self.journal is None:
                self.journal = JournalWriter(self.store.journals)
            self.journal.append(encode(measurement))


def _lanes(
    plan: Plan,
    store: Store,
    todo: list[tuple[Point, int]],
    landings: queue.SimpleQueue[Landing],
) -> list[Lane]:
    by_partition: dict[tuple[str, str], deque[tuple[Point, int]]] = {}
    for point, attempt in todo:
        by_partition.setdefault((point.site, point.partition), deque()).append((point, attempt))
    lanes = []
    for (site, partition), waiting in by_partition.items():
        kernels = tuple(sorted({point.kernel for point, _ in waiting}))
        job = Job(plan.sites[site], plan.campaign.protocol, kernels)
        name = job_name(store.root, site, partition)
        lanes.append(Lane(plan.sites[site], partition, job, waiting, landings, name))
    return lanes


def job_name(store_root: Path, site: str, partition: str) -> str:
    """A Slurm job name that is this store's and this partition's alone."""
    digest = hashlib.sha256(f"{store_root.resolve()} {site} {partition}".encode()).hexdigest()
    return f"dvfs-{digest[:10]}"


def _name(lane: Lane) -> str:
    return f"{lane.site.name}/{lane.partition}"
