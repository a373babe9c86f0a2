"""Delimited text as rows: its compression, its encoding and its delimiter are recognised."""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import io
import lzma
import math
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from campaign.table.formats import FORMATS, HEAD_BYTES, recognised
from campaign.table.map_file import (
    COLUMNS,
    POINT_ID,
    TableMap,
    is_number_column,
    is_table_column,
    number_columns,
)
from campaign.table.number_text import Numbers, UnclearNumbersError, read_numbers
from dvfs.files import MAX_BYTES, open_regular, own_descriptor, read_input
from dvfs.input_files import FileError, readable
from dvfs.texts import Texts

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "|"}
"""Delimiter -> its name in messages."""
SAMPLE_ROWS, SAMPLE_CHARS = 50, 1 << 20
"""The size of the sample from which the delimiter is recognised."""
BLOCK_ROWS = 1_000
"""Rows that are converted to columns at once. The garbage collector takes longer over lists of more
rows than reading takes."""
MAX_VALUES = 50_000_000
"""The most lines, and rows times columns: a small compressed file can exceed any memory."""
UNPACKED_BYTES = 1 << 20
"""The block size when the unpacked size is counted."""
MAX_FIELD_CHARS = 1 << 24
FIXED_ROWS = 3
"""This many numbers with equally many decimals show that the number of decimals is fixed."""
JSON = re.compile(r"""\s*(\[\s*[\[{]|\{\s*"[^"]*"\s*:)""")
"""The start of a list of lists or objects, or of an object."""
HTML = re.compile(r"\s*<(!doctype|html|\?xml)", re.IGNORECASE)
"""The start of a web page or an XML document."""
COMPRESSED: dict[bytes, Callable[[BinaryIO], io.BufferedIOBase]] = {
    b"\x1f\x8b": lambda data: gzip.GzipFile(fileobj=data),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\x00": lzma.LZMAFile,
}
"""The first bytes of a compressed file -> the function that opens it."""
HDF5 = b"\x89HDF\r\n"
AS_CSV = "write its table as CSV: {}.to_csv('new.csv')"
NO_TABLE = (
    (b"\x28\xb5\x2f\xfd", b"", "is compressed by Zstandard", "unpack it: zstd -d FILE"),
    (b"PK\x03\x04", b"", "is a ZIP file or a spreadsheet", "unpack it, or save the sheet as CSV"),
    (b"\xd0\xcf\x11\xe0", b"", "is a spreadsheet", "save the sheet as CSV"),
    (
        HDF5,
        b"_NCProperties",
        "is NetCDF-4",
        AS_CSV.format("xarray.open_dataset('FILE').to_dataframe()"),
    ),
    (
        HDF5,
        b"pandas_type",
        "is a store of pandas, in HDF5",
        AS_CSV.format("pandas.read_hdf('FILE')"),
    ),
    (HDF5, b"", "is HDF5, and no table", "export the table that it holds as CSV"),
)
"""The first bytes of a file, and a marker near its beginning; the cause and the remedy."""

PART_BYTES = 1 << 22
"""The size of the parts in which plain text is parsed."""
NOT_PLAIN = (b'"', b"#", b"\0")

TableColumns = tuple[list[str], Sequence[int], Sequence[list[Any] | Texts | Numbers]]
"""The header, each row's line in the file, and the values of each column."""
TextColumns = tuple[list[str], list[int], list[list[str]]]
Parsed = Iterator[tuple[int, list[str]]]
"""The line on which each row begins, and its fields; without comments and empty lines."""


class TooLongError(FileError):
    """The text is too long to be read at once."""


@dataclass(frozen=True)
class PlainForm:
    """The columns of plain text, its delimiter, and which columns are numbers."""

    header: list[str]
    delimiter: str
    names: list[str]

    @property
    def exact(self) -> bool:
        """Whether texts keep leading and trailing blanks."""
        return POINT_ID in self.header


