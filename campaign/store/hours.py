"""The node-hours that runs have spent: a file for each run, ``hours/*.json``.

A file has the data of its run about each Slurm job, or about each worker without Slurm. Two files
may have the same job: that of a killed driver, and that of the next driver, which cancels the job.
The largest of each number is valid, so that the order of files and updates does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from campaign.store.layout import REMEDIES, DamagedStoreError, Store

FOLDER = "hours"
LEAST_SHOWN = 0.1
"""Complete node-hours below this are printed as "less than" it."""


class JobTime(BaseModel):
    """The time of a job on its nodes. ``ended``: whether the job has ended, so that ``elapsed_s``
    is final."""

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
    """The file of a run: "site/partition" -> its jobs. ``lost``: whether this replaces a file that
    was damaged or missing."""

    model_config = ConfigDict(defer_build=True, strict=True)

    partitions: dict[str, PartitionHours] = {}
    lost: bool = False


@dataclass(frozen=True)
class Spent:
    """The node-hours that were spent; None if unknown. ``complete``: whether they are all, and not
    a lower bound."""

    node_hours: float | None = None
    complete: bool = False

    @property
    def number(self) -> str:
        """The number for people, with ``at least`` if it is a lower bound; or ``unknown``."""
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
    """Merge the jobs of all parts: the largest numbers of each job, ``ended`` if a part has it so,
    and ``whole`` if all parts are."""
    jobs: dict[str, dict[str, JobTime]] = {}
    whole: dict[str, bool] = {}
    for part in parts:
        for label, hours in part.items():
            jobs_of_partition = jobs.setdefault(label, {})
            whole[label] = whole.get(label, True) and hours.whole
            for job_id, time in hours.jobs.items():
                earlier = jobs_of_partition.get(job_id)
                jobs_of_partition[job_id] = time if earlier is None else _largest(time, earlier)
    return {
        label: PartitionHours.model_construct(jobs=jobs_of_partition, whole=whole[label])
        for label, jobs_of_partition in jobs.items()
    }


def _largest(first: JobTime, second: JobTime) -> JobTime:
    return JobTime(
        elapsed_s=max(first.elapsed_s, second.elapsed_s),
        nodes=max(first.nodes, second.nodes),
        ended=first.ended or second.ended,
    )


def spent(partition: PartitionHours) -> Spent:
    """The node-hours of a partition's jobs."""
    node_s = sum(time.elapsed_s * time.nodes for time in partition.jobs.values())
    complete = partition.whole and all(time.ended for time in partition.jobs.values())
    return Spent(node_s / 3600.0 if node_s or complete else None, complete)


def total(parts: Iterable[Spent]) -> Spent:
    """The sum of the known node-hours."""
    parts = list(parts)
    hours = [part.node_hours for part in parts if part.node_hours is not None]
    return Spent(sum(hours) if hours else None, all(part.complete for part in parts))


def read_run(store: Store, name: str) -> RunHours:
    """The file of a run.

    Raises:
        DamagedStoreError: it is not a file of node-hours.
    """
    try:
        return RunHours.model_validate(store.read_json(name) or {})
    except ValidationError:
        raise DamagedStoreError(
            f"{store.root / name}: is not a file of node-hours; {REMEDIES[FOLDER]}"
        ) from None


def read_hours(store: Store) -> tuple[dict[str, PartitionHours], list[str]]:
    """The jobs of all runs of a store, by "site/partition", and a line for each file that cannot be
    read; then no partition is whole."""
    runs, damage = [], []
    for name in store.json_names(FOLDER):
        try:
            runs.append(read_run(store, name))
        except DamagedStoreError as error:
            damage.append(f"{error}: what a run spent is not known")
    hours = merged(run.partitions for run in runs)
    if damage or any(run.lost for run in runs):
        hours = {label: part.model_copy(update={"whole": False}) for label, part in hours.items()}
    return hours, damage


def spent_by_partition(store: Store) -> tuple[dict[str, Spent], list[str]]:
    """ "site/partition" -> the node-hours of its runs; and the damage of :func:`read_hours`."""
    hours, damage = read_hours(store)
    return {label: spent(part) for label, part in hours.items()}, damage
