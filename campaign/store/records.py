"""The journals' records that no generation holds yet, and which of them stand for their points."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from analysis.dataset import COUNT_PREFIX, DAMAGED, OK, STATUSES
from campaign.measurement import Measurement
from campaign.store.generation import STATE, Generation, generation_numbers, newest_generation
from campaign.store.journal import JournalEntry, Scan, has_writer, scan
from campaign.store.layout import Store

OF_MEASUREMENT = tuple(
    each.name
    for each in fields(Measurement)
    if each.name not in ("point", "counts", "meters", "provenance", "traces")
)
"""The columns that are a measurement's own fields as they are."""


@dataclass(frozen=True)
class JournalTail:
    """The records of the journals that no generation holds yet."""

    entries: list[JournalEntry]
    consumed: dict[str, int]
    damage: list[tuple[str, int, str]]
    """(journal, byte, what is wrong there)."""


def journal_tail(
    store: Store, consumed: Mapping[str, int], to_consume: bool = False
) -> JournalTail:
    """Scan the journals from where a generation stopped.

    ``to_consume``: what is scanned will not be looked at again. Then a journal that is still
    written to is read up to the first bytes that are no record: on a network file system they
    may be on their way.
    """
    entries: list[JournalEntry] = []
    ends = {}
    damage = []
    for path in store.journal_paths():
        try:
            # Asked first: its last record may come, and its writer go, while it is scanned.
            is_open = to_consume and has_writer(path)
            found = scan(path, consumed.get(path.name, 0))
        except FileNotFoundError:  # compacted and removed since it was listed
            continue
        if is_open and found.damage:
            first, _ = found.damage[0]
            found = Scan([e for e in found.entries if e.offset < first], first, found.damage)
        entries += found.entries
        ends[path.name] = found.end
        damage += [(path.name, at, what) for at, what in found.damage]
    return JournalTail(entries, ends, damage)


def indexed_statuses(base: Generation | None, ids: Sequence[str]) -> dict[str, str]:
    """The status of those of the points that a generation holds, by id."""
    if base is None or not ids:
        return {}
    states = base.states()
    asked = np.array(ids, STATE["id"])
    at = np.minimum(np.searchsorted(states["id"], asked), max(states.size - 1, 0))
    held = states["id"][at] == asked if states.size else np.zeros(asked.size, bool)
    return {
        ids[i]: STATUSES[code]
        for i, code in zip(np.flatnonzero(held).tolist(), states["status"][at[held]], strict=True)
    }


def accepted_entries(
    entries: Iterable[JournalEntry], held: Mapping[str, str]
) -> list[JournalEntry]:
    """The entries that change the measurements table, at most one a point.

    The first ``ok`` of a point stands for good, one whose trace was damaged until another; a
    failure stands until a later attempt. ``held`` maps the point ids of the table to their status.
    """
    best: dict[str, JournalEntry] = {}
    for entry in entries:
        status = entry.scalars["status"]
        if held.get(entry.point_id) == OK:
            continue
        if held.get(entry.point_id) == DAMAGED and status != OK:
            continue  # its energy and time are better than nothing
        other = best.get(entry.point_id)
        if other is None or _supersedes(entry.scalars, other.scalars):
            best[entry.point_id] = entry
    return list(best.values())


def _supersedes(new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    if old["status"] == OK:
        return False
    return new["status"] == OK or bool(new["attempt"] >= old["attempt"])


@dataclass(frozen=True)
class StoreContents:
    """What a store holds at one moment: its newest whole generation, the journals' tail, the
    tail's entries that stand for their points, and what is damaged."""

    generation: Generation | None
    tail: JournalTail
    accepted: list[JournalEntry]
    damage: list[str]


def read_contents(store: Store) -> StoreContents:
    """Everything that is in the store now.

    Raises:
        DamagedStore: no generation is whole.
    """
    while True:
        base, wrong = newest_generation(store)
        tail = journal_tail(store, {} if base is None else base.consumed)
        number = 0 if base is None else base.number
        # Journals go when two generations hold them: were they still there for this one?
        if max(generation_numbers(store), default=0) <= number + 1 or wrong:
            ids = [entry.point_id for entry in tail.entries]
            taken = accepted_entries(tail.entries, indexed_statuses(base, ids))
            told = [f"{name}: byte {at}: {what}" for name, at, what in tail.damage]
            return StoreContents(base, tail, taken, wrong + told)


def measurement_row(scalars: Mapping[str, Any]) -> dict[str, Any]:
    """One row of the measurements table from a record's scalars."""
    point = scalars["point"]
    row = {
        "point_id": point["id"],
        "site": point["site"],
        "partition": point["partition"],
        "kernel": point["label"],
        "params": point["params"],
        "ranks": point["ranks"],
        "core_mhz": point["core_mhz"],
        "mem_mhz": point["mem_mhz"],
        "repeat": point["repeat"],
        "simulated": bool(scalars["provenance"].get("simulated", False)),
        "imported": bool(scalars["provenance"].get("imported", False)),
        "meters": json.dumps(scalars["meters"]),
        "provenance": json.dumps(scalars["provenance"]),
    }
    for name in OF_MEASUREMENT:
        row[name] = scalars[name]
    for name, value in (scalars["counts"] or {}).items():
        row[COUNT_PREFIX + name] = value
    return row
