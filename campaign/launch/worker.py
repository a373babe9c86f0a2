"""What a Dask worker does: measure points in subprocesses and write their records."""

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
"""The plugin's name, and that of the metric in which it says the id of the point it measures."""
TASK_S = 0.25
"""Short points share a task, and one fdatasync, up to this duration."""
ENDING_S = 3.0
CLOSING_S = 10.0


PointResult = tuple[str, str, float | None]
"""The status and text of a point, and its windows' energy (J; None where it is missing)."""


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
        """Where this worker's Slurm job should be; None without Slurm."""
        self._runner: SubprocessRunner | None = None
        self._journal: JournalWriter | None = None
        self._setup_record: dict[str, Any] = {}
        self.stopping = False
        """Whether no further point begins."""
        self._measuring = ""

    def setup(self, worker: Worker) -> None:
        """Tell the scheduler with each heartbeat which point is measured, and start a thread that
        ends the process after the worker has closed."""
        worker.metrics[MEASURING] = lambda worker: self._measuring
        threading.Thread(target=_exit_after_closing, args=(worker,), daemon=True).start()

    def measure(
        self, attempts: list[tuple[dict[str, Any], int]], most_s: float
    ) -> list[PointResult]:
        """Measure points one after another, and write their records durably, those of
        :data:`TASK_S` together.

        Returns the status, text and energy of each. The last ones are missing where the worker ends
        or is stopped in between, or where they would begin after ``most_s``.

        Raises:
            PlacementError: Slurm runs this worker where its partition's jobs were not planned.
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
        began = written_s = time.monotonic()
        try:
            for fields, attempt in attempts:
                now_s = time.monotonic()
                if self.stopping or (results and now_s - began > most_s):
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
                # A point that failed because its worker is ending has not failed itself.
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
    """The energy of all iterations that were measured; None where it is missing."""
    energy_j = scalars["energy_j"]
    if not isinstance(energy_j, float) or not math.isfinite(energy_j):
        return None
    return energy_j * int(scalars["iterations"])


def _exit_after_closing(worker: Worker) -> None:
    """End the process where Dask's closing does not: it may wait for ever for a scheduler that
    has gone, and the process would stay on the node."""
    while worker.status not in (Status.closing, Status.closed, Status.failed):
        time.sleep(1.0)
    time.sleep(CLOSING_S)
    os._exit(0)


def _is_ending(within_s: float) -> bool:
    """Whether this worker ends within ``within_s``. The end of a job reaches all processes at
    once, so that the subprocess may be gone before the worker starts to close; and a worker that
    ends removes its subprocess's files."""
    worker = get_worker()
    deadline = time.monotonic() + within_s
    while worker.status == Status.running and time.monotonic() < deadline:
        time.sleep(0.05)
    return bool(worker.status != Status.running)


@dataclass(frozen=True)
class TaskResult:
    """The result of a task, of each point that is in the journal, in order, and the seconds that
    they took. The last points may be missing: they were not measured."""

    results: list[PointResult]
    seconds: float


def measure_points(
    attempts: list[tuple[dict[str, Any], int]], most_s: float = TASK_S
) -> TaskResult:
    """The task: measure points and write their records, then return. After ``most_s`` no further
    point begins."""
    plugin = get_worker().plugins[PLUGIN]
    assert isinstance(plugin, MeasuringPlugin)  # noqa: S101
    began = time.monotonic()
    results = plugin.measure(attempts, most_s)
    return TaskResult(results, time.monotonic() - began)


def stop_measuring(dask_worker: Worker) -> None:
    """Begin no further point on this worker: the one that is measured now finishes."""
    plugin = dask_worker.plugins[PLUGIN]
    assert isinstance(plugin, MeasuringPlugin)  # noqa: S101
    plugin.stopping = True
