"""Importing: a table's rows go into a store, all of them or none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from campaign.store.compaction import equalize_generations, next_generation
from campaign.store.generation import Generation
from campaign.store.layout import Store, create_store, driver_lock, writing
from campaign.store.records import read_contents
from campaign.store.samples import ShardWriter, repair_descriptions
from campaign.store.summary import with_sites
from campaign.store.tables import failure_columns, measurement_columns
from campaign.table.added_rows import (
    Held,
    Imported,
    compacted,
    new_failures,
    with_failures,
    with_measurements,
    write_records,
)
from campaign.table.checking import Checked, Rows, checked_rows
from campaign.table.delimited import TooLongError
from campaign.table.formats import FORMATS
from campaign.table.map_file import POINT_ID, TableMap, read_map, with_arguments
from campaign.table.points import worth_of
from campaign.table.reading import RawTable, read_table, recognised_layout
from campaign.table.sidecar import Sidecar, read_sidecar, sidecar_path
from dvfs.dataset import Columns
from dvfs.input_files import FileError
from dvfs.texts import Texts

if TYPE_CHECKING:
    from campaign.store.measurement import Trace
    from campaign.table.windows import PowerLogs


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
    """Read a table, check it, and add its rows to a store, which is created if it does not exist.

    ``traces``: a folder of traces that export wrote with the table. ``site``: the site of every
    row; it replaces the map's. ``layout``: the format of the file (campaign/table/formats), if the
    map does not state it; by default it is recognised. ``constants``: column values for all rows;
    they replace those of the file and the map. ``logs``: power logs; the rows are their windows.

    Raises:
        FileError: the table, the map file or the traces cannot be read, or a row is wrong.
        NotAStoreError: ``store`` exists and is not a store.
        StoreBusyError: a driver runs on the store.
    """
    mapping, constants = read_map(map_file), {**constants}
    layout_found = None if layout else recognised_layout(table, mapping)
    if site is not None:
        constants["site"] = site
    mapping = with_arguments(mapping, layout or layout_found, constants)

    def check_site(raw: RawTable) -> None:
        _check_site(raw, site, mapping, map_file)

    # A table that is refused must not leave a new, empty store behind.
    try:
        raw = read_table(table, mapping, map_file, logs)
    except TooLongError:
        from campaign.table.long_import import import_long_table  # noqa: PLC0415
        from campaign.table.long_table import LongTable  # noqa: PLC0415
        from campaign.table.long_text import long_text  # noqa: PLC0415

        text = None if traces or logs or mapping.imported else long_text(table, mapping)
        if text is None:
            raise
        long_table = LongTable(text, map_file, check_site)
        return import_long_table(long_table, create_store(store.resolve(), store.name), mapping)
    if logs is not None and "repeat" not in raw.columns:
        mapping = mapping.model_copy(update={"number_repeats": True})
    check_site(raw)
    checked = checked_rows(raw, mapping)
    if layout_found:
        checked.notes.insert(
            0, f"{table}: read as {FORMATS.load(layout_found).ABOUT.tool}'s (--from {layout_found})"
        )
    sidecar = read_sidecar(table)
    if sidecar != Sidecar():
        checked.notes.append(f"{sidecar_path(table)}: read with it")
    traces_by_point: Mapping[str, Sequence[Trace]] = {}
    if traces is not None:
        from campaign.table.trace_folder import TraceFolder  # noqa: PLC0415

        traces_by_point = TraceFolder(traces)
    elif raw.traces:
        point_ids = np.asarray(checked.rows[POINT_ID]).tolist()
        lines = zip(point_ids, checked.lines.tolist(), strict=True)
        traces_by_point = {point_id: raw.traces[line] for point_id, line in lines}
    into_store = create_store(store.resolve(), store.name)
    return import_rows(checked, into_store, mapping, sidecar, traces_by_point)


def _check_site(raw: RawTable, site: str | None, mapping: TableMap, map_file: Path | None) -> None:
    """Raise FileError if the table has a column site and another site is stated for all rows."""
    fixed = mapping.constants.get("site")
    if fixed is None or {*raw.texts("site").values} <= {fixed, str(fixed)}:
        return
    if site is not None:
        raise FileError("has a column site", "leave out --site", str(raw.path))
    raise FileError(
        f"the table {raw.path} has a column site",
        "leave site out of [constants]",
        f"{map_file}: constants.site",
    )


def import_rows(
    checked: Checked,
    store: Store,
    mapping: TableMap,
    sidecar: Sidecar | None = None,
    traces: Mapping[str, Sequence[Trace]] = MappingProxyType({}),
) -> Imported:
    """Add a table's rows to a store: all of them or none.

    They become a new generation of the index, which one rename commits. If the import is killed,
    the store holds the whole table or nothing of it; importing again completes it. A complete row
    replaces the store's failed measurement of the same point. ``traces``: point id -> traces.

    Raises:
        FileError: the table has no rows, or the store holds one of its points with another energy
            or time.
        StoreBusyError: a driver runs on the store.
    """
    rows = checked.rows
    if not len(checked.lines):
        raise FileError("has no rows", "nothing to import", str(checked.path))
    sidecar = sidecar or Sidecar()
    status, of_site = Texts.of(rows["status"]), Texts.of(rows["site"])
    with driver_lock(store):
        contents, damage = compacted(store)
        held = Held.of(contents)
        place, better = held.find(checked)
        is_held = place >= 0
        new = ~is_held | better
        with writing(store):
            checked.notes.extend(write_records(store, rows, mapping, sidecar))
            failures = new_failures(checked.failures, failure_columns(contents))
            if new.any() or len(failures[POINT_ID]):
                added = rows if new.all() else {name: column[new] for name, column in rows.items()}
                per_site = np.bincount(of_site.codes[~is_held], minlength=len(of_site.values))
                points = {s: n for s, n in zip(of_site.values, per_site.tolist(), strict=True) if n}
                _add(store, contents.generation, added, points, failures, traces)
            equalize_generations(store)
        measurements = rows if not len(held.ids) else measurement_columns(read_contents(store))
    return Imported(
        new=int(new.sum()),
        failed=int((new & (worth_of(status) == 0)).sum()),
        held=int((~new).sum()),
        sites=sorted(of_site.present()),
        measurements=Columns(dict(sorted(measurements.items()))),
        damage=damage,
        disagreements=checked.disagreements,
        notes=checked.notes,
    )


def _add(
    store: Store,
    base: Generation,
    rows: Rows,
    new_points: Mapping[str, int],
    failures: Rows,
    traces: Mapping[str, Sequence[Trace]],
) -> None:
    """Commit rows whose points the store does not hold, or holds as failed."""
    writer = ShardWriter(store, base)
    if traces:
        repair_descriptions(store, base.samples_end)
        point_ids = {*np.asarray(rows[POINT_ID]).tolist()}
        for point_id in filter(point_ids.__contains__, traces):
            writer.add(point_id, traces[point_id])
        writer.flush()
    summary = with_sites(with_failures(with_measurements(base.summary, rows), failures), new_points)
    manifest = replace(base, samples_end=writer.end, shards=writer.shards, summary=summary)
    with next_generation(store, base) as new:
        if len(rows[POINT_ID]):
            new.add(rows, writer.rows)
        new.commit(manifest, failures)
