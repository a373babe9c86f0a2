"""Reading a table: CSV, blocks of CSV, or Parquet, under our column names and units."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any, BinaryIO

import pandas as pd

from analysis.dataset import COUNT_PREFIX, MEASUREMENT_COLUMNS
from campaign.table.delimited import MAX_VALUES, read_delimited
from campaign.table.kernel_tuner import read_cache
from campaign.table.map_file import (
    COLUMNS,
    NUMBER_COLUMNS,
    POINT_ID,
    REQUIRED,
    ColumnSource,
    Keep,
    TableMap,
    is_table_column,
)
from sites.located_toml import BadFile, readable
from sites.regular_files import MAX_BYTES, open_regular

BATCH_ROWS = 4096
"""Rows of Parquet that are read at once, before their size is known."""
OF_STORE = {*COLUMNS, *MEASUREMENT_COLUMNS}
"""What a table with a column ``point_id``, which export wrote, may have; further ``n_<class>``."""
DECIMAL_COMMA = re.compile(r"\s*[-+]?\d*,\d+(?:[eE][-+]?\d+)?\s*")
THOUSANDS = re.compile(r"\s*[-+]?[1-9]\d{0,2}(?:,\d{3})+\s*")


@dataclass(frozen=True)
class RawTable:
    """A table under our column names and units, its values still as they were read: text,
    numbers, or None. Every list has one entry a row; ``lines`` are those of the file. ``notes``:
    what was recognised, a sentence each."""

    path: Path
    lines: list[int]
    columns: dict[str, list[Any]]
    labels: dict[str, list[Any]]
    notes: list[str] = field(default_factory=list)

    @property
    def of_store(self) -> bool:
        """Whether its rows are those of a store, with the ids of their points."""
        return POINT_ID in self.columns


def read_table(path: Path, mapping: TableMap, map_file: Path | None = None) -> RawTable:
    """Read a table; its values are still unchecked.

    ``map_file``: the map's, for messages.

    Raises:
        BadFile: it cannot be read, lacks a column, or has one that nobody knows.
    """
    notes: list[str] = []
    standard: set[str] = {*COLUMNS}
    if mapping.of_kernel_tuner:
        standard |= {"status", "text"}
        (header, lines, values), notes = read_cache(path, mapping)
    elif _is_parquet(path):
        header, lines, values = _parquet(path)
    else:
        (header, lines, values), notes = read_delimited(path, mapping)
    twice = [name for name, n in Counter(header).items() if n > 1]
    if twice:
        raise BadFile(f"several columns {twice[0]!r}", "rename or remove all but one", str(path))
    theirs = dict(zip(header, values, strict=True))
    standard = OF_STORE if POINT_ID in theirs else standard
    taken = _taken(path, theirs, mapping)
    own = [name for name in header if name not in taken and is_table_column(name, standard)]
    labels = [name for name in header if name not in taken and name not in own]
    _check_columns(path, header, own, labels, mapping)
    kept = _kept(theirs, mapping.keep, len(lines))
    in_map = "the map" if map_file is None else str(map_file)
    if lines and not kept:
        raise BadFile(
            f"none of its {len(lines)} rows is kept by [[keep]] in {in_map}",
            "correct that rule",
            str(path),
        )
    for name in mapping.constants:
        if name in own and name != "site":
            raise BadFile(
                f"the table {path} has a column {name}",
                f"leave {name} out of [constants]",
                f"{in_map}: constants.{name}",
            )
    if mapping.keep:
        notes.append(f"{path}: {len(kept)} of {len(lines)} rows kept, as the map says")
        theirs = {name: [column[i] for i in kept] for name, column in theirs.items()}
        lines = [lines[i] for i in kept]
    columns: dict[str, list[Any]] = {
        name: [value] * len(lines) for name, value in mapping.constants.items()
    }
    columns |= {name: theirs[name] for name in own}
    notes += _with_decimal_points(path, theirs, _numbers(own, mapping), mapping.decimal)
    columns |= {name: theirs[name] for name in own}
    for ours, source in mapping.columns.items():
        columns[ours] = _converted([theirs[name] for name in source.names], source)
    if mapping.params:
        columns["params"] = _params({name: theirs[name] for name in mapping.params})
    return RawTable(path, lines, columns, {name: theirs[name] for name in labels}, notes)


def _taken(path: Path, theirs: Iterable[str], mapping: TableMap) -> set[str]:
    """The table's columns that the map names, all of which must be there."""
    theirs = list(theirs)
    named = {name: ours for ours, source in mapping.columns.items() for name in source.names}
    named |= dict.fromkeys(mapping.params, "params")
    for name, used in (*named.items(), *((rule.column, "keep") for rule in mapping.keep)):
        if name not in theirs:
            raise BadFile(
                f"no column {name!r}, which the map names for {used}",
                f"it has {', '.join(theirs)}",
                str(path),
            )
    return set(named)


