"""The rows that an import adds to a store, and the records of their sites."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from campaign.plan.point import ID_CHARS
from campaign.store.columns import FAILURE_COLUMNS, column
from campaign.store.compaction import compact
from campaign.store.generation import places_of
from campaign.store.layout import DamagedStoreError, Store, writing
from campaign.store.records import StoreContents, read_contents
from campaign.store.setups import has_earlier, write_earlier, write_setups
from campaign.store.site_record import (
    SiteRecord,
    has_site_record,
    read_site_record,
    write_site_record,
)
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
"""Columns that identify a failed attempt."""


@dataclass(frozen=True, kw_only=True)
class Imported:
    """The result of an import.

    ``new``: rows that the store did not hold, ``failed`` of which are failures; ``held``: rows that
    it held. ``measurements``: all measurements of the store afterwards. ``damage``: a line for each
    damaged part of the store. ``disagreements``: a line for each row whose energy is not its power
    times time. ``notes``: what was recognised in the file, a sentence each.
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
    """The points of a store: sorted ids, S24; the row of each, int64; and by row the worth
    (:func:`campaign.table.points.worth_of`), energy (J) and time (s)."""

    ids: np.ndarray
    rows: np.ndarray
    worth: np.ndarray
    energy_j: np.ndarray
    time_s: np.ndarray

    @classmethod
    def of(cls, contents: StoreContents) -> Self:
        """The points of a store without journals, from the states of all measurements: ids as texts
        would take several times the memory."""
        states = contents.generation.states()
        worth = np.zeros(len(states), np.int64)
        worth[states["row"]] = worth_of(Texts(states["status"], [*STATUSES]))
        ids, rows = (np.ascontiguousarray(states[name]) for name in ("id", "row"))
        held = measurement_columns(contents)
        return cls(ids, rows, worth, held["energy_j"], held["time_s"])

    def find(self, checked: Checked) -> tuple[np.ndarray, np.ndarray]:
        """int64, by row: the store's row of the same point, -1 if there is none; and bool: whether
        that one has less worth, as a failure has when the new row is complete.

        Raises:
            FileError: the store holds the point with another energy or time.
        """
        rows = checked.rows
        ids = np.asarray(rows[POINT_ID], f"S{ID_CHARS}")
        position = places_of(self.ids, ids)
        is_held = position >= 0
        held_rows = self.rows[position[is_held]]
        worth = worth_of(Texts.of(rows["status"]))[is_held]
        worth_held = self.worth[held_rows]
        values = np.column_stack([np.asarray(rows[n])[is_held] for n in ("energy_j", "time_s")])
        values_held = np.column_stack([self.energy_j[held_rows], self.time_s[held_rows]])
        is_equal = (values == values_held) | (np.isnan(values) & np.isnan(values_held))
        for i in np.flatnonzero(~is_equal.all(axis=1) & (worth > 0) & (worth_held > 0))[:1]:
            raise FileError(
                "the store holds this point with "
                f"{_cost(values_held[i, 0], 'J')} and {_cost(values_held[i, 1], 's')}",
                "give the new one another repeat, or import into another store",
                f"{checked.path}:{checked.lines[is_held][i]}",
            )
        place = np.full(len(is_held), -1, np.int64)
        place[is_held] = held_rows
        better = np.zeros(len(is_held), bool)
        better[is_held] = worth > worth_held
        return place, better


def compacted(store: Store) -> tuple[StoreContents, list[str]]:
    """Compact a store. Return its contents, and a line for each damaged part. The caller must hold
    the driver's lock."""
    with writing(store):
        damage = compact(store).messages(writers_gone=True)
        damage += give_up_records(store)
    return read_contents(store), damage


def _cost(value: float, unit: str) -> str:
    return f"no value in {unit}" if np.isnan(value) else f"{value:g} {unit}"


def new_failures(failures: Rows, held: Mapping[str, np.ndarray]) -> Rows:
    """The failed attempts that the store does not hold, in the order of their start."""
    held_attempts = set(zip(*(held[name].tolist() for name in ATTEMPT), strict=True))
    columns = {name: column(name, np.asarray(failures[name])) for name in FAILURE_COLUMNS}
    attempts = zip(*(columns[name].tolist() for name in ATTEMPT), strict=True)
    new = np.flatnonzero([attempt not in held_attempts for attempt in attempts])
    new = new[np.argsort(columns["start_unix_s"][new], kind="stable")]
    return {name: values[new] for name, values in columns.items()}


