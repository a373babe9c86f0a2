"""The state of every point, from the newest generation's states and the journals' records. This
reads no table, so that a driver starts, and ``campaign status`` prints, quickly at any size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from campaign.store.hours import Spent, spent_by_partition
from campaign.store.layout import DamagedStoreError, Store
from campaign.store.measurement import CAN_PASS, will_be_tried_again
from campaign.store.mixtures import Mixture, mixtures
from campaign.store.planned import planned_ids
from campaign.store.records import StoreContents, read_contents, status_codes, summary_and_states
from campaign.store.setups import setup_uses
from dvfs.dataset import CLOCK_UNPROVEN, COMPLETE, STATUSES

State = tuple[str | None, int]
"""A point's status (None: never measured) and the number of its failed attempts."""
NEVER: State = (None, 0)


def point_states(store: Store, contents: StoreContents | None = None) -> dict[str, State]:
    """Id -> state, of every point that was measured or has failed. ``contents``: those of the
    store, if they have been read already.

    Raises:
        DamagedStoreError: every generation is damaged.
    """
    contents = contents or read_contents(store)
    states = contents.generation.states()
    names = np.array(STATUSES, object)[states["status"]]
    status = dict(zip(states["id"].astype(str).tolist(), names.tolist(), strict=True))
    failures = _failed_attempts(contents)
    status |= {entry.point_id: entry.scalars["status"] for entry in contents.accepted}
    return {
        point_id: (status.get(point_id), failures[point_id])
        for point_id in dict.fromkeys((*status, *failures))
    }


def _failed_attempts(contents: StoreContents) -> Counter[str]:
    """Point id -> the number of its failed attempts."""
    from campaign.store.tables import failure_columns  # noqa: PLC0415

    columns = failure_columns(contents)
    failed = {*zip(columns["point_id"].tolist(), columns["attempt"].tolist(), strict=True)}
    # One attempt may fail twice, because Dask repeats the task of a lost worker.
    return Counter(point_id for point_id, _ in failed)


@dataclass(frozen=True, kw_only=True)
class PartitionStatus:
    """The numbers of a partition's planned points, or of a site's imported ones, by state.
    ``clock_unproven``: those of the done ones with that status. ``left``: those that a run will
    measure; ``waiting`` of these have failed and will be retried. ``failed``: those that no run
    retries by itself. ``latest_unix_s``: the start times of the last points. ``in_plan``: whether
    the points are those of a plan. ``spent``: node-hours; None if no run measures them."""

    site: str
    partition: str
    in_plan: bool = False
    planned: int = 0
    done: int = 0
    clock_unproven: int = 0
    failed: int = 0
    left: int = 0
    waiting: int = 0
    latest_unix_s: list[float] = field(default_factory=list)
    spent: Spent | None = None


@dataclass(frozen=True)
class StoreStatus:
    """A summary of a store. ``failures``: class -> (attempts, the last one's text). ``flags``: kind
    of flag -> (measurements, an example)."""

    partitions: list[PartitionStatus]
    failures: dict[str, tuple[int, str]]
    flags: dict[str, tuple[int, str]]
    damage: list[str]
    mixtures: list[Mixture]


def store_status(store: Store) -> StoreStatus:
    """A summary of a store, from a few files at any size.

    Raises:
        DamagedStoreError: every generation is damaged, or the plan cannot be read.
    """
    contents = read_contents(store)
    summary, states = summary_and_states(contents)
    partitions = []
    planned = planned_ids(store)
    attempts = _failed_attempts(contents) if summary.get("failures") else Counter()
    most_retries = _most_retries(store)
    spent, hours_damage = spent_by_partition(store)
    for name, ids in planned.items():
        site, _, partition = name.partition("/")
        codes = status_codes(states, ids)
        n_unproven = int((codes == STATUSES.index(CLOCK_UNPROVEN)).sum())
        n_done = sum(int((codes == STATUSES.index(status)).sum()) for status in COMPLETE)
        may_pass = np.isin(codes, [STATUSES.index(status) for status in CAN_PASS])
        waiting = sum(
            will_be_tried_again(STATUSES[code], attempts[point_id.decode()], most_retries)
            for point_id, code in zip(ids[may_pass].tolist(), codes[may_pass], strict=True)
        )
        n_left = int((codes < 0).sum()) + waiting
        latest = summary.get("latest_unix_s", {}).get(name, [])
        n_failed = ids.size - n_done - n_left
        partitions.append(
            PartitionStatus(
                site=site,
                partition=partition,
                in_plan=True,
                planned=ids.size,
                done=n_done,
                clock_unproven=n_unproven,
                failed=n_failed,
                left=n_left,
                waiting=waiting,
                latest_unix_s=latest,
                spent=spent.get(name, Spent()),
            )
        )
    partitions += [
        PartitionStatus(
            site=label.rpartition("/")[0],
            partition=label.rpartition("/")[2],
            spent=hours,
        )
        for label, hours in spent.items()
        if label not in planned
    ]
    if states.size > sum(row.done + row.failed for row in partitions):
        sites = list(summary.get("sites", {}))
        if not planned and len(sites) == 1:
            counts = {sites[0]: Counter(STATUSES[code] for code in states["status"].tolist())}
        else:
            counts = _counts_without_plan(contents, planned)
        for site, count in sorted(counts.items()):
            n_done = sum(count[status] for status in COMPLETE)
            # The failed points of an earlier plan are not part of the present campaign.
            n_failed = 0 if planned else count.total() - n_done
            partitions.append(
                PartitionStatus(
                    site=site,
                    partition="not planned" if planned else "imported",
                    planned=n_done + n_failed,
                    done=n_done,
                    clock_unproven=count[CLOCK_UNPROVEN],
                    failed=n_failed,
                )
            )
    try:
        uses, damage = setup_uses(store, summary.get("setups", {}), contents.tail.setups)
    except DamagedStoreError as error:
        uses, damage = [], [f"{error}: how measurements were made is not known"]
    return StoreStatus(
        partitions,
        {name: (count, text) for name, (count, text) in summary.get("failures", {}).items()},
        {name: (count, text) for name, (count, text) in summary.get("flags", {}).items()},
        [*contents.damage, *damage, *hours_damage],
        mixtures(uses),
    )


def _most_retries(store: Store) -> int:
    """How often the plan's campaign retries a failed point; 0 if the plan does not state it."""
    try:
        return int(store.read_json("campaign.json")["campaign"]["retries"]["max"])
    except (LookupError, TypeError, ValueError, OverflowError):
        return 0


def _counts_without_plan(
    contents: StoreContents, planned: Mapping[str, np.ndarray]
) -> dict[str, Counter[str]]:
    """Site -> status -> the number of measurements outside the plan: imported ones, or those of an
    earlier plan."""
    from campaign.store.tables import measurement_columns  # noqa: PLC0415

    columns = measurement_columns(contents)
    ids = {point_id.decode() for part in planned.values() for point_id in part.tolist()}
    counts: dict[str, Counter[str]] = {}
    for point_id, site, status in zip(
        *(columns[name].tolist() for name in ("point_id", "site", "status")), strict=True
    ):
        if point_id not in ids:
            counts.setdefault(site, Counter())[status] += 1
    return counts
