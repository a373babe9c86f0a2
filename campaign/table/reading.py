"""Reading a table: CSV, blocks of CSV, or Parquet, with standard column names and units."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from campaign.table.delimited import MAX_VALUES, TableColumns, head_of, read_delimited
from campaign.table.formats import FORMATS, recognised
from campaign.table.map_file import (
    COLUMNS,
    OF_STORE,
    POINT_ID,
    REQUIRED,
    ColumnSource,
    Keep,
    TableMap,
    is_number_column,
    is_table_column,
    number_columns,
)
from campaign.table.number_text import (
    Numbers,
    NumberStyle,
    UnclearNumbersError,
    number_or_text,
    read_numbers,
    readings,
)
from campaign.table.power_logs import recognised_log
from campaign.table.units import UNITS, quantity_of, suggested_unit
from dvfs.files import MAX_BYTES, open_regular
from dvfs.input_files import FileError, raise_all, readable
from dvfs.texts import Texts, group_codes

if TYPE_CHECKING:
    import pandas as pd

    from campaign.store.measurement import Trace
    from campaign.table.long_text import LongText
    from campaign.table.windows import PowerLogs

AsRead = list[Any] | Texts | Numbers
"""A column as read: a list with a value per row, or a column that the reader has converted."""
BATCH_ROWS = 4096
"""Rows of Parquet that are read at once, before their size is known."""
HOSTS = {"host", "hostname", "nodename", "node_name", "nodelist", "machine"}
"""Usual names of columns of hosts."""
UNIT_IN_TEXT = re.compile(r"[^\W\d_]|:")
"""A letter, or the colon of a duration."""
INDEX_OF_PANDAS = re.compile("__index_level_[0-9]+__")
"""The column of a Parquet file that holds a pandas index without a name."""


@dataclass(frozen=True)
class RawTable:
    """A table with standard column names and units. A column of numbers is :class:`Numbers`; any
    other has the values as read: text, numbers, or None. Every column has one entry per row.
    ``lines``: each row's line in the file. ``notes``: what was recognised. ``traces``: line -> the
    traces of its window. ``n_read``: the number of rows before ``[[keep]]``."""

    path: Path
    lines: Sequence[int]
    columns: dict[str, Texts | Numbers]
    labels: dict[str, Texts]
    notes: list[str] = field(default_factory=list)
    traces: Mapping[int, Sequence[Trace]] = field(default_factory=dict)
    n_read: int = 0

    def texts(self, name: str) -> Texts:
        """A column that is not of numbers."""
        column = self.columns[name]
        if isinstance(column, Numbers):
            raise TypeError(f"{name} is a column of numbers")
        return column

    @property
    def of_store(self) -> bool:
        """Whether its rows come from a store, with the ids of their points."""
        return POINT_ID in self.columns


def read_table(
    path: Path, mapping: TableMap, map_file: Path | None = None, logs: PowerLogs | None = None
) -> RawTable:
    """Read a table, without checking its values.

    ``map_file``: the file of the map, for messages. ``logs``: power logs; the rows are windows.

    Raises:
        FileError: the table cannot be read, lacks a column, or has an unknown one.
    """
    notes: list[str] = []
    lines: Sequence[int]
    values: Sequence[AsRead]
    decimal = mapping.decimal
    if mapping.imported:
        (header, lines, values), notes = _format_table(path, mapping)
    elif _is_parquet(path):
        header, lines, values = _parquet(path)
    else:
        (header, lines, values), delimiter, notes = read_delimited(path, mapping)
        if POINT_ID in header and delimiter == "," and mapping.thousands is None:
            decimal = decimal or "."  # as export writes it
        if any(isinstance(column, Numbers) for column in values):  # plain text has points
            decimal = "."
    traces: dict[int, list[Trace]] = {}
    if logs is not None:
        header, values, traces, noted = _windows_table(path, (header, lines, values), logs)
        notes += noted
    table = header, lines, values
    return _raw_table(path, table, mapping, map_file, decimal, notes, traces)


def read_long_table(text: LongText, map_file: Path | None = None) -> Iterator[RawTable]:
    """A table that does not fit in memory, as a sequence of tables of some of its rows. Their
    ``notes`` are empty.

    Raises:
        FileError: on reaching an error; and at the end of the file, for errors of the whole table.
    """
    mapping, header = text.mapping, text.form.header
    source = mapping.columns.get("kernel")
    names = (
        ["node", *(source.names if source else ())] if _has_unnamed_node(header, mapping) else []
    )
    node_rows: dict[tuple[Any, ...], None] = {}

    def raw_table(numbered: tuple[int, TableColumns]) -> RawTable:
        part, table = numbered
        if names:
            file_columns = dict(zip(table[0], table[2], strict=True))
            texts = [_texts(file_columns[name]) for name in names if name in file_columns]
            _, first = np.unique(group_codes(texts), return_index=True)
            node_rows.update(dict.fromkeys(tuple(c[i] for c in texts) for i in first.tolist()))
        return _raw_table(text.path, table, mapping, map_file, ".", part=part)

    yield from map(raw_table, enumerate(text.parts()))
    if names:
        rows: dict[str, AsRead] = {name: [] for name in header}
        rows |= dict(zip(names, map(list, zip(*node_rows, strict=True)), strict=True))
        _check_nodes(text.path, rows, range(len(node_rows)), mapping)


def _raw_table(
    path: Path,
    table: TableColumns,
    mapping: TableMap,
    map_file: Path | None,
    decimal: str | None,
    notes: Sequence[str] = (),
    traces: Mapping[int, Sequence[Trace]] = MappingProxyType({}),
    part: int | None = None,
) -> RawTable:
    """The table with standard names and units. ``part``: the number, from 0, of a part of a table;
    the checks of all rows together are then left out."""
    header, lines, values = table
    notes = [*notes]
    # In tables of other tools a profile is something else.
    standard = {*COLUMNS} - ({"profile"} if mapping.imported or mapping.columns else set())
    if mapping.imported:
        standard |= {"status", "text"}
    if traces:  # of windows of a power log
        standard |= {"iterations"}
    twice = [name for name, n in Counter(header).items() if n > 1]
    if twice:
        raise FileError(f"several columns {twice[0]!r}", "rename or remove all but one", str(path))
    file_columns: dict[str, AsRead] = dict(zip(header, values, strict=True))
    if part is None and _has_unnamed_node(header, mapping):
        _check_nodes(path, file_columns, lines, mapping)
    standard = OF_STORE if POINT_ID in file_columns else standard
    in_map = "the map" if map_file is None else str(map_file)
    mapped = _mapped_names(path, file_columns, mapping)
    table_columns = [
        name for name in header if name not in mapped and is_table_column(name, standard)
    ]
    labels = [name for name in header if name not in mapped and name not in table_columns]
    _check_columns(path, header, table_columns, labels, mapping, in_map)
    numbers, mark = _numbers(path, file_columns, lines, mapping, decimal)
    if mark == "," and mapping.decimal is None:
        notes.append(f"{path}: its numbers have decimal commas")
    columns: dict[str, Texts | Numbers] = {
        name: _with_advice(name, numbers[name], ColumnSource(column=name))
        if name in numbers
        else _texts(file_columns[name])
        for name in table_columns
    }
    for ours, source in mapping.columns.items():
        columns[ours] = _converted(ours, source, file_columns, numbers, mapping)
    if mapping.params:
        columns["params"] = _params({n: _texts(file_columns[n]) for n in mapping.params}, mark)
    columns |= {
        name: Numbers(np.broadcast_to(float(value), len(lines)))
        if is_number_column(name)
        else Texts.same(value, len(lines))
        for name, value in mapping.constants.items()
        if name not in columns
    }
    kept_labels = {name: _texts(file_columns[name]) for name in labels}
    n_read = len(lines)
    if mapping.keep:
        kept_rows = _rows_to_keep(file_columns, numbers, mapping.keep, n_read)
        if part is None:
            notes += kept_notes(path, len(kept_rows), n_read, map_file)
        rows = np.array(kept_rows, np.int64)
        columns = {name: values[rows] for name, values in columns.items()}
        kept_labels = {name: values[rows] for name, values in kept_labels.items()}
        lines = [lines[i] for i in kept_rows]
    if not part:
        _check_units_row(path, lines, columns)
    return RawTable(path, lines, columns, kept_labels, notes, traces, n_read)


def kept_notes(path: Path, n_kept: int, n_read: int, map_file: Path | None) -> list[str]:
    """A note on how many rows ``[[keep]]`` keeps.

    Raises:
        FileError: it keeps none.
    """
    if n_read and not n_kept:
        in_map = "the map" if map_file is None else str(map_file)
        cause = f"none of its {n_read} rows is kept by [[keep]] in {in_map}"
        raise FileError(cause, "correct that rule", str(path))
    return [f"{path}: {n_kept} of {n_read} rows kept, as the map says"]


def _windows_table(
    path: Path, table: tuple[Sequence[str], Sequence[int], Sequence[AsRead]], logs: PowerLogs
) -> tuple[list[str], list[AsRead], dict[int, list[Trace]], list[str]]:
    """A table of windows with its measurements: header, columns, traces by line, notes."""
    from campaign.table.windows import READ, TAKEN, measured_windows  # noqa: PLC0415

    header, lines, values = table
    columns = dict(zip(header, values, strict=True))
    text_columns = {n: _texts(column) if n in READ else () for n, column in columns.items()}
    windows = measured_windows(path, text_columns, lines, logs)
    measured_columns = {name: column for name, column in columns.items() if name not in TAKEN}
    measured_columns |= {name: Numbers(measured) for name, measured in windows.columns.items()}
    traces_by_line = dict(zip(lines, windows.traces, strict=True))
    return list(measured_columns), list(measured_columns.values()), traces_by_line, windows.notes


def recognised_layout(path: Path, mapping: TableMap) -> str | None:
    """The format of another tool whose marker the file has. None if there is no marker, or the map
    states a layout or columns.

    Raises:
        FileError: the file is a power log.
    """
    if mapping.model_fields_set & {"layout", "columns"} or not path.is_file():
        return None
    head = head_of(path)
    if log := recognised_log(head):
        cause = f"is a power log ({log})"
        raise FileError(
            cause, "import a table of windows, with --power-log and this file", str(path)
        )
    return recognised(path, head)


def _format_table(path: Path, mapping: TableMap) -> tuple[TableColumns, list[str]]:
    """A file in another tool's format, without the standard columns that the map replaces."""
    (header, lines, values), notes = FORMATS.load(mapping.layout).read(path, mapping)
    if not lines:
        raise FileError(f"has no {mapping.rows}", "nothing to import", str(path))
    given_columns = (mapping.given & {*COLUMNS}) - mapping.named
    indices = [i for i, name in enumerate(header) if name not in given_columns]
    return ([header[i] for i in indices], lines, [values[i] for i in indices]), notes


