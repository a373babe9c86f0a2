"""The node-hours that runs have spent: a file for each run, ``hours/*.json``.

A file has what its run knew of each Slurm job, or worker where there is no Slurm. Two files may
know the same job: that of a driver that was killed, and that of the next one, which cancels its
jobs. Of each number the largest is valid, so that the order of files and updates does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from campaign.store.layout import REMEDIES, DamagedStoreError, Store

FOLDER = "hours"
LEAST_SHOWN = 0.1
"""Node-hours below which only a lower bound is printed as a number."""


class JobTime(BaseModel):
    """The time of a job on its nodes. ``ended``: whether it has ended after ``elapsed_s``, and not
    later."""

    model_config = ConfigDict(defer_build=True, strict=True, frozen=True)

    elapsed_s: Annotated[FiniteFloat, Field(ge=0, lt=2**40)]
    nodes: Annotated[int, Field(ge=0, lt=2**31)] = 1
    ended: bool = False


class PartitionHours(BaseModel):
    """The jobs of a partition by their ids. ``whole``: whether no job is missing."""

    model_config = ConfigDict(defer_build=True, strict=True)

    jobs: dict[str, JobTime] = {}
    whole: bool = False


class RunHours(BaseModel):
    """The file of a run: "site/partition" -> its jobs. ``lost``: whether this stands in for a file
    that was damaged or missing."""

    model_config = ConfigDict(defer_build=True, strict=True)

    partitions: dict[str, PartitionHours] = {}
    lost: bool = False


@dataclass(frozen=True)
class Spent:
    """What is known of the node-hours that were spent; None where nothing is. ``complete``:
    whether it is all, and no lower bound."""

    node_hours: float | None = None
    complete: bool = False

    @property
    def number(self) -> str:
        """The number for people, with ``at least`` where it is a lower bound; or ``unknown``."""
        if self.node_hours is None:
            return "unknown"
        if not self.complete:
            return f"at least {hours_text(self.node_hours)}"
        if 0.0 < self.node_hours < LEAST_SHOWN:
            return f"less than {LEAST_SHOWN:g}"
        return hours_text(self.node_hours)

    def __str__(self) -> str:
        return self.number if self.node_hours is None else f"{self.number} node-hours"


def hours_text(hours: float) -> str:
    """Hours with two digits, or without decimals."""
    return f"{hours:.2g}" if hours < 10.0 else f"{hours:,.0f}"


def merged(parts: Iterable[Mapping[str, PartitionHours]]) -> dict[str, PartitionHours]:
    """Everything that any of these knows: of a job the largest numbers, and ``ended`` where one
    has seen it; ``whole`` where all are."""
    jobs: dict[str, dict[str, JobTime]] = {}
    whole: dict[str, bool] = {}
    for part in parts:
        for label, hours in part.items():
            known = jobs.setdefault(label, {})
            whole[label] = whole.get(label, True) and hours.whole
            for job_id, time in hours.jobs.items():
                other = known.get(job_id)
                known[job_id] = time if other is None else _largest(time, other)
    return {
        label: PartitionHours.model_construct(jobs=known, whole=whole[label])
        for label, known in jobs.items()
    }


def _largest(one: JobTime, other: JobTime) -> JobTime:
    return JobTime(
        elapsed_s=max(one.elapsed_s, other.elapsed_s),
        nodes=max(one.nodes, other.nodes),
        ended=one.ended or other.ended,
    )


def spent(partition: PartitionHours) -> Spent:
    """The node-hours of a partition's jobs."""
    node_s = sum(time.elapsed_s * time.nodes for time in partition.jobs.values())
    complete = partition.whole and all(time.ended for time in partition.jobs.values())
    return Spent(node_s / 3600.0 if node_s or complete else None, complete)


def total(parts: Iterable[Spent]) -> Spent:
    """The sum of what is known."""
    parts = list(parts)
    known = [part.node_hours for part in parts if part.node_hours is not None]
    return Spent(sum(known) if known else None, all(part.complete for part in parts))


def read_run(store: Store, name: str) -> RunHours:
    """The file of a run.

    Raises:
        DamagedStoreError: it is not one.
    """
    try:
        return RunHours.model_validate(store.read_json(name) or {})
    except ValidationError:
        raise DamagedStoreError(
            f"{store.root / name}: is not a file of node-hours; {REMEDIES[FOLDER]}"
        ) from None


def read_hours(store: Store) -> tuple[dict[str, PartitionHours], list[str]]:
    """What all runs of a store have spent, by "site/partition", and a line for each file that
    cannot be read: nothing is whole then."""
    runs, damage = [], []
    for name in store.json_names(FOLDER):
        try:
            runs.append(read_run(store, name))
        except DamagedStoreError as error:
            damage.append(f"{error}: what a run spent is not known")
    known = merged(run.partitions for run in runs)
    if damage or any(run.lost for run in runs):
        known = {label: part.model_copy(update={"whole": False}) for label, part in known.items()}
    return known, damage


def spent_by_partition(store: Store) -> tuple[dict[str, Spent], list[str]]:
    """ "site/partition" -> what its runs have spent; and :func:`read_hours`'s damage."""
    known, damage = read_hours(store)
    return {label: spent(part) for label, part in known.items()}, damage
