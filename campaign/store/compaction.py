"""Compaction: moves the journals' records into Zarr. A crash at any moment loses nothing.

New samples go to new shards; a shard never changes. Then the compaction writes the next generation
of the index (:mod:`campaign.store.generation`), and the rename of its folder commits it. After a
crash, the records that are in no generation are still in their journals.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from campaign.store.columns import FAILURE_COLUMNS, column, columns_of
from campaign.store.generation import (
    PACKED_ID,
    STATE,
    FileDigest,
    Generation,
    commit,
    generation_folder,
    generation_numbers,
    id_order,
    newest_generation,
    next_generation_folder,
    packed_ids,
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
from dvfs.dataset import FAILURES, STATUSES, TRACE_TEXT_COLUMNS
from dvfs.files import open_regular
from dvfs.texts import Column, Texts

REWRITTEN = np.dtype([("row", "i8"), ("status", "u1")])
"""A row of an earlier generation that is written again, and its new status."""


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


@dataclass(frozen=True)
class NewRows:
    """The rows that a generation adds to the one before it.

    ``measurements``, ``failures``: columns. ``traces``: columns, with ``of`` (the index of the row
    in ``measurements``) in place of ``measurement``.
    """

    measurements: Mapping[str, Column]
    traces: Mapping[str, np.ndarray]
    failures: Mapping[str, Column]


@dataclass(frozen=True)
class NewPart:
    """Some rows of a table that is not in memory as a whole. ``old_row``: int64 (rows,), the row of
    the point in the generation before, -1 if it has none."""

    measurements: Mapping[str, Column]
    old_row: np.ndarray


def compact(store: Store) -> CompactionResult:
    """Move the journals' records into a new generation. The caller must hold the driver's lock.

    A record with damaged traces stays; its point counts as not measured.

    Raises:
        OSError: the store cannot be written to; nothing is lost.
        DamagedStoreError: every generation is damaged.
    """
    base, index_damage = newest_generation(store)
    repaired = [] if base is None else repair_descriptions(store, base.samples_end)
    tail = journal_tail(store, {} if base is None else base.consumed, to_consume=True)
    if not tail.entries:
        _remove_old(store, base)
        return CompactionResult(torn=tail.damage, index_damage=index_damage, repaired=repaired)
    states = indexed_statuses(base, [entry.point_id for entry in tail.entries])
    whole, traces, samples_end, shards, damage = _append_traces(store, base, tail, states)
    accepted = accepted_entries(whole, states)
    row_of_point = {entry.point_id: i for i, entry in enumerate(accepted)}
    failed = [e.scalars for e in tail.entries if e.scalars["status"] in FAILURES]
    new_rows = NewRows(
        columns_of([measurement_row(entry.scalars) for entry in accepted]),
        {"of": np.array([row_of_point[point_id] for point_id in traces.pop("point_id")], np.int64)}
        | {name: column(name, values) for name, values in traces.items()},
        columns_of([measurement_row(scalars) for scalars in failed], FAILURE_COLUMNS),
    )
    summary = updated(
        {} if base is None else base.summary,
        [entry.scalars for entry in accepted],
        [entry.scalars for entry in accepted if entry.point_id not in states],
        failed,
    )
    write_setups(store, tail.setups)  # before a generation refers to them
    manifest = Generation(store.index, tail.consumed, samples_end, shards, summary)
    write_generation(store, base, new_rows, manifest)
    passed = [part for part in tail.damage if part[1] < tail.consumed[part[0]]]
    torn = [part for part in tail.damage if part not in passed]
    return CompactionResult(len(whole), damage + passed, torn, index_damage, repaired)


def equalize_generations(store: Store) -> None:
    """Write the newest generation a second time. Then the store needs no journal, and damage to one
    of the two generations loses nothing. The caller must hold the driver's lock."""
    base, _ = newest_generation(store)
    if base is None:
        return
    before = _generation_before(store, base)
    # Journals that have been removed do not matter.
    existing = {path.name for path in store.journal_paths()}
    if (
        before is not None
        and before.files == base.files
        and _consumed(before, existing) == _consumed(base, existing)
    ):
        _remove_old(store, base)
    else:
        write_generation(store, base, NewRows({}, {}, {}), base)


def _consumed(generation: Generation, journals: Container[str]) -> dict[str, int]:
    """Journal -> the byte up to which a generation has consumed it, for those in ``journals``."""
    return {name: end for name, end in generation.consumed.items() if name in journals}


