"""The set-ups of measurements by earlier versions, which wrote no records of set-ups: they are
those of the store's plan when this version first runs on it."""

from __future__ import annotations

import contextlib
from collections import Counter

import numpy as np

from campaign.store.environment_variables import without_values
from campaign.store.generation import Generation
from campaign.store.layout import DamagedStoreError, Store
from campaign.store.mixtures import as_read_now
from campaign.store.setups import SetupUse, has_earlier, write_earlier
from campaign.store.table_files import written_tables
from dvfs.dataset import COMPLETE, STATUSES


def keep_earlier(store: Store, generation: Generation) -> None:
    """Write the set-ups of the plan in campaign.json as records of the measurements without one,
    once, before a new plan replaces it. The caller must hold the driver's lock."""
    codes = generation.states()["status"]
    complete = sum(int((codes == STATUSES.index(status)).sum()) for status in COMPLETE)
    setups = generation.summary.get("setups", {})
    if complete == sum(count for name, count in setups.items() if name):
        return
    # The plan may be missing or incomplete.
    with contextlib.suppress(DamagedStoreError, LookupError, TypeError, AttributeError):
        plan = store.read_json("campaign.json")
        sites = {name: site for name, site in plan["sites"].items() if not has_earlier(store, name)}
        counts = _without_record(generation) if sites else Counter()
        for name in filter(counts.__contains__, sites):
            campaign = plan["campaign"]
            record = {
                "campaign": campaign["name"],
                "site": without_values(store, sites[name], keep_key=True),
                "protocol": campaign["protocol"],
            }
            write_earlier(store, name, SetupUse(as_read_now(record), counts[name]))


def _without_record(generation: Generation) -> Counter[str]:
    """Site -> the number of complete measurements that were not imported and have no record."""
    tables = written_tables(generation)
    status, site, imported = (
        tables.read(f"measurements/{name}") for name in ("status", "site", "imported")
    )
    without = np.isin(status.astype(str), COMPLETE) & ~imported
    if "setup" in tables.columns("measurements"):
        without &= tables.read("measurements/setup") == ""
    return Counter(site[without].tolist())
