"""What a Dask worker does: measure points in subprocesses, write their records, then say so."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distributed import Worker, get_worker
from distributed.core import Status
from distributed.diagnostics.plugin import WorkerPlugin

from analysis.dataset import OK
from campaign.measure.point_life import PartitionSetup
from campaign.measure.subprocesses import AllocationGone, SubprocessRunner
from campaign.plan.point import Point
from campaign.store.journal import JournalWriter, scalars_of
from campaign.store.layout import StoreUnwritable

PLUGIN = "measuring"
TASK_S = 0.25
"""Short points share a task, and an fdatasync, up to so many seconds."""
ENDING_S = 3.0
CLOSING_S = 10.0


class MeasuringPlugin(WorkerPlugin):
    """A worker's bench and journal, opened at its first point."""

    name = PLUGIN

    def __init__(self, job: dict[str, Any], journals: str, scratch: str) -> None:
        self.job = job
        self.journals = journals
        self.scratch = scratch
        self._runner: SubprocessRunner | None = None
        self._journal: JournalWriter | None = None

    def setup(self, worker: Worker) -> None:
        """See to it that the worker's process ends once it began to."""
        threading.Thread(target=_exit_after_closing, args=(worker,), daemon=True).start()

    def measure(self, asked: list[tuple[dict[str, Any], int]]) -> list[tuple[str, str]]:
        """Measure points one after another, and write their records durably, together: status
        and text of each. Where the worker ends in between, or they take longer than a task
        should, the last ones are missing."""
        if self._runner is None:
            self._runner = SubprocessRunner(PartitionSetup.from_dict(self.job), Path(self.scratch))
        records: list[bytes] = []
        results: list[tuple[str, str]] = []
        began = time.monotonic()
        try:
            for fields, attempt in asked:
                if results and time.monotonic() - began > TASK_S:
                    break
                try:
                    record = self._runner.measure(Point.from_dict(fields), attempt)
                except AllocationGone:
                    os.kill(os.getpid(), signal.SIGTERM)  # as the job's end should have
                    _is_ending(CLOSING_S)
                    break
                scalars = scalars_of(record)
                status = str(scalars["status"])
                # Cut off with its worker: that says nothing of the point.
                if status != OK and _is_ending(ENDING_S if status == "node lost" else 0.0):
                    break
                records.append(record)
                results.append((status, str(scalars["text"])))
        finally:
            self._write(records)
        return results

    def _write(self, records: list[bytes]) -> None:
        if not records:
            return
        try:
            if self._journal is None:
                self._journal = JournalWriter(Path(self.journals))
            self._journal.append(*records)
        except OSError as error:
            self._journal = None  # its end may be torn: the next record begins a new journal
            raise StoreUnwritable(f"{self.journals}: {error.strerror}") from None

    def teardown(self, worker: Worker) -> None:
        """End the bench's subprocesses and close the journal."""
        if self._runner is not None:
            self._runner.close()
            self._runner = None
        if self._journal is not None:
            with contextlib.suppress(OSError):
                self._journal.close()
            self._journal = None


def _exit_after_closing(worker: Worker) -> None:
    """End the process if Dask's own closing does not: it can wait for ever for a scheduler that
    is gone, and a process that a scheduler has lost sight of stays on the node."""
    while worker.status not in (Status.closing, Status.closed, Status.failed):
        time.sleep(1.0)
    time.sleep(CLOSING_S)
    os._exit(0)


def _is_ending(within_s: float) -> bool:
    """Whether this worker ends within so many seconds: a job's end reaches all its processes at
    once, and the subprocess may be gone before the worker knows; a worker that ends by itself
    takes the subprocess's files with it."""
    worker = get_worker()
    deadline = time.monotonic() + within_s
    while worker.status == Status.running and time.monotonic() < deadline:
        time.sleep(0.05)
    return bool(worker.status != Status.running)


@dataclass(frozen=True)
class TaskResult:
    """What came of a task's points: (status, text) of each that is in the journal, in order, and
    the seconds that they took. The last ones may be missing: nothing was said of them."""

    results: list[tuple[str, str]]
    seconds: float


def measure_points(asked: list[tuple[dict[str, Any], int]]) -> TaskResult:
    """The task: measure points, write their records, then say so."""
    plugin = get_worker().plugins[PLUGIN]
    assert isinstance(plugin, MeasuringPlugin)  # noqa: S101
    began = time.monotonic()
    results = plugin.measure(asked)
    return TaskResult(results, time.monotonic() - began)
