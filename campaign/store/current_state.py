"""The summary and the states of a store's points, with the journals' records in them."""

from __future__ import annotations

from typing import Any

import numpy as np

from campaign.store.generation import STATE
from campaign.store.records import StoreContents
from campaign.store.summary import updated
from dvfs.dataset import STATUSES


def summary_and_states(contents: StoreContents) -> tuple[dict[str, Any], np.ndarray]:
    """The summary and the states (a :data:`STATE` each, by id) with the journals' records."""
    states = np.empty(0, STATE) if contents.generation is None else contents.generation.states()
    summary = {} if contents.generation is None else contents.generation.summary
    if contents.tail.entries:
        ids = np.array([entry.point_id for entry in contents.accepted], STATE["id"])
        fresh = status_codes(states, ids) < 0
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


def status_codes(states: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """The status of each id as an index into STATUSES, int64; -1 where it has none."""
    if not states.size:
        return np.full(ids.size, -1)
    at = np.minimum(np.searchsorted(states["id"], ids), states.size - 1)
    return np.where(states["id"][at] == ids, states["status"][at].astype(np.int64), -1)
