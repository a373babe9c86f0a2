"""Writes rows into the index's tables. Each column is a Zarr array along the table's dimension;
text is variable-length UTF-8."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import zarr
from numcodecs.vlen import VLenUTF8
from numcodecs.zstd import Zstd
from zarr.codecs import ZstdCodec
from zarr.core.metadata import ArrayV3Metadata
from zarr.storage import LocalStore

from campaign.store.columns import TABLES, attributes, column
from dvfs.dataset import COUNT_PREFIX
from dvfs.texts import Column, EqualLengths, Texts

CHUNK_ROWS = 1 << 16
COUNT = CHUNK_ROWS.to_bytes(4, "little")
"""How a chunk of texts begins."""
ZSTD = Zstd(level=3)
MISSING: dict[str, Any] = {"f": "NaN", "i": 0, "b": False, "O": ""}
"""The missing value of a kind of columns, as Zarr's metadata have it."""


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
        own = [_text(value) for value in values.values]
        same = values.codes.strides == (0,)
        texts = own[values.codes[0]] * rows if same else b"".join(values.array(object, own))
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
