"""Importing: a table's rows go into a store, all of them or none."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from campaign.plan.point import ID_CHARS
from campaign.store.columns import FAILURE_COLUMNS, column
from campaign.store.compaction import (
    NewRows,
    compact,
    equalize_generations,
    write_generation,
)
from campaign.store.generation import Generation, newest_generation
from campaign.store.layout import Store, create_store, driver_lock, writing
from campaign.store.records import read_contents
from campaign.store.samples import ShardWriter, repair_descriptions
from campaign.store.setups import has_earlier, write_earlier, write_setups
from campaign.store.site_record import SiteRecord, Volts, has_site_record, write_site_record
from campaign.store.summary import updated, with_sites
from campaign.store.tables import failure_columns, measurement_columns
from campaign.store.verify import give_up_records
from campaign.table.checking import Checked, Provenance, Rows, checked_rows
from campaign.table.formats import FORMATS
from campaign.table.map_file import POINT_ID, TableMap, read_map, with_arguments
from campaign.table.points import worth_of
from campaign.table.reading import read_table, recognised_layout
from campaign.table.sidecar import Sidecar, read_sidecar, sidecar_path
from dvfs.dataset import TRACE_TEXT_COLUMNS, Columns
from dvfs.input_files import FileError
from dvfs.setting import Setting
from dvfs.texts import Texts

if TYPE_CHECKING:
    from campaign.store.measurement import Trace
    from campaign.table.windows import PowerLogs

ATTEMPT = [POINT_ID, "attempt", "start_unix_s"]
"""What a failed attempt is recognised by."""


class TraceSource(Protocol):
    """Traces of points: a folder that export wrote, or the windows of power logs."""

    @property
    def points(self) -> list[str]:
        """The ids of the points that have traces."""

    def of(self, point_id: str) -> Sequence[Trace]:
        """A point's traces."""


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


def import_table(
    table: Path,
    store: Path,
    map_file: Path | None = None,
    traces: Path | None = None,
    site: str | None = None,
    layout: str | None = None,
    constants: Mapping[str, str | float] = MappingProxyType({}),
    logs: PowerLogs | None = None,
) -> Imported:
    """Read a table, check it, and put its rows into a store, which is made if it is not there.

    ``traces``: a folder of traces that export wrote with the table. ``site``: that of every row, in
    place of the map's. ``layout``: the format that the file is in (campaign/table/formats), where
    the map does not say it; without, it is recognised. ``constants``: values of columns for all
    rows, in place of what file and map say. ``logs``: power logs, whose windows the rows are.

    Raises:
        FileError: the table, the map file or the traces cannot be read, or a row is wrong.
        NotAStoreError: ``store`` is there and is something else.
        StoreBusyError: a driver runs on the store.
    """
    mapping, constants = read_map(map_file), {**constants}
    found = None if layout else recognised_layout(table, mapping)
    if site is not None:
        constants["site"] = site
    mapping = with_arguments(mapping, layout or found, constants)
    # A table that is refused must not leave a new, empty store behind.
    raw = read_table(table, mapping, map_file, logs)
    if logs is not None and "repeat" not in raw.columns:
        mapping = mapping.model_copy(update={"number_repeats": True})
    if site is not None and not {*raw.texts("site").values} <= {site}:
        raise FileError("has a column site", "leave out --site", str(table))
    fixed = mapping.constants.get("site")
    if (
        site is None
        and fixed is not None
        and not {*raw.texts("site").values}
        <= {
            fixed,
            str(fixed),
        }
    ):
        raise FileError(
            f"the table {table} has a column site",
            "leave site out of [constants]",
            f"{map_file}: constants.site",
        )
    checked = checked_rows(raw, mapping)
    if found:
        checked.notes.insert(
            0, f"{table}: read as {FORMATS.load(found).ABOUT.tool}'s (--from {found})"
        )
    sidecar = read_sidecar(table)
    if sidecar != Sidecar():
        checked.notes.append(f"{sidecar_path(table)}: read with it")
    source: TraceSource | None = None
    if traces is not None:
        from campaign.table.trace_folder import TraceFolder  # noqa: PLC0415

        source = TraceFolder(traces)
    elif raw.traces:
        from campaign.table.windows import PointTraces  # noqa: PLC0415

        point_ids = np.asarray(checked.rows[POINT_ID]).tolist()
        of_point = zip(point_ids, checked.lines.tolist(), strict=True)
        source = PointTraces({point_id: raw.traces[line] for point_id, line in of_point})
    into = create_store(store.resolve(), store.name)
    return import_rows(checked, into, mapping, sidecar, source)


