"""Compaction: moves the journals' records into Zarr. A crash at any moment loses nothing.

New samples go to new shards; a shard never changes. Then the compaction writes the next generation
of the index (:mod:`campaign.store.generation`), and the rename of its folder commits it. After a
crash, the records that are in no generation are still in their journals.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from campaign.store.columns import FAILURE_COLUMNS, TABLES, column, columns_of
from campaign.store.generation import (
    PACKED_ID,
    STATE,
    Generation,
    commit,
    generation_folder,
    generation_numbers,
    newest_generation,
    packed_ids,
    packed_order,
    places_of,
    reading,
    unpacked_ids,
    verified_generation,
)
from campaign.store.journal import JournalEntry, TornRecordError, read, remove_if_done
from campaign.store.layout import DamagedStoreError, Store
from campaign.store.records import (
    JournalTail,
    accepted_entries,
    indexed_statuses,
    journal_tail,
    measurement_row,
)
from campaign.store.samples import ShardWriter, repair_descriptions
from campaign.store.setups import write_setups
from campaign.store.summary import updated
from campaign.store.table_files import CHUNK_ROWS, TableFiles
from dvfs.dataset import FAILURES, STATUSES
from dvfs.files import open_regular
from dvfs.texts import Column, Texts


@dataclass(frozen=True)
class CompactionResult:
    """The result of a compaction.

    ``moved``: the number of records. ``damage``: (journal, byte, description) of each damaged part
    of a journal. ``torn``: the same at the end of a journal, where a writer may still be writing a
    record. ``index_damage``: the faults of the index. ``repaired``: the repairs, as sentences.
    """

    moved: int = 0
    damage: list[tuple[str, int, str]] = field(default_factory=list)
    torn: list[tuple[str, int, str]] = field(default_factory=list)
    index_damage: list[str] = field(default_factory=list)
    repaired: list[str] = field(default_factory=list)

    def messages(self, writers_gone: bool) -> list[str]:
        """Sentences for the user. ``writers_gone``: no writer can still be writing a record."""
        damage = self.damage + (self.torn if writers_gone else [])
        return [
            *self.repaired,
            *(f"{text}; nothing is lost: the index is rewritten" for text in self.index_damage),
            *(
                f"{journal}: byte {offset}: {text}; its points are measured again"
                for journal, offset, text in damage
            ),
        ]


class NextGeneration:
    """The generation after ``base`` while it is written: a copy of its tables, and further rows."""

    def __init__(self, store: Store, base: Generation, folder: Path) -> None:
        self._store, self._base, self._folder = store, base, folder
        self._tables = TableFiles(folder / "tables.zarr")
        self._added = False
        self._new_ids, self._new_codes = bytearray(), bytearray()
        """The ids (packed) and the statuses of new points: these take a fraction of the memory of
        whole states."""

    @cached_property
    def _states(self) -> np.ndarray:
        """The states of the points in ``base``, read when points are added."""
        return self._base.states()

    @cached_property
    def _held_ids(self) -> np.ndarray:
        return np.ascontiguousarray(self._states["id"])

    @cached_property
    def _held_codes(self) -> np.ndarray:
        return self._states["status"].copy()

    def add(
        self, measurements: Mapping[str, Column], traces: Mapping[str, Sequence[Any]] | None = None
    ) -> None:
        """Add measurements, one for each point. New values of a point in ``base`` overwrite its
        row, and its earlier traces become empty. ``traces``: as :class:`ShardWriter` makes them.
        """
        self._added = True
        ids = np.asarray(measurements["point_id"], STATE["id"])
        status = Texts.of(measurements["status"])
        codes = status.array(np.uint8, [STATUSES.index(text) for text in status.values])
        place = places_of(self._held_ids, ids)
        held, new = np.flatnonzero(place >= 0), np.flatnonzero(place < 0)
        rows = np.empty(len(ids), np.int64)
        rows[held] = self._states["row"][place[held]]
        rows[new] = len(self._states) + len(self._new_codes) + np.arange(len(new))
        added = measurements
        with reading(self._store.index):
            if len(held):
                replaced = {name: np.asarray(values[held]) for name, values in measurements.items()}
                self._tables.overwrite("measurements", replaced, rows[held])
                self._held_codes[place[held]] = codes[held]
                self._void_traces(rows[held])
                added = {name: values[new] for name, values in measurements.items()}
            self._tables.append("measurements", added, len(new))
            if traces and traces["point_id"]:
                texts = np.asarray(measurements["point_id"]).tolist()
                row_of_point = dict(zip(texts, rows.tolist(), strict=True))
                traces = {**traces, "measurement": [row_of_point[p] for p in traces["point_id"]]}
                columns = {n: column(n, traces[n]) for n in traces if n != "point_id"}
                self._tables.append("traces", columns, len(columns["measurement"]))
        self._new_ids += packed_ids(ids[new])
        self._new_codes += codes[new].tobytes()

    def commit(self, manifest: Generation, failures: Mapping[str, Column] | None = None) -> None:
        """Commit the generation, and remove those older than ``base``. ``manifest``: that of the
        new generation; its path and files are ignored. ``failures``: further failed attempts."""
        failures = failures or {}
        with reading(self._store.index):
            self._tables.append("failures", failures, len(failures.get("point_id", ())))
            for table in TABLES:
                self._tables.append(table, {}, 0)  # in a first generation it may be missing
            self._write_states()
            # Names of journals are unique, so that removed ones can be forgotten.
            existing = {path.name for path in self._store.journal_paths()}
            manifest = replace(manifest, consumed=_consumed(manifest, existing))
            current = commit(self._store, self._folder, self._base, manifest)
        _remove_old(self._store, current, self._base)

    def _void_traces(self, rows: np.ndarray) -> None:
        """Make the traces of some measurements empty."""
        void = np.flatnonzero(np.isin(self._tables.read("traces/measurement"), rows))
        if void.size:
            self._tables.overwrite("traces", {"row_size": np.zeros(void.size, np.int64)}, void)

    def _write_states(self) -> None:
        """Write the states of all measurements, sorted by id."""
        path = self._folder / "states.bin"
        if self._base.number and not self._added:
            shutil.copyfile(self._base.path / path.name, path)
            return
        states, held_codes = self._states, self._held_codes
        ids = np.frombuffer(packed_ids(states["id"]) + self._new_ids, PACKED_ID)
        codes = np.frombuffer(self._new_codes, np.uint8)
        order = packed_order(ids)
        with path.open("wb") as file:
            for start in range(0, len(order), CHUNK_ROWS):
                chunk = order[start : start + CHUNK_ROWS]
                chunk_states = np.empty(len(chunk), STATE)
                chunk_states["id"] = unpacked_ids(ids[chunk].tobytes())
                is_new = chunk >= states.size
                chunk_states["row"][is_new] = chunk[is_new]
                chunk_states["status"][is_new] = codes[chunk[is_new] - states.size]
                chunk_states["row"][~is_new] = states["row"][chunk[~is_new]]
                chunk_states["status"][~is_new] = held_codes[chunk[~is_new]]
                chunk_states.tofile(file)


@contextlib.contextmanager
def next_generation(store: Store, base: Generation) -> Iterator[NextGeneration]:
    """Write the generation after ``base``. Without :meth:`NextGeneration.commit`, as after an
    error, nothing of it remains. The caller must hold the driver's lock."""
    fresh = store.index / ".next"
    shutil.rmtree(fresh, ignore_errors=True)  # of a killed compaction
    try:
        fresh.mkdir()
        if base.number:
            _copy_tables(base.tables, fresh / "tables.zarr")
        yield NextGeneration(store, base, fresh)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _copy_tables(tables: Path, copy: Path) -> None:
    """Copy a folder of tables; raises OSError for the first file that cannot be copied."""
    try:
        shutil.copytree(tables, copy, copy_function=shutil.copyfile)
    except shutil.Error as error:  # has one entry for each of many files
        source, path, why = error.args[0][0]
        raise OSError(f"{source} cannot be copied to {path}: {why}") from error


