"""A snapshot of a run, which its driver writes into the store."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from campaign.store.hours import Spent
from campaign.store.layout import SNAPSHOT, DamagedStoreError, Store

LAST = 200
SUBMITTED = "submitted"
STARTING = "starting"
MEASURING = "measuring"
ENDING = "ending"
ENDED = "ended"
PHASES = (SUBMITTED, STARTING, MEASURING, ENDING, ENDED)
"""The phases of a run, in order. ``submitted``: the driver's job waits in Slurm's queue."""
RUNNING = "running"
WAITING = "waiting"
SILENT = "silent"
GONE = "gone"
STALE_S = 120.0
"""The age of a snapshot after which a driver on another host may be gone."""
LOOKED_FOR_S = 5.0
"""The age of a snapshot after which its process is searched on this host; a fresh one may be from
another host of the same name."""


def seconds_to_end(start_unix_s: ArrayLike, left: int) -> float | None:
    """The time, in s, until ``left`` points are done at the pace of the last ones.

    None if fewer than two points are done, or if no point has begun for so long that no campaign
    seems to be running.
    """
    recent = np.sort(np.asarray(start_unix_s, float))[-LAST:]
    if recent.size < 2:
        return None
    pace_s = float(recent[-1] - recent[0]) / (recent.size - 1)
    idle_s = time.time() - float(recent[-1])
    return left * pace_s if idle_s < max(60.0, 20.0 * pace_s) else None


@dataclass(frozen=True, kw_only=True)
class PartitionNow:
    """A partition's jobs in Slurm's queue (none without Slurm), and its workers."""

    workers: int = 0
    """The number of connected workers."""
    running: int = 0
    pending: int = 0
    pending_s: float = 0.0
    """The longest time that one of the pending jobs has been pending."""
    reason: str = ""
    """squeue's reason for that job."""
    silent: bool = False
    """Whether Slurm does not answer."""
    measuring: str = ""
    """The kernel and the setting of a point that is measured now."""

    @property
    def key(self) -> tuple[int | str | bool, ...]:
        """The values that do not change with time alone."""
        return (self.workers, self.running, self.pending, self.reason, self.silent)

    def __str__(self) -> str:
        parts = [f"{self.workers} worker{'s' * (self.workers != 1)}"]
        if self.running or self.pending:
            jobs = f"jobs: {self.running} running"
            if self.pending:
                jobs += f", {self.pending} pending for {duration(self.pending_s)} ({self.reason})"
            parts.append(jobs)
        if self.silent:
            parts.append("Slurm does not answer")
        if self.measuring:
            parts.append(f"now {self.measuring}")
        return "; ".join(parts)


def duration(seconds: float) -> str:
    """A duration for people, in its two largest units."""
    minutes, s = divmod(round(seconds), 60)
    hours, m = divmod(minutes, 60)
    days, h = divmod(hours, 24)
    if days:
        return f"{days} d {h} h"
    if hours:
        return f"{hours} h {m} min"
    return f"{m} min {s} s" if minutes else f"{s} s"


@dataclass(frozen=True, kw_only=True)
class SettingCounts:
    """The numbers of a partition's planned points at one setting that are measured, have failed,
    and are left. Clocks in MHz, the power limit in W; None for a value left as found."""

    core_mhz: float | None
    mem_mhz: float | None
    uncore_mhz: float | None = None
    power_limit_w: float | None = None
    profile: str | None = None
    done: int
    failed: int
    left: int


