"""Failed attempts by kernel, reason and node, with the last output of the latest of each group."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import asdict, dataclass
from typing import Any, cast

import pandas as pd

from campaign.store.columns import FAILURE_COLUMNS
from campaign.store.dataset import current_tables
from campaign.store.layout import Store
from campaign.store.measurement import will_be_tried_again
from campaign.store.planned import planned_ids
from campaign.store.records import read_contents
from campaign.store.states import point_states
from campaign.store.tables import failure_columns
from dvfs.dataset import COMPLETE
from dvfs.errors import ArgumentError, unknown_name
from dvfs.kernel_instance import KernelInstance, kernel_instances
from dvfs.setting import AXES, Setting

FAILED, WAITING, MEASURED = "failed", "waiting", "measured since"
"""The outcome of a point: no further attempt is made; the current or next campaign makes one; or a
later attempt measured the point."""
GROUP_KEYS = ["site", "kernel", "status", "node"]


def failed_attempts(store: Store) -> pd.DataFrame:
    """Every failed attempt, a row each, in order of start. Columns:
    :data:`campaign.store.columns.FAILURE_COLUMNS`, and ``outcome`` of the point: :data:`FAILED`,
    :data:`WAITING` or :data:`MEASURED`.

    Raises:
        DamagedStoreError: every generation is damaged, or the plan cannot be read.
    """
    contents = read_contents(store)
    frame = pd.DataFrame(dict(failure_columns(contents)))[list(FAILURE_COLUMNS)]
    # One attempt may fail twice, because Dask repeats the task of a lost worker.
    frame = frame.drop_duplicates(["point_id", "attempt"], keep="last")
    states = point_states(store, contents) if len(frame) else {}
    plan = store.read_json("campaign.json") or {}
    max_retries = int(plan.get("campaign", {}).get("retries", {}).get("max", 0))
    planned = {
        planned_id.decode() for ids in planned_ids(store).values() for planned_id in ids.tolist()
    }

    def outcome(point_id: str) -> str:
        status, attempts = states[point_id]
        if status in COMPLETE:
            return MEASURED
        waits = point_id in planned and will_be_tried_again(status, attempts, max_retries)
        return WAITING if waits else FAILED

    frame["outcome"] = [outcome(point_id) for point_id in frame["point_id"]]
    return frame.sort_values("start_unix_s", kind="stable", ignore_index=True)


@dataclass(frozen=True, kw_only=True)
class FailureGroup:
    """The failed attempts of one kernel on one node for one reason.

    ``attempts``: their number. Of the points whose last failed attempt is in the group, ``failed``
    have no further attempt, ``waiting`` have one to come, and ``measured_since`` were measured by a
    later one. The other fields describe the last attempt: ``text`` is its reason with the last
    output, ``setting`` the requested clocks.
    """

    site: str
    kernel: str
    reason: str
    node: str
    attempts: int
    failed: int
    waiting: int
    measured_since: int
    point_id: str
    instance: KernelInstance
    setting: Setting
    attempt: int
    start_unix_s: float
    text: str

    def as_dict(self) -> dict[str, Any]:
        """An entry of ``groups`` of ``campaign failures --json``."""
        fields = asdict(self) | {"params": dict(self.instance.params)}
        del fields["instance"]
        setting: dict[str, Any] = fields.pop("setting")
        return fields | setting


@dataclass(frozen=True)
class Failures:
    """A store's failed attempts, in groups; those with the most failed points first."""

    groups: tuple[FailureGroup, ...]

    def count(self, name: str) -> int:
        """The sum over the groups of ``attempts``, ``failed``, ``waiting`` or
        ``measured_since``."""
        return sum(getattr(group, name) for group in self.groups)

    def as_dict(self) -> dict[str, Any]:
        """``campaign failures --json``."""
        names = ("attempts", "failed", "waiting", "measured_since")
        return {name: self.count(name) for name in names} | {
            "groups": [group.as_dict() for group in self.groups]
        }

    def to_pandas(self) -> pd.DataFrame:
        """The groups, a row each."""
        return pd.DataFrame([group.as_dict() for group in self.groups])


def grouped_failures(store: Store, kernel: str | None = None, node: str | None = None) -> Failures:
    """A store's failed attempts by site, kernel, reason and node; where ``kernel`` or ``node`` is
    named, only its attempts.

    Raises:
        ArgumentError: the store has no such kernel or node.
        DamagedStoreError: the store cannot be read.
    """
    frame = failed_attempts(store)
    frame["last of point"] = ~frame["point_id"].duplicated(keep="last")
    for name, value in (("kernel", kernel), ("node", node)):
        if value is not None and value not in set(frame[name]):
            tables, _ = current_tables(store)
            names = sorted({*tables.measurements[name], *frame[name]} - {""})
            if value not in names:
                raise ArgumentError(f"--{name}: {unknown_name(name, value, names)}")
        if value is not None:
            frame = frame[frame[name] == value]
    groups = [_group(key, attempts) for key, attempts in frame.groupby(GROUP_KEYS, sort=True)]
    groups.sort(key=lambda group: (-group.failed, -group.waiting, -group.attempts))
    return Failures(tuple(groups))


def _group(key: Hashable, attempts: pd.DataFrame) -> FailureGroup:
    site, kernel, reason, node = map(str, cast(tuple[str, ...], key))
    outcomes = attempts[attempts["last of point"]]["outcome"]
    counts = {name: int((outcomes == name).sum()) for name in (FAILED, WAITING, MEASURED)}
    last = attempts.iloc[-1]
    (instance,) = kernel_instances([(kernel, last["params"])]).values()
    return FailureGroup(
        site=site,
        kernel=kernel,
        reason=reason,
        node=node,
        attempts=len(attempts),
        failed=counts[FAILED],
        waiting=counts[WAITING],
        measured_since=counts[MEASURED],
        point_id=last["point_id"],
        instance=instance,
        setting=Setting.of(*(last[name] for name in AXES)),
        attempt=int(last["attempt"]),
        start_unix_s=float(last["start_unix_s"]),
        text=last["text"],
    )
