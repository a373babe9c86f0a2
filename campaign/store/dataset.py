"""A store as a reader sees it: one xarray Dataset of measurements and their traces."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from campaign.measurement import FAILURES, OK, Measurement
from campaign.store.journal import JournalEntry, scan
from campaign.store.layout import Store

TEXT = (
    "point_id",
    "site",
    "partition",
    "kernel",
    "params",
    "node",
    "status",
    "text",
    "voltage_origin",
    "meters",
    "provenance",
)
INTEGERS = ("repeat", "ranks", "iterations", "attempt")
FLAGS = ("simulated", "imported")
UNITS = {
    "core_mhz": "MHz",
    "mem_mhz": "MHz",
    "time_s": "s",
    "energy_j": "J",
    "energy_std_j": "J",
    "core_mhz_achieved": "MHz",
    "mem_mhz_achieved": "MHz",
    "core_v": "V",
    "mem_v": "V",
    "start_unix_s": "s",
}
FLOATS = tuple(UNITS)
TRACE_TEXT = ("channel", "domain", "unit")
SAMPLES = {"time_ns": "int64", "value": "float64"}
"""The arrays of all samples, and their types."""
COUNT = "n_"
PLAIN: dict[str, Any] = {
    "chunks": None,
    "consolidated": False,
    "decode_times": False,
    "decode_timedelta": False,
}
"""How xarray opens the index: in memory, seconds left as the numbers they are."""


OF_MEASUREMENT = tuple(
    each.name
    for each in fields(Measurement)
    if each.name not in ("point", "counts", "meters", "provenance", "traces")
)
"""The columns that are a measurement's own fields as they are."""


@dataclass(frozen=True)
class Tables:
    """The scalars of a store: a row a measurement, a row a trace, a row a failed attempt.

    ``traces`` rows name their measurement by ``point_id`` and, once compacted, the samples
    ``row_start`` to ``row_start + row_size`` of the store's ``time_ns`` and ``value``.
    """

    measurements: pd.DataFrame
    traces: pd.DataFrame
    failures: pd.DataFrame
    consumed: dict[str, int]
    """Journal -> the byte up to which its records are in the tables."""
    samples_end: int


TRACE_COLUMNS = ("point_id", *TRACE_TEXT, "row_start", "row_size")
FAILURE_COLUMNS = (
    "point_id",
    "site",
    "partition",
    "kernel",
    "params",
    "node",
    "status",
    "text",
    "core_mhz",
    "mem_mhz",
    "attempt",
    "start_unix_s",
)


def empty_tables() -> Tables:
    """The tables of a store that holds nothing."""
    columns = (*TEXT, *FLOATS, *INTEGERS, *FLAGS)
    return Tables(
        pd.DataFrame({name: [] for name in columns}),
        pd.DataFrame({name: [] for name in TRACE_COLUMNS}),
        pd.DataFrame({name: [] for name in FAILURE_COLUMNS}),
        {},
        0,
    )


def committed_tables(store: Store) -> Tables:
    """The tables of the newest generation, without what is still in journals."""
    generation = store.generation()
    if generation is None:
        return empty_tables()
    path = store.index / generation
    frames = {}
    attributes: dict[str, Any] = {}
    for group in ("measurements", "traces", "failures"):
        with xr.open_zarr(path, group=group, **PLAIN) as dataset:
            # Zarr lists arrays in the order of the folder, which is any.
            names = sorted(map(str, dataset.data_vars))
            frames[group] = dataset[names].to_dataframe().reset_index(drop=True)
            attributes |= dataset.attrs
    return Tables(
        frames["measurements"],
        frames["traces"],
        frames["failures"],
        json.loads(attributes["consumed"]),
        int(attributes["samples_end"]),
    )


@dataclass(frozen=True)
class Tail:
    """The records of the journals that no generation holds yet."""

    entries: list[JournalEntry]
    consumed: dict[str, int]
    damage: list[tuple[str, int, str]]
    """(journal, byte, what is wrong there)."""


def journal_tail(store: Store, consumed: dict[str, int]) -> Tail:
    """Scan the journals from where the newest generation stopped."""
    entries: list[JournalEntry] = []
    ends = {}
    damage = []
    for path in store.journal_paths():
        try:
            found = scan(path, consumed.get(path.name, 0))
        except FileNotFoundError:  # compacted and removed since it was listed
            continue
        entries += found.entries
        ends[path.name] = found.end
        damage += [(path.name, at, what) for at, what in found.damage]
    return Tail(entries, ends, damage)


def measurement_row(scalars: dict[str, Any]) -> dict[str, Any]:
    """One row of the measurements table from a record's scalars."""
    point = scalars["point"]
    row = {
        "point_id": point["id"],
        "site": point["site"],
        "partition": point["partition"],
        "kernel": point["label"],
        "params": point["params"],
        "ranks": point["ranks"],
        "core_mhz": _number(point["core_mhz"]),
        "mem_mhz": _number(point["mem_mhz"]),
        "repeat": point["repeat"],
        "simulated": bool(scalars["provenance"].get("simulated", False)),
        "imported": bool(scalars["provenance"].get("imported", False)),
        "meters": json.dumps(scalars["meters"]),
        "provenance": json.dumps(scalars["provenance"]),
    }
    for name in OF_MEASUREMENT:
        row[name] = scalars[name]
    for name, value in (scalars["counts"] or {}).items():
        row[COUNT + name] = value
    return row


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)


