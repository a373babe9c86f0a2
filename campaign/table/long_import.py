"""Importing a table that does not fit in memory: its rows are added to a store part by part, all of
them or none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from campaign.store.columns import FAILURE_COLUMNS
from campaign.store.compaction import equalize_generations, next_generation
from campaign.store.layout import Store, driver_lock, writing
from campaign.store.summary import with_sites
from campaign.store.tables import failure_columns
from campaign.table.added_rows import (
    Held,
    Imported,
    compacted,
    new_failures,
    with_failures,
    with_measurements,
    write_records,
)
from campaign.table.checking import Checked, Rows
from campaign.table.grouping import row_hashes
from campaign.table.long_table import LongTable
from campaign.table.map_file import POINT_ID, TableMap
from campaign.table.points import worth_of
from campaign.table.sidecar import Sidecar, read_sidecar, sidecar_path
from dvfs.dataset import Columns
from dvfs.input_files import FileError
from dvfs.texts import Column, EqualLengths, Texts

SAMPLE_ROWS = 1 << 19
"""The most rows that the checks of the data get, since they need them in memory."""
OF_SITE = ("site", "core_mhz", "core_v", "mem_mhz", "uncore_mhz", "mem_v", "power_limit_w")
"""The columns from which a site's record is made."""


class _Added:
    """Adds the rows of a table part by part, and collects what the end of the import needs."""

    def __init__(self, table: LongTable, mapping: TableMap, held: Held) -> None:
        self._mapping, self.held = mapping, held
        # For half of SAMPLE_ROWS, since some kernels may have more repeats than others.
        self._one_of = -(-2 * len(table) // SAMPLE_ROWS) if len(table) > SAMPLE_ROWS else 1
        self.new = self.failed = self.known = self.n_sample = 0
        self.points: Counter[str] = Counter()
        """Site -> number of points that the store does not hold."""
        self.sites: dict[str, None] = {}
        self.summary: dict[str, object] = {}
        self.of_sites: list[Rows] = []
        self.failures: list[Rows] = []
        self.sample: list[Rows] = []

    def part(self, checked: Checked) -> Rows:
        """The rows of a part that the store does not hold, or holds as failed."""
        rows = checked.rows
        held_rows, better = self.held.find(checked)
        status, site = Texts.of(rows["status"]), Texts.of(rows["site"])
        n_new = np.bincount(site.codes[held_rows < 0], minlength=len(site.values)).tolist()
        self.points.update({name: n for name, n in zip(site.values, n_new, strict=True) if n})
        new = np.flatnonzero((held_rows < 0) | better)
        self.new += len(new)
        self.known += len(held_rows) - len(new)
        self.failed += int((worth_of(status)[new] == 0).sum())
        sites = site.present()
        site_rows = np.arange(len(site)) if self._mapping.legal else _first_with_clocks(rows)
        self.of_sites.append({name: rows[name][site_rows] for name in OF_SITE})
        self.sites.update(dict.fromkeys(sites))
        failures = checked.failures
        self.failures.append({name: np.asarray(failures[name]) for name in FAILURE_COLUMNS})
        series = row_hashes([rows[name] for name in ("kernel", "params", "repeat")])
        sample_rows = np.flatnonzero(series % np.uint64(self._one_of) == 0)
        sample_rows = sample_rows[: SAMPLE_ROWS - self.n_sample]
        self.n_sample += len(sample_rows)
        self.sample.append({name: values[sample_rows] for name, values in rows.items()})
        added = {name: values[new] for name, values in rows.items()}
        self.summary = with_measurements(self.summary, added)
        return added


def _first_with_clocks(rows: Rows) -> np.ndarray:
    """Each site's first row, and its first rows with a memory and with an uncore clock."""
    site = Texts.of(rows["site"])
    has = [np.isfinite(np.asarray(rows[name])) for name in ("mem_mhz", "uncore_mhz")]
    first = []
    for among in map(np.flatnonzero, (np.ones(len(site), bool), *has)):
        first.append(among[np.unique(site.codes[among], return_index=True)[1]])
    return np.unique(np.concatenate(first))


def import_long_table(table: LongTable, store: Store, mapping: TableMap) -> Imported:
    """Add a table's rows to a store: all of them or none, as
    :func:`campaign.table.importing.import_rows` does.

    Raises:
        FileError: the table has no rows, or has changed, or the store holds one of its points with
            another energy or time.
        StoreBusyError: a driver runs on the store.
    """
    if not len(table):
        raise FileError("has no rows", "nothing to import", str(table.path))
    sidecar = read_sidecar(table.path)
    with driver_lock(store):
        contents, damage = compacted(store)
        base = contents.generation
        added = _Added(table, mapping, Held.of(contents))
        added.summary = base.summary

        with writing(store):
            with next_generation(store, base) as new:
                for part in table.parts():
                    new.add(added.part(part))
                    del part
                record_notes = write_records(store, _joined(added.of_sites), mapping, sidecar)
                failures = new_failures(_joined(added.failures), failure_columns(contents))
                if added.new or len(failures[POINT_ID]):
                    summary = with_sites(with_failures(added.summary, failures), added.points)
                    manifest = replace(base, summary=summary)
                    new.commit(manifest, failures)
            equalize_generations(store)
    notes = [*table.notes, *record_notes]
    if sidecar != Sidecar():
        notes = [*notes, f"{sidecar_path(table.path)}: read with it"]
    n_held = len(added.held.ids) + added.points.total()
    if added.n_sample < n_held:
        notes = [
            *notes,
            f"{table.path}: the checks of the data looked at {added.n_sample:,} of the store's "
            f"{n_held:,} measurements, all settings of some repeats; campaign fit checks all",
        ]
    return Imported(
        new=added.new,
        failed=added.failed,
        held=added.known,
        sites=sorted(added.sites),
        measurements=Columns(dict(sorted(_joined(added.sample).items()))),
        damage=damage,
        disagreements=table.disagreements,
        notes=notes,
    )


def _joined(parts: Sequence[Rows]) -> Rows:
    """The parts' rows, concatenated."""
    return {name: _column([part[name] for part in parts]) for name in parts[0]}


def _column(parts: Sequence[Column]) -> Column:
    first = parts[0]
    if isinstance(first, Texts):
        return Texts.joined(part for part in parts if isinstance(part, Texts))
    if isinstance(first, EqualLengths):
        return EqualLengths(
            np.concatenate([p.bytes_ for p in parts if isinstance(p, EqualLengths)])
        )
    return np.concatenate([np.asarray(part) for part in parts])