def read_delimited(path: Path, mapping: TableMap) -> tuple[TableColumns, str, list[str]]:
    """Return the columns of a file of delimited text, the delimiter, and notes on what was
    recognised.

    Fields are stripped, except in a table with a column ``point_id``, which is exact.

    Raises:
        FileError: the file cannot be read, has no header, a row with another number of fields, or
            a last row that is cut off.
    """
    if plain := _read_plain(path, mapping):
        return *plain, delimiter_note(path, mapping, plain[1])
    text, notes = read_table_text(path)
    for kind, pattern in (("JSON", JSON), ("HTML or XML", HTML)):
        if pattern.match(text):
            raise no_table(path, f"is {kind}, and no table")
    delimiter = mapping.delimiter or _recognised(text, mapping)
    _check_values(path, text.count(delimiter), "values")
    notes += delimiter_note(path, mapping, delimiter)
    parsed = parsed_rows(path, text, delimiter)
    if mapping.layout == "blocks":
        columns = columns_of_text(path, *_blocks(path, parsed, mapping))
    else:
        columns = columns_of_text(path, *_table(path, parsed, mapping, delimiter))
        if mapping.fields and not columns[1]:
            raise FileError("is empty", "a table has one row per measurement", str(path))
    if columns[1] and not text.endswith(("\n", "\r")):
        _check_end(path, columns)
        notes.append(f"{path}: its last line has no end; check that its last row is complete")
    return columns, delimiter, notes


def delimiter_note(path: Path, mapping: TableMap, delimiter: str) -> list[str]:
    """A note that names the delimiter, unless it is a comma or the map states it."""
    if mapping.delimiter or delimiter == ",":
        return []
    return [f"{path}: its columns are separated by {DELIMITERS[delimiter]}"]


def _read_plain(path: Path, mapping: TableMap) -> tuple[TableColumns, str] | None:
    """Read a file by Arrow, in a tenth of the time. Every line after the header must be a row
    without quotes or comments, and no number may have a decimal comma. Columns of numbers are
    :class:`Numbers`.

    Return None for any other file, or without Arrow: :func:`read_delimited` then reads the text by
    the rules for all files, and reports errors.
    """
    if not is_plain(mapping) or own_descriptor(path) is not None:
        return None
    opener = None
    try:
        with open_regular(path) as packed:
            opener = opener_of(packed.read(max(map(len, COMPRESSED))))
            packed.seek(0)
            file = opener(packed) if opener else packed
            size = 0 if opener else os.fstat(packed.fileno()).st_size
            return _plain_columns(path, file, size, mapping)
    except TooLongError:
        if opener:
            return None
        raise
    except (ImportError, OSError, EOFError, ValueError, zlib.error, lzma.LZMAError):
        return None  # Arrow's errors are ValueErrors


def is_plain(mapping: TableMap) -> bool:
    """Whether the map allows plain text: no blocks, fields, missing words or decimal commas."""
    is_special = mapping.layout == "blocks" or mapping.fields or mapping.missing
    return not is_special and mapping.decimal != ","


def plain_form(first: bytes, part: bytes, mapping: TableMap) -> PlainForm:
    """The form of plain text, from its first line and a part of the next ones.

    Raises:
        ValueError: the text is not plain.
    """
    sample = (first + part).decode()[:SAMPLE_CHARS]
    delimiter = mapping.delimiter or _recognised(sample, mapping)
    header = [name.strip() for name in first.decode().split(delimiter)]
    names = number_columns(header, mapping)
    also_texts = {*mapping.params, *(rule.column for rule in mapping.keep)}.union(
        *(
            source.names
            for ours, source in mapping.columns.items()
            if source.join or source.is_text or not is_number_column(ours)
        )
    )
    if (
        not 1 < len(header) == len(set(header))
        or not also_texts.isdisjoint(names)
        or not {*names} <= {*header}
        or not first.endswith(b"\n")
        or any(mark in first for mark in NOT_PLAIN)
        or JSON.match(sample)
        or HTML.match(sample)
        or delimiter == " "
        or not _has_points(sample, delimiter, header, names, mapping)
    ):
        raise ValueError
    return PlainForm(header, delimiter, names)


