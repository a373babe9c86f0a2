"""The work of a Dask worker: it measures points in subprocesses and writes their records."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from distributed import Worker, get_worker
from distributed.core import Status
from distributed.diagnostics.plugin import WorkerPlugin

from campaign.launch.setup_record import node_record
from campaign.launch.slurm_placement import check_placement
from campaign.measure.point_life import PartitionSetup
from campaign.measure.subprocesses import LostAllocationError, SubprocessRunner
from campaign.plan.point import Point
from campaign.store.journal import JournalWriter, encode_setup, scalars_of
from campaign.store.layout import UnwritableStoreError
from campaign.store.setups import setup_id
from dvfs.dataset import COMPLETE, NODE_LOST

PLUGIN = MEASURING = "measuring"
"""The plugin's name, and the name of the metric with the id of the point that it measures."""
TASK_S = 0.25
"""Short points share a task, and one fdatasync, up to this duration."""
ENDING_S = 3.0
CLOSING_S = 10.0


PointResult = tuple[str, str, float | None]
"""The status and text of a point, and its windows' energy (J; None if missing)."""


class MeasuringPlugin(WorkerPlugin):
    """A worker's subprocess runner and journal, opened at its first point."""

    name = PLUGIN

    def __init__(
        self,
        setup: dict[str, Any],
        journals: str,
        scratch: str,
        planned: dict[str, Any] | None = None,
    ) -> None:
        self.partition_setup = setup
        self.journals = journals
        self.scratch = scratch
        self.planned = planned
        """The planned placement of this worker's Slurm job; None without Slurm."""
        self._runner: SubprocessRunner | None = None
        self._journal: JournalWriter | None = None
        self._setup_record: dict[str, Any] = {}
        self.stopping = False
        """Whether no further point begins."""
        self._measuring = ""

    def setup(self, worker: Worker) -> None:
        """Report the measured point to the scheduler with each heartbeat, and start a thread that
        ends the process after the worker has closed."""
        worker.metrics[MEASURING] = lambda worker: self._measuring
        threading.Thread(target=_exit_after_closing, args=(worker,), daemon=True).start()

    def measure(
        self, attempts: list[tuple[dict[str, Any], int]], most_s: float
    ) -> list[PointResult]:
        """Measure points one after another, and write their records durably, those of
        :data:`TASK_S` together.

        Returns the status, text and energy of each. The last ones are missing if the worker ends or
        is stopped in between, or if they would begin after ``most_s``.

        Raises:
            PlacementError: Slurm runs this worker in another place than planned.
        """
        if self._runner is None:
            if self.planned is not None:
                check_placement(self.planned)
            setup = PartitionSetup.from_dict(self.partition_setup)
            self._setup_record = node_record(setup)
            setup = replace(setup, id=setup_id(self._setup_record))
            self._runner = SubprocessRunner(setup, Path(self.scratch))
        records: list[bytes] = []
        results: list[PointResult] = []
        begin_s = written_s = time.monotonic()
        try:
            for fields, attempt in attempts:
                now_s = time.monotonic()
                if self.stopping or (results and now_s - begin_s > most_s):
                    break
                if now_s - written_s > TASK_S:
                    self._write(records)
                    records, written_s = [], now_s
                point = Point.from_dict(fields)
                self._measuring = point.id
                try:
                    record = self._runner.measure(point, attempt)
                except LostAllocationError:
                    if not _is_ending(0.0):
                        os.kill(os.getpid(), signal.SIGTERM)  # as the job's end should have done
                        _is_ending(CLOSING_S)
                    break
                scalars = scalars_of(record)
                status = str(scalars["status"])
                # A failure because the worker is ending is not a failure of the point.
                if status not in COMPLETE and _is_ending(ENDING_S if status == NODE_LOST else 0.0):
                    break
                records.append(record)
                results.append((status, str(scalars["text"]), _windows_j(scalars)))
        finally:
            self._measuring = ""
            self._write(records)
        return results

    def _write(self, records: list[bytes]) -> None:
        if not records:
            return
        try:
            if self._journal is None:
                self._journal = JournalWriter(Path(self.journals))
                self._journal.append(encode_setup(self._setup_record))
            self._journal.append(*records)
        except OSError as error:
            self._close_journal()  # a record may be cut off: the next one goes to a new journal
            raise UnwritableStoreError(f"{self.journals}: {error.strerror}") from None

    def teardown(self, worker: Worker) -> None:
        """End the subprocesses and close the journal."""
        if self._runner is not None:
            self._runner.close()
            self._runner = None
        self._close_journal()

    def _close_journal(self) -> None:
        """Close the journal, if there is one: while it is open, no other run removes it."""
        if self._journal is not None:
            with contextlib.suppress(OSError):
                self._journal.close()
            self._journal = None


def _windows_j(scalars: Mapping[str, Any]) -> float | None:
    """The energy of all measured iterations; None if missing."""
    energy_j = scalars["energy_j"]
    if not isinstance(energy_j, float) or not math.isfinite(energy_j):
        return None
    return energy_j * int(scalars["iterations"])


def _exit_after_closing(worker: Worker) -> None:
    """End the process if Dask's closing does not: it may wait for ever for a scheduler that has
    ended, and the process would stay on the node."""
    while worker.status not in (Status.closing, Status.closed, Status.failed):
        time.sleep(1.0)
    time.sleep(CLOSING_S)
    os._exit(0)


def _is_ending(within_s: float) -> bool:
    """Whether this worker ends within ``within_s``. A job's end reaches all processes at once, so
    that the subprocess may have ended before the worker starts to close; and an ending worker
    removes the files of its subprocess."""
    worker = get_worker()
    deadline = time.monotonic() + within_s
    while worker.status == Status.running and time.monotonic() < deadline:
        time.sleep(0.05)
    return bool(worker.status != Status.running)


@dataclass(frozen=True)
class TaskResult:
    """The results of a task's points, in order, and their duration in s. The last points of the
    task may be missing: they were not measured."""

    results: list[PointResult]
    seconds: float


def measure_points(
    attempts: list[tuple[dict[str, Any], int]], most_s: float = TASK_S
) -> TaskResult:
    """Measure a task's points and write their records. After ``most_s`` no more points begin."""
    plugin = get_worker().plugins[PLUGIN]
    assert isinstance(plugin, MeasuringPlugin)  # noqa: S101
    begin_s = time.monotonic()
    results = plugin.measure(attempts, most_s)
    return TaskResult(results, time.monotonic() - begin_s)


def stop_measuring(dask_worker: Worker) -> None:
    """Let no further point begin on this worker; the running one finishes."""
    plugin = dask_worker.plugins[PLUGIN]
    assert isinstance(plugin, MeasuringPlugin)  # noqa: S101
    plugin.stopping = True