def _check_columns(
    path: Path, header: list[str], own: list[str], labels: list[str], mapping: TableMap
) -> None:
    unknown = [name for name in labels if all(name != rule.column for rule in mapping.keep)]
    have = {*mapping.columns, *own, *mapping.constants}
    optional = {"core_mhz"} if mapping.of_kernel_tuner else set()
    missing = [name for name in REQUIRED if name not in have | optional]
    if not {"energy_j", "power_w", POINT_ID} & have and not mapping.of_kernel_tuner:
        missing.append("energy_j or power_w")
    if missing:
        raise BadFile(
            f"no column {missing[0]}",
            f"it has {', '.join(header)}: name theirs under [columns] in a map file, or give one "
            f"value under [constants]{' or by --site' if missing[0] == 'site' else ''}",
            str(path),
        )
    if unknown and mapping.unknown == "refuse" and POINT_ID not in header:
        raise BadFile(
            f"unknown column {unknown[0]!r}",
            'name it under [columns] in a map file, or set unknown = "label" there to keep it as a '
            "label",
            str(path),
        )
    if mapping.number_repeats and "repeat" in own:
        raise BadFile(
            "number_repeats beside a column repeat", "leave number_repeats out", str(path)
        )
    if mapping.params and "params" in own:
        raise BadFile("params in the map beside a column params", "leave params out", str(path))


def _kept(theirs: dict[str, list[Any]], rules: list[Keep], n_rows: int) -> list[int]:
    """The rows that every rule keeps."""
    rows = list(range(n_rows))
    for rule in rules:
        values = theirs[rule.column]
        passes = {value: _passes(value, rule) for value in {values[i] for i in rows}}
        rows = [i for i in rows if passes[values[i]]]
    return rows


def _passes(value: Any, rule: Keep) -> bool:
    text = "" if value is None else str(value)
    if rule.matches is not None:
        return re.search(rule.matches, text) is not None
    for wanted in rule.values:
        if isinstance(wanted, bool):
            is_wanted = text.lower() == str(wanted).lower()
        else:
            is_wanted = text == wanted if isinstance(wanted, str) else _float(value) == wanted
        if is_wanted:
            return True
    return False


def _numbers(own: list[str], mapping: TableMap) -> list[str]:
    """The table's columns that hold numbers."""
    mapped = [
        name
        for ours, source in mapping.columns.items()
        if _is_number(ours) and not source.join
        for name in source.names
    ]
    return list(dict.fromkeys([*(name for name in own if _is_number(name)), *mapped]))


def _is_number(name: str) -> bool:
    return name in NUMBER_COLUMNS or name.startswith(COUNT_PREFIX)


def _with_decimal_points(
    path: Path, theirs: dict[str, list[Any]], names: list[str], decimal: str | None
) -> list[str]:
    """Give the columns of numbers decimal points in place of decimal commas; a note where that
    was recognised.

    Raises:
        BadFile: a comma that could also separate thousands.
    """
    if decimal == ".":
        return []
    with_commas = [name for name in names if _has_comma(theirs[name])]
    texts = [text for name in with_commas for text in theirs[name] if "," in text]
    if decimal is None:
        if not texts or not all(map(DECIMAL_COMMA.fullmatch, texts)):
            if texts and all(map(THOUSANDS.fullmatch, texts)):
                raise _ambiguous(path, texts[0])
            return []  # what is no number is named with its line later
        if all(map(THOUSANDS.fullmatch, texts)):
            raise _ambiguous(path, texts[0])
        points = next((t for n in names for t in theirs[n] if "." in str(t)), None)
        if points is not None:
            raise BadFile(
                f"numbers with a comma ({texts[0].strip()!r}) and with a point "
                f"({str(points).strip()!r})",
                'write all with a point; or set decimal = "," in a map file',
                str(path),
            )
    for name in with_commas:
        theirs[name] = [value.replace(",", ".", 1) for value in theirs[name]]
    return [] if decimal or not texts else [f"{path}: its numbers have decimal commas"]


def _has_comma(values: list[Any]) -> bool:
    try:
        return "," in "\n".join(values)
    except TypeError:  # not all are text: they were read as numbers
        return False


def _ambiguous(path: Path, text: str) -> BadFile:
    return BadFile(
        f"found {text.strip()!r}, a decimal comma or a separator of thousands",
        'set decimal = "," in a map file, or remove the separators',
        str(path),
    )


