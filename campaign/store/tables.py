"""Reading the tables of a store: their columns as arrays, in memory.

Readers take no lock and write nothing. A generation is checked when it is opened. If a file of it
is removed later (because two newer generations exist), reading it is an error, and never gives a
missing value.
"""

from __future__ import annotations

import json
from collections import ChainMap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numcodecs
import numpy as np
import zarr
from numcodecs.vlen import VLenUTF8
from zarr.codecs import VLenUTF8Codec, ZstdCodec
from zarr.storage import LocalStore, WrapperStore

from campaign.store.columns import (
    FAILURE_COLUMNS,
    TABLES,
    TRACE_NAMES,
    columns_of,
    missing_column,
)
from campaign.store.current_state import summary_and_states
from campaign.store.generation import STATE, Generation, reading
from campaign.store.journal import CUT_OFF
from campaign.store.layout import OPEN_AGAIN, DamagedStoreError, Store
from campaign.store.mixtures import mixtures
from campaign.store.records import StoreContents, measurement_row, read_contents
from campaign.store.setups import perf_per_watt_mhz, setup_uses
from dvfs.dataset import FAILURES, Columns
from dvfs.files import read_regular

if TYPE_CHECKING:
    from zarr.core.buffer import Buffer


class WrittenStore(WrapperStore[LocalStore]):
    """A folder of Zarr arrays with a known list of files. A missing file is an error, where Zarr
    itself would return missing values."""

    def __init__(self, folder: Path, files: frozenset[str]) -> None:
        super().__init__(LocalStore(folder, read_only=True))
        self._files = files

    async def get(self, key: str, *how: Any, **options: Any) -> Buffer | None:
        """See :meth:`zarr.abc.store.Store.get`."""
        path = self._store.root / key
        data = None
        if key not in self._files or path.is_file():  # a device in its place may have no end
            data = await super().get(key, *how, **options)
        if data is None and key in self._files:
            raise self._missing(key)
        return data

    def file(self, key: str) -> bytes | None:
        """The bytes of a file; None where it was not written.

        Raises:
            DamagedStoreError: it was, and is missing.
        """
        if key not in self._files:
            return None
        try:
            return read_regular(self._store.root / key)
        except OSError:
            raise self._missing(key) from None

    def _missing(self, key: str) -> DamagedStoreError:
        return DamagedStoreError(f"{self._store.root / key}: is missing; {OPEN_AGAIN}")


def stored_tables(generation: Generation) -> WrittenStore:
    """The files of a generation's tables."""
    start = "tables.zarr/"
    names = (name for name in generation.files if name.startswith(start))
    return WrittenStore(generation.tables, frozenset(n.removeprefix(start) for n in names))


def open_tables(generation: Generation) -> zarr.Group:
    """A generation's tables, for reading.

    Raises:
        DamagedStoreError: they cannot be opened.
    """
    with reading(generation.tables):
        return zarr.open_group(stored_tables(generation), mode="r", zarr_format=3)


def read_columns(store: Store) -> Columns:
    """All measurements of a store, without their traces.

    Raises:
        DamagedStoreError: it cannot be read.
    """
    contents = read_contents(store)
    return Columns(measurement_columns(contents), attributes_of(store, contents))


def read_traces(store: Store) -> Columns:
    """All measurements of a store with their traces, as
    :func:`campaign.store.dataset.open_dataset` has them: samples are read as slices of
    ``time_ns`` and ``value`` are taken. Without these where no trace is compacted.

    Raises:
        DamagedStoreError: it cannot be read.
    """
    from campaign.store.samples import stored_samples  # noqa: PLC0415

    contents = read_contents(store)
    traces = trace_columns(contents)
    arrays: dict[str, Any] = {TRACE_NAMES.get(name, name): of for name, of in traces.items()}
    if contents.generation is not None and contents.generation.samples_end:
        spans = traces["row_start"], traces["row_size"]
        arrays |= stored_samples(store, contents.generation, *spans)
    measured: Mapping[str, Any] = measurement_columns(contents)
    return Columns(ChainMap(arrays, measured), attributes_of(store, contents))  # type: ignore[arg-type]


def measurement_columns(contents: StoreContents) -> Mapping[str, np.ndarray]:
    """The table of measurements together with the journals' records, one row for a point."""
    kept = _KeptColumns(contents, "measurements")
    if not contents.accepted:
        return kept
    fresh = columns_of([measurement_row(entry.scalars) for entry in contents.accepted])
    row_of = {point_id: row for row, point_id in enumerate(kept["point_id"].tolist())}
    rows = [row_of.setdefault(point_id, len(row_of)) for point_id in fresh["point_id"].tolist()]
    return _with_rows(kept, fresh, np.array(rows), len(row_of))


def trace_columns(contents: StoreContents) -> dict[str, np.ndarray]:
    """The table of traces, without those of measurements that a journal replaces. Those of
    measurements that are still in a journal are not in it."""
    kept = _KeptColumns(contents, "traces")
    valid = kept["row_size"] > 0
    if contents.generation is not None and contents.accepted:
        states = contents.generation.states()
        ids = np.array([entry.point_id for entry in contents.accepted], STATE["id"])
        replaced = states["row"][np.isin(states["id"], ids)]
        valid &= ~np.isin(kept["measurement"], replaced)
    return {name: values[valid] for name, values in kept.items()}


