"""Reading a table: CSV, blocks of CSV, or Parquet, under our column names and units."""

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

from campaign.table.delimited import MAX_VALUES, Columns, head_of, read_delimited
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
"""A column as it was read: its values, one a row; or what the reader made of them already."""
BATCH_ROWS = 4096
"""Rows of Parquet that are read at once, before their size is known."""
HOSTS = {"host", "hostname", "nodename", "node_name", "nodelist", "machine"}
"""What columns of hosts are called."""
UNIT_IN_TEXT = re.compile(r"[^\W\d_]|:")
"""A letter, or the mark of a duration."""
INDEX_OF_PANDAS = re.compile("__index_level_[0-9]+__")
"""The column of a Parquet file that holds a pandas index without a name."""


@dataclass(frozen=True)
class RawTable:
    """A table under our column names and units. A column of numbers is :class:`Numbers`; any other
    has its values as they were read: text, numbers, or None. Every column has one entry a row;
    ``lines`` are those of the file. ``notes``: what was recognised, a sentence each. ``traces``:
    line -> those of its window. ``n_read``: its rows before ``[[keep]]``."""

    path: Path
    lines: Sequence[int]
    columns: dict[str, Texts | Numbers]
    labels: dict[str, Texts]
    notes: list[str] = field(default_factory=list)
    traces: Mapping[int, Sequence[Trace]] = field(default_factory=dict)
    n_read: int = 0

    def texts(self, name: str) -> Texts:
        """A column that is none of numbers."""
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
    """Read a table; its values are still unchecked.

    ``map_file``: the map's, for messages. ``logs``: power logs, whose windows the rows are.

    Raises:
        FileError: it cannot be read, lacks a column, or has one that nobody knows.
    """
    notes: list[str] = []
    lines: Sequence[int]
    values: Sequence[AsRead]
    decimal = mapping.decimal
    if mapping.imported:
        (header, lines, values), notes = _of_format(path, mapping)
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
        header, values, traces, noted = _of_windows(path, (header, lines, values), logs)
        notes += noted
    table = header, lines, values
    return _raw_table(path, table, mapping, map_file, decimal, notes, traces)


def read_long_table(text: LongText, map_file: Path | None = None) -> Iterator[RawTable]:
    """A table that is too long to be in memory, as tables of some of its rows after the other.
    Their ``notes`` are empty.

    Raises:
        FileError: when it is reached, what is wrong; and at the end of the file, what is wrong
            with the whole.
    """
    mapping, header = text.mapping, text.form.header
    source = mapping.columns.get("kernel")
    names = (
        ["node", *(source.names if source else ())] if _has_unnamed_node(header, mapping) else []
    )
    seen: dict[tuple[Any, ...], None] = {}

    def raw_table(numbered: tuple[int, Columns]) -> RawTable:
        part, table = numbered
        if names:
            theirs = dict(zip(table[0], table[2], strict=True))
            texts = [_texts(theirs[name]) for name in names if name in theirs]
            _, first = np.unique(group_codes(texts), return_index=True)
            seen.update(dict.fromkeys(tuple(c[i] for c in texts) for i in first.tolist()))
        return _raw_table(text.path, table, mapping, map_file, ".", part=part)

    yield from map(raw_table, enumerate(text.parts()))
    if names:
        rows: dict[str, AsRead] = {name: [] for name in header}
        rows |= dict(zip(names, map(list, zip(*seen, strict=True)), strict=True))
        _check_nodes(text.path, rows, range(len(seen)), mapping)