def import_rows(
    checked: Checked,
    store: Store,
    mapping: TableMap,
    sidecar: Sidecar | None = None,
    traces: TraceSource | None = None,
) -> Imported:
    """Put a table's rows into a store: all of them or none.

    They become a new generation of the index, which one rename commits: killed at any moment,
    the store holds the table whole or not at all, and importing again completes it. A point that
    the store holds as failed is replaced by one that is complete.

    Raises:
        FileError: the table has no rows, or the store holds a point of it with another energy
            or time.
        StoreBusyError: a driver runs on the store.
    """
    rows = checked.rows
    if not len(checked.lines):
        raise FileError("has no rows", "nothing to import", str(checked.path))
    sidecar = sidecar or Sidecar()
    status, of_site = rows["status"], rows["site"]
    assert isinstance(status, Texts) and isinstance(of_site, Texts)  # noqa: S101
    with driver_lock(store):
        with writing(store):
            damage = compact(store).messages(writers_gone=True)  # what is in journals goes first
            damage += give_up_records(store)
        contents = read_contents(store)
        held = measurement_columns(contents)
        there, better = _held(checked, status, held)
        new = ~there | better
        is_first = not len(held[POINT_ID])
        with writing(store):
            for site, record in site_records(rows, mapping, sidecar).items():
                if not has_site_record(store, site):
                    write_site_record(store, site, record)
            write_setups(store, sidecar.setups)
            for site, use in sidecar.earlier.items():
                if not has_earlier(store, site):
                    write_earlier(store, site, use)
            failures = _new_failures(checked, failure_columns(contents))
            if new.any() or len(failures[POINT_ID]):
                added = rows if new.all() else {name: own[new] for name, own in rows.items()}
                per_site = np.bincount(of_site.codes[~there], minlength=len(of_site.values))
                points = {s: n for s, n in zip(of_site.values, per_site.tolist(), strict=True) if n}
                _add(store, added, points, failures, traces)
            equalize_generations(store)
        measurements = rows if is_first else measurement_columns(read_contents(store))
        said = measurements["provenance"]
        if isinstance(said, Provenance) and said.says_only_lines:  # no check reads these
            measurements = {**rows, "provenance": Texts.same('{"imported": true}', len(said))}
    return Imported(
        new=int(new.sum()),
        failed=int((new & (worth_of(status) == 0)).sum()),
        held=int((~new).sum()),
        sites=sorted(of_site.values[code] for code in np.unique(of_site.codes)),
        measurements=Columns(dict(sorted(measurements.items())), {}),
        damage=damage,
        disagreements=checked.disagreements,
        notes=checked.notes,
    )


