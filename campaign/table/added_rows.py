"""What an import adds to a store: which of its rows are new, and what the store knows of their
sites."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from campaign.plan.point import ID_CHARS
from campaign.store.columns import FAILURE_COLUMNS, column
from campaign.store.compaction import compact
from campaign.store.generation import STATE
from campaign.store.layout import Store, writing
from campaign.store.records import StoreContents, read_contents
from campaign.store.setups import has_earlier, write_earlier, write_setups
from campaign.store.site_record import SiteRecord, has_site_record, write_site_record
from campaign.store.summary import updated
from campaign.store.tables import measurement_columns
from campaign.store.verify import give_up_records
from campaign.table.checking import Checked, Rows
from campaign.table.map_file import POINT_ID, TableMap
from campaign.table.points import worth_of
from campaign.table.sidecar import Sidecar
from dvfs.dataset import STATUSES, Columns
from dvfs.input_files import FileError
from dvfs.setting import LegalVolts, Setting
from dvfs.texts import Texts

ATTEMPT = [POINT_ID, "attempt", "start_unix_s"]
"""What a failed attempt is recognised by."""


@dataclass(frozen=True, kw_only=True)
class Imported:
    """What an import did.

    ``new``: rows that the store did not hold, ``failed`` of which are failures; ``held``: rows that
    it did. ``measurements``: all
    that the store holds now. ``damage``: what was damaged in it, a line each.
    ``disagreements``: rows whose energy is not their power times time, a line each. ``notes``:
    what was recognised in the file, a sentence each.
    """

    new: int
    failed: int
    held: int
    sites: list[str]
    measurements: Columns
    damage: list[str]
    disagreements: list[str]
    notes: list[str]


@dataclass(frozen=True)
class Held:
    """The points that a store holds: their ids, S24, sorted; the row of each, int64; and by row
    its worth (:func:`campaign.table.points.worth_of`), energy (J) and time (s)."""

    ids: np.ndarray
    rows: np.ndarray
    worth: np.ndarray
    energy_j: np.ndarray
    time_s: np.ndarray

    @classmethod
    def of(cls, contents: StoreContents) -> Self:
        """Those of a store without journals. By the states of all measurements: ids as texts would
        take several times the memory."""
        base = contents.generation
        states = np.empty(0, STATE) if base is None else base.states()
        worth = np.zeros(len(states), np.int64)
        worth[states["row"]] = worth_of(Texts(states["status"], [*STATUSES]))
        ids, rows = (np.ascontiguousarray(states[name]) for name in ("id", "row"))
        held = measurement_columns(contents)
        return cls(ids, rows, worth, held["energy_j"], held["time_s"])

    def find(self, checked: Checked) -> tuple[np.ndarray, np.ndarray]:
        """int64, one a row: the row that the store has of its point, -1 without; and bool, whether
        that has less worth: it is a failure, and the new one is complete.

        Raises:
            FileError: the store holds the point with another energy or time.
        """
        rows = checked.rows
        ids = np.asarray(rows[POINT_ID], f"S{ID_CHARS}")
        at = np.searchsorted(self.ids, ids)
        there = at < len(self.ids)
        there[there] = self.ids[at[there]] == ids[there]
        theirs = self.rows[at[there]]
        status = rows["status"]
        assert isinstance(status, Texts)  # noqa: S101
        worth, worth_held = worth_of(status)[there], self.worth[theirs]
        values = np.column_stack([np.asarray(rows[n])[there] for n in ("energy_j", "time_s")])
        values_held = np.column_stack([self.energy_j[theirs], self.time_s[theirs]])
        same = (values == values_held) | (np.isnan(values) & np.isnan(values_held))
        for i in np.flatnonzero(~same.all(axis=1) & (worth > 0) & (worth_held > 0))[:1]:
            raise FileError(
                "the store holds this point with "
                f"{_cost(values_held[i, 0], 'J')} and {_cost(values_held[i, 1], 's')}",
                "give the new one another repeat, or import into another store",
                f"{checked.path}:{checked.lines[there][i]}",
            )
        place = np.full(len(there), -1, np.int64)
        place[there] = theirs
        better = np.zeros(len(there), bool)
        better[there] = worth > worth_held
        return place, better


def compacted(store: Store) -> tuple[StoreContents, list[str]]:
    """What a store holds, all of it in its index; and what was damaged, a line each. The caller
    must hold the driver's lock."""
    with writing(store):
        damage = compact(store).messages(writers_gone=True)
        damage += give_up_records(store)
    return read_contents(store), damage


def _cost(value: float, unit: str) -> str:
    return f"no value in {unit}" if np.isnan(value) else f"{value:g} {unit}"