def _has_unnamed_node(header: Sequence[str], mapping: TableMap) -> bool:
    """Whether the table has a column node, and the map names other columns but not this one."""
    is_other = bool(mapping.columns) and not mapping.imported
    return is_other and "node" in header and "node" not in {*mapping.named, *mapping.columns}


def _check_nodes(
    path: Path, file_columns: Mapping[str, AsRead], lines: Sequence[int], mapping: TableMap
) -> None:
    """Raise FileError if the column node, which the map does not name, is not the host: each of its
    values belongs to one kernel, as a region does, or another column has the hosts."""
    nodes = _texts(file_columns["node"])
    if len(nodes.values) < 2:
        return
    source = mapping.columns.get("kernel")
    names = source.names if source else []
    kernels = [_texts(file_columns.get(name, list(lines))) for name in names]
    n_kernels = len(np.unique(group_codes(kernels)))
    n_pairs = len(np.unique(group_codes([nodes, *kernels])))
    is_region = bool(kernels) and n_pairs == len(nodes.values) == n_kernels > 1
    hosts = [name for name in file_columns if name.lower() in HOSTS]
    if is_region or hosts:
        why = f"the table has {hosts[0]!r}" if hosts else "each of its values is of one kernel"
        raise FileError(
            f"its column 'node', which the map does not name, seems to be no host: {why}",
            'write node = "node" under [columns] where it is the host; else '
            + (f"node = {json.dumps(hosts[0])}" if hosts else "rename it in the table"),
            str(path),
        )