def _raw_table(
    path: Path,
    table: Columns,
    mapping: TableMap,
    map_file: Path | None,
    decimal: str | None,
    notes: Sequence[str] = (),
    traces: Mapping[int, Sequence[Trace]] = MappingProxyType({}),
    part: int | None = None,
) -> RawTable:
    """A table as it was read under our names and units. ``part``: the number, from 0, of some of
    its rows; what is true of all of them together is then not checked."""
    header, lines, values = table
    notes = [*notes]
    # A profile is something else in the tables of others.
    standard = {*COLUMNS} - ({"profile"} if mapping.imported or mapping.columns else set())
    if mapping.imported:
        standard |= {"status", "text"}
    if traces:  # of windows of a power log
        standard |= {"iterations"}
    twice = [name for name, n in Counter(header).items() if n > 1]
    if twice:
        raise FileError(f"several columns {twice[0]!r}", "rename or remove all but one", str(path))
    theirs: dict[str, AsRead] = dict(zip(header, values, strict=True))
    if part is None and _has_unnamed_node(header, mapping):
        _check_nodes(path, theirs, lines, mapping)
    standard = OF_STORE if POINT_ID in theirs else standard
    in_map = "the map" if map_file is None else str(map_file)
    taken = _taken(path, theirs, mapping)
    table_columns = [
        name for name in header if name not in taken and is_table_column(name, standard)
    ]
    labels = [name for name in header if name not in taken and name not in table_columns]
    _check_columns(path, header, table_columns, labels, mapping, in_map)
    numbers, mark = _numbers(path, theirs, lines, mapping, decimal)
    if mark == "," and mapping.decimal is None:
        notes.append(f"{path}: its numbers have decimal commas")
    columns: dict[str, Texts | Numbers] = {
        name: _with_advice(name, numbers[name], ColumnSource(column=name))
        if name in numbers
        else _texts(theirs[name])
        for name in table_columns
    }
    for ours, source in mapping.columns.items():
        columns[ours] = _converted(ours, source, theirs, numbers, mapping)
    if mapping.params:
        columns["params"] = _params({name: _texts(theirs[name]) for name in mapping.params}, mark)
    columns |= {
        name: Numbers(np.broadcast_to(float(value), len(lines)))
        if is_number_column(name)
        else Texts.same(value, len(lines))
        for name, value in mapping.constants.items()
        if name not in columns
    }
    kept_labels = {name: _texts(theirs[name]) for name in labels}
    n_read = len(lines)
    if mapping.keep:
        kept = _kept(theirs, numbers, mapping.keep, n_read)
        if part is None:
            notes += kept_notes(path, len(kept), n_read, map_file)
        rows = np.array(kept, np.int64)
        columns = {name: values[rows] for name, values in columns.items()}
        kept_labels = {name: values[rows] for name, values in kept_labels.items()}
        lines = [lines[i] for i in kept]
    if not part:
        _check_units_row(path, lines, columns)
    return RawTable(path, lines, columns, kept_labels, notes, traces, n_read)


def kept_notes(path: Path, n_kept: int, n_read: int, map_file: Path | None) -> list[str]:
    """How many rows ``[[keep]]`` keeps, a sentence.

    Raises:
        FileError: it keeps none of them.
    """
    if n_read and not n_kept:
        in_map = "the map" if map_file is None else str(map_file)
        what = f"none of its {n_read} rows is kept by [[keep]] in {in_map}"
        raise FileError(what, "correct that rule", str(path))
    return [f"{path}: {n_kept} of {n_read} rows kept, as the map says"]


def _of_windows(
    path: Path, table: tuple[Sequence[str], Sequence[int], Sequence[AsRead]], logs: PowerLogs
) -> tuple[list[str], list[AsRead], dict[int, list[Trace]], list[str]]:
    """A table of windows with their measurements: header, columns, each line's traces, notes."""
    from campaign.table.windows import READ, TAKEN, measured_windows  # noqa: PLC0415

    header, lines, values = table
    columns = dict(zip(header, values, strict=True))
    read = {n: _texts(column) if n in READ else () for n, column in columns.items()}
    found = measured_windows(path, read, lines, logs)
    kept = {name: column for name, column in columns.items() if name not in TAKEN}
    kept |= {name: Numbers(measured) for name, measured in found.columns.items()}
    of_line = dict(zip(lines, found.traces, strict=True))
    return list(kept), list(kept.values()), of_line, found.notes


def recognised_layout(path: Path, mapping: TableMap) -> str | None:
    """The format of another tool that a file has a marker of, where the map does not say how it is
    read: neither by a layout nor by names of columns.

    Raises:
        FileError: it is a power log.
    """
    if mapping.model_fields_set & {"layout", "columns"} or not path.is_file():
        return None
    head = head_of(path)
    if log := recognised_log(head):
        what = f"is a power log ({log})"
        raise FileError(
            what, "import a table of windows, with --power-log and this file", str(path)
        )
    return recognised(path, head)


def _of_format(path: Path, mapping: TableMap) -> tuple[Columns, list[str]]:
    """A file in a format, without those of our columns that the map gives otherwise."""
    (header, lines, values), notes = FORMATS.load(mapping.layout).read(path, mapping)
    if not lines:
        raise FileError(f"has no {mapping.rows}", "nothing to import", str(path))
    given = (mapping.given & {*COLUMNS}) - mapping.named
    kept = [i for i, name in enumerate(header) if name not in given]
    return ([header[i] for i in kept], lines, [values[i] for i in kept]), notes


def _has_unnamed_node(header: Sequence[str], mapping: TableMap) -> bool:
    """Whether a table has a column node, and a map that names columns, but not this one."""
    is_other = bool(mapping.columns) and not mapping.imported
    return is_other and "node" in header and "node" not in {*mapping.named, *mapping.columns}