def _float(value: Any) -> float:
    """A number, or NaN."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _converted(columns: list[list[Any]], source: ColumnSource) -> list[Any]:
    """Values in our unit; what is no number stays, to be named later."""
    if source.join:
        return [
            source.separator.join(text for text in map(_text, parts) if text)
            for parts in zip(*columns, strict=True)
        ]
    values = columns[0]
    if source.sum:
        values = [_sum(parts) for parts in zip(*columns, strict=True)]
    if not source.reciprocal and source.factor == 1.0 and not source.offset:
        return values
    return [_in_our_unit(value, source) for value in values]


def _params(columns: dict[str, list[Any]]) -> list[str]:
    """Each row's parameters as JSON. Empty cells are left out."""
    return [
        json.dumps({k: _param(v) for k, v in zip(columns, row, strict=True) if v not in (None, "")})
        for row in zip(*columns.values(), strict=True)
    ]


def _param(value: Any) -> Any:
    """A number or truth value where the text is one in JSON; otherwise the value as it is."""
    try:
        read = json.loads(value)
    except (TypeError, ValueError, RecursionError):
        return value
    return read if isinstance(read, int | float) and math.isfinite(read) else value


def _in_our_unit(value: Any, source: ColumnSource) -> Any:
    try:
        number = float(value)
        if source.reciprocal:
            number = 1.0 / number
        return number * source.factor + source.offset
    except (TypeError, ValueError, OverflowError, ZeroDivisionError):
        return value


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _sum(parts: tuple[Any, ...]) -> Any:
    """The sum; None where a part is missing; a part that is no number as it is."""
    if any(part is None or part == "" for part in parts):
        return None
    numbers = list(map(_float, parts))
    wrong = next((part for part, n in zip(parts, numbers, strict=True) if math.isnan(n)), None)
    return reduce(add, numbers) if wrong is None else wrong


def _is_parquet(path: Path) -> bool:
    with readable(path), open_regular(path) as file:
        return file.read(4) == b"PAR1" or path.suffix == ".parquet"


def _parquet(path: Path) -> tuple[list[str], list[int], list[list[Any]]]:
    """The header, each row's number, and the columns."""
    try:
        with open_regular(path) as file:
            frame = _frame(path, file)
        # Text that is not valid UTF-8 raises only here.
        plain = frame.astype(object).where(frame.notna(), None)
    except BadFile:
        raise
    except Exception as error:  # what a damaged file raises is of many kinds
        what = f"cannot be read as Parquet ({error})"
        raise BadFile(what, "check the file", str(path)) from None
    names = [str(name) for name in plain.columns]
    values = [list(map(_plain, plain.iloc[:, i].tolist())) for i in range(len(names))]
    return names, list(range(1, len(plain) + 1)), values


def _frame(path: Path, file: BinaryIO) -> pd.DataFrame:
    """A Parquet file's columns. A small one can hold more than any memory: a value that is repeated
    is stored once, and read as one, but counts in each of its rows.

    Raises:
        BadFile: it holds too much.
    """
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import compute, parquet  # noqa: PLC0415

    schema = parquet.read_schema(file)
    texts = [
        field.name
        for field in schema
        if pa.types.is_string(field.type) or pa.types.is_binary(field.type)
    ]
    stored = parquet.ParquetFile(file, read_dictionary=texts)
    held = stored.metadata
    columns = [
        held.row_group(i).column(k)
        for i in range(held.num_row_groups)
        for k in range(held.num_columns)
    ]
    n_values = max(held.num_rows * held.num_columns, sum(c.num_values for c in columns))
    if n_values > MAX_VALUES:
        what = f"holds {n_values} values, and at most {MAX_VALUES} are read at once"
        raise BadFile(what, "divide it", str(path))
    n_bytes = sum(column.total_uncompressed_size for column in columns)
    batches = []
    if n_bytes <= MAX_BYTES:
        n_bytes = 0
        for batch in stored.iter_batches(BATCH_ROWS):
            batches.append(batch)
            for column in batch.columns:
                if pa.types.is_dictionary(column.type):
                    lengths = compute.binary_length(column.dictionary).take(column.indices)
                    n_bytes += compute.sum(lengths).as_py() or 0
                else:
                    n_bytes += column.nbytes
            if n_bytes > MAX_BYTES:
                break
    if n_bytes > MAX_BYTES:
        raise BadFile(f"unpacks to more than {MAX_BYTES >> 20} MiB", "divide it", str(path))
    return pa.Table.from_batches(batches, stored.schema_arrow).to_pandas()


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | None) else str(value)