def _check_units_row(
    path: Path, lines: Sequence[int], columns: Mapping[str, Texts | Numbers]
) -> None:
    """Raise FileError if the first row has the units of the columns."""
    filled = [n for n in columns.values() if isinstance(n, Numbers) and np.isfinite(n.values).any()]
    first = [numbers.refused.get(0, ("", ""))[0].strip("()[] ") for numbers in filled]
    if len(lines) > 1 and any(text in UNITS for text in first) and all(map(str.strip, first)):
        raise FileError(
            f"a row of units ({', '.join(first)})",
            "remove it, and give each column its unit in a map file, as in time_s = { column = "
            '"t", unit = "ms" }',
            f"{path}:{lines[0]}",
        )


def _mapped_names(path: Path, header: Iterable[str], mapping: TableMap) -> set[str]:
    """The table's columns that the map names. Raise FileError if one is missing."""
    header = list(header)
    named = {name: ours for ours, source in mapping.columns.items() for name in source.names}
    named |= dict.fromkeys(mapping.params, "params")
    used = {**{rule.column: "keep" for rule in mapping.keep}, **named}
    raise_all(
        [
            FileError(
                f"no column {name!r}, which the map names for {ours}",
                f"it has {', '.join(header)}",
                str(path),
            )
            for name, ours in used.items()
            if name not in header
        ]
    )
    return set(named)