def _plain_columns(
    path: Path, file: io.BufferedIOBase, file_size: int, mapping: TableMap
) -> tuple[TableColumns, str]:
    """The columns of plain text, and its delimiter. ``file_size``: in bytes, 0 if not known.

    Raises:
        ValueError: the text is not plain.
        TooLongError: the text does not fit in memory.
    """
    first = file.readline(PART_BYTES).removeprefix(codecs.BOM_UTF8)
    part = next_lines(file)
    form = plain_form(first, part, mapping)
    header, names = form.header, form.names
    if file_size - len(first) - len(codecs.BOM_UTF8) > MAX_BYTES:
        raise TooLongError(f"has more than {MAX_BYTES >> 20} MiB", "divide it", str(path))
    # Bytes that grow in place: joining arrays at the end would need twice the memory.
    data: dict[str, bytearray] = {name: bytearray() for name in header}
    codes_by_text: dict[str, dict[str, int]] = {name: {} for name in header}
    rows = size = 0
    while part:
        part_columns = by_arrow(part, form)
        rows, size = rows + len(part_columns[0]), size + len(part)
        if size > MAX_BYTES or rows * len(header) > MAX_VALUES:
            raise TooLongError(f"has more than {MAX_VALUES} values", "divide it", str(path))
        for name, column in zip(header, part_columns, strict=True):
            if isinstance(column, Texts):
                text_codes = codes_by_text[name]
                codes = [text_codes.setdefault(text, len(text_codes)) for text in column.values]
                values = np.array(codes, np.int32)[column.codes]
            else:
                values = column
            data[name] += values.data
        part = next_lines(file)
    if not rows:
        raise ValueError
    columns = [
        Numbers(np.frombuffer(data[name]))
        if name in names
        else Texts.same(next(iter(codes_by_text[name])), rows)
        if len(codes_by_text[name]) == 1
        else Texts(np.frombuffer(data[name], np.int32), list(codes_by_text[name]))
        for name in header
    ]
    return (header, range(2, rows + 2), columns), form.delimiter


def by_arrow(part: bytes, form: PlainForm) -> list[np.ndarray | Texts]:
    """Lines of plain text as columns: float64, NaN for an empty cell; or texts, whose distinct
    values may have duplicates.

    Raises:
        ValueError: the text is not plain.
    """
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import csv as arrow_csv  # noqa: PLC0415

    lines = part.count(b"\n")
    if (
        not part.endswith(b"\n")
        or (b"\r" in part and part.count(b"\r") != part.count(b"\r\n"))
        or any(mark in part for mark in NOT_PLAIN)
    ):
        raise ValueError
    text = pa.dictionary(pa.int32(), pa.string())
    kinds = {name: pa.float64() if name in form.names else text for name in form.header}
    table = arrow_csv.read_csv(
        pa.py_buffer(part),
        arrow_csv.ReadOptions(use_threads=False, column_names=form.header, block_size=len(part)),
        arrow_csv.ParseOptions(delimiter=form.delimiter, quote_char=False),
        arrow_csv.ConvertOptions(column_types=kinds, null_values=[""]),
        memory_pool=pa.system_memory_pool(),  # the default one keeps what it had
    ).combine_chunks()
    if table.num_rows != lines:  # an empty line
        raise ValueError
    columns: list[np.ndarray | Texts] = []
    for name, column in zip(form.header, table.columns, strict=True):
        chunk = column.chunk(0)
        if name in form.names:
            values = _values(chunk, np.float64)
            if np.isfinite(values).sum() != lines - column.null_count:
                raise ValueError
            columns.append(values)
        else:
            distinct = chunk.dictionary.to_pylist()
            texts = distinct if form.exact else [text.strip() for text in distinct]
            columns.append(Texts(_values(chunk.indices, np.int32), texts))
    return columns


def _values(array: Any, dtype: type) -> np.ndarray:
    """A NumPy array of an Arrow array, NaN for nulls. Arrow's own conversion imports pandas."""
    present, data = array.buffers()
    rows = slice(array.offset, array.offset + len(array))
    values: np.ndarray = np.frombuffer(data, dtype)[rows]
    if not array.null_count:
        return values
    bits = np.unpackbits(np.frombuffer(present, np.uint8), bitorder="little")
    return np.where(bits[rows], values, np.nan)


