"""Stores of made-up measurements and tables, and what stores hold."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from campaign.store.compaction import compact
from campaign.store.dataset import current_tables
from campaign.store.journal import JournalWriter, encode
from campaign.store.layout import Store, create_store, open_store
from campaign.store.measurement import Measurement
from tests.commands import prints

if TYPE_CHECKING:
    import pandas as pd


def write(store: Store, *measurements: Measurement) -> Path:
    """Write measurements to a new journal of a store. Returns the journal's path."""
    with JournalWriter(store.journals) as journal:
        for measured in measurements:
            journal.append(encode(measured))
        return journal.path


def stored(folder: Path, *measurements: Measurement, compacted: bool = False) -> Store:
    """A store with these measurements, in a journal or compacted."""
    store = create_store(folder, "made")
    write(store, *measurements)
    if compacted:
        compact(store)
    return store


def store_of_table(folder: Path, table: pd.DataFrame | list[str], *words: object) -> Path:
    """A store in a folder, into which a table, or the lines of its CSV, is imported. ``words``:
    more of the command."""
    text = "\n".join([*table, ""]) if isinstance(table, list) else table.to_csv(index=False)
    folder.mkdir(exist_ok=True)
    (folder / "t.csv").write_text(text)
    prints("import", folder / "t.csv", "--store", folder / "s", *words)
    return folder / "s"


def measurements_of(store: Path) -> pd.DataFrame:
    """The measurements that a store holds: a row for each point that was measured."""
    return current_tables(open_store(store))[0].measurements
