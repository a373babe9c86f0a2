"""The state of every point, from the newest generation's states and the journals' records. No table
is read, so that a driver starts, and ``campaign status`` prints, quickly at any size."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.dataset import CLOCK_UNPROVEN, COMPLETE, FAILURES, STATUSES
from campaign.store.generation import STATE
from campaign.store.layout import Store
from campaign.store.planned import planned_ids
from campaign.store.records import StoreContents, read_contents
from campaign.store.summary import updated

State = tuple[str | None, int]
"""A point's status (None: never measured) and the number of its failed attempts."""
NEVER: State = (None, 0)


def point_states(store: Store) -> dict[str, State]:
    """Id -> state, of every point that was measured or has failed.

    Raises:
        DamagedStore: every generation is damaged.
    """
    contents = read_contents(store)
    status: dict[str, str] = {}
    failed: set[tuple[str, int]] = set()
    if contents.generation is not None:
        from campaign.store.dataset import open_tables, read_column  # noqa: PLC0415

        states = contents.generation.states()
        names = np.array(STATUSES, object)[states["status"]]
        status = dict(zip(states["id"].astype(str).tolist(), names.tolist(), strict=True))
        if contents.generation.summary.get("failures"):
            tables = open_tables(contents.generation)
            ids = read_column(tables, "failures/point_id")
            failed.update(zip(ids, read_column(tables, "failures/attempt").tolist(), strict=True))
    for entry in contents.tail.entries:
        if entry.scalars["status"] in FAILURES:
            failed.add((entry.point_id, entry.scalars["attempt"]))
    # One attempt may fail twice, because Dask repeats the task of a lost worker.
    failures = Counter(point_id for point_id, _ in failed)
    status |= {entry.point_id: entry.scalars["status"] for entry in contents.accepted}
    return {
        point_id: (status.get(point_id), failures[point_id])
        for point_id in dict.fromkeys((*status, *failures))
    }


@dataclass(frozen=True)
class PartitionStatus:
    """How many of a partition's planned points, or of a site's imported ones, are in which state.
    ``clock_unproven``: how many of the done ones have that status, None where
    only their number is known. ``latest_unix_s``:
    when the last ones began."""

    site: str
    partition: str
    planned: int
    done: int
    clock_unproven: int | None
    failed: int
    left: int
    latest_unix_s: list[float]


@dataclass(frozen=True)
class StoreStatus:
    """A summary of a store. ``failures``: class -> (attempts, the last one's text). ``flags``: kind
    of flag -> (measurements, an example)."""

    partitions: list[PartitionStatus]
    failures: dict[str, tuple[int, str]]
    flags: dict[str, tuple[int, str]]
    damage: list[str]


def store_status(store: Store) -> StoreStatus:
    """A summary of a store, from a few files at any size.

    Raises:
        DamagedStore: every generation is damaged, or the plan cannot be read.
    """
    contents = read_contents(store)
    summary, states = _summary_and_states(contents)
    partitions = []
    planned = planned_ids(store)
    for name, ids in planned.items():
        site, _, partition = name.partition("/")
        codes = _codes(states, ids)
        unproven = int((codes == STATUSES.index(CLOCK_UNPROVEN)).sum())
        done = sum(int((codes == STATUSES.index(status)).sum()) for status in COMPLETE)
        left = int((codes < 0).sum())
        latest = summary.get("latest_unix_s", {}).get(name, [])
        failed = ids.size - done - left
        partitions.append(
            PartitionStatus(
                site=site,
                partition=partition,
                planned=ids.size,
                done=done,
                clock_unproven=unproven,
                failed=failed,
                left=left,
                latest_unix_s=latest,
            )
        )
    planned_sites = {partition.site for partition in partitions}
    for site, count in sorted(summary.get("sites", {}).items()):
        if site not in planned_sites:
            # With a plan in the store these are points of an earlier plan.
            name = "not planned" if planned else "imported"
            partitions.append(
                PartitionStatus(
                    site=site,
                    partition=name,
                    planned=count,
                    done=count,
                    clock_unproven=None,
                    failed=0,
                    left=0,
                    latest_unix_s=[],
                )
            )
    return StoreStatus(
        partitions,
        {name: (count, text) for name, (count, text) in summary.get("failures", {}).items()},
        {name: (count, text) for name, (count, text) in summary.get("flags", {}).items()},
        contents.damage,
    )


def _summary_and_states(contents: StoreContents) -> tuple[dict[str, Any], np.ndarray]:
    states = np.empty(0, STATE) if contents.generation is None else contents.generation.states()
    summary = {} if contents.generation is None else contents.generation.summary
    if contents.tail.entries:
        ids = np.array([entry.point_id for entry in contents.accepted], STATE["id"])
        fresh = _codes(states, ids) < 0
        summary = updated(
            summary,
            [entry.scalars for entry in contents.accepted],
            [e.scalars for e, new in zip(contents.accepted, fresh, strict=True) if new],
            [entry.scalars for entry in contents.tail.entries],
        )
        tail = np.empty(ids.size, STATE)
        tail["id"], tail["row"] = ids, -1
        tail["status"] = [STATUSES.index(entry.scalars["status"]) for entry in contents.accepted]
        states = np.concatenate([states[~np.isin(states["id"], ids)], tail])
        states = states[np.argsort(states["id"], kind="stable")]
    return summary, states


def _codes(states: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """The status of each id as an index into STATUSES, int64; -1 where it has none."""
    if not states.size:
        return np.full(ids.size, -1)
    at = np.minimum(np.searchsorted(states["id"], ids), states.size - 1)
    return np.where(states["id"][at] == ids, states["status"][at].astype(np.int64), -1)