def _check_nodes(
    path: Path, theirs: Mapping[str, AsRead], lines: Sequence[int], mapping: TableMap
) -> None:
    """Refuse a column node that the map does not name, where it cannot be the host: each of its
    values is of one kernel, as a region is, or the table has another column of hosts."""
    nodes = _texts(theirs["node"])
    if len(nodes.values) < 2:
        return
    source = mapping.columns.get("kernel")
    of_kernel = [_texts(theirs.get(name, list(lines))) for name in source.names] if source else []
    n_kernels = len(np.unique(group_codes(of_kernel)))
    n_pairs = len(np.unique(group_codes([nodes, *of_kernel])))
    is_region = bool(of_kernel) and n_pairs == len(nodes.values) == n_kernels > 1
    hosts = [name for name in theirs if name.lower() in HOSTS]
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
    """Refuse a row of units below the header as that."""
    given = [n for n in columns.values() if isinstance(n, Numbers) and np.isfinite(n.values).any()]
    first = [numbers.refused.get(0, ("", ""))[0].strip("()[] ") for numbers in given]
    if len(lines) > 1 and any(text in UNITS for text in first) and all(map(str.strip, first)):
        raise FileError(
            f"a row of units ({', '.join(first)})",
            "remove it, and give each column its unit in a map file, as in time_s = { column = "
            '"t", unit = "ms" }',
            f"{path}:{lines[0]}",
        )