def _check_columns(
    path: Path,
    header: list[str],
    columns: list[str],
    labels: list[str],
    mapping: TableMap,
    in_map: str,
) -> None:
    """Raise one FileError for all columns that are missing, unknown, or contradict the map."""
    available = {*columns, *mapping.given}
    optional = {"core_mhz"} if {"power_limit_w", "profile"} & available else set()
    if mapping.imported:
        optional = {"core_mhz", "time_s"}  # all of its rows may be failures
    missing = [name for name in REQUIRED if name not in available | optional]
    if not {"energy_j", "power_w", POINT_ID} & available and not mapping.imported:
        missing.append("energy_j or power_w")
    wrong = []
    if missing:
        wrong.append(
            FileError(
                f"no column {', '.join(missing)}",
                f"it has {', '.join(header)}: name theirs under [columns] in a map file, or give "
                f"one value under [constants]{' or by --site' if 'site' in missing else ''}",
                str(path),
            )
        )
    by_keep = {rule.column for rule in mapping.keep}
    unknown = [n for n in labels if n not in by_keep and not INDEX_OF_PANDAS.fullmatch(n)]
    if unknown and not mapping.keeps_unknown and POINT_ID not in header:
        wrong.append(
            FileError(
                f"unknown column{'s' * (len(unknown) > 1)} {', '.join(map(repr, unknown))}",
                'name what is needed under [columns] in a map file, or set unknown = "label" there '
                "to keep the others as labels",
                str(path),
            )
        )
    wrong += [
        FileError(
            f"the table {path} has a column {name}",
            f"leave {name} out of [constants]",
            f"{in_map}: constants.{name}",
        )
        for name in mapping.constants
        if name in columns and name != "site"
    ]
    if mapping.numbers_repeats and "repeat" in columns:
        wrong.append(
            FileError(
                "number_repeats beside a column repeat", "leave number_repeats out", str(path)
            )
        )
    if mapping.params and "params" in columns:
        cause = "params in the map beside a column params"
        wrong.append(FileError(cause, "leave params out", str(path)))
    raise_all(wrong)


def _rows_to_keep(
    file_columns: Mapping[str, AsRead],
    numbers: Mapping[str, Numbers],
    rules: Sequence[Keep],
    n_rows: int,
) -> list[int]:
    """The indices of the rows that every rule keeps."""
    rows = list(range(n_rows))
    for rule in rules:
        texts = list(map(cell_text, _texts(file_columns[rule.column])))
        by_text = {text: _passes(text, rule) for text in set(texts)}
        values = [v for v in rule.values if isinstance(v, int | float) and not isinstance(v, bool)]
        by_number = (
            np.isin(numbers[rule.column].values, values) if values else np.zeros(n_rows, bool)
        )
        rows = [i for i in rows if by_text[texts[i]] or by_number[i]]
    return rows


