"""Plain text that does not fit in memory, read as columns part by part."""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from campaign.table.delimited import (
    PART_BYTES,
    PlainForm,
    TableColumns,
    by_arrow,
    columns_of_text,
    delimiter_note,
    is_plain,
    next_lines,
    not_utf8,
    opener_of,
    parsed_rows,
    plain_form,
    rows_of_width,
)
from campaign.table.map_file import TableMap
from campaign.table.number_text import Numbers, read_numbers
from dvfs.files import open_regular, own_descriptor
from dvfs.input_files import FileError, readable
from dvfs.texts import Texts

PART_ROWS = 1 << 18
"""Rows in memory at once: whole chunks of the store."""

Block = tuple[np.ndarray, list[Texts | Numbers]]
"""The line of each row, int64, and the columns of these rows."""


@dataclass(frozen=True)
class LongText:
    """A file of plain text. ``state``: its size (bytes) and modification time (ns)."""

    path: Path
    mapping: TableMap
    form: PlainForm
    state: tuple[int, int]

    def notes(self) -> list[str]:
        """Notes on what was recognised."""
        return delimiter_note(self.path, self.mapping, self.form.delimiter)

    def parts(self) -> Iterator[TableColumns]:
        """The columns of parts of :data:`PART_ROWS` rows, in the form of
        :func:`campaign.table.delimited.read_delimited`.

        Blocks with quotes, comments, empty lines or invalid numbers are read by the rules for all
        files, with a decimal point.

        Raises:
            FileError: on reaching a row that cannot be read, or a last line without an end; or the
                file has changed.
        """
        blocks: list[Block] = []
        for block in self._blocks():
            blocks.append(block)
            del block
            while sum(len(lines) for lines, _ in blocks) >= PART_ROWS:
                yield self.form.header, *_pop_rows(blocks)
        if any(len(lines) for lines, _ in blocks):
            yield self.form.header, *_pop_rows(blocks)

    def _blocks(self) -> Iterator[Block]:
        with open_regular(self.path) as file:
            line = 2
            file.readline(PART_BYTES)
            while part := next_lines(file):
                if part.count(b'"') % 2:  # a quoted text that goes on
                    part += next_lines(file)
                if not part.endswith(b"\n"):
                    raise self._without_end(part, line, is_last=not file.read(1))
                yield self._block(part, line)
                returns = part.count(b"\r") - part.count(b"\r\n")
                line += part.count(b"\n") + returns
            if _state(file) != self.state:
                cause = "has changed while it was read"
                raise FileError(cause, "import it again", str(self.path))

    def _without_end(self, part: bytes, line: int, is_last: bool) -> FileError:
        line += part.count(b"\n")
        place = f"{self.path}:{line}"
        if is_last:
            remedy = "check that its last row is complete, and end its line"
            return FileError("the last line has no end", remedy, place)
        return FileError(f"is longer than {PART_BYTES >> 20} MiB", "correct this line", place)

    def _block(self, part: bytes, line: int) -> Block:
        """Lines as columns. ``line``: the number of the first."""
        try:
            columns = by_arrow(part, self.form)
        except ValueError:  # Arrow's errors are ValueErrors
            return self._by_rules(part, line)
        lines = np.arange(line, line + part.count(b"\n"))
        return lines, [c if isinstance(c, Texts) else Numbers(c) for c in columns]

    def _by_rules(self, part: bytes, line: int) -> Block:
        """Lines as columns, by the rules for all files."""
        form = self.form
        try:
            text = part.decode()
        except UnicodeDecodeError as error:
            line += part.count(b"\n", 0, error.start)
            raise not_utf8(self.path, part[error.start], line) from None
        parsed = parsed_rows(self.path, text, form.delimiter, line)
        rows = rows_of_width(self.path, parsed, len(form.header), form.delimiter)
        _, lines, values = columns_of_text(self.path, form.header, rows)
        texts = dict(zip(form.header, values, strict=True))
        numbers, _ = read_numbers(
            {name: texts[name] for name in form.names}, ".", self.mapping.thousands
        )
        columns = [numbers.get(name) or Texts.of(texts[name]) for name in form.header]
        return np.array(lines, np.int64), columns


def long_text(path: Path, mapping: TableMap) -> LongText | None:
    """A file as long text; None if its first lines are not plain, or it is compressed."""
    if not is_plain(mapping) or own_descriptor(path) is not None:
        return None
    with readable(path), open_regular(path) as file:
        first = file.readline(PART_BYTES)
        if opener_of(first):
            return None
        try:
            form = plain_form(first.removeprefix(codecs.BOM_UTF8), next_lines(file), mapping)
        except ValueError:
            return None
        return LongText(path, mapping, form, _state(file))


def _state(file: BinaryIO) -> tuple[int, int]:
    status = os.fstat(file.fileno())
    return status.st_size, status.st_mtime_ns


def _pop_rows(blocks: list[Block]) -> tuple[list[int], list[Texts | Numbers]]:
    """Remove the first :data:`PART_ROWS` rows from ``blocks``. Return their lines and columns."""
    lines = np.concatenate([lines for lines, _ in blocks])
    columns = list(map(_joined, zip(*(columns for _, columns in blocks), strict=True)))
    later = np.arange(PART_ROWS, len(lines))
    blocks[:] = [(lines[later], [_copied(column, later) for column in columns])][: len(later)]
    if not len(later):
        return lines.tolist(), columns
    now = np.arange(PART_ROWS)
    return lines[now].tolist(), [column[now] for column in columns]


def _joined(columns: Sequence[Texts | Numbers]) -> Texts | Numbers:
    """The columns, concatenated."""
    values: list[np.ndarray] = []
    refused: dict[int, tuple[str, str]] = {}
    start = 0
    for column in columns:
        if isinstance(column, Numbers):
            values.append(column.values)
            refused |= {start + row: why for row, why in column.refused.items()}
            start += len(column.values)
    if values:
        return Numbers(np.concatenate(values), refused)
    return Texts.joined(column for column in columns if isinstance(column, Texts))


def _copied(column: Texts | Numbers, rows: np.ndarray) -> Texts | Numbers:
    """A copy of these rows of a column, without texts that only other rows have."""
    if isinstance(column, Numbers):
        return column[rows]
    distinct, codes = np.unique(column.codes[rows], return_inverse=True)
    return Texts(codes.astype(np.int32), [column.values[i] for i in distinct.tolist()])
