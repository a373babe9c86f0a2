"""Exporting: a store's measurements as a table that import reads."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd

from analysis.dataset import COUNT_PREFIX, OK
from campaign.store.dataset import current_tables
from campaign.store.layout import Store
from campaign.table.map_file import NUMBER_COLUMNS, TEXT_COLUMNS


def export_table(store: Store) -> pd.DataFrame:
    """Every measurement that is ok, a row each, in the columns that import reads."""
    frame = current_tables(store)[0].measurements
    frame = frame[frame["status"] == OK] if len(frame) else frame
    counts = sorted(name for name in frame.columns if name.startswith(COUNT_PREFIX))
    own = [name for name in (*TEXT_COLUMNS, *NUMBER_COLUMNS) if name != "power_w"]
    table = frame[[*own, *counts]].reset_index(drop=True)
    kept: dict[str, list[Any]] = {}
    for i, text in enumerate(frame["provenance"]):
        if '"labels"' in text or '"power_w"' in text:
            provenance = json.loads(text)
            power = {name: provenance[name] for name in ("power_w",) if name in provenance}
            for name, value in (power | provenance.get("labels", {})).items():
                kept.setdefault(name, [None] * len(table))[i] = value
    return table.assign(**kept)
