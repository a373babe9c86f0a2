"""The tables of a store: rows written, and columns read as arrays in memory.

Readers take no lock and write nothing. A generation is checked when it is opened. If a file of it
is removed later (because two newer generations exist), reading it is an error, and never gives a
missing value.
"""

from __future__ import annotations

import json
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numcodecs
import numpy as np
import zarr
from numcodecs.vlen import VLenUTF8
from numcodecs.zstd import Zstd
from zarr.codecs import VLenUTF8Codec, ZstdCodec
from zarr.core.metadata import ArrayV3Metadata
from zarr.storage import LocalStore, WrapperStore

from campaign.store.columns import (
    FAILURE_COLUMNS,
    TABLES,
    TRACE_NAMES,
    attributes,
    column,
    columns_of,
    missing_column,
)
from campaign.store.generation import STATE, Generation, reading
from campaign.store.journal import CUT_OFF
from campaign.store.layout import OPEN_AGAIN, DamagedStoreError, Store
from campaign.store.mixtures import mixtures
from campaign.store.records import StoreContents, measurement_row, read_contents, summary_and_states
from campaign.store.setups import perf_per_watt_mhz, setup_uses
from dvfs.dataset import COMPLETE, COUNT_PREFIX, FAILURES, Columns
from dvfs.files import read_regular
from dvfs.texts import Column, EqualLengths, Texts

if TYPE_CHECKING:
    from zarr.core.buffer import Buffer

CHUNK_ROWS = 1 << 16
COUNT = CHUNK_ROWS.to_bytes(4, "little")
"""How a chunk of texts begins."""
ZSTD = Zstd(level=3)
MISSING: dict[str, Any] = {"f": "NaN", "i": 0, "b": False, "O": ""}
"""The missing value of a kind of columns, as Zarr's metadata have it."""
COLUMNS = ("point_id", "status", "energy_j", "time_s")


def rows_of(group: zarr.Group, table: str) -> int:
    """The number of rows of a table."""
    return _array(group, TABLES[table][1][0]).shape[0]


def append(tables: zarr.Group, table: str, rows: Mapping[str, Column], size: int) -> None:
    """Add ``size`` rows at the end of a table of a generation that is being written; a missing
    table is created. A column that is not given gets missing values (NaN); a new column gets
    missing values in the earlier rows."""
    if table in tables and not size:
        return
    group = tables.require_group(table)
    written = list(group.array_keys())
    start = rows_of(group, table) if written else 0
    for name in written:
        _array(group, name).resize((start + size,))
    names = dict.fromkeys((*(() if written else TABLES[table][1]), *rows))
    _create(group, table, [name for name in names if name not in written], start + size)
    for name, values in rows.items():
        _write(_array(group, name), start, values)


