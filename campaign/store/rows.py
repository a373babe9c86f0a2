"""Writes rows into the index's tables. Each column is a Zarr array along the table's dimension;
text is variable-length UTF-8."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import zarr
from zarr.codecs import ZstdCodec

from campaign.store.columns import TABLES, attributes, column
from dvfs.dataset import COUNT_PREFIX, is_float_column
from dvfs.texts import Column, Texts

CHUNK_ROWS = 1 << 16


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
        # By chunks: text takes several times its memory while it is encoded.
        for chunk in range(start // CHUNK_ROWS * CHUNK_ROWS, start + size, CHUNK_ROWS):
            low, high = max(chunk, start), min(chunk + CHUNK_ROWS, start + size)
            array[low:high] = stored(rows[name][low - start : high - start])


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


def stored(values: Column) -> np.ndarray:
    """A column as the tables hold it: text as variable-length strings."""
    if isinstance(values, Texts):
        return values.array(np.dtypes.StringDType())
    values = np.asarray(values)
    return values.astype(np.dtypes.StringDType()) if values.dtype.kind == "O" else values


def _create(group: zarr.Group, table: str, name: str, rows: int) -> None:
    kind = column(name, []).dtype
    group.create_array(
        name,
        shape=(rows,),
        chunks=(CHUNK_ROWS,),
        dtype=str if kind.kind == "O" else kind,
        fill_value=np.nan if is_float_column(name) else None,
        compressors=ZstdCodec(level=3),
        dimension_names=(TABLES[table][0],),
        attributes=attributes(name),
    )
