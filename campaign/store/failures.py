"""The failed attempts that a store keeps, each with what became of its point."""

from __future__ import annotations

import pandas as pd

from campaign.store.columns import FAILURE_COLUMNS
from campaign.store.layout import Store
from campaign.store.measurement import will_be_tried_again
from campaign.store.planned import planned_ids
from campaign.store.records import read_contents
from campaign.store.states import point_states
from campaign.store.tables import failure_columns
from dvfs.dataset import COMPLETE

FAILED, WAITING, MEASURED = "failed", "waiting", "measured since"
"""What became of a point: no further attempt is made; a campaign that runs, or the next one,
makes one; or a later attempt measured it."""


def failed_attempts(store: Store) -> pd.DataFrame:
    """Every failed attempt, in order of its start: a row each, with the columns
    :data:`campaign.store.columns.FAILURE_COLUMNS` and ``outcome`` of its point, one of
    :data:`FAILED`, :data:`WAITING` and :data:`MEASURED`.

    Raises:
        DamagedStoreError: every generation is damaged, or the plan cannot be read.
    """
    contents = read_contents(store)
    frame = pd.DataFrame(dict(failure_columns(contents)))[list(FAILURE_COLUMNS)]
    # One attempt may fail twice, because Dask repeats the task of a lost worker.
    frame = frame.drop_duplicates(["point_id", "attempt"], keep="last")
    states = point_states(store, contents) if len(frame) else {}
    plan = store.read_json("campaign.json") or {}
    most = int(plan.get("campaign", {}).get("retries", {}).get("max", 0))
    planned = {own_id.decode() for ids in planned_ids(store).values() for own_id in ids.tolist()}

    def outcome(point_id: str) -> str:
        status, attempts = states[point_id]
        if status in COMPLETE:
            return MEASURED
        again = point_id in planned and will_be_tried_again(status, attempts, most)
        return WAITING if again else FAILED

    frame["outcome"] = [outcome(point_id) for point_id in frame["point_id"]]
    return frame.sort_values("start_unix_s", kind="stable", ignore_index=True)
