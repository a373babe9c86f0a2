"""The journals' records that are in no generation yet, which of them are valid, and the summary and
the states of all points, including these records."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from campaign.store.generation import (
    STATE,
    Generation,
    generation_numbers,
    newest_generation,
    places_of,
)
from campaign.store.journal import JournalEntry, has_writer, scan
from campaign.store.layout import Store
from campaign.store.measurement import Measurement
from campaign.store.summary import updated
from dvfs.dataset import COMPLETE, COUNT_PREFIX, DAMAGED, STATUSES
from dvfs.setting import NUMBERS

MEASUREMENT_FIELDS = tuple(
    item.name
    for item in fields(Measurement)
    if item.name not in ("point", "counts", "meters", "provenance", "traces")
)
"""The columns that are fields of :class:`Measurement` unchanged."""


@dataclass(frozen=True)
class JournalTail:
    """The records of the journals that are in no generation yet.

    ``consumed``: journal -> the byte up to which it was scanned.
    """

    entries: list[JournalEntry]
    consumed: dict[str, int]
    damage: list[tuple[str, int, str]]
    """(journal, byte, description)."""
    setups: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The set-ups that these or later records may refer to, by their id."""


def journal_tail(
    store: Store, consumed: Mapping[str, int], to_consume: bool = False
) -> JournalTail:
    """Scan the journals from the bytes where a generation stopped.

    ``to_consume``: the records will not be scanned again. Then a journal with a writer is read only
    up to the first damaged byte: on a network file system a record may not be complete yet.
    """
    entries: list[JournalEntry] = []
    ends = {}
    damage = []
    setups: dict[str, dict[str, Any]] = {}
    for path in store.journal_paths():
        try:
            # Before the scan: a writer may append its last record and end during the scan.
            is_open = to_consume and has_writer(path)
            scanned = scan(path, consumed.get(path.name, 0))
        except FileNotFoundError:  # compacted and removed meanwhile
            continue
        if is_open and scanned.damage:
            first, _ = scanned.damage[0]
            before = [entry for entry in scanned.entries if entry.offset < first]
            scanned = replace(scanned, entries=before, end=first)
        entries += scanned.entries
        setups |= scanned.setups
        ends[path.name] = scanned.end
        damage += [(path.name, offset, problem) for offset, problem in scanned.damage]
    return JournalTail(entries, ends, damage, setups)


def indexed_statuses(base: Generation, ids: Sequence[str]) -> dict[str, str]:
    """Id -> status, of those of the points that are in a generation."""
    if not ids:
        return {}
    codes = status_codes(base.states(), np.array(ids, STATE["id"]))
    return {
        point_id: STATUSES[code]
        for point_id, code in zip(ids, codes.tolist(), strict=True)
        if code >= 0
    }


def accepted_entries(
    entries: Iterable[JournalEntry], held: Mapping[str, str]
) -> list[JournalEntry]:
    """The entries that change the measurements table, at most one for a point.

    The first complete entry of a point is final; a complete one replaces one with a damaged trace;
    a later attempt replaces a failure. ``held``: point id -> status in the table.
    """
    best: dict[str, JournalEntry] = {}
    for entry in entries:
        status = entry.scalars["status"]
        if held.get(entry.point_id) in COMPLETE:
            continue
        if held.get(entry.point_id) == DAMAGED and status not in COMPLETE:
            continue  # its energy and time stay valid
        earlier = best.get(entry.point_id)
        if earlier is None or _supersedes(entry.scalars, earlier.scalars):
            best[entry.point_id] = entry
    return list(best.values())


def _supersedes(new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    if old["status"] in COMPLETE:
        return False
    return new["status"] in COMPLETE or bool(new["attempt"] >= old["attempt"])


@dataclass(frozen=True)
class StoreContents:
    """The contents of a store at one moment: its newest undamaged generation, the journals'
    records after it, those of them that are valid for their points, and the damage."""

    generation: Generation
    tail: JournalTail
    accepted: list[JournalEntry]
    damage: list[str]


def read_contents(store: Store) -> StoreContents:
    """The present contents of a store.

    Raises:
        DamagedStoreError: every generation is damaged.
    """
    while True:
        base, index_damage = newest_generation(store)
        tail = journal_tail(store, base.consumed)
        # Journals are removed two generations later: were they complete for this one?
        if max(generation_numbers(store), default=0) <= base.number + 1 or index_damage:
            ids = [entry.point_id for entry in tail.entries]
            accepted = accepted_entries(tail.entries, indexed_statuses(base, ids))
            damage = [f"{name}: byte {offset}: {problem}" for name, offset, problem in tail.damage]
            index_damage = [
                f"{text}; nothing is lost: the next run or import rewrites it"
                for text in index_damage
            ]
            return StoreContents(base, tail, accepted, index_damage + damage)


def measurement_row(scalars: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the measurements table from a record's scalars."""
    point = scalars["point"]
    row = {
        "point_id": point["id"],
        "site": point["site"],
        "partition": point["partition"],
        "kernel": point["label"],
        "params": point["params"],
        "ranks": point["ranks"],
        **{name: point.get(name) for name in NUMBERS},
        "profile": point.get("profile") or "",
        "repeat": point["repeat"],
        "table_line": 0,
        "simulated": bool(scalars["provenance"].get("simulated", False)),
        "imported": bool(scalars["provenance"].get("imported", False)),
        "meters": json.dumps(scalars["meters"]),
        "provenance": json.dumps(scalars["provenance"]),
    }
    for name in MEASUREMENT_FIELDS:
        row[name] = scalars[name]
    for name, value in (scalars["counts"] or {}).items():
        row[COUNT_PREFIX + name] = value
    return row


def summary_and_states(contents: StoreContents) -> tuple[dict[str, Any], np.ndarray]:
    """The summary and the states (:data:`STATE`, sorted by id) with the journals' records."""
    states, summary = contents.generation.states(), contents.generation.summary
    if contents.tail.entries:
        ids = np.array([entry.point_id for entry in contents.accepted], STATE["id"])
        fresh = status_codes(states, ids) < 0
        summary = updated(
            summary,
            [entry.scalars for entry in contents.accepted],
            [e.scalars for e, new in zip(contents.accepted, fresh, strict=True) if new],
            [entry.scalars for entry in contents.tail.entries],
        )
        tail = np.empty(ids.size, STATE)
        tail["id"], tail["row"] = ids, -1
        tail["status"] = [STATUSES.index(entry.scalars["status"]) for entry in contents.accepted]
        states = np.concatenate([states[~np.isin(states["id"], ids)], tail])
        states = states[np.argsort(states["id"], kind="stable")]
    return summary, states


def status_codes(states: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """The status of each id as an index into STATUSES, int64; -1 if it has none."""
    place = places_of(states["id"], ids)
    codes = np.full(ids.size, -1)
    codes[place >= 0] = states["status"][place[place >= 0]]
    return codes