def _passes(text: str, rule: Keep) -> bool:
    """Whether a cell's text matches the rule's expression, or one of its texts or truth values."""
    if rule.matches is not None:
        return re.search(rule.matches, text) is not None
    return any(
        text.lower() == str(value).lower() if isinstance(value, bool) else text == value
        for value in rule.values
    )


def _numbers(
    path: Path,
    file_columns: Mapping[str, AsRead],
    lines: Sequence[int],
    mapping: TableMap,
    decimal: str | None,
) -> tuple[dict[str, Numbers], str]:
    """The table's columns that hold numbers, and their decimal mark."""
    columns = {name: file_columns[name] for name in number_columns(file_columns, mapping)}
    as_read = {name: column for name, column in columns.items() if isinstance(column, Numbers)}
    texts = {n: column for n, column in columns.items() if not isinstance(column, Numbers)}
    try:
        from_texts, mark = read_numbers(texts, decimal, mapping.thousands, mapping.missing)
        return as_read | from_texts, mark
    except UnclearNumbersError as error:
        place = f"{path}:{lines[error.row]}: {error.column}"
        raise FileError(error.what, error.remedy, place) from None


def _converted(
    ours: str,
    source: ColumnSource,
    file_columns: Mapping[str, AsRead],
    numbers: Mapping[str, Numbers],
    mapping: TableMap,
) -> Texts | Numbers:
    """The standard column ``ours``; numbers are in its standard unit."""
    if source.join:
        columns = [_texts(file_columns[name]).mapped(cell_text) for name in source.names]
        return _by_row(columns, lambda row: source.separator.join(filter(None, row)))
    if not is_number_column(ours):
        return _texts(file_columns[source.names[0]])
    if source.is_text:
        texts = [_texts(file_columns[name]) for name in source.names]
        parts = [_read_texts(ours, source, column, mapping) for column in texts]
    else:
        parts = [_with_advice(ours, numbers[name], source) for name in source.names]
    values = reduce(add, [part.values for part in parts])
    refused: dict[int, tuple[str, str]] = {}
    for part in reversed(parts):
        refused |= part.refused
    if source.reciprocal or source.scale(ours) != 1.0 or source.offset:
        with np.errstate(all="ignore"):
            scaled = (1.0 / values if source.reciprocal else values) * source.scale(ours)
            scaled = scaled + source.offset
        # 1 / 0 has no value: the error message names the 0 that was found.
        values = np.where((values == 0) & source.reciprocal, 0.0, scaled)
    return Numbers(values, refused)


def _texts(column: AsRead) -> Texts:
    if isinstance(column, Numbers):
        raise TypeError("a column of numbers")
    return column if isinstance(column, Texts) else Texts.of(column)


def _by_row(columns: Sequence[Texts], text_of_row: Callable[[Sequence[Any]], str]) -> Texts:
    """A column of ``text_of_row`` of each row; equal rows are computed once."""
    _, first, row_codes = np.unique(group_codes(columns), return_index=True, return_inverse=True)
    rows = [[column[i] for column in columns] for i in first.tolist()]
    return Texts(row_codes, rows).mapped(map(text_of_row, rows))


def _read_texts(ours: str, source: ColumnSource, column: Texts, mapping: TableMap) -> Numbers:
    """Numbers from a column of texts, by the reader of its unit."""
    reader = UNITS[str(source.unit)].read
    by_text: dict[str, float] = dict.fromkeys(("", *mapping.missing), math.nan)
    why: dict[str, str] = {}
    texts = column.mapped(lambda value: "" if value is None else str(value).strip())
    for text in set(texts.values) - by_text.keys():
        try:
            by_text[text] = reader(text, quantity_of(ours), mapping.style) if reader else math.nan
        except ValueError as error:
            by_text[text], why[text] = math.nan, str(error)
    refused = {i: (text, why[text]) for i, text in enumerate(texts) if text in why} if why else {}
    return Numbers(texts.array(float, [by_text[text] for text in texts.values]), refused)