def with_measurements(summary: Mapping[str, Any], rows: Rows) -> dict[str, Any]:
    """The summary updated by the flags and times of measurements."""
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
    """The summary updated by failed attempts."""
    failed = (
        {"status": status, "text": text}
        for status, text in zip(
            *(np.asarray(failures[name]).tolist() for name in ("status", "text")), strict=True
        )
    )
    return updated(summary, [], [], failed)


def write_records(store: Store, rows: Rows, mapping: TableMap, sidecar: Sidecar) -> list[str]:
    """Write the records of the imported rows' sites, and of the set-ups that the store lacks.
    Returns notes on sites that the store has as CPUs, and whose rows look like a GPU's."""
    held: dict[str, SiteRecord] = {}
    for site in Texts.of(rows["site"]).present():
        with suppress(DamagedStoreError):
            if has_site_record(store, site):
                held[site] = read_site_record(store, site)
    for site, record in site_records(rows, mapping, sidecar, held).items():
        if record != held.get(site):
            write_site_record(store, site, record)
    write_setups(store, sidecar.setups)
    for site, use in sidecar.earlier.items():
        if not has_earlier(store, site):
            write_earlier(store, site, use)
    if mapping.device:
        return []
    return [
        f"{site}: the store has it as a CPU, and these rows have memory clocks as a GPU's have; if "
        f'it is a GPU, import with device = "gpu" in a map: Slurm\'s options differ'
        for site, record in held.items()
        if record.device == "cpu" and site not in sidecar.sites and _is_gpu(rows, site)
    ]


def _is_gpu(rows: Rows, site: str) -> bool:
    """Whether a site's rows have a memory clock and no uncore clock, as a GPU's."""
    sites = Texts.of(rows["site"])
    rows_of_site = np.flatnonzero(sites.codes == sites.values.index(site))
    has_mem, has_uncore = (
        np.isfinite(np.asarray(rows[name])[rows_of_site]).any()
        for name in ("mem_mhz", "uncore_mhz")
    )
    return bool(has_mem and not has_uncore)


def site_records(
    rows: Rows, mapping: TableMap, sidecar: Sidecar, held: Mapping[str, SiteRecord]
) -> dict[str, SiteRecord]:
    """The record of each imported site: the store's (``held``), and what it lacks of the sidecar
    file's, with the classes' domains, the device and the legal settings of the map, which replace
    others."""
    records = {}
    sites = Texts.of(rows["site"])
    for code in np.unique(sites.codes):
        site, rows_of_site = sites.values[code], np.flatnonzero(sites.codes == code)
        usual = SiteRecord(device="gpu" if _is_gpu(rows, site) else "cpu")
        beside = sidecar.sites.get(site, usual)
        record = held.get(site, beside)
        of_map = {name: str(domain) for name, domain in mapping.classes.items()}
        known = record.legal or beside.legal
        records[site] = SiteRecord(
            beside.classes | record.classes | of_map,
            mapping.device or record.device,
            _legal(rows, rows_of_site, mapping, known) or known,
        )
    return records


def _legal(
    rows: Rows, rows_of_site: np.ndarray, mapping: TableMap, known: LegalVolts
) -> LegalVolts:
    """The map's legal settings, with voltages of the map, else of ``rows_of_site``, else those that
    are ``known``."""
    if not mapping.legal:
        return {}
    volts: dict[str, dict[Any, float]] = {}
    second = (
        "mem_mhz" if np.isnan(np.asarray(rows["uncore_mhz"])[rows_of_site]).all() else "uncore_mhz"
    )
    # A power limit may lower the clock, and then the voltage is that of the lower clock.
    unlimited = np.isnan(np.asarray(rows["power_limit_w"])[rows_of_site])
    is_usable = unlimited | ~unlimited.any()
    for name, clock, pairs in (
        ("core", "core_mhz", mapping.voltage.core),
        ("mem", second, mapping.voltage.mem),
    ):
        mhz, volt = (np.asarray(rows[column])[rows_of_site] for column in (clock, f"{name}_v"))
        has_volts = is_usable & ~np.isnan(mhz) & ~np.isnan(volt)
        clocks, codes = np.unique(mhz[has_volts], return_inverse=True)
        volts[name] = {
            clock: float(np.median(volt[has_volts][codes == i]))
            for i, clock in enumerate(clocks.tolist())
        } | dict(pairs)
    legal: dict[Setting, tuple[float | None, float | None]] = {}
    for core_mhz, *second_clock in mapping.legal:
        mhz = second_clock[0] if second_clock else None
        setting = Setting.of_row({"core_mhz": core_mhz, second: mhz})
        core_v, mem_v = known.get(setting, (None, None))
        legal[setting] = (volts["core"].get(core_mhz, core_v), volts["mem"].get(mhz, mem_v))
    return legal
