"""Importing: a table's rows go into a store, all of them or none."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from campaign.store.columns import column
from campaign.store.compaction import (
    NewRows,
    compact,
    equalize_generations,
    write_generation,
)
from campaign.store.dataset import current_tables
from campaign.store.generation import Generation, newest_generation
from campaign.store.layout import Store, driver_lock, writing
from campaign.store.site_record import SiteRecord, has_site_record, write_site_record
from campaign.store.summary import with_sites
from campaign.table.checking import Checked
from campaign.table.map_file import TableMap
from sites.located_toml import BadFile


@dataclass(frozen=True)
class Imported:
    """What an import did: the rows that were new, those that were there already, the sites of
    the table, all measurements that the store holds now, and what was damaged in it."""

    new: int
    held: int
    sites: list[str]
    measurements: pd.DataFrame
    damage: list[str]


def import_rows(checked: Checked, store: Store, mapping: TableMap) -> Imported:
    """Put a table's rows into a store: all of them or none.

    They become a new generation of the index, which one rename commits: killed at any moment,
    the store holds the table whole or not at all, and importing again completes it.

    Raises:
        BadFile: the table has no rows, or the store holds a point of it with another energy
            or time.
        StoreBusy: a driver runs on the store.
    """
    rows = checked.rows
    if not len(rows):
        raise BadFile(f"{checked.path}: has no rows; nothing to import")
    with driver_lock(store):
        with writing(store):
            damage = compact(store).messages(writers_gone=True)  # what is in journals goes first
        tables, _ = current_tables(store)
        held = tables.measurements.set_index("point_id")[["energy_j", "time_s"]]
        there = rows["point_id"].isin(held.index).to_numpy()
        mine = rows.loc[there, ["energy_j", "time_s"]].to_numpy()
        theirs = held.loc[rows["point_id"][there]].to_numpy(dtype=float)
        for i in np.flatnonzero((mine != theirs).any(axis=1))[:1]:
            raise BadFile(
                f"{checked.path}:{checked.lines[there][i]}: the store holds this point with "
                f"{theirs[i, 0]:g} J and {theirs[i, 1]:g} s; give the new one another "
                f"repeat, or import into another store"
            )
        with writing(store):
            for site, record in site_records(rows, mapping).items():
                if not has_site_record(store, site):
                    write_site_record(store, site, record)
            if not there.all():
                _add(store, rows[~there])
            equalize_generations(store)
        tables, _ = current_tables(store)
    sites = sorted(set(rows["site"]))
    return Imported(int((~there).sum()), int(there.sum()), sites, tables.measurements, damage)


def _add(store: Store, rows: pd.DataFrame) -> None:
    """Commit rows of points that the store does not hold."""
    base, _ = newest_generation(store)
    own = {str(name): column(str(name), rows[name].to_numpy()) for name in rows.columns}
    told = base or Generation(store.index)
    told = replace(told, summary=with_sites(told.summary, Counter(rows["site"])))
    write_generation(store, base, NewRows(own, {}, {}), told)


def site_records(rows: pd.DataFrame, mapping: TableMap) -> dict[str, SiteRecord]:
    """What the store should know of each imported site: its classes' domains and its device."""
    first = rows.drop_duplicates("site")
    return {
        site: SiteRecord(dict(mapping.classes), mapping.device or ("gpu" if both else "cpu"))
        for site, both in zip(first["site"], first["mem_mhz"].notna(), strict=True)
    }
