"""The state of every point, from the newest generation's states and the journals' tail alone: no
table is read, so that a driver starts, and a person sees how it goes, at any size."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.dataset import FAILURES, OK, STATUSES
from campaign.store.generation import STATE
from campaign.store.layout import Store
from campaign.store.planned import planned_ids
from campaign.store.records import StoreContents, read_contents
from campaign.store.summary import updated

State = tuple[str | None, int]
"""A point's status (None: never measured) and how many attempts at it failed."""
NEVER: State = (None, 0)


def point_states(store: Store) -> dict[str, State]:
    """The state of every point that was measured, or tried, by id.

    Raises:
        DamagedStore: no generation is whole.
    """
    now = read_contents(store)
    status: dict[str, str] = {}
    failed: set[tuple[str, int]] = set()
    if now.generation is not None:
        from campaign.store.dataset import open_tables, read_column  # noqa: PLC0415

        states = now.generation.states()
        words = np.array(STATUSES, object)[states["status"]]
        status = dict(zip(states["id"].astype(str).tolist(), words.tolist(), strict=True))
        if now.generation.summary.get("failures"):
            tables = open_tables(now.generation)
            names = read_column(tables, "failures/point_id")
            failed.update(zip(names, read_column(tables, "failures/attempt").tolist(), strict=True))
    for entry in now.tail.entries:
        if entry.scalars["status"] in FAILURES:
            failed.add((entry.point_id, entry.scalars["attempt"]))
    # One attempt may have failed twice: Dask runs a task again whose worker it lost.
    tried = Counter(point_id for point_id, _ in failed)
    status |= {entry.point_id: entry.scalars["status"] for entry in now.accepted}
    found: dict[str, State] = {each: (name, 0) for each, name in status.items()}
    for point_id, count in tried.items():
        found[point_id] = (status.get(point_id), count)
    return found


@dataclass(frozen=True)
class PartitionStatus:
    """Of one partition's planned points, or of one site's imported ones, how many are in what
    state; ``latest_unix_s``: when the last ones began."""

    site: str
    partition: str
    planned: int
    done: int
    failed: int
    left: int
    latest_unix_s: list[float]


@dataclass(frozen=True)
class StoreStatus:
    """A store in short. ``failures``: class -> (attempts, the last one's text). ``flags``: a kind
    of flag -> (measurements, one such flag)."""

    partitions: list[PartitionStatus]
    failures: dict[str, tuple[int, str]]
    flags: dict[str, tuple[int, str]]
    damage: list[str]


def store_status(store: Store) -> StoreStatus:
    """A store in short, read from a few files at any size.

    Raises:
        DamagedStore: no generation is whole, or the plan can't be read.
    """
    now = read_contents(store)
    summary, states = _summary_and_states(now)
    partitions = []
    planned = planned_ids(store)
    for name, ids in planned.items():
        site, _, partition = name.partition("/")
        codes = _codes(states, ids)
        done = int((codes == STATUSES.index(OK)).sum())
        left = int((codes < 0).sum())
        latest = summary.get("latest_unix_s", {}).get(name, [])
        failed = ids.size - done - left
        partitions.append(
            PartitionStatus(
                site=site,
                partition=partition,
                planned=ids.size,
                done=done,
                failed=failed,
                left=left,
                latest_unix_s=latest,
            )
        )
    there = {each.site for each in partitions}
    for site, count in sorted(summary.get("sites", {}).items()):
        if site not in there:
            # Imported; or of an earlier plan, where there is one.
            name = "not planned" if planned else "imported"
            partitions.append(
                PartitionStatus(
                    site=site,
                    partition=name,
                    planned=count,
                    done=count,
                    failed=0,
                    left=0,
                    latest_unix_s=[],
                )
            )
    return StoreStatus(
        partitions,
        {name: (count, text) for name, (count, text) in summary.get("failures", {}).items()},
        {name: (count, text) for name, (count, text) in summary.get("flags", {}).items()},
        now.damage,
    )


def _summary_and_states(now: StoreContents) -> tuple[dict[str, Any], np.ndarray]:
    states = np.empty(0, STATE) if now.generation is None else now.generation.states()
    summary = {} if now.generation is None else now.generation.summary
    if now.tail.entries:
        ids = np.array([entry.point_id for entry in now.accepted], STATE["id"])
        fresh = _codes(states, ids) < 0
        summary = updated(
            summary,
            [entry.scalars for entry in now.accepted],
            [e.scalars for e, new in zip(now.accepted, fresh, strict=True) if new],
            [entry.scalars for entry in now.tail.entries],
        )
        tail = np.empty(ids.size, STATE)
        tail["id"], tail["row"] = ids, -1
        tail["status"] = [STATUSES.index(entry.scalars["status"]) for entry in now.accepted]
        states = np.concatenate([states[~np.isin(states["id"], ids)], tail])
        states = states[np.argsort(states["id"], kind="stable")]
    return summary, states


def _codes(states: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """The status of each id as a number of STATUSES, int64; -1 where it has none."""
    if not states.size:
        return np.full(ids.size, -1)
    at = np.minimum(np.searchsorted(states["id"], ids), states.size - 1)
    return np.where(states["id"][at] == ids, states["status"][at].astype(np.int64), -1)
