"""Measurements of earlier versions, which kept no record of how they were made: what the store's
plan said when this version first ran on it."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Any

import numpy as np
from pydantic import BaseModel, ValidationError

from analysis.dataset import COMPLETE, STATUSES
from campaign.plan.campaign_file import Protocol
from campaign.store.dataset import open_tables, read_column
from campaign.store.generation import Generation
from campaign.store.layout import DamagedStore, Store
from campaign.store.setups import SetupUse, has_earlier, write_earlier
from campaign.store.variables import without_values
from sites.site_file import Site


def keep_earlier(store: Store, generation: Generation | None) -> None:
    """Keep the plan of campaign.json as the record of the measurements without one, once, before a
    new plan replaces it. The caller must hold the driver's lock."""
    if generation is None:
        return
    codes = generation.states()["status"]
    complete = sum(int((codes == STATUSES.index(status)).sum()) for status in COMPLETE)
    setups = generation.summary.get("setups", {})
    if complete == sum(count for name, count in setups.items() if name):
        return
    # There may be no whole plan.
    with contextlib.suppress(DamagedStore, LookupError, TypeError, AttributeError):
        plan = store.read_json("campaign.json")
        sites = {name: site for name, site in plan["sites"].items() if not has_earlier(store, name)}
        counts = _without_record(generation) if sites else Counter()
        for name in filter(counts.__contains__, sites):
            campaign = plan["campaign"]
            site = without_values(store, _as_read_now(Site, sites[name]), keep_key=True)
            record = {
                "campaign": campaign["name"],
                "site": site,
                "protocol": _as_read_now(Protocol, campaign["protocol"]),
            }
            write_earlier(store, name, SetupUse(record, counts[name]))


def _without_record(generation: Generation) -> Counter[str]:
    """Site -> complete measurements that were not imported and have no record."""
    tables = open_tables(generation)
    status, site, imported = (
        read_column(tables, f"measurements/{name}") for name in ("status", "site", "imported")
    )
    mine = np.isin(status.astype(str), COMPLETE) & ~imported
    if "measurements/setup" in tables:
        mine &= read_column(tables, "measurements/setup") == ""
    return Counter(site[mine].tolist())


def _as_read_now(model: type[BaseModel], fields: Any) -> Any:
    """What this version reads from the same file: keys that the earlier one did not have get their
    defaults."""
    with contextlib.suppress(ValidationError):
        return model.model_validate(fields).model_dump(mode="json")
    return fields