def next_lines(file: io.BufferedIOBase) -> bytes:
    """The next lines of a file."""
    part = file.read(PART_BYTES)
    return part if part.endswith(b"\n") else part + file.readline(PART_BYTES)


def _has_points(
    sample: str, delimiter: str, header: list[str], names: list[str], mapping: TableMap
) -> bool:
    """Whether the decimal mark is a point, by the map or the first rows."""
    rows = [line.split(delimiter) for line in sample.split("\n")[1 : SAMPLE_ROWS + 1]]
    whole = [row for row in rows if len(row) == len(header)]
    decimal = mapping.decimal
    if POINT_ID in header and delimiter == "," and mapping.thousands is None:
        decimal = "."
    number_indices = [header.index(name) for name in names]
    texts = {header[i]: [row[i].strip() for row in whole] for i in number_indices}
    try:
        return read_numbers(texts, decimal, mapping.thousands)[1] == "."
    except UnclearNumbersError:
        return False


def no_table(path: Path, cause: str) -> FileError:
    """The error for a file that is no table of text; the remedy names its format if known."""
    name = recognised(path, head_of(path))
    names = ", ".join(FORMATS)
    remedy = (
        f"give --from {name}" if name else f"save it as CSV or Parquet, or --from one of {names}"
    )
    return FileError(cause, remedy, str(path))


def head_of(path: Path) -> bytes:
    """The first bytes of a file, unpacked where it is compressed."""
    with readable(path), open_regular(path) as file:
        packed = file.read(HEAD_BYTES)
    opener = opener_of(packed)
    try:
        return opener(io.BytesIO(packed)).read(HEAD_BYTES) if opener else packed
    except (OSError, EOFError, zlib.error, lzma.LZMAError):
        return b""  # cut off, or damaged: reading it says so


def opener_of(head: bytes) -> Callable[[BinaryIO], io.BufferedIOBase] | None:
    """What opens a compressed file that begins with these bytes; None for any other file."""
    return next((opener for magic, opener in COMPRESSED.items() if head.startswith(magic)), None)


def _check_end(path: Path, columns: TextColumns) -> None:
    """Raise FileError if the last row seems to end in the middle of a number: its last cell ends in
    a mark, is the only empty one in its column, or has fewer decimals than all others."""
    header, lines, values = columns
    *earlier, last = values[-1]
    decimals = {len(_decimals(text)) for text in earlier}
    if (
        re.fullmatch(r"[-+]?[0-9][0-9.,]*[.,eE]|.*[0-9][eE][-+]|[-+]", last)
        or (earlier and not last and all(earlier))
        or (
            len(earlier) >= FIXED_ROWS
            and len(decimals) == 1
            and len(_decimals(last)) < max(decimals)
        )
    ):
        raise FileError(
            f"{header[-1]}: the file ends in {last!r}, in the middle of a number",
            "copy the file again, or remove or complete this row; if it is complete, end its line",
            f"{path}:{lines[-1]}",
        )


def _decimals(text: str) -> str:
    """The digits after the last mark of a number; empty if the text is no such number."""
    match = re.fullmatch(r"[-+]?[0-9]+[.,]([0-9]+)", text)
    return match[1] if match else ""


def columns_of_text(path: Path, header: list[str], rows: Parsed) -> TextColumns:
    """Rows as columns. Fields are stripped, except in a table that export wrote."""
    exact = POINT_ID in header
    lines: list[int] = []
    columns: list[list[str]] = [[] for _ in header]
    while block := list(islice(rows, BLOCK_ROWS)):
        lines += [line for line, _ in block]
        _check_values(path, len(lines) * len(header), "values")
        for column, values in zip(
            columns, zip(*(row for _, row in block), strict=True), strict=True
        ):
            column.extend(values if exact else map(str.strip, values))
    return header, lines, columns