def _held(
    checked: Checked, status: Texts, held: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """bool, one a row: whether the store holds its point; and, if so, with less worth: failed
    where the row is complete. ``held``: the measurements of the store.

    Raises:
        FileError: the store holds it with another energy or time.
    """
    rows = checked.rows
    mine, ids = (np.asarray(part[POINT_ID], f"S{ID_CHARS}") for part in (rows, held))
    order = np.argsort(ids)
    at = np.searchsorted(ids, mine, sorter=order)
    there = at < len(ids)
    there[there] = ids[order[at[there]]] == mine[there]
    theirs = order[at[there]]
    worth, worth_held = worth_of(status)[there], worth_of(Texts.of(held["status"]))[theirs]
    values, values_held = (
        np.stack([np.asarray(part[name])[own] for name in ("energy_j", "time_s")], axis=1)
        for part, own in ((rows, there), (held, theirs))
    )
    same = (values == values_held) | (np.isnan(values) & np.isnan(values_held))
    for i in np.flatnonzero(~same.all(axis=1) & (worth > 0) & (worth_held > 0))[:1]:
        raise FileError(
            "the store holds this point with "
            f"{_cost(values_held[i, 0], 'J')} and {_cost(values_held[i, 1], 's')}",
            "give the new one another repeat, or import into another store",
            f"{checked.path}:{checked.lines[there][i]}",
        )
    better = np.zeros(len(there), bool)
    better[there] = worth > worth_held
    return there, better


def _cost(value: float, unit: str) -> str:
    return f"no value in {unit}" if np.isnan(value) else f"{value:g} {unit}"


def _new_failures(checked: Checked, held: Mapping[str, np.ndarray]) -> Rows:
    """The failed attempts that the store does not hold, in the order in which they began."""
    known = set(zip(*(held[name].tolist() for name in ATTEMPT), strict=True))
    failures = {name: column(name, np.asarray(checked.failures[name])) for name in FAILURE_COLUMNS}
    mine = zip(*(failures[name].tolist() for name in ATTEMPT), strict=True)
    new = np.flatnonzero([attempt not in known for attempt in mine])
    new = new[np.argsort(failures["start_unix_s"][new], kind="stable")]
    return {name: own[new] for name, own in failures.items()}


def _add(
    store: Store,
    rows: Rows,
    new_points: Mapping[str, int],
    failures: Rows,
    traces: TraceSource | None,
) -> None:
    """Commit rows of points that the store does not hold, or holds as failed."""
    base, _ = newest_generation(store)
    now = base or Generation(store.index)
    trace_columns, now = _with_traces(store, now, np.asarray(rows[POINT_ID]), traces)
    summary = with_sites(_with_records(now.summary, rows, failures), new_points)
    new_rows = NewRows(rows if len(rows[POINT_ID]) else {}, trace_columns, failures)
    write_generation(store, base, new_rows, replace(now, summary=summary))


def _with_traces(
    store: Store, now: Generation, point_ids: np.ndarray, traces: TraceSource | None
) -> tuple[dict[str, np.ndarray], Generation]:
    """Write the points' traces after the committed samples; the rows of the traces table."""
    if traces is None:
        return {}, now
    if now.samples_end:
        repair_descriptions(store, now.samples_end)
    writer = ShardWriter(store, now.samples_end, dict(now.shards))
    names = ("of", *TRACE_TEXT_COLUMNS, "row_start", "row_size")
    rows: dict[str, list[Any]] = {name: [] for name in names}
    place = {point_id: i for i, point_id in enumerate(point_ids.tolist())}
    for point_id in traces.points:
        if point_id in place:
            added = writer.add(point_id, traces.of(point_id))
            for name, values in zip(names, added, strict=True):
                rows[name] += values
    writer.flush()
    rows["of"] = [place[point_id] for point_id in rows["of"]]
    columns = {"of": np.array(rows.pop("of"), np.int64)}
    columns |= {name: column(name, values) for name, values in rows.items()}
    return columns, replace(now, samples_end=writer.end, shards=writer.shards)


def _with_records(summary: dict[str, Any], rows: Rows, failures: Rows) -> dict[str, Any]:
    """The summary with the flags and times of measurements, and with failed attempts."""
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
    failed = [
        {"status": status, "text": text}
        for status, text in zip(
            *(np.asarray(failures[name]).tolist() for name in ("status", "text")), strict=True
        )
    ]
    return updated(summary, accepted, [], failed)


def site_records(rows: Rows, mapping: TableMap, sidecar: Sidecar) -> dict[str, SiteRecord]:
    """What the store should know of each imported site: what stands beside the table, and the
    classes' domains, the device and the legal settings that the map gives."""
    records = {}
    sites = rows["site"]
    assert isinstance(sites, Texts)  # noqa: S101
    for code, first in zip(*np.unique(sites.codes, return_index=True), strict=True):
        site, own = sites.values[code], np.flatnonzero(sites.codes == code)
        usual = SiteRecord(device="cpu" if np.isnan(rows["mem_mhz"][first]) else "gpu")
        record = sidecar.sites.get(site, usual)
        records[site] = SiteRecord(
            {name: str(domain) for name, domain in mapping.classes.items()} or record.classes,
            mapping.device or record.device,
            _legal(rows, own, mapping) or record.legal,
        )
    return records


def _legal(rows: Rows, own: np.ndarray, mapping: TableMap) -> Volts:
    """The map's legal settings, with their voltages by the map, else by the site's ``own`` rows."""
    if not mapping.legal:
        return {}
    volts: dict[str, dict[Any, float]] = {}
    for name, pairs in (("core", mapping.voltage.core), ("mem", mapping.voltage.mem)):
        mhz, volt = (np.asarray(rows[f"{name}_{unit}"])[own] for unit in ("mhz", "v"))
        known = ~np.isnan(mhz) & ~np.isnan(volt)
        clocks, of = np.unique(mhz[known], return_inverse=True)
        volts[name] = {
            clock: float(np.median(volt[known][of == i])) for i, clock in enumerate(clocks.tolist())
        } | dict(pairs)
    legal: Volts = {}
    for core_mhz, *mem in mapping.legal:
        mem_mhz = mem[0] if mem else None
        legal[Setting(core_mhz, mem_mhz)] = (volts["core"].get(core_mhz), volts["mem"].get(mem_mhz))
    return legal
