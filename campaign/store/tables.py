"""The columns of a store, read as arrays in memory.

Readers take no lock and write nothing. Opening a generation checks it. If one of its files is
removed later (because two newer generations exist), reading that file is an error, and never gives
a missing value.
"""

from __future__ import annotations

import functools
import json
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from campaign.store.columns import (
    FAILURE_COLUMNS,
    TABLES,
    TRACE_NAMES,
    columns_of,
    missing_column,
)
from campaign.store.generation import STATE
from campaign.store.journal import CUT_OFF
from campaign.store.layout import DamagedStoreError, Store
from campaign.store.mixtures import mixtures
from campaign.store.records import StoreContents, measurement_row, read_contents, summary_and_states
from campaign.store.setups import perf_per_watt_mhz, setup_uses
from campaign.store.table_files import written_tables
from dvfs.dataset import COMPLETE, FAILURES, Columns


def read_columns(store: Store) -> Columns:
    """All measurements of a store, without their traces.

    Raises:
        DamagedStoreError: the store cannot be read.
    """
    contents = read_contents(store)
    return Columns(measurement_columns(contents), attributes_of(store, contents))


def read_traces(store: Store) -> Columns:
    """All measurements of a store with their traces, in the columns of
    :func:`campaign.store.dataset.open_dataset`. A slice of ``time_ns`` or ``value`` is read when it
    is taken; these columns are missing if no trace is compacted.

    Raises:
        DamagedStoreError: the store cannot be read.
    """
    from campaign.store.samples import stored_samples  # noqa: PLC0415

    contents = read_contents(store)
    traces = trace_columns(contents)
    arrays: dict[str, Any] = {TRACE_NAMES.get(name, name): a for name, a in traces.items()}
    if contents.generation.samples_end:
        spans = traces["row_start"], traces["row_size"]
        arrays |= stored_samples(store, contents.generation, *spans)
    measured: Mapping[str, Any] = measurement_columns(contents)
    return Columns(ChainMap(arrays, measured), attributes_of(store, contents))  # type: ignore[arg-type]


def measurement_columns(contents: StoreContents) -> Mapping[str, np.ndarray]:
    """The table of measurements including the journals' records, one row for each point."""
    stored = _stored(contents, "measurements")
    if not contents.accepted:
        return stored
    fresh = columns_of([measurement_row(entry.scalars) for entry in contents.accepted])
    row_of = {point_id: row for row, point_id in enumerate(stored["point_id"].tolist())}
    rows = [row_of.setdefault(point_id, len(row_of)) for point_id in fresh["point_id"].tolist()]
    return _with_rows(stored, fresh, np.array(rows), len(row_of))


def trace_columns(contents: StoreContents) -> dict[str, np.ndarray]:
    """The table of traces, without those of measurements that a journal replaces. It lacks the
    traces of measurements that are still in a journal."""
    stored = _stored(contents, "traces")
    valid = stored["row_size"] > 0
    if contents.accepted:
        states = contents.generation.states()
        ids = np.array([entry.point_id for entry in contents.accepted], STATE["id"])
        replaced = states["row"][np.isin(states["id"], ids)]
        valid &= ~np.isin(stored["measurement"], replaced)
    return {name: values[valid] for name, values in stored.items()}


def failure_columns(contents: StoreContents) -> Mapping[str, np.ndarray]:
    """The table of failed attempts, including those in the journals."""
    stored = _stored(contents, "failures")
    scalars = [entry.scalars for entry in contents.tail.entries]
    failed = [measurement_row(record) for record in scalars if record["status"] in FAILURES]
    if not failed:
        return stored
    start = len(stored["point_id"])
    rows = np.arange(start, start + len(failed))
    return _with_rows(stored, columns_of(failed, FAILURE_COLUMNS), rows, start + len(failed))


class _LazyColumns(Mapping[str, np.ndarray]):
    """The columns of a table, each read when it is first used."""

    def __init__(self, names: Iterable[str], read: Callable[[str], np.ndarray]) -> None:
        self._names = dict.fromkeys(sorted({*names}))
        self._read = functools.cache(read)

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._names:
            raise KeyError(name)
        return self._read(name)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _stored(contents: StoreContents, table: str) -> _LazyColumns:
    """A generation's table. A column that an earlier version did not write has missing values."""
    tables = written_tables(contents.generation)
    written = {*tables.columns(table)}

    def read(name: str) -> np.ndarray:
        if name in written:
            return tables.read(f"{table}/{name}")
        return missing_column(name, tables.rows(table) if written else 0)

    return _LazyColumns((*TABLES[table][1], *written), read)


def _with_rows(
    columns: Mapping[str, np.ndarray], fresh: Mapping[str, np.ndarray], rows: np.ndarray, size: int
) -> _LazyColumns:
    """Extend columns to ``size`` rows, and put the ``fresh`` values into ``rows``."""

    def merged(name: str) -> np.ndarray:
        values = missing_column(name, size)
        if name in columns:
            values[: len(columns[name])] = columns[name]
        values[rows] = fresh.get(name, missing_column(name, len(rows)))
        return values

    return _LazyColumns((*columns, *fresh), merged)


def attributes_of(store: Store, contents: StoreContents) -> dict[str, Any]:
    """The attributes of a store's columns, which concern all measurements.

    Raises:
        DamagedStoreError: a record of a journal is damaged.
    """
    # A record that is cut off was never acknowledged, or is being written.
    lost = [part for part in contents.tail.damage if not part[2].startswith(CUT_OFF)]
    for name, offset, problem in lost[:1]:
        raise DamagedStoreError(
            f"{store.journals / name}: byte {offset}: {problem} (damaged records: {len(lost)}); "
            f"run the campaign again to measure their points again, or import again to go on "
            f"without them"
        )
    summary, _ = summary_and_states(contents)
    uses, _ = setup_uses(store, summary.get("setups", {}), contents.tail.setups)
    return {
        "store": str(store.root),
        "damaged_records": len(contents.damage),
        "mixtures": json.dumps([mixture.as_dict() for mixture in mixtures(uses)]),
        "perf_per_watt_mhz": json.dumps(perf_per_watt_mhz(uses)),
    }


class Cost(NamedTuple):
    """The energy (J) and time (s) of one iteration; NaN if missing."""

    energy_j: float
    time_s: float


def measured_costs(contents: StoreContents) -> dict[str, Cost]:
    """Point id -> its cost, for every measured point that has not failed."""
    columns = measurement_columns(contents)
    complete = np.isin(columns["status"].astype(str), COMPLETE)
    ids, *costs = (columns[name][complete].tolist() for name in ("point_id", *Cost._fields))
    return dict(zip(ids, map(Cost, *costs), strict=True))