def choose(entries: Iterable[JournalEntry], held: dict[str, str]) -> list[JournalEntry]:
    """The entries that change the measurements table, at most one a point.

    The first ``ok`` of a point stands for good; a failure stands until a later attempt. ``held``
    maps the point ids of the table to their status.
    """
    best: dict[str, JournalEntry] = {}
    for entry in entries:
        held_status = held.get(entry.point_id)
        if held_status == OK:
            continue
        other = best.get(entry.point_id)
        if other is None or _supersedes(entry.scalars, other.scalars):
            best[entry.point_id] = entry
    return list(best.values())


def _supersedes(new: dict[str, Any], old: dict[str, Any]) -> bool:
    if old["status"] == OK:
        return False
    return new["status"] == OK or new["attempt"] >= old["attempt"]


def merge(tables: Tables, tail: Tail) -> tuple[Tables, list[JournalEntry]]:
    """The tables with the tail's scalars in them, and the entries that they took.

    The new rows' traces are not yet in Zarr: they are missing from ``traces``.
    """
    held = dict(zip(tables.measurements["point_id"], tables.measurements["status"], strict=True))
    taken = choose(tail.entries, held)
    replaced = {entry.point_id for entry in taken}
    kept = tables.measurements[~tables.measurements["point_id"].isin(replaced)]
    fresh = pd.DataFrame([measurement_row(entry.scalars) for entry in taken])
    failed = pd.DataFrame(
        [measurement_row(e.scalars) for e in tail.entries if e.scalars["status"] in FAILURES]
    )
    failures = tables.failures
    if len(failed):
        failures = _concat(failures, failed[list(FAILURE_COLUMNS)]).drop_duplicates(
            ["point_id", "attempt", "start_unix_s"], ignore_index=True
        )
    traces = tables.traces[~tables.traces["point_id"].isin(replaced)]
    merged = Tables(
        _concat(kept, fresh),
        traces.reset_index(drop=True),
        failures,
        tail.consumed,
        tables.samples_end,
    )
    return merged, taken


def with_rows(tables: Tables, fresh: pd.DataFrame) -> Tables:
    """The tables with further measurements, of points that they do not hold, without traces."""
    return replace(tables, measurements=_concat(tables.measurements, fresh))


def _concat(old: pd.DataFrame, new: pd.DataFrame) -> pd.DataFrame:
    if not len(new):
        return old.reset_index(drop=True)
    if not len(old):
        return new.reset_index(drop=True)
    return pd.concat([old, new], ignore_index=True)


def current_tables(store: Store) -> tuple[Tables, Tail]:
    """Everything that is in the store now: the newest generation and the journals' tail."""
    while True:
        tables = committed_tables(store)
        tail = journal_tail(store, tables.consumed)
        generation = store.generation()
        # A compaction between the two reads would move records from one to the other.
        if generation is None or committed_consumed(store) == tables.consumed:
            return merge(tables, tail)[0], tail


def committed_consumed(store: Store) -> dict[str, int]:
    """Up to where the newest generation has read each journal."""
    generation = store.generation()
    if generation is None:
        return {}
    attributes = json.loads((store.index / generation / "measurements/zarr.json").read_text())
    consumed: dict[str, int] = json.loads(attributes["attributes"]["consumed"])
    return consumed


def as_dataset(frame: pd.DataFrame, dimension: str) -> xr.Dataset:
    """A table as a Dataset along one dimension, with its units, and missing counts as NaN."""
    variables: dict[str, Any] = {}
    for name in frame.columns:
        column = frame[name]
        if name in FLOATS or name.startswith(COUNT):
            values = column.to_numpy(dtype=np.float64, na_value=np.nan)
        elif name in INTEGERS or name in ("row_start", "row_size"):
            values = column.to_numpy(dtype=np.int64)
        elif name in FLAGS:
            values = column.to_numpy(dtype=bool)
        else:
            values = column.astype(str).to_numpy(dtype=object)
        attributes = {"units": UNITS[name]} if name in UNITS else {}
        variables[name] = (dimension, values, attributes)
    return xr.Dataset(variables)


def open_dataset(store: Store) -> xr.Dataset:
    """All measurements of a store, and the samples of those that are compacted.

    Dimensions: ``measurement`` (a row of the measurements table), ``trace`` (one channel of one
    measurement: ``trace_measurement`` is its row; samples ``row_start`` to ``row_start +
    row_size``), ``sample`` (lazy: ``time_ns`` int64 from the window's start, ``value`` float64
    in the trace's unit). Reads only; a store of another user opens too.
    """
    tables, tail = current_tables(store)
    dataset = as_dataset(tables.measurements, "measurement")
    position = pd.Series(
        np.arange(len(tables.measurements)), index=tables.measurements["point_id"].to_numpy()
    )
    traces = as_dataset(tables.traces.drop(columns="point_id"), "trace")
    traces = traces.rename({name: f"trace_{name}" for name in TRACE_TEXT})
    rows = position.reindex(tables.traces["point_id"].to_numpy()).to_numpy(dtype=np.int64)
    traces["trace_measurement"] = ("trace", rows)
    dataset = dataset.merge(traces)
    if store.traces.exists():
        # One array after the other: a compaction that was killed, or runs now, may have
        # lengthened one of them; up to samples_end, which it has not committed, they agree.
        for name in SAMPLES:
            others = [other for other in SAMPLES if other != name]
            samples = xr.open_zarr(store.traces, drop_variables=others, **PLAIN | {"chunks": {}})
            dataset = dataset.merge(samples.isel(sample=slice(0, tables.samples_end)))
    dataset.attrs = {"store": str(store.root), "damaged_records": len(tail.damage)}
    return dataset
