"""Writes rows into the index's tables. Each column is a Zarr array along the table's dimension;
text is variable-length UTF-8."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import zarr
from numcodecs.vlen import VLenUTF8
from numcodecs.zstd import Zstd
from zarr.codecs import ZstdCodec
from zarr.storage import LocalStore

from campaign.store.columns import TABLES, attributes, column
from dvfs.dataset import COUNT_PREFIX, is_float_column
from dvfs.texts import Column, Texts

CHUNK_ROWS = 1 << 16
PACKED = ZstdCodec(level=3)


def open_table(tables: zarr.Group, table: str) -> zarr.Group:
    """A table of a generation that is being written. A missing table is created, empty."""
    if table in tables:
        group = tables[table]
        assert isinstance(group, zarr.Group)  # noqa: S101
        return group
    group = tables.create_group(table)
    for name in TABLES[table][1]:
        _create(group, table, name, 0)
    return group


def rows_of(group: zarr.Group, table: str) -> int:
    """The number of rows of a table."""
    return _array(group, TABLES[table][1][0]).shape[0]


def append(group: zarr.Group, table: str, rows: Mapping[str, Column], size: int) -> None:
    """Add ``size`` rows at a table's end. A column that is not given gets missing values (NaN); a
    new column gets missing values in the earlier rows."""
    start = rows_of(group, table)
    for name in rows:
        if name not in group:
            _create(group, table, name, start)
    for name in list(group.array_keys()):
        array = _array(group, name)
        array.resize((start + size,))
        if name not in rows:
            continue
        is_ours = array.chunks == (CHUNK_ROWS,) and array.compressors == (PACKED,)
        for chunk in range(start // CHUNK_ROWS * CHUNK_ROWS, start + size, CHUNK_ROWS):
            low, high = max(chunk, start), min(chunk + CHUNK_ROWS, start + size)
            part = rows[name][low - start : high - start]
            if is_ours and low == chunk:
                _write_chunk(array, chunk // CHUNK_ROWS, part)
            else:
                array[low:high] = stored(np.asarray(part))


def overwrite(group: zarr.Group, table: str, rows: dict[str, np.ndarray], at: np.ndarray) -> None:
    """Replace the rows ``at``. A count that is not given becomes missing; other columns that are
    not given keep their values."""
    for name in rows:
        if name not in group:
            _create(group, table, name, rows_of(group, table))
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


def _write_chunk(array: zarr.Array[Any], number: int, part: Column) -> None:
    """Write a new chunk as Zarr does, in a third of the time: numbers one after the other, texts
    each after its length (vlen-utf8), filled up with missing values and compressed. A chunk of
    missing values alone is not written."""
    if array.dtype.kind != "T":
        values = np.full(CHUNK_ROWS, array.fill_value, array.dtype)
        values[: len(part)] = part
        is_missing = bool((np.isnan(values) if array.dtype.kind == "f" else values == 0).all())
        data = values.tobytes()
    else:
        data = _encoded(part) + bytes(4 * (CHUNK_ROWS - len(part)))
        is_missing = not data.strip(b"\0")
        data = CHUNK_ROWS.to_bytes(4, "little") + data
    if is_missing:
        return
    assert isinstance(array.store, LocalStore)  # noqa: S101
    path = array.store.root / array.path / "c" / str(number)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(Zstd(level=PACKED.level).encode(data))


def _encoded(part: Column) -> bytes:
    """Texts, each after its length; those that are the same are encoded once."""
    if not isinstance(part, Texts) or len(part.values) > len(part):
        return bytes(VLenUTF8().encode(np.asarray(part).astype(object))[4:])
    encoded = [text.encode() for text in part.values]
    parts: list[bytes] = [len(text).to_bytes(4, "little") + text for text in encoded]
    if len(parts) == 1:
        return parts[0] * len(part)
    return b"".join(map(parts.__getitem__, part.codes.tolist()))


def stored(values: np.ndarray) -> np.ndarray:
    """A column as the tables hold it: text as variable-length strings."""
    return values.astype(np.dtypes.StringDType()) if values.dtype.kind == "O" else values


def _create(group: zarr.Group, table: str, name: str, rows: int) -> None:
    kind = column(name, []).dtype
    group.create_array(
        name,
        shape=(rows,),
        chunks=(CHUNK_ROWS,),
        dtype=str if kind.kind == "O" else kind,
        fill_value=np.nan if is_float_column(name) else None,
        compressors=PACKED,
        dimension_names=(TABLES[table][0],),
        attributes=attributes(name),
    )