def write_generation(
    store: Store, base: Generation | None, new_rows: NewRows, manifest: Generation
) -> None:
    """Write the generation after ``base``, commit it, and remove generations older than ``base``.

    New values of a point in ``base`` overwrite its row, and its earlier traces become empty.
    ``manifest``: that of the new generation; its path and files are ignored.
    """
    ids = np.array(new_rows.measurements.get("point_id", []), STATE["id"])
    states = np.empty(0, STATE) if base is None or not len(ids) else base.states()
    index = np.searchsorted(states["id"], ids)
    held = index < states.size
    held[held] = states["id"][index[held]] == ids[held]
    count = states.size
    rows = np.empty(ids.size, np.int64)
    rows[held] = states["row"][index[held]]
    rows[~held] = count + np.arange(int((~held).sum()))
    with next_generation_folder(store, base) as fresh, reading(store.index):
        tables = TableFiles(fresh / "tables.zarr")
        if held.any():
            held_columns = {name: values[held] for name, values in new_rows.measurements.items()}
            overwritten = {name: np.asarray(values) for name, values in held_columns.items()}
            tables.overwrite("measurements", overwritten, rows[held])
            _void_traces(tables, rows[held])
        new = dict(new_rows.measurements)
        if held.any():
            new = {name: values[~held] for name, values in new.items()}
        tables.append("measurements", new, int((~held).sum()))
        traces = dict(new_rows.traces)
        measurement_index = traces.pop("of", np.empty(0, np.int64))
        tables.append(
            "traces", traces | {"measurement": rows[measurement_index]}, measurement_index.size
        )
        failures = new_rows.failures
        tables.append("failures", failures, len(failures.get("point_id", ())))
        path = fresh / "states.bin"
        if base is not None and not len(ids):
            shutil.copyfile(base.path / path.name, path)
        else:
            _write_states(path, states, new_rows, ids=ids, rows=rows, held=held, index=index)
        # Names of journals are unique, so that removed ones can be forgotten.
        existing = {path.name for path in store.journal_paths()}
        consumed = _consumed(manifest, existing)
        current = commit(store, fresh, base, replace(manifest, consumed=consumed))
    _remove_old(store, current, base)


def write_long_generation(
    store: Store,
    base: Generation | None,
    parts: Iterable[NewPart],
    finish: Callable[[], tuple[Mapping[str, Column], Generation] | None],
) -> None:
    """Write the generation after ``base`` as :func:`write_generation` does, with rows that are not
    in memory all at once, and without traces.

    ``parts``: the measurements, in order. ``finish``: called after they are written; returns the
    failures and the manifest, or None to commit nothing.
    """
    states = np.empty(0, STATE) if base is None else base.states()
    ids, codes = bytearray(), bytearray()
    rewritten = [np.empty(0, REWRITTEN)]
    with next_generation_folder(store, base) as fresh:
        tables = TableFiles(fresh / "tables.zarr")
        for part in parts:
            with reading(store.index):
                part_ids, part_codes, part_rewritten = _write_part(tables, part)
            ids += part_ids
            codes += part_codes
            rewritten.append(part_rewritten)
            del part
        finished = finish()
        if finished is None:
            shutil.rmtree(fresh)
            return
        failures, manifest = finished
        changed = np.concatenate(rewritten)
        with reading(store.index):
            if len(changed):
                _void_traces(tables, changed["row"])
                states = states.copy()
                order = np.argsort(states["row"])
                index = order[np.searchsorted(states["row"], changed["row"], sorter=order)]
                states["status"][index] = changed["status"]
            tables.append("traces", {"measurement": np.empty(0, np.int64)}, 0)
            tables.append("failures", failures, len(failures.get("point_id", ())))
            _write_many_states(fresh / "states.bin", states, ids, np.frombuffer(codes, np.uint8))
            existing = {path.name for path in store.journal_paths()}
            consumed = _consumed(manifest, existing)
            current = commit(store, fresh, base, replace(manifest, consumed=consumed))
    _remove_old(store, current, base)


def _write_part(tables: TableFiles, part: NewPart) -> tuple[bytes, bytes, np.ndarray]:
    """Write some rows: append those of new points, and overwrite those of earlier points. Returns
    the ids (packed) and the statuses of the new ones, and the others, a :data:`REWRITTEN` each."""
    status = Texts.of(part.measurements["status"])
    code = status.array(np.uint8, [STATUSES.index(text) for text in status.values])
    old, new = np.flatnonzero(part.old_row >= 0), np.flatnonzero(part.old_row < 0)
    rewritten = np.empty(len(old), REWRITTEN)
    added = part.measurements
    if len(old):
        values = {name: np.asarray(column[old]) for name, column in added.items()}
        tables.overwrite("measurements", values, part.old_row[old])
        rewritten["row"], rewritten["status"] = part.old_row[old], code[old]
        added = {name: column[new] for name, column in added.items()}
    tables.append("measurements", added, len(new))
    return packed_ids(np.array(added["point_id"], STATE["id"])), code[new].tobytes(), rewritten


