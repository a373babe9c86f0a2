"""Importing a table that is too long to be in memory: its rows go into a store part by part, all of
them or none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from campaign.store.columns import FAILURE_COLUMNS
from campaign.store.compaction import NewPart, equalize_generations, write_long_generation
from campaign.store.generation import Generation
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
from campaign.table.checking import Checked, Provenance, Rows
from campaign.table.long_checks import row_hashes
from campaign.table.long_table import LongTable
from campaign.table.map_file import POINT_ID, TableMap
from campaign.table.points import worth_of
from campaign.table.sidecar import Sidecar, read_sidecar, sidecar_path
from dvfs.dataset import Columns
from dvfs.input_files import FileError
from dvfs.texts import Column, EqualLengths, Texts

SAMPLE_ROWS = 1 << 19
"""So many rows or fewer are looked at by the checks of the data, which have theirs in memory."""
OF_SITE = ("site", "core_mhz", "core_v", "mem_mhz", "uncore_mhz", "mem_v", "power_limit_w")
"""The columns that tell what a store should know of a site."""


class _Added:
    """The rows of a table as they are added, and what is kept of them."""

    def __init__(self, table: LongTable, mapping: TableMap, held: Held) -> None:
        self._mapping, self.held = mapping, held
        # Twice as many as on the average, since kernels may have more repeats than others.
        self._one_of = -(-2 * len(table) // SAMPLE_ROWS) if len(table) > SAMPLE_ROWS else 1
        self.new = self.failed = self.known = self.n_sample = 0
        self.points: Counter[str] = Counter()
        """Site -> points that the store does not hold."""
        self.sites: dict[str, None] = {}
        self.summary: dict[str, object] = {}
        self.of_sites: list[Rows] = []
        self.failures: list[Rows] = []
        self.sample: list[Rows] = []

    def part(self, checked: Checked) -> NewPart:
        """The rows of a part that the store does not hold, or holds as failed."""
        rows = checked.rows
        at, better = self.held.find(checked)
        status, site = rows["status"], rows["site"]
        assert isinstance(status, Texts) and isinstance(site, Texts)  # noqa: S101
        n_new = np.bincount(site.codes[at < 0], minlength=len(site.values)).tolist()
        self.points.update({name: n for name, n in zip(site.values, n_new, strict=True) if n})
        new = np.flatnonzero((at < 0) | better)
        self.new += len(new)
        self.known += len(at) - len(new)
        self.failed += int((worth_of(status)[new] == 0).sum())
        sites = site.present()
        kept = np.arange(len(site)) if self._mapping.legal else _first_with_clocks(rows)
        self.of_sites.append({name: rows[name][kept] for name in OF_SITE})
        self.sites.update(dict.fromkeys(sites))
        failures = checked.failures
        self.failures.append({name: np.asarray(failures[name]) for name in FAILURE_COLUMNS})
        series = row_hashes([rows[name] for name in ("kernel", "params", "repeat")])
        looked_at = np.flatnonzero(series % np.uint64(self._one_of) == 0)
        looked_at = looked_at[: SAMPLE_ROWS - self.n_sample]
        self.n_sample += len(looked_at)
        self.sample.append({name: values[looked_at] for name, values in rows.items()})
        added = {name: values[new] for name, values in rows.items()}
        self.summary = with_measurements(self.summary, added)
        return NewPart(added, at[new])


def _first_with_clocks(rows: Rows) -> np.ndarray:
    """The first row of each site, and the first that has a memory and that has an uncore clock."""
    site = rows["site"]
    assert isinstance(site, Texts)  # noqa: S101
    has = [np.isfinite(np.asarray(rows[name])) for name in ("mem_mhz", "uncore_mhz")]
    first = []
    for among in map(np.flatnonzero, (np.ones(len(site), bool), *has)):
        first.append(among[np.unique(site.codes[among], return_index=True)[1]])
    return np.unique(np.concatenate(first))


def import_long_table(table: LongTable, store: Store, mapping: TableMap) -> Imported:
    """Put a table's rows into a store: all of them or none, as
    :func:`campaign.table.importing.import_rows` does.

    Raises:
        FileError: the table has no rows, or has changed, or the store holds a point of it with
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
        added.summary = {} if base is None else base.summary

        def finish() -> tuple[Rows, Generation] | None:
            write_records(store, _joined(added.of_sites), mapping, sidecar)
            failures = new_failures(_joined(added.failures), failure_columns(contents))
            if not added.new and not len(failures[POINT_ID]):
                return None
            summary = with_sites(with_failures(added.summary, failures), added.points)
            return failures, replace(base or Generation(store.index), summary=summary)

        with writing(store):
            write_long_generation(store, base, map(added.part, table.parts()), finish)
            equalize_generations(store)
    notes = table.notes
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
        measurements=Columns(dict(sorted(_joined(added.sample).items())), {}),
        damage=damage,
        disagreements=table.disagreements,
        notes=notes,
    )


def _joined(parts: Sequence[Rows]) -> Rows:
    """Rows one below the other."""
    return {name: _column([part[name] for part in parts]) for name in parts[0]}


def _column(parts: Sequence[Column]) -> Column:
    first = parts[0]
    if isinstance(first, Texts):
        return Texts.joined(part for part in parts if isinstance(part, Texts))
    if isinstance(first, EqualLengths):
        return EqualLengths(
            np.concatenate([p.bytes_ for p in parts if isinstance(p, EqualLengths)])
        )
    if all(isinstance(part, Provenance) and part.says_only_lines for part in parts):
        return Texts.same('{"imported": true}', sum(map(len, parts)))  # no check reads these
    return np.concatenate([np.asarray(part) for part in parts])