def compact(store: Store) -> CompactionResult:
    """Move the journals' records into a new generation. The caller must hold the driver's lock.

    A record with damaged traces stays; its point counts as not measured.

    Raises:
        OSError: the store cannot be written to; nothing is lost.
        DamagedStoreError: every generation is damaged.
    """
    base, index_damage = newest_generation(store)
    repaired = repair_descriptions(store, base.samples_end)
    tail = journal_tail(store, base.consumed, to_consume=True)
    if not tail.entries:
        _remove_old(store, base)
        return CompactionResult(torn=tail.damage, index_damage=index_damage, repaired=repaired)
    states = indexed_statuses(base, [entry.point_id for entry in tail.entries])
    whole, writer, damage = _append_traces(store, base, tail, states)
    accepted = accepted_entries(whole, states)
    failed = [e.scalars for e in tail.entries if e.scalars["status"] in FAILURES]
    summary = updated(
        base.summary,
        [entry.scalars for entry in accepted],
        [entry.scalars for entry in accepted if entry.point_id not in states],
        failed,
    )
    write_setups(store, tail.setups)  # before a generation refers to them
    manifest = Generation(store.index, tail.consumed, writer.end, writer.shards, summary)
    with next_generation(store, base) as new:
        if accepted:
            rows = [measurement_row(entry.scalars) for entry in accepted]
            new.add(columns_of(rows), writer.rows)
        failed_rows = [measurement_row(scalars) for scalars in failed]
        new.commit(manifest, columns_of(failed_rows, FAILURE_COLUMNS))
    passed = [part for part in tail.damage if part[1] < tail.consumed[part[0]]]
    torn = [part for part in tail.damage if part not in passed]
    return CompactionResult(len(whole), damage + passed, torn, index_damage, repaired)