def _write_many_states(path: Path, states: np.ndarray, ids: bytearray, codes: np.ndarray) -> None:
    """Write the states of measurements, sorted by id: ``states``, and those of new rows after them,
    given by ``ids`` (packed) and ``codes`` (statuses). These take a fraction of the memory of whole
    states."""
    all_ids = np.frombuffer(packed_ids(states["id"]) + ids if states.size else ids, PACKED_ID)
    order = np.argsort(all_ids["first"].astype(np.uint64))
    first = all_ids["first"][order]
    if (first[1:] == first[:-1]).any():
        order = np.lexsort([all_ids["last"], all_ids["first"]])
    del first
    with path.open("wb") as file:
        for start in range(0, len(order), CHUNK_ROWS):
            chunk = order[start : start + CHUNK_ROWS]
            chunk_states = np.empty(len(chunk), STATE)
            chunk_states["id"] = unpacked_ids(all_ids[chunk].tobytes())
            is_new = chunk >= states.size
            chunk_states["row"][is_new] = chunk[is_new]
            chunk_states["status"][is_new] = codes[chunk[is_new] - states.size]
            for name in ("row", "status"):
                chunk_states[name][~is_new] = states[name][chunk[~is_new]]
            chunk_states.tofile(file)


def _void_traces(tables: TableFiles, rows: np.ndarray) -> None:
    """Make the traces of some measurements empty."""
    void = np.flatnonzero(np.isin(tables.read("traces/measurement"), rows))
    if void.size:
        tables.overwrite("traces", {"row_size": np.zeros(void.size, np.int64)}, void)


def _write_states(
    path: Path,
    states: np.ndarray,
    new_rows: NewRows,
    *,
    ids: np.ndarray,
    rows: np.ndarray,
    held: np.ndarray,
    index: np.ndarray,
) -> None:
    if not len(ids):
        states.tofile(path)
        return
    status = Texts.of(new_rows.measurements["status"])
    codes = status.array(np.uint8, [STATUSES.index(text) for text in status.values])
    states = states.copy()
    states["status"][index[held]] = codes[held]
    fresh = np.empty(int((~held).sum()), STATE)
    fresh["id"], fresh["row"], fresh["status"] = ids[~held], rows[~held], codes[~held]
    merged = np.concatenate([states, fresh]) if states.size else fresh
    order = id_order(merged["id"])
    with path.open("wb") as file:
        for first in range(0, len(order), CHUNK_ROWS):
            merged[order[first : first + CHUNK_ROWS]].tofile(file)


def _append_traces(
    store: Store, base: Generation | None, tail: JournalTail, held: Mapping[str, str]
) -> tuple[
    list[JournalEntry], dict[str, list[Any]], int, dict[str, FileDigest], list[tuple[str, int, str]]
]:
    """Write the traces of the accepted entries after the committed samples.

    ``held``: point id -> status in ``base``.

    Returns the undamaged entries (another entry of the same point replaces a damaged one), the new
    rows of the traces table, the new end of the samples, all shards, and the damage.
    """
    samples_end = 0 if base is None else base.samples_end
    writer = ShardWriter(store, samples_end, {} if base is None else dict(base.shards))
    names = ("point_id", *TRACE_TEXT_COLUMNS, "row_start", "row_size")
    rows: dict[str, list[Any]] = {name: [] for name in names}
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
                    added = writer.add(measurement.point.id, measurement.traces)
                    for name, values in zip(names, added, strict=True):
                        rows[name] += values
        if not damaged:
            break
        entries = [entry for entry in entries if id(entry) not in damaged]
    writer.flush()
    return entries, rows, writer.end, writer.shards, damage


def _generation_before(store: Store, base: Generation) -> Generation | None:
    for number in generation_numbers(store):
        if number < base.number:
            try:
                return verified_generation(generation_folder(store, number))
            except DamagedStoreError:
                continue
    return None


def _remove_old(store: Store, current: Generation | None, before: Generation | None = None) -> None:
    """Remove all generations except ``current`` and the undamaged one before it, the remains of
    a killed compaction, and the journals that both generations have consumed to their end."""
    for remains in (store.index / ".next", store.root / ".traces.new"):
        shutil.rmtree(remains, ignore_errors=True)
    for part in store.traces.rglob("*.partial"):  # temporary files of Zarr
        part.unlink(missing_ok=True)
    if current is None:
        return
    before = before or _generation_before(store, current)
    kept_numbers = {current.number} if before is None else {current.number, before.number}
    for number in generation_numbers(store):
        if number not in kept_numbers:
            shutil.rmtree(generation_folder(store, number), ignore_errors=True)
    for path in store.journal_paths():
        if before is not None:
            ends = [stored.consumed.get(path.name, 0) for stored in (current, before)]
            remove_if_done(path, min(ends))