def read_table_text(path: Path) -> tuple[str, list[str]]:
    """The text of a table, which may be compressed, and notes on what was recognised.

    Raises:
        FileError: the file cannot be read, or is neither UTF-8 nor UTF-16 with a byte order mark.
    """
    with readable(path):
        data = read_input(path)
    for magic, marker, cause, remedy in NO_TABLE:
        if data.startswith(magic) and marker in data[:HEAD_BYTES]:
            name = recognised(path, data[:HEAD_BYTES])
            advice = f"give --from {name}" if name else remedy.replace("FILE", path.name)
            raise FileError(cause, advice, str(path))
    for magic, opener in COMPRESSED.items():
        if data.startswith(magic):
            data = _decompressed(path, data, opener)
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        try:
            return data.decode("utf-16"), [f"{path}: its text is UTF-16"]
        except UnicodeDecodeError:
            raise FileError("is not UTF-16 text", "save it as UTF-8", str(path)) from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise not_utf8(path, data[error.start], line) from None
    if "\0" in text.partition("\n")[0]:
        cause = "has zero bytes in its first line, as UTF-16 has"
        raise FileError(cause, "save it as UTF-8", str(path))
    _check_values(path, text.count("\n"), "lines")
    return text, []


def not_utf8(path: Path, byte: int, line: int) -> FileError:
    """The error for text in another encoding. ``byte``: the first one that is not UTF-8."""
    return FileError(
        f"byte 0x{byte:02x} is not UTF-8 text",
        f"save it as UTF-8; if its text is Latin-1: iconv -f LATIN1 -t UTF-8 {path.name} > new.csv",
        f"{path}:{line}",
    )


def rows_of(
    path: Path, text: str, remedy: str = "complete or remove this line", delimiter: str = ","
) -> tuple[list[str], Parsed]:
    """The header of a tool's table, and its rows. Fields may be quoted if the delimiter is a comma.
    ``remedy``: for a row with another number of fields.

    Raises:
        FileError: on reaching a row that is not CSV, or has not as many fields as the header.
    """
    parsed = parsed_rows(path, text, delimiter, quoted=delimiter == ",")
    header = [name.strip() for name in next(parsed, (0, []))[1]]
    return header, rows_of_width(path, parsed, len(header), delimiter, remedy)


def number_at(text: str, name: str, place: str) -> float:
    """A number with a decimal point. ``name`` and ``place``: its column and line, for the message.

    Raises:
        FileError: the text is not a number, or is infinite.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.inf
    if math.isinf(value):
        raise FileError(f"{name}: found {text!r}", "must be a number", place)
    return value


def number_of(row: Mapping[str, Any], name: str, place: str) -> float:
    """A row's number in a column, read by :func:`number_at`; 0 if the row has none."""
    return number_at(row.get(name) or "0", name, place)


def _decompressed(
    path: Path, packed: bytes, opener: Callable[[BinaryIO], io.BufferedIOBase]
) -> bytes:
    """The unpacked bytes. They are unpacked twice, first to check the size without storing them."""
    size = lines = 0
    try:
        with opener(io.BytesIO(packed)) as file:
            while part := file.read(UNPACKED_BYTES):
                size += len(part)
                lines += part.count(b"\n")
                if size > MAX_BYTES:
                    cause = f"unpacks to more than {MAX_BYTES >> 20} MiB"
                    raise FileError(cause, "divide it", str(path))
                _check_values(path, lines, "lines")
        return opener(io.BytesIO(packed)).read()
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise FileError(f"cannot be unpacked ({error})", "check the file", str(path)) from None


def _check_values(path: Path, count: int, unit: str) -> None:
    if count > MAX_VALUES:
        cause = f"has more than {MAX_VALUES} {unit}"
        raise TooLongError(cause, "divide it", str(path))