def failure_columns(contents: StoreContents) -> Mapping[str, np.ndarray]:
    """The table of failed attempts together with the journals' records."""
    kept = _KeptColumns(contents, "failures")
    scalars = [entry.scalars for entry in contents.tail.entries]
    failed = [measurement_row(own) for own in scalars if own["status"] in FAILURES]
    if not failed:
        return kept
    start = len(kept["point_id"])
    rows = np.arange(start, start + len(failed))
    return _with_rows(kept, columns_of(failed, FAILURE_COLUMNS), rows, start + len(failed))


class _KeptColumns(Mapping[str, np.ndarray]):
    """The columns of a table of the generation, each read when it is first used. A column that an
    earlier version did not write has its missing value."""

    def __init__(self, contents: StoreContents, table: str) -> None:
        self._table, self._read = table, dict[str, np.ndarray]()
        self._tables, self._written = None, set[str]()
        if contents.generation is not None:
            self._tables = open_tables(contents.generation)
            with reading(contents.generation.tables):
                group = self._tables[table]
                assert isinstance(group, zarr.Group)  # noqa: S101
                self._written = set(group.array_keys())
        # Zarr lists them in any order.
        self._names = dict.fromkeys(sorted({*TABLES[table][1], *self._written}))

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._read:
            if self._tables is not None and name in self._written:
                self._read[name] = read_column(self._tables, f"{self._table}/{name}")
            elif name in self._names:
                self._read[name] = missing_column(name, self._rows())
            else:
                raise KeyError(name)
        return self._read[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def _rows(self) -> int:
        if not self._written:
            return 0
        return len(self["point_id" if "point_id" in self._written else "row_size"])


def _with_rows(
    columns: Mapping[str, np.ndarray], fresh: Mapping[str, np.ndarray], rows: np.ndarray, size: int
) -> dict[str, np.ndarray]:
    """Columns of ``size`` rows, of which ``rows`` are the ``fresh`` ones."""
    merged = {}
    for name in sorted({*columns, *fresh}):
        merged[name] = missing_column(name, size)
        if name in columns:
            merged[name][: len(columns[name])] = columns[name]
        merged[name][rows] = fresh.get(name, missing_column(name, len(rows)))
    return merged


def read_column(tables: zarr.Group, name: str) -> np.ndarray:
    """A whole column, ``table/column``; text as objects.

    Raises:
        DamagedStoreError: it cannot be read.
    """
    with reading(Path(name)):
        array = tables[name]
        assert isinstance(array, zarr.Array)  # noqa: S101
        codecs = [type(codec) for codec in getattr(array.metadata, "codecs", ())]
        if codecs == [VLenUTF8Codec, ZstdCodec] and isinstance(tables.store, WrittenStore):
            return _texts(array, tables.store)
        values = np.asarray(array[:])
    return values.astype(object) if values.dtype.kind == "T" else values


def _texts(array: zarr.Array[Any], store: WrittenStore) -> np.ndarray:
    """A column of texts, object (rows,); of one text, which is then in memory once.

    Zarr makes every text three times, which takes most of the time of reading a store.
    """
    rows, size = array.shape[0], array.chunks[0]
    sizes = [min(size, rows - first) for first in range(0, rows, size)]
    parts = []
    for chunk, n in enumerate(sizes):
        packed = store.file(f"{array.path}/c/{chunk}")
        parts.append(str(array.fill_value) if packed is None else _chunk(packed, n, size))
    if parts and all(isinstance(part, str) and part == parts[0] for part in parts):
        return np.broadcast_to(np.array(parts[0], object), rows)
    each = [
        np.full(n, part, object) if isinstance(part, str) else part
        for part, n in zip(parts, sizes, strict=True)
    ]
    return np.concatenate([np.empty(0, object), *each])


def _chunk(packed: bytes, n: int, size: int) -> str | np.ndarray:
    """The first ``n`` of the ``size`` texts of a chunk; one of them where all are the same.

    A chunk is their number, then the length in bytes and the UTF-8 of each (uint32).
    """
    data = numcodecs.Zstd().decode(packed)
    text = data[4 : 8 + int.from_bytes(data[4:8], "little")]
    if data[4:].startswith(text * n):
        return str(text[4:].decode())
    found: np.ndarray = VLenUTF8().decode(data)
    if len(found) != size:
        raise ValueError(f"it has {len(found)} texts, not {size}")
    return found[:n]


def attributes_of(store: Store, contents: StoreContents) -> dict[str, Any]:
    """What a store's Dataset says of all measurements together.

    Raises:
        DamagedStoreError: a record of a journal is damaged.
    """
    # A record that is cut off was never acknowledged, or is being written.
    places = contents.tail.damage
    lost = [place for place in places if not place[2].startswith(CUT_OFF)]
    for name, at, what in lost[:1]:
        raise DamagedStoreError(
            f"{store.journals / name}: byte {at}: {what} (damaged records: {len(lost)}); run the "
            f"campaign again to measure their points again, or import again to go on without them"
        )
    summary, _ = summary_and_states(contents)
    uses, _ = setup_uses(store, summary.get("setups", {}), contents.tail.setups)
    return {
        "store": str(store.root),
        "damaged_records": len(contents.damage),
        "mixtures": json.dumps([mixture.as_dict() for mixture in mixtures(uses)]),
        "perf_per_watt_mhz": json.dumps(perf_per_watt_mhz(uses)),
    }
