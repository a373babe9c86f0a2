"""What a Dask worker does: measure a point in a subprocess, write its record, then say so."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

from distributed import Worker, get_worker
from distributed.core import Status
from distributed.diagnostics.plugin import WorkerPlugin

from campaign.measure.life import Job
from campaign.measure.subprocesses import Bench
from campaign.measurement import OK
from campaign.point import Point
from campaign.store.journal import JournalWriter, decode

PLUGIN = "measuring"
GOING_S = 3.0


class StoreUnwritable(Exception):
    """A worker can't write to the store; measuring on would lose what is measured."""


class WorkerGoing(Exception):
    """The worker is ending, and took the measuring subprocess with it: nothing to record."""


class MeasuringPlugin(WorkerPlugin):
    """A worker's bench and journal, opened at its first point."""

    name = PLUGIN

    def __init__(self, job: dict[str, Any], journals: str, scratch: str) -> None:
        self.job = job
        self.journals = journals
        self.scratch = scratch
        self._bench: Bench | None = None
        self._journal: JournalWriter | None = None

    def measure(self, point: Point, attempt: int) -> bytes:
        """Measure a point and write its record durably; the record."""
        if self._bench is None:
            self._bench = Bench(Job.from_dict(self.job), Path(self.scratch))
        record = self._bench.measure(point, attempt)
        status = decode(record).status
        if status != OK and _is_going(GOING_S if status == "node lost" else 0.0):
            raise WorkerGoing(f"{point.id} was cut off with its worker")
        try:
            if self._journal is None:
                self._journal = JournalWriter(Path(self.journals))
            self._journal.append(record)
        except OSError as error:
            self._journal = None  # its end may be torn: the next record begins a new journal
            raise StoreUnwritable(f"{self.journals}: {error.strerror}") from None
        return record

    def teardown(self, worker: Worker) -> None:
        """End the bench's subprocesses and close the journal."""
        if self._bench is not None:
            self._bench.close()
            self._bench = None
        if self._journal is not None:
            with contextlib.suppress(OSError):
                self._journal.close()
            self._journal = None


def _is_going(within_s: float) -> bool:
    """Whether this worker ends within so many seconds: a job's end reaches all its processes at
    once, and the subprocess may be gone before the worker knows; a worker that ends by itself
    takes the subprocess's files with it."""
    worker = get_worker()
    deadline = time.monotonic() + within_s
    while worker.status == Status.running and time.monotonic() < deadline:
        time.sleep(0.05)
    return bool(worker.status != Status.running)


def measure_point(fields: dict[str, Any], attempt: int) -> tuple[str, str]:
    """The task: measure, write, and return (status, text)."""
    plugin = get_worker().plugins[PLUGIN]
    assert isinstance(plugin, MeasuringPlugin)  # noqa: S101
    measurement = decode(plugin.measure(Point.from_dict(fields), attempt))
    return measurement.status, measurement.text