def _with_advice(ours: str, numbers: Numbers, source: ColumnSource) -> Numbers:
    """The numbers; if one unit reads all refused texts, the reasons advise to state it."""
    if not numbers.refused or source.unit or source.factor != 1.0:
        return numbers
    texts = {text for text, _ in numbers.refused.values()}
    # Texts of digits and marks alone have no unit: their decimal mark is what is not known.
    unit = suggested_unit(ours, texts) if all(map(UNIT_IN_TEXT.search, texts)) else ""
    if not unit:
        return numbers
    line = f"{ours} = {{ column = {json.dumps(source.names[0])}, unit = {json.dumps(unit)} }}"
    why = f"must be a number; write {line} under [columns] in the map file"
    return Numbers(
        numbers.values,
        {i: (text, f"found {text[:40]!r}; {why}") for i, (text, _) in numbers.refused.items()},
    )


def _params(columns: dict[str, Texts], mark: str) -> Texts:
    """Each row's parameters as JSON, without those of empty cells."""
    return _by_row(
        list(columns.values()),
        lambda row: json.dumps(
            {k: _param(v, mark) for k, v in zip(columns, row, strict=True) if v not in (None, "")}
        ),
    )


def _param(value: Any, mark: str) -> Any:
    """The number or truth value that a text is in JSON, with the file's decimal mark ``mark``.
    Otherwise, and if it may be two numbers, the value unchanged."""
    text = value
    if isinstance(value, str) and mark != ".":
        if "." in value and (mark or len({*readings(value).values()}) > 1):
            return value
        if mark and NumberStyle(mark).number(value) is not None:
            text = value.replace(",", ".")
    parsed = number_or_text(text)
    return value if parsed is text else parsed


def cell_text(value: Any) -> str:
    """The text of a cell; empty if it has no value."""
    return "" if value is None else str(value)


def _is_parquet(path: Path) -> bool:
    with readable(path), open_regular(path) as file:
        return file.read(4) == b"PAR1" or path.suffix == ".parquet"


def _parquet(path: Path) -> tuple[list[str], list[int], list[list[Any]]]:
    """The header, each row's number, and the columns."""
    import pyarrow  # noqa: F401, PLC0415  (without it the file is not called damaged)

    try:
        with open_regular(path) as file:
            frame = _frame(path, file)
        # Invalid UTF-8 raises only here.
        plain = frame.astype(object).where(frame.notna(), None)
    except FileError:
        raise
    except Exception as error:  # what a damaged file raises is of many kinds
        cause = f"cannot be read as Parquet ({error})"
        raise FileError(cause, "check the file", str(path)) from None
    names = [str(name) for name in plain.columns]
    values = [list(map(_plain, plain.iloc[:, i].tolist())) for i in range(len(names))]
    return names, list(range(1, len(plain) + 1)), values


def _frame(path: Path, file: BinaryIO) -> pd.DataFrame:
    """A Parquet file's columns. A small file can exceed any memory: a repeated value is stored and
    read once, but its size counts in every row.

    Raises:
        FileError: the file holds too many values or bytes.
    """
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import compute, parquet  # noqa: PLC0415

    schema = parquet.read_schema(file)
    texts = [
        field.name
        for field in schema
        if pa.types.is_string(field.type) or pa.types.is_binary(field.type)
    ]
    parquet_file = parquet.ParquetFile(file, read_dictionary=texts)
    metadata = parquet_file.metadata
    columns = [
        metadata.row_group(i).column(k)
        for i in range(metadata.num_row_groups)
        for k in range(metadata.num_columns)
    ]
    n_values = max(metadata.num_rows * metadata.num_columns, sum(c.num_values for c in columns))
    if n_values > MAX_VALUES:
        cause = f"holds {n_values} values, and at most {MAX_VALUES} are read at once"
        raise FileError(cause, "divide it", str(path))
    n_bytes = sum(column.total_uncompressed_size for column in columns)
    batches = []
    if n_bytes <= MAX_BYTES:
        n_bytes = 0
        for batch in parquet_file.iter_batches(BATCH_ROWS):
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
        raise FileError(f"unpacks to more than {MAX_BYTES >> 20} MiB", "divide it", str(path))
    # An index of pandas is read as an ordinary column: its metadata are ignored.
    table = pa.Table.from_batches(batches, parquet_file.schema_arrow)
    frame: pd.DataFrame = table.to_pandas(ignore_metadata=True)
    return frame


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | None) else str(value)