def _taken(path: Path, theirs: Iterable[str], mapping: TableMap) -> set[str]:
    """The table's columns that the map names, all of which must be there."""
    theirs = list(theirs)
    named = {name: ours for ours, source in mapping.columns.items() for name in source.names}
    named |= dict.fromkeys(mapping.params, "params")
    used = {**{rule.column: "keep" for rule in mapping.keep}, **named}
    raise_all(
        [
            FileError(
                f"no column {name!r}, which the map names for {ours}",
                f"it has {', '.join(theirs)}",
                str(path),
            )
            for name, ours in used.items()
            if name not in theirs
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
    """Refuse columns that are missing, that nobody knows, or that the map contradicts: all of
    them."""
    have = {*columns, *mapping.given}
    optional = {"core_mhz"} if {"power_limit_w", "profile"} & have else set()
    if mapping.imported:
        optional = {"core_mhz", "time_s"}  # all of its rows may be failures
    missing = [name for name in REQUIRED if name not in have | optional]
    if not {"energy_j", "power_w", POINT_ID} & have and not mapping.imported:
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
        what = "params in the map beside a column params"
        wrong.append(FileError(what, "leave params out", str(path)))
    raise_all(wrong)


def _kept(
    theirs: Mapping[str, AsRead],
    numbers: Mapping[str, Numbers],
    rules: Sequence[Keep],
    n_rows: int,
) -> list[int]:
    """The rows that every rule keeps."""
    rows = list(range(n_rows))
    for rule in rules:
        texts = ["" if value is None else str(value) for value in _texts(theirs[rule.column])]
        by_text = {text: _passes(text, rule) for text in set(texts)}
        wanted = [v for v in rule.values if isinstance(v, int | float) and not isinstance(v, bool)]
        by_number = (
            np.isin(numbers[rule.column].values, wanted) if wanted else np.zeros(n_rows, bool)
        )
        rows = [i for i in rows if by_text[texts[i]] or by_number[i]]
    return rows


def _passes(text: str, rule: Keep) -> bool:
    """Whether a rule's expression, or one of its texts and truth values, is that of a cell."""
    if rule.matches is not None:
        return re.search(rule.matches, text) is not None
    return any(
        text.lower() == str(wanted).lower() if isinstance(wanted, bool) else text == wanted
        for wanted in rule.values
    )


def _numbers(
    path: Path,
    theirs: Mapping[str, AsRead],
    lines: Sequence[int],
    mapping: TableMap,
    decimal: str | None,
) -> tuple[dict[str, Numbers], str]:
    """The table's columns that hold numbers, and their decimal mark."""
    columns = {name: theirs[name] for name in number_columns(theirs, mapping)}
    read = {name: column for name, column in columns.items() if isinstance(column, Numbers)}
    texts = {n: column for n, column in columns.items() if not isinstance(column, Numbers)}
    try:
        made, mark = read_numbers(texts, decimal, mapping.thousands, mapping.missing)
        return read | made, mark
    except UnclearNumbersError as error:
        place = f"{path}:{lines[error.row]}: {error.column}"
        raise FileError(error.what, error.remedy, place) from None


def _converted(
    ours: str,
    source: ColumnSource,
    theirs: Mapping[str, AsRead],
    numbers: Mapping[str, Numbers],
    mapping: TableMap,
) -> Texts | Numbers:
    """A column of ours, in our unit where it is one of numbers."""
    if source.join:
        columns = [_texts(theirs[name]).mapped(_text) for name in source.names]
        return _by_row(columns, lambda row: source.separator.join(filter(None, row)))
    if not is_number_column(ours):
        return _texts(theirs[source.names[0]])
    if source.is_text:
        parts = [_read_texts(ours, source, _texts(theirs[name]), mapping) for name in source.names]
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
        # 1 / 0 is no value: the 0 is named as what was found.
        values = np.where((values == 0) & source.reciprocal, 0.0, scaled)
    return Numbers(values, refused)


def _texts(column: AsRead) -> Texts:
    if isinstance(column, Numbers):
        raise TypeError("a column of numbers")
    return column if isinstance(column, Texts) else Texts.of(column)


def _by_row(columns: Sequence[Texts], made: Callable[[Sequence[Any]], str]) -> Texts:
    """What is made of the values of several columns, once for rows that are equal in them."""
    _, first, of = np.unique(group_codes(columns), return_index=True, return_inverse=True)
    rows = [[column[i] for column in columns] for i in first.tolist()]
    return Texts(of, rows).mapped(map(made, rows))


def _read_texts(ours: str, source: ColumnSource, column: Texts, mapping: TableMap) -> Numbers:
    """A column of texts that a unit with a reader of its own makes numbers."""
    read = UNITS[str(source.unit)].read
    known: dict[str, float] = dict.fromkeys(("", *mapping.missing), math.nan)
    why: dict[str, str] = {}
    texts = column.mapped(lambda value: "" if value is None else str(value).strip())
    for text in set(texts.values) - known.keys():
        try:
            known[text] = read(text, quantity_of(ours), mapping.style) if read else math.nan
        except ValueError as error:
            known[text], why[text] = math.nan, str(error)
    refused = {i: (text, why[text]) for i, text in enumerate(texts) if text in why} if why else {}
    return Numbers(texts.array(float, [known[text] for text in texts.values]), refused)


def _with_advice(ours: str, numbers: Numbers, source: ColumnSource) -> Numbers:
    """Where a unit would read all texts that are no numbers: advice to give it."""
    if not numbers.refused or source.unit or source.factor != 1.0:
        return numbers
    texts = {text for text, _ in numbers.refused.values()}
    # Digits and marks alone have no unit: which mark is the decimal one is what is not known.
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
    """Each row's parameters as JSON. Empty cells are left out."""
    return _by_row(
        list(columns.values()),
        lambda row: json.dumps(
            {k: _param(v, mark) for k, v in zip(columns, row, strict=True) if v not in (None, "")}
        ),
    )


def _param(value: Any, mark: str) -> Any:
    """A number or truth value where the text is one in JSON, but for the file's decimal mark;
    otherwise the value as it is, as one that may be two numbers is."""
    text = value
    if isinstance(value, str) and mark != ".":
        if "." in value and (mark or len({*readings(value).values()}) > 1):
            return value
        if mark and NumberStyle(mark).number(value) is not None:
            text = value.replace(",", ".")
    read = number_or_text(text)
    return value if read is text else read


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _is_parquet(path: Path) -> bool:
    with readable(path), open_regular(path) as file:
        return file.read(4) == b"PAR1" or path.suffix == ".parquet"


def _parquet(path: Path) -> tuple[list[str], list[int], list[list[Any]]]:
    """The header, each row's number, and the columns."""
    import pyarrow  # noqa: F401, PLC0415  (a missing one is no damaged file)

    try:
        with open_regular(path) as file:
            frame = _frame(path, file)
        # Text that is not valid UTF-8 raises only here.
        plain = frame.astype(object).where(frame.notna(), None)
    except FileError:
        raise
    except Exception as error:  # what a damaged file raises is of many kinds
        what = f"cannot be read as Parquet ({error})"
        raise FileError(what, "check the file", str(path)) from None
    names = [str(name) for name in plain.columns]
    values = [list(map(_plain, plain.iloc[:, i].tolist())) for i in range(len(names))]
    return names, list(range(1, len(plain) + 1)), values


def _frame(path: Path, file: BinaryIO) -> pd.DataFrame:
    """A Parquet file's columns. A small one can hold more than any memory: a value that is repeated
    is stored once, and read as one, but counts in each of its rows.

    Raises:
        FileError: it holds too much.
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
        raise FileError(what, "divide it", str(path))
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
        raise FileError(f"unpacks to more than {MAX_BYTES >> 20} MiB", "divide it", str(path))
    # An index of pandas is a column as any other: what its metadata say of it is left aside.
    table = pa.Table.from_batches(batches, stored.schema_arrow)
    frame: pd.DataFrame = table.to_pandas(ignore_metadata=True)
    return frame


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | None) else str(value)