@dataclass(frozen=True, kw_only=True)
class PartitionSnapshot:
    """One partition: its planned points by state, including earlier runs, and its jobs.

    ``line``: the partition's line in the run's display. ``energy_j``: that of the points that this
    run measured; None if none has an energy. ``now``: None while the partition does not measure.
    ``node_hours``: those of all runs so far, None if unknown; a lower bound unless
    ``node_hours_complete``.
    """

    site: str
    partition: str
    simulated: bool
    slurm: bool
    line: str
    energy_j: float | None
    now: PartitionNow | None
    settings: tuple[SettingCounts, ...]
    node_hours: float | None = None
    node_hours_complete: bool = False

    @property
    def spent(self) -> Spent:
        """The node-hours for people."""
        return Spent(self.node_hours, self.node_hours_complete)

    @property
    def label(self) -> str:
        """site/partition."""
        return f"{self.site}/{self.partition}"

    @property
    def done(self) -> int:
        """Points that are measured."""
        return sum(row.done for row in self.settings)

    @property
    def failed(self) -> int:
        """Points that have failed and are not retried in this run."""
        return sum(row.failed for row in self.settings)

    @property
    def left(self) -> int:
        """Points that are still to be measured."""
        return sum(row.left for row in self.settings)


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A run at one moment. Times are Unix times in s.

    ``pid`` and ``host``: those of the driver. ``job``: the name of the driver's Slurm job, if any.
    ``end`` and ``exit_code``: the last line and the exit code of a run that has ended. ``notes``:
    the last messages. ``resume``: the command that continues the campaign. ``max_node_hours``: the
    run's limit; None without one.
    """

    campaign: str
    store: str
    host: str
    pid: int
    job: str
    phase: str
    began_unix_s: float
    written_unix_s: float
    resume: str
    exit_code: int | None = None
    end: str = ""
    notes: tuple[str, ...] = ()
    partitions: tuple[PartitionSnapshot, ...] = ()
    max_node_hours: float | None = None

    @property
    def simulated(self) -> bool:
        """Whether any of the partitions is on a simulated machine."""
        return any(partition.simulated for partition in self.partitions)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON types, for :func:`read_snapshot`."""
        return asdict(self)


def driver_state(snapshot: Snapshot) -> str:
    """The state of the driver: ``running``; ``waiting`` in Slurm's queue; ``ended``; ``gone`` if
    this is its host and its process is missing; ``silent`` if it has not written for long on
    another host."""
    if snapshot.phase in (ENDED, SUBMITTED):
        return ENDED if snapshot.phase == ENDED else WAITING
    age_s = time.time() - snapshot.written_unix_s
    if age_s > LOOKED_FOR_S and snapshot.host == socket.gethostname():
        return RUNNING if _is_driver(snapshot) else GONE
    return SILENT if age_s > STALE_S else RUNNING


def _is_driver(snapshot: Snapshot) -> bool:
    """Whether the driver's process runs on this host, and not a later one with the same number."""
    import psutil  # noqa: PLC0415

    try:
        process = psutil.Process(snapshot.pid)
        is_zombie = process.status() == psutil.STATUS_ZOMBIE
        return not is_zombie and process.create_time() <= snapshot.began_unix_s + 1.0
    except psutil.NoSuchProcess:
        return False


def read_snapshot(store: Store) -> Snapshot | None:
    """The store's snapshot; None if no run has written one.

    Raises:
        DamagedStoreError: this version cannot read the snapshot.
    """
    fields = store.read_json(SNAPSHOT)
    if fields is None:
        return None
    try:
        snapshot = Snapshot(
            **fields
            | {
                "notes": tuple(fields["notes"]),
                "partitions": tuple(map(_partition, fields["partitions"])),
            }
        )
        if snapshot.phase not in PHASES:
            raise ValueError(snapshot.phase)
    except (LookupError, TypeError, ValueError):
        raise DamagedStoreError(
            f"{store.root / SNAPSHOT}: is no snapshot of a run that this version can read; the "
            f"next run writes it anew, or remove it"
        ) from None
    return snapshot


def _partition(fields: Mapping[str, Any]) -> PartitionSnapshot:
    now = fields["now"]
    return PartitionSnapshot(
        **dict(fields)
        | {
            "now": None if now is None else PartitionNow(**now),
            "settings": tuple(SettingCounts(**row) for row in fields["settings"]),
        }
    )
