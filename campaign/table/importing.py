"""Importing: a table's rows go into a store, all of them or none."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

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
from campaign.store.layout import Store, create_store, driver_lock, writing
from campaign.store.site_record import SiteRecord, has_site_record, write_site_record
from campaign.store.summary import with_sites
from campaign.table.checking import Checked, checked_rows
from campaign.table.map_file import TableMap, read_map
from campaign.table.reading import read_table
from sites.located_toml import BadFile


@dataclass(frozen=True)
class Imported:
    """What an import did.

    ``new``: rows that the store did not hold; ``held``: rows that it did. ``measurements``: all
    that the store holds now. ``damage``: what was damaged in it, a line each.
    ``disagreements``: rows whose energy is not their power times time, a line each.
    """

    new: int
    held: int
    sites: list[str]
    measurements: pd.DataFrame
    damage: list[str]
    disagreements: list[str]


def import_table(table: Path, store: Path, map_file: Path | None = None) -> Imported:
    """Read a table, check it, and put its rows into a store, which is made if it is not there.

    Raises:
        BadFile: the table or the map file cannot be read, or has a wrong row.
        NotAStore: ``store`` is there and is something else.
        StoreBusy: a driver runs on the store.
    """
    mapping = read_map(map_file)
    # A table that is refused must not leave a new, empty store behind.
    checked = checked_rows(read_table(table, mapping), mapping)
    return import_rows(checked, create_store(store.resolve(), store.name), mapping)


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
        raise BadFile("has no rows", "nothing to import", str(checked.path))
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
                f"the store holds this point with {theirs[i, 0]:g} J and {theirs[i, 1]:g} s",
                "give the new one another repeat, or import into another store",
                f"{checked.path}:{checked.lines[there][i]}",
            )
        with writing(store):
            for site, record in site_records(rows, mapping).items():
                if not has_site_record(store, site):
                    write_site_record(store, site, record)
            if not there.all():
                _add(store, rows[~there])
            equalize_generations(store)
        tables, _ = current_tables(store)
    return Imported(
        new=int((~there).sum()),
        held=int(there.sum()),
        sites=sorted(set(rows["site"])),
        measurements=tables.measurements,
        damage=damage,
        disagreements=checked.disagreements,
    )


def _add(store: Store, rows: pd.DataFrame) -> None:
    """Commit rows of points that the store does not hold."""
    base, _ = newest_generation(store)
    columns = {str(name): column(str(name), rows[name].to_numpy()) for name in rows.columns}
    now = base or Generation(store.index)
    now = replace(now, summary=with_sites(now.summary, Counter(rows["site"])))
    write_generation(store, base, NewRows(columns, {}, {}), now)


def site_records(rows: pd.DataFrame, mapping: TableMap) -> dict[str, SiteRecord]:
    """What the store should know of each imported site: its classes' domains and its device."""
    first = rows.drop_duplicates("site")
    return {
        site: SiteRecord(dict(mapping.classes), mapping.device or ("gpu" if both else "cpu"))
        for site, both in zip(first["site"], first["mem_mhz"].notna(), strict=True)
    }