def equalize_generations(store: Store) -> None:
    """Write the newest generation a second time. Then the store needs no journal, and damage to one
    of the two generations loses nothing. The caller must hold the driver's lock."""
    base, _ = newest_generation(store)
    if not base.number:
        return
    before = _generation_before(store, base)
    # Journals that have been removed do not matter.
    existing = {path.name for path in store.journal_paths()}
    if before.files == base.files and _consumed(before, existing) == _consumed(base, existing):
        _remove_old(store, base)
    else:
        with next_generation(store, base) as new:
            new.commit(base)


def _consumed(generation: Generation, journals: Container[str]) -> dict[str, int]:
    """Journal -> the byte up to which a generation has consumed it, for those in ``journals``."""
    return {name: end for name, end in generation.consumed.items() if name in journals}


def _append_traces(
    store: Store, base: Generation, tail: JournalTail, held: Mapping[str, str]
) -> tuple[list[JournalEntry], ShardWriter, list[tuple[str, int, str]]]:
    """Write the traces of the accepted entries after the committed samples.

    ``held``: point id -> status in ``base``.

    Returns the undamaged entries (another entry of the same point replaces a damaged one), the
    writer of the traces, and the damage.
    """
    writer = ShardWriter(store, base)
    damage: list[tuple[str, int, str]] = []
    entries = tail.entries
    written: set[str] = set()
    while True:
        damaged: set[int] = set()
        new = [e for e in accepted_entries(entries, held) if e.point_id not in written]
        # On a shared file system, opening a file for each record would take most of the calls.
        for path, path_entries in itertools.groupby(new, attrgetter("path")):
            with open_regular(path) as journal:
                for entry in path_entries:
                    try:
                        measurement = read(entry, journal)
                    except TornRecordError as torn:
                        damaged.add(id(entry))
                        description = f"{torn}, of point {entry.point_id}"
                        damage.append((path.name, entry.offset, description))
                        continue
                    written.add(entry.point_id)
                    writer.add(entry.point_id, measurement.traces)
        if not damaged:
            break
        entries = [entry for entry in entries if id(entry) not in damaged]
    writer.flush()
    return entries, writer, damage


def _generation_before(store: Store, base: Generation) -> Generation:
    """The newest undamaged generation before ``base``."""
    for number in generation_numbers(store):
        if number < base.number:
            try:
                return verified_generation(generation_folder(store, number))
            except DamagedStoreError:
                continue
    return Generation(generation_folder(store, 0))


def _remove_old(store: Store, current: Generation, before: Generation | None = None) -> None:
    """Remove all generations except ``current`` and the undamaged one before it, the remains of
    a killed compaction, and the journals that both generations have consumed to their end."""
    for remains in (store.index / ".next", store.root / ".traces.new"):
        shutil.rmtree(remains, ignore_errors=True)
    for part in store.traces.rglob("*.partial"):  # temporary files of Zarr
        part.unlink(missing_ok=True)
    if not current.number:
        return
    before = before or _generation_before(store, current)
    for number in generation_numbers(store):
        if number not in (current.number, before.number):
            shutil.rmtree(generation_folder(store, number), ignore_errors=True)
    if before.number:
        for path in store.journal_paths():
            ends = [stored.consumed.get(path.name, 0) for stored in (current, before)]
            remove_if_done(path, min(ends))
