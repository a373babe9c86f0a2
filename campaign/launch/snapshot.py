"""A snapshot of a run, which its driver writes into the store: everything that watches it reads
this and nothing else of the store."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from campaign.launch.partition_now import PartitionNow
from campaign.store.layout import SNAPSHOT, DamagedStore, Store

SUBMITTED = "submitted"
STARTING = "starting"
MEASURING = "measuring"
ENDING = "ending"
ENDED = "ended"
PHASES = (SUBMITTED, STARTING, MEASURING, ENDING, ENDED)
"""Of a run, in order. ``submitted``: the driver's own job waits in Slurm's queue."""


@dataclass(frozen=True, kw_only=True)
class SettingCounts:
    """How many of a partition's planned points at one setting are measured, have failed, and are
    left. Clocks in MHz; None where the clock is left as found."""

    core_mhz: float | None
    mem_mhz: float | None
    done: int
    failed: int
    left: int


@dataclass(frozen=True, kw_only=True)
class PartitionSnapshot:
    """One partition: its planned points by state, those of earlier runs too, and its jobs.

    ``line``: the partition's line as the run itself shows it. ``energy_j``: of the points that
    this run measured; None where none has an energy. ``now``: None while it does not measure.
    """

    site: str
    partition: str
    simulated: bool
    slurm: bool
    line: str
    energy_j: float | None
    now: PartitionNow | None
    settings: tuple[SettingCounts, ...]

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
        """Points that have failed and are not tried again in this run."""
        return sum(row.failed for row in self.settings)

    @property
    def left(self) -> int:
        """Points that are still to be measured."""
        return sum(row.left for row in self.settings)


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A run at one moment. Times are Unix times in s.

    ``pid`` and ``host``: of the driver. ``job``: the name of the driver's own Slurm job, where
    it has one. ``end`` and ``exit_code``: the last line and the exit code of a run that has ended.
    ``notes``: the last messages. ``resume``: the command that goes on with the campaign.
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

    @property
    def simulated(self) -> bool:
        """Whether any of the partitions is of a simulated machine."""
        return any(partition.simulated for partition in self.partitions)

    def age_s(self) -> float:
        """How long ago it was written, by this host's clock."""
        return max(time.time() - self.written_unix_s, 0.0)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON types, for :func:`read_snapshot`."""
        return asdict(self)


def read_snapshot(store: Store) -> Snapshot | None:
    """The store's snapshot; None where no run has written one.

    Raises:
        DamagedStore: it is none that this version can read.
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
        raise DamagedStore(
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
