"""Reading a table: CSV, blocks of CSV, or Parquet, under our column names and units."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from campaign.table.map_file import REQUIRED, ColumnSource, TableMap, is_table_column
from sites.located_toml import BadFile, read_text

MAX_PARQUET_VALUES = 50_000_000
"""Rows times columns: a small Parquet file can hold more than any memory."""


@dataclass(frozen=True)
class RawTable:
    """A table under our column names and units, its values still as they were read: text,
    numbers, or None. Every list has one entry a row; ``lines`` are those of the file."""

    path: Path
    lines: list[int]
    columns: dict[str, list[Any]]
    labels: dict[str, list[Any]]


def read_table(path: Path, mapping: TableMap) -> RawTable:
    """Read a table; its values are still unchecked.

    Raises:
        BadFile: it cannot be read, lacks a column, or has one that nobody knows.
    """
    if path.suffix == ".parquet":
        header, lines, rows = _parquet(path)
    elif mapping.layout == "blocks":
        header, lines, rows = _blocks(path, mapping)
    else:
        header, lines, rows = _csv(path, mapping)
    twice = [name for name, n in Counter(header).items() if n > 1]
    if twice:
        raise BadFile(f"several columns {twice[0]!r}", "rename or remove all but one", str(path))
    theirs = {
        ours: (source if isinstance(source, ColumnSource) else ColumnSource(column=source))
        for ours, source in mapping.columns.items()
    }
    for ours, source in theirs.items():
        if source.column not in header:
            raise BadFile(
                f"no column {source.column!r}, which the map names for {ours}",
                f"it has {', '.join(header)}",
                str(path),
            )
    taken = {source.column for source in theirs.values()}
    own = [name for name in header if name not in taken and is_table_column(name)]
    labels = [name for name in header if name not in taken and not is_table_column(name)]
    if labels and mapping.unknown == "refuse":
        raise BadFile(
            f"unknown column {labels[0]!r}",
            'name it under [columns] in a map file, or set unknown = "label" there to keep it as a '
            "label",
            str(path),
        )
    have = {*theirs, *own, *mapping.constants}
    missing = [name for name in REQUIRED if name not in have]
    if not {"energy_j", "power_w"} & have:
        missing.append("energy_j or power_w")
    if missing:
        raise BadFile(
            f"no column {missing[0]}",
            f"it has {', '.join(header)}: name theirs under [columns] in a map file, or give one "
            "value under [constants]",
            str(path),
        )
    for line, row in zip(lines, rows, strict=True):
        if len(row) != len(header):
            raise BadFile(
                f"{len(row)} fields where the header has {len(header)}",
                "correct this line",
                f"{path}:{line}",
            )
    transposed = zip(*rows, strict=True) if rows else ([] for _ in header)
    values = {name: list(column) for name, column in zip(header, transposed, strict=True)}
    columns: dict[str, list[Any]] = {
        name: [value] * len(lines) for name, value in mapping.constants.items()
    }
    columns |= {name: values[name] for name in own}
    for ours, source in theirs.items():
        columns[ours] = _scaled(values[source.column], source.factor)
    return RawTable(path, lines, columns, {name: values[name] for name in labels})


def _scaled(values: list[Any], factor: float) -> list[Any]:
    """Values in our unit; what is no number stays, to be named later."""
    if factor == 1.0:
        return values
    scaled: list[Any] = []
    for value in values:
        try:
            scaled.append(float(value) * factor)
        except (TypeError, ValueError, OverflowError):
            scaled.append(value)
    return scaled


Table = tuple[list[str], list[int], Sequence[Sequence[Any]]]
"""The header, each row's line in the file, and the rows."""


def _parquet(path: Path) -> Table:
    from pyarrow.parquet import read_metadata  # noqa: PLC0415

    try:
        held = read_metadata(path) if path.is_file() else None
        n_values = held.num_rows * held.num_columns if held else 0
        frame = pd.read_parquet(path) if n_values <= MAX_PARQUET_VALUES else None
        # Text that is not valid UTF-8 raises only here.
        plain = None if frame is None else frame.astype(object).where(frame.notna(), None)
    except Exception as error:  # what a damaged file raises is of many kinds
        what = f"cannot be read as Parquet ({error})"
        raise BadFile(what, "check the file", str(path)) from None
    if plain is None:
        raise BadFile(
            f"holds {n_values} values, and at most {MAX_PARQUET_VALUES} are read at once",
            "divide it",
            str(path),
        )
    names = [str(name) for name in plain.columns]
    rows = list(plain.map(_plain).itertuples(index=False, name=None))
    return names, list(range(1, len(rows) + 1)), rows


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | None) else str(value)


def _csv_lines(path: Path) -> tuple[list[int], list[tuple[str, ...]]]:
    reader = csv.reader(read_text(path).splitlines())
    lines, rows = [], []
    try:
        for row in reader:
            if row and not row[0].lstrip().startswith("#"):
                lines.append(reader.line_num)
                # A tuple of texts is nothing for the garbage collector, a list is.
                rows.append(tuple(map(str.strip, row)))
    except csv.Error as error:
        place = f"{path}:{reader.line_num}"
        raise BadFile(f"is not CSV ({error})", "correct this line", place) from None
    return lines, rows


def _csv(path: Path, mapping: TableMap) -> Table:
    lines, rows = _csv_lines(path)
    if not lines:
        raise BadFile(
            "is empty", "a table has a header line and one row per measurement", str(path)
        )
    if mapping.fields:
        return mapping.fields, lines, rows
    return list(rows[0]), lines[1:], rows[1:]


def _blocks(path: Path, mapping: TableMap) -> Table:
    if not mapping.fields:
        what = 'layout = "blocks" needs fields in the map'
        raise BadFile(what, "list them in order", str(path))
    kernel = None
    lines, rows = [], []
    for line, row in zip(*_csv_lines(path), strict=True):
        if len(row) == 1:
            kernel = row[0]
        elif kernel is None:
            raise BadFile(
                "a row before the first kernel's name",
                "put a line with the name before it",
                f"{path}:{line}",
            )
        else:
            lines.append(line)
            rows.append((kernel, *row))
    return ["kernel", *mapping.fields], lines, rows