def parsed_rows(
    path: Path, text: str, delimiter: str, first_line: int = 1, quoted: bool = True
) -> Parsed:
    """The rows of delimited text, whose first line is the file's ``first_line``. ``quoted``:
    whether fields may be quoted.

    Raises:
        FileError: on reaching a row that is not CSV.
    """
    # Lines keep their ends: quoted text can hold line breaks.
    file: Iterator[str]
    if "\r" in text:
        file = io.StringIO(text, newline="")
    else:
        file = (line + "\n" for line in text.split("\n"))  # the same in half the time
    if delimiter == " ":
        file = (line.strip(" \t\r\n") + "\n" for line in file)
    csv.field_size_limit(MAX_FIELD_CHARS)
    reader = csv.reader(
        file,
        delimiter=delimiter,
        quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE,
        skipinitialspace=delimiter == " ",
        strict=True,
    )
    line = first_line
    try:
        for row in reader:
            if row and not row[0].lstrip().startswith("#"):
                yield line, row
            line = first_line + reader.line_num
    except csv.Error as error:
        cause = f"is not CSV ({error})"
        raise FileError(cause, "correct the row that begins here", f"{path}:{line}") from None


def _recognised(text: str, mapping: TableMap) -> str:
    """The delimiter that yields the most known column names, or the fields that the map lists."""
    known_names = {*mapping.named, *(rule.column for rule in mapping.keep), POINT_ID}

    def score(delimiter: str) -> tuple[int, int]:
        try:
            parsed = parsed_rows(Path(), text[:SAMPLE_CHARS], delimiter)
            rows = [row for _, row in islice(parsed, SAMPLE_ROWS)]
        except FileError:
            return 0, 0
        if mapping.fields:
            return sum(len(row) == len(mapping.fields) for row in rows), 0
        header = [name.strip() for name in rows[0]] if rows else []
        names = sum(name in known_names or is_table_column(name, COLUMNS) for name in header)
        like_header = sum(len(row) == len(header) for row in rows) if len(header) > 1 else 0
        return names, like_header

    return max(DELIMITERS, key=score)


def _table(
    path: Path, parsed: Parsed, mapping: TableMap, delimiter: str
) -> tuple[list[str], Parsed]:
    """The header, and the rows, each checked for the header's number of fields."""
    header = mapping.fields
    if header is None:
        _, first = next(parsed, (0, []))
        if not first:
            raise FileError(
                "is empty", "a table has a header line and one row per measurement", str(path)
            )
        header = [name.strip() for name in first]
    return header, rows_of_width(path, parsed, len(header), delimiter)


def rows_of_width(
    path: Path, parsed: Parsed, n_fields: int, delimiter: str, remedy: str = ""
) -> Parsed:
    """The rows, each checked for ``n_fields`` fields. ``remedy``: for a row that has not.

    Raises:
        FileError: on reaching a row with another number of fields.
    """
    for line, row in parsed:
        if len(row) != n_fields:
            raise FileError(
                f"{len(row)} fields where the header has {n_fields}",
                remedy or _fields_remedy(len(row), n_fields, delimiter),
                f"{path}:{line}",
            )
        yield line, row


def _fields_remedy(n_row: int, n_fields: int, delimiter: str) -> str:
    if n_fields == 1:
        return "give the file a header line, or list its columns as fields in a map file"
    if n_row > n_fields and delimiter == ",":
        return (
            "correct this line; quote text that holds commas, and numbers with decimal commas, "
            "or separate the columns by semicolons"
        )
    return "correct this line, or name another delimiter in a map file"


def _blocks(path: Path, parsed: Parsed, mapping: TableMap) -> tuple[list[str], Parsed]:
    if not mapping.fields:
        cause = 'layout = "blocks" needs fields in the map'
        raise FileError(cause, "list them in order", str(path))
    return ["kernel", *mapping.fields], _rows_of_blocks(path, parsed, len(mapping.fields))


def _rows_of_blocks(path: Path, parsed: Parsed, n_fields: int) -> Parsed:
    kernel = None
    for line, row in parsed:
        if len(row) == 1:
            kernel = row[0]
        elif kernel is None:
            raise FileError(
                "a row before the first kernel's name",
                "put a line with the name before it",
                f"{path}:{line}",
            )
        elif len(row) != n_fields:
            raise FileError(
                f"{len(row)} fields where the map lists {n_fields}",
                "correct this line, or fields in the map",
                f"{path}:{line}",
            )
        else:
            yield line, [kernel, *row]