def new_failures(failures: Rows, held: Mapping[str, np.ndarray]) -> Rows:
    """The failed attempts that the store does not hold, in the order in which they began."""
    known = set(zip(*(held[name].tolist() for name in ATTEMPT), strict=True))
    columns = {name: column(name, np.asarray(failures[name])) for name in FAILURE_COLUMNS}
    attempts = zip(*(columns[name].tolist() for name in ATTEMPT), strict=True)
    new = np.flatnonzero([attempt not in known for attempt in attempts])
    new = new[np.argsort(columns["start_unix_s"][new], kind="stable")]
    return {name: values[new] for name, values in columns.items()}


def with_measurements(summary: Mapping[str, Any], rows: Rows) -> dict[str, Any]:
    """The summary with the flags and times of measurements."""
    measured = np.flatnonzero(np.asarray(rows["start_unix_s"]) > 0)
    names = ("site", "partition", "start_unix_s", "status", "setup", "provenance")
    accepted = (
        {
            "point": {"site": site, "partition": partition},
            "start_unix_s": start,
            "status": status,
            "setup": setup,
            "provenance": json.loads(provenance) if '"flags"' in provenance else {},
        }
        for site, partition, start, status, setup, provenance in zip(
            *(np.asarray(rows[name][measured]).tolist() for name in names), strict=True
        )
    )
    return updated(summary, accepted, [], [])


def with_failures(summary: Mapping[str, Any], failures: Rows) -> dict[str, Any]:
    """The summary with failed attempts."""
    failed = (
        {"status": status, "text": text}
        for status, text in zip(
            *(np.asarray(failures[name]).tolist() for name in ("status", "text")), strict=True
        )
    )
    return updated(summary, [], [], failed)


def write_records(store: Store, rows: Rows, mapping: TableMap, sidecar: Sidecar) -> None:
    """Write what a store does not know yet of the sites of imported rows, and how they were
    measured."""
    for site, record in site_records(rows, mapping, sidecar).items():
        if not has_site_record(store, site):
            write_site_record(store, site, record)
    write_setups(store, sidecar.setups)
    for site, use in sidecar.earlier.items():
        if not has_earlier(store, site):
            write_earlier(store, site, use)


def site_records(rows: Rows, mapping: TableMap, sidecar: Sidecar) -> dict[str, SiteRecord]:
    """What the store should know of each imported site: what stands beside the table, and the
    classes' domains, the device and the legal settings that the map gives."""
    records = {}
    sites = rows["site"]
    assert isinstance(sites, Texts)  # noqa: S101
    for code in np.unique(sites.codes):
        site, rows_of_site = sites.values[code], np.flatnonzero(sites.codes == code)
        has_mem, has_uncore = (
            np.isfinite(np.asarray(rows[name])[rows_of_site]).any()
            for name in ("mem_mhz", "uncore_mhz")
        )
        of_gpu = has_mem and not has_uncore
        usual = SiteRecord(device="gpu" if of_gpu else "cpu")
        record = sidecar.sites.get(site, usual)
        records[site] = SiteRecord(
            {name: str(domain) for name, domain in mapping.classes.items()} or record.classes,
            mapping.device or record.device,
            _legal(rows, rows_of_site, mapping) or record.legal,
        )
    return records


def _legal(rows: Rows, rows_of_site: np.ndarray, mapping: TableMap) -> LegalVolts:
    """The map's legal settings, with their voltages by the map, else by ``rows_of_site``."""
    if not mapping.legal:
        return {}
    volts: dict[str, dict[Any, float]] = {}
    second = (
        "mem_mhz" if np.isnan(np.asarray(rows["uncore_mhz"])[rows_of_site]).all() else "uncore_mhz"
    )
    # Under a limit a lower clock may have been run at, and its voltage measured.
    unlimited = np.isnan(np.asarray(rows["power_limit_w"])[rows_of_site])
    held = unlimited | ~unlimited.any()
    for name, clock, pairs in (
        ("core", "core_mhz", mapping.voltage.core),
        ("mem", second, mapping.voltage.mem),
    ):
        mhz, volt = (np.asarray(rows[column])[rows_of_site] for column in (clock, f"{name}_v"))
        known = held & ~np.isnan(mhz) & ~np.isnan(volt)
        clocks, of = np.unique(mhz[known], return_inverse=True)
        volts[name] = {
            clock: float(np.median(volt[known][of == i])) for i, clock in enumerate(clocks.tolist())
        } | dict(pairs)
    legal: dict[Setting, tuple[float | None, float | None]] = {}
    for core_mhz, *others in mapping.legal:
        mhz = others[0] if others else None
        setting = Setting.of_row({"core_mhz": core_mhz, second: mhz})
        legal[setting] = (volts["core"].get(core_mhz), volts["mem"].get(mhz))
    return legal
