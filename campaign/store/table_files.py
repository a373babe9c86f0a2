"""The files of a store's tables: Zarr arrays, read and written here without Zarr.

``tables.zarr/`` has a folder (a Zarr group) for each table, and in it one for each column: an array
of one dimension in Zarr's format 3. ``zarr.json`` states the length and type, and ``c/N`` holds the
rows from N x 65,536 on. Zstandard compresses a chunk of float64, int64 or bool as in memory, or of
texts in the codec vlen-utf8: their number, then the length in bytes (uint32) and the UTF-8 of each.
A chunk with missing values only is not written.

Zarr can read these files. But importing it takes as long as reading the columns of 200,000 rows,
and it makes each text three times. Zarr reads files that an earlier version wrote in another
layout; they are then written in this one.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numcodecs.vlen import VLenUTF8
from numcodecs.zstd import Zstd

from campaign.store.columns import TABLES, attributes, missing_column
from campaign.store.generation import Generation, reading
from campaign.store.layout import OPEN_AGAIN, DamagedStoreError
from dvfs.dataset import COUNT_PREFIX
from dvfs.files import read_regular
from dvfs.texts import Column, EqualLengths, Texts

if TYPE_CHECKING:
    from zarr.storage import StoreLike

CHUNK_ROWS = 1 << 16
COUNT = CHUNK_ROWS.to_bytes(4, "little")
"""The start of a chunk of texts."""
ZSTD = Zstd(level=3)
MISSING: dict[str, Any] = {"f": "NaN", "i": 0, "b": False, "O": ""}
"""Kind of dtype -> the missing value in ``zarr.json``."""
DESCRIPTION = "zarr.json"
GROUP = {"attributes": {}, "zarr_format": 3, "node_type": "group"}


@dataclass(frozen=True)
class TableFiles:
    """The tables of a generation."""

    folder: Path
    """``tables.zarr``."""
    written: frozenset[str] | None = None
    """The files of a generation, by their names below ``folder``; a missing one is an error. None:
    the generation is being written."""

    def columns(self, table: str) -> list[str]:
        """The columns of a table that were written, sorted."""
        if self.written is None:
            names = (path.parent.name for path in self.folder.glob(f"{table}/*/{DESCRIPTION}"))
        else:
            parts = (name.split("/") for name in self.written)
            names = (part[1] for part in parts if part[::2] == [table, DESCRIPTION])
        return sorted(names)

    def rows(self, table: str) -> int:
        """The number of rows of a table."""
        name = f"{table}/{TABLES[table][1][0]}"
        with reading(self.folder / name):
            return int(self._described(name)["shape"][0])

    def read(self, name: str) -> np.ndarray:
        """A whole column, ``table/column``: float64, int64, bool or object (rows,). A text that is
        the same in all rows is in memory once.

        Raises:
            DamagedStoreError: the column cannot be read.
        """
        with reading(self.folder / name):
            description = self._described(name)
            [rows] = description["shape"]
            if not _is_ours(description, name):
                return self._by_zarr(name)
            values = np.empty(rows, _kind(name))  # an error if a damaged file states too many rows
            sizes = [min(CHUNK_ROWS, rows - first) for first in range(0, rows, CHUNK_ROWS)]
            parts = [self._chunk(name, n, size) for n, size in enumerate(sizes)]
            if parts and all(isinstance(part, str) and part == parts[0] for part in parts):
                return np.broadcast_to(np.array(parts[0], object), rows)
            for n, part in enumerate(parts):
                values[n * CHUNK_ROWS :][:CHUNK_ROWS] = part
            return values

    def append(self, table: str, rows: Mapping[str, Column], size: int) -> None:
        """Append ``size`` rows to a table; create a missing table. Columns that ``rows`` lacks get
        missing values, and so do the earlier rows of a new column."""
        written = self.columns(table)
        if written and not size:
            return
        start = self.rows(table) if written else 0
        for group in (self.folder, self.folder / table):
            group.mkdir(exist_ok=True)
            _write_json(group / DESCRIPTION, GROUP)
        for name in dict.fromkeys((*written, *(() if written else TABLES[table][1]), *rows)):
            self._describe(f"{table}/{name}", start + size)
        for name, values in rows.items():
            self._write(f"{table}/{name}", start, values)

    def overwrite(self, table: str, rows: Mapping[str, np.ndarray], index: np.ndarray) -> None:
        """Replace the rows with the indices ``index``. Counts that ``rows`` lacks become missing;
        other columns that it lacks keep their values."""
        order = np.argsort(index)
        chunk, place = np.divmod(index[order], CHUNK_ROWS)
        spans = [(n, *np.searchsorted(chunk, (n, n + 1))) for n in np.unique(chunk).tolist()]
        counts = (name for name in self.columns(table) if name.startswith(COUNT_PREFIX))
        size = self.rows(table)
        for name in dict.fromkeys((*counts, *rows)):
            values = rows[name] if name in rows else np.full(index.size, np.nan)
            self._describe(f"{table}/{name}", size)
            for number, low, end in spans:
                whole = self._whole_chunk(f"{table}/{name}", number)
                whole[place[low:end]] = values[order[low:end]]
                self._write_chunk(f"{table}/{name}", number, whole)

    def _file(self, name: str) -> bytes | None:
        """The bytes of a file; None if it was not written.

        Raises:
            DamagedStoreError: a written file is missing.
        """
        path = self.folder / name
        if self.written is None:
            return path.read_bytes() if path.exists() else None
        if name not in self.written:
            return None
        try:
            return read_regular(path)
        except OSError:
            raise DamagedStoreError(f"{path}: is missing; {OPEN_AGAIN}") from None

    def _described(self, name: str) -> dict[str, Any]:
        data = self._file(f"{name}/{DESCRIPTION}")
        if data is None:
            raise KeyError(name)
        description: dict[str, Any] = json.loads(data)
        return description

    def _chunk(self, name: str, number: int, rows: int) -> np.ndarray | str:
        """The first ``rows`` values of a chunk; one text if all of them are the same text."""
        packed = self._file(f"{name}/c/{number}")
        if packed is not None:
            return _decoded(packed, _kind(name), rows)
        return "" if _kind(name).kind == "O" else _missing(name, rows)

    def _whole_chunk(self, name: str, number: int) -> np.ndarray:
        values = _missing(name, CHUNK_ROWS)
        values[:] = self._chunk(name, number, CHUNK_ROWS)
        return values

    def as_zarr(self) -> StoreLike:
        """The tables for Zarr and XArray."""
        from campaign.store.written_store import WrittenStore  # noqa: PLC0415

        return self.folder if self.written is None else WrittenStore(self.folder, self.written)

    def _by_zarr(self, name: str) -> np.ndarray:
        import zarr  # noqa: PLC0415

        values = np.asarray(zarr.open_array(self.as_zarr(), path=name, mode="r")[:])
        return values.astype(object) if values.dtype.kind == "T" else values

    def _describe(self, name: str, rows: int) -> None:
        """Create a column, or extend it, with missing values."""
        path = self.folder / name / DESCRIPTION
        if path.exists() and not _is_ours(self._described(name), name):
            values = self.read(name)
            shutil.rmtree(path.parent)
            self._describe(name, len(values))
            self._write(name, 0, values)
        path.parent.mkdir(exist_ok=True)
        _write_json(path, _description(name, rows))

    def _write(self, name: str, start: int, values: Column) -> None:
        """Write the last rows of a column, from ``start`` on."""
        for first in range(start - start % CHUNK_ROWS, start + len(values), CHUNK_ROWS):
            low, end = max(first, start), min(first + CHUNK_ROWS, start + len(values))
            part = values[low - start : end - start]
            if low > first:  # the chunk has earlier rows
                whole = self._whole_chunk(name, first // CHUNK_ROWS)
                whole[low - first : end - first] = np.asarray(part)
                part = whole
            self._write_chunk(name, first // CHUNK_ROWS, part)

    def _write_chunk(self, name: str, number: int, values: Column) -> None:
        path = self.folder / name / "c" / str(number)
        data = _encoded(_kind(name), values)
        if data is None:
            path.unlink(missing_ok=True)
            return
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(ZSTD.encode(data))


def written_tables(generation: Generation) -> TableFiles:
    """The tables of a generation, for reading."""
    start = f"{generation.tables.name}/"
    names = (name for name in generation.files if name.startswith(start))
    return TableFiles(generation.tables, frozenset(name.removeprefix(start) for name in names))


def _missing(name: str, rows: int) -> np.ndarray:
    return missing_column(name.rpartition("/")[2], rows)


def _kind(name: str) -> np.dtype[Any]:
    return _missing(name, 0).dtype


def _description(name: str, rows: int) -> dict[str, Any]:
    """The content of ``zarr.json`` for a column, ``table/column``."""
    table, _, column_name = name.partition("/")
    kind = _kind(name)
    codec: dict[str, Any] = {"name": "bytes"}
    if kind.kind == "O":
        codec = {"name": "vlen-utf8", "configuration": {}}
    elif kind.itemsize > 1:
        codec["configuration"] = {"endian": "little"}
    return {
        "shape": [rows],
        "data_type": "string" if kind.kind == "O" else kind.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [CHUNK_ROWS]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": MISSING[kind.kind],
        "codecs": [
            codec,
            {"name": "zstd", "configuration": {"level": ZSTD.level, "checksum": False}},
        ],
        "attributes": attributes(column_name),
        "dimension_names": [TABLES[table][0]],
        "zarr_format": 3,
        "node_type": "array",
        "storage_transformers": [],
    }


def _is_ours(description: Mapping[str, Any], name: str) -> bool:
    """Whether an array has the layout of this module; its attributes may differ."""
    ours = _description(name, *description["shape"])
    return {**description, "attributes": {}} == {**ours, "attributes": {}}


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2))


def _decoded(packed: bytes, kind: np.dtype[Any], rows: int) -> np.ndarray | str:
    """The first values of a chunk; one text if all of them are the same text."""
    data = ZSTD.decode(packed)
    if kind.kind == "O":
        text = data[4 : 8 + int.from_bytes(data[4:8], "little")]
        if data[4:].startswith(text * rows):
            return str(text[4:].decode())
        values: np.ndarray = VLenUTF8().decode(data)
    else:
        values = np.frombuffer(data, kind)
    if len(values) != CHUNK_ROWS:
        raise ValueError(f"a chunk has {len(values)} values, not {CHUNK_ROWS}")
    return values[:rows]


def _encoded(kind: np.dtype[Any], values: Column) -> bytes | None:
    """The bytes of a chunk with these values and then missing ones; None if all are missing."""
    rows = len(values)
    if kind.kind != "O":
        numbers = np.full(CHUNK_ROWS, np.nan if kind.kind == "f" else 0, kind)
        is_missing = np.isnan if kind.kind == "f" else np.logical_not
        numbers[:rows] = values
        return None if is_missing(numbers).all() else numbers.tobytes()
    if isinstance(values, Texts):
        encoded = [_text(value) for value in values.values]
        if values.codes.strides == (0,):  # the same text in all rows
            texts: bytes = encoded[values.codes[0]] * rows
        else:
            texts = b"".join(values.array(object, encoded))
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