def _write(array: zarr.Array[Any], start: int, values: Column) -> None:
    """Write the last rows of an array, from ``start`` on. Whole chunks are encoded here, with the
    codecs of the array and in a third of the time: Zarr makes an object of every text, twice."""
    assert isinstance(array.store, LocalStore)  # noqa: S101
    folder = array.store.root / array.path / "c"
    known = array.chunks == (CHUNK_ROWS,) and array.compressors == (ZstdCodec(level=ZSTD.level),)
    for first in range(start - start % CHUNK_ROWS, start + len(values), CHUNK_ROWS):
        low, end = max(first, start), min(first + CHUNK_ROWS, start + len(values))
        part = values[low - start : end - start]
        if low > first or not known:  # the chunk has other rows
            array[low:end] = stored(part)
        elif data := _encoded(array.dtype, part):
            folder.mkdir(exist_ok=True)
            (folder / str(first // CHUNK_ROWS)).write_bytes(ZSTD.encode(data))


def _encoded(kind: np.dtype[Any], values: Column) -> bytes | None:
    """The first values of a chunk as its codec ``vlen-utf8`` or ``bytes`` encodes them, filled up
    with missing values. None: all are missing, and such a chunk is not written."""
    rows = len(values)
    if kind.kind != "T":
        numbers = np.full(CHUNK_ROWS, np.nan if kind.kind == "f" else 0, kind)
        is_missing = np.isnan if kind.kind == "f" else np.logical_not
        numbers[:rows] = values
        return None if is_missing(numbers).all() else numbers.tobytes()
    if isinstance(values, Texts):
        encoded = [_text(value) for value in values.values]
        same = values.codes.strides == (0,)
        texts = encoded[values.codes[0]] * rows if same else b"".join(values.array(object, encoded))
    elif isinstance(values, EqualLengths):
        size = values.bytes_.itemsize
        texts = np.rec.fromarrays([np.full(rows, size, "<u4"), values.bytes_]).tobytes()
    else:
        texts = VLenUTF8().encode(np.asarray(values, object))[len(COUNT) :]
    if texts == bytes(4 * rows):
        return None
    return COUNT + texts + bytes(4 * (CHUNK_ROWS - rows))


def _text(value: str) -> bytes:
    """A text's size in bytes, and its UTF-8."""
    text = value.encode()
    return len(text).to_bytes(4, "little") + text


def overwrite(group: zarr.Group, table: str, rows: dict[str, np.ndarray], at: np.ndarray) -> None:
    """Replace the rows ``at``. A count that is not given becomes missing; other columns that are
    not given keep their values."""
    _create(group, table, [name for name in rows if name not in group], rows_of(group, table))
    order = np.argsort(at)
    for name in list(group.array_keys()):
        values = rows.get(name)
        if values is None and name.startswith(COUNT_PREFIX):
            values = np.full(at.size, np.nan)
        if values is not None:
            _array(group, name).oindex[at[order]] = stored(values[order])


def _array(group: zarr.Group, name: str) -> zarr.Array[Any]:
    array = group[name]
    assert isinstance(array, zarr.Array)  # noqa: S101
    return array


def stored(values: Column) -> np.ndarray:
    """A column as the tables hold it: text as variable-length strings."""
    if isinstance(values, Texts):
        return values.array(np.dtypes.StringDType())
    values = np.asarray(values)
    return values.astype(np.dtypes.StringDType()) if values.dtype.kind == "O" else values


def _create(group: zarr.Group, table: str, names: Iterable[str], rows: int) -> None:
    """Create columns that have nothing but missing values, all of them at once."""
    nodes: dict[str, Any] = {}
    for name in names:
        kind = column(name, []).dtype
        is_text = kind.kind == "O"
        nodes[name] = ArrayV3Metadata.from_dict(
            {
                "zarr_format": 3,
                "node_type": "array",
                "shape": (rows,),
                "data_type": "string" if is_text else kind.name,
                "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": (CHUNK_ROWS,)}},
                "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
                "fill_value": MISSING[kind.kind],
                "codecs": [
                    {"name": "vlen-utf8"}
                    if is_text
                    else {"name": "bytes", "configuration": {"endian": "little"}},
                    {"name": "zstd", "configuration": {"level": ZSTD.level, "checksum": False}},
                ],
                "attributes": attributes(name),
                "dimension_names": (TABLES[table][0],),
                "storage_transformers": (),
            }
        )
    dict(group.create_hierarchy(nodes))


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
    failed = [measurement_row(record) for record in scalars if record["status"] in FAILURES]
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


class Cost(NamedTuple):
    """The energy (J) and time (s) of one iteration; NaN where they are missing."""

    energy_j: float
    time_s: float


def measured_costs(contents: StoreContents) -> dict[str, Cost]:
    """Point id -> its cost, of every point that is measured. Failed ones are not in it."""
    costs = {}
    if contents.generation is not None:
        tables = open_tables(contents.generation)
        columns = [read_column(tables, f"measurements/{name}") for name in COLUMNS]
        done = np.isin(columns[1].astype(str), COMPLETE)
        rows = zip(*(column[done].tolist() for column in columns), strict=True)
        costs = {point_id: Cost(energy_j, time_s) for point_id, _, energy_j, time_s in rows}
    for entry in contents.accepted:
        scalars = entry.scalars
        if scalars["status"] in COMPLETE:
            costs[entry.point_id] = Cost(
                *(np.nan if scalars[n] is None else float(scalars[n]) for n in COLUMNS[2:])
            )
    return costs
