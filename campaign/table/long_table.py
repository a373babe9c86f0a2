"""A checked table that does not fit in memory. It is read once for the checks, again if clocks have
jitter, and once more when its rows are added to a store.

The object stores 12 bytes per row, the id, and for rows of a store the attempt. All other data are
of one part, or of the distinct sites, clocks and points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from campaign.store.generation import PACKED_ID, packed_ids, unpacked_ids
from campaign.table.all_rows import OfLongTable
from campaign.table.cells import TableCells
from campaign.table.checking import (
    Checked,
    Kinds,
    Rows,
    disagreements,
    frame_of,
    kinds_of,
    stored_rows,
)
from campaign.table.long_text import LongText
from campaign.table.points import measurements_of, point_ids_of, same_point
from campaign.table.reading import RawTable, kept_notes, read_long_table
from dvfs.input_files import FileError
from dvfs.texts import group_codes

MOST_LISTED = 10_000
"""The most lines about rows whose energy is not their power times time."""


ATTEMPT = np.dtype([("is_of_store", "?"), ("worth", "u1"), ("attempt", "i8")])


class _Part(NamedTuple):
    """Some rows: columns of the store without ids, power (W), and the kind of each row."""

    table: RawTable
    rows: Rows
    power_w: np.ndarray
    kinds: Kinds


class LongTable:
    """A checked table. ``check_part``: a further check of a part; it raises FileError.

    Raises:
        FileError: as :func:`campaign.table.checking.checked_rows`.
    """

    def __init__(
        self,
        text: LongText,
        map_file: Path | None = None,
        check_part: Callable[[RawTable], None] = lambda _: None,
    ) -> None:
        self.path = text.path
        self._text, self._map_file, self._check_part = text, map_file, check_part
        self._of_all = OfLongTable(text.mapping)
        self._read()
        while self._of_all.needs_pass():
            self._of_all = self._of_all.again()
            self._read()
        self.notes = text.notes()
        if text.mapping.keep:
            self.notes += kept_notes(self.path, len(self), self._n_read, map_file)
        self.notes += self._of_all.notes()
        self._of_all.note_since_start()
        self._dropped = self._other_attempts()
        if wrong := self._of_all.messages(self.path):
            raise FileError("\n".join(wrong))
        del self._attempts

    def __len__(self) -> int:
        """The number of rows."""
        return len(self._ids) // PACKED_ID.itemsize

    @property
    def disagreements(self) -> list[str]:
        """A line for each row whose energy is not its power times time."""
        more = self._n_disagree - len(self._disagree)
        return self._disagree + [f"{self.path}: and {more} further rows"] * (more > 0)

    def parts(self) -> Iterator[Checked]:
        """The rows as the store keeps them, part by part.

        Raises:
            FileError: the file has changed.
        """
        start = 0
        for part in self._parts(self._of_all.again()):
            yield self._checked(part, start)
            start += len(part.table.lines)
            del part

    def _parts(self, of_all: OfLongTable) -> Iterator[_Part]:
        def part(table: RawTable) -> _Part:
            self._check_part(table)
            cells = TableCells(table)
            kinds = kinds_of(cells)
            rows, power_w = frame_of(cells, kinds, of_all)
            of_all.end_part(cells)
            return _Part(table, rows, power_w, kinds)

        return map(part, read_long_table(self._text, self._map_file))

    def _read(self) -> None:
        """Read all parts, and record the ids, lines and attempts of the rows."""
        self._ids = bytearray()
        self._lines: list[Sequence[int]] = []
        self._attempts: list[np.ndarray] = []
        self._n_read = self._n_disagree = 0
        self._disagree: list[str] = []
        for part in self._parts(self._of_all):
            self._add(*part)
            del part

    def _add(self, table: RawTable, rows: Rows, power_w: np.ndarray, kinds: Kinds) -> None:
        ids = point_ids_of(rows, kinds.ids)
        self._ids += packed_ids(ids)
        lines = np.array(table.lines, np.int64)
        whole = range(lines[0], lines[-1] + 1) if len(lines) else range(0)
        self._lines.append(whole if len(whole) == len(lines) else lines)  # type: ignore[arg-type]
        attempts = np.broadcast_to(np.zeros((), ATTEMPT), len(lines))
        if kinds.of_store.any():
            attempts = np.empty(len(lines), ATTEMPT)
            of_rows = kinds.of_store, kinds.worth, np.asarray(rows["attempt"])
            for name, values in zip(ATTEMPT.names or (), of_rows, strict=True):
                attempts[name] = values
        self._attempts.append(attempts)
        self._n_read += table.n_read
        disagree = disagreements(table, rows, power_w)
        self._n_disagree += len(disagree)
        self._disagree += disagree[: max(MOST_LISTED - len(self._disagree), 0)]

    def _other_attempts(self) -> np.ndarray:
        """int64, sorted: the numbers of the rows that are attempts, but not the measurement, of
        their point. Other rows of the same point are reported as errors."""
        ids = np.frombuffer(self._ids, PACKED_ID)
        first = ids["first"].astype(np.uint64)
        first.sort()
        twice = first[1:][first[1:] == first[:-1]]
        if not len(twice):
            return np.empty(0, np.int64)
        rows = np.flatnonzero(np.isin(ids["first"], twice))
        codes = group_codes([ids["first"][rows].astype(np.uint64), ids["last"][rows]])
        attempts = np.concatenate(
            [
                part[rows_of_part]
                for part, rows_of_part in zip(self._attempts, self._by_part(rows), strict=True)
            ]
        )
        wrong = np.isin(rows, self._of_all.wrong_rows())
        of_store, worth, attempt = (attempts[name] for name in ATTEMPT.names or ())
        kept, n_same, same = measurements_of(codes.tolist(), of_store, worth, attempt, wrong)
        if same:
            self._note_same_point(int(rows[same[0]]), int(rows[same[1]]), n_same)
        return np.delete(rows, kept)

    def _note_same_point(self, row: int, earlier_row: int, rows: int) -> None:
        """Report the first of ``rows`` rows that are the same point as an earlier one."""
        line, earlier_line = (
            int(part[rows_of_part[0]])
            for number in (row, earlier_row)
            for part, rows_of_part in zip(
                self._lines, self._by_part(np.array([number])), strict=True
            )
            if len(rows_of_part)
        )
        for part in self._parts(self._of_all.again()):
            for i in np.flatnonzero(np.asarray(part.table.lines) == line).tolist():
                self._of_all.note("point", line, same_point(earlier_line, part.rows, i), rows)
                return

    def _by_part(self, rows: np.ndarray) -> list[np.ndarray]:
        """The rows (int64, sorted) by part, each counted from the part's first row."""
        starts = np.cumsum([0, *map(len, self._lines)])
        places = np.searchsorted(rows, starts)
        return [
            rows[first:end] - start
            for start, first, end in zip(starts[:-1], places[:-1], places[1:], strict=True)
        ]

    def _checked(self, part: _Part, start: int) -> Checked:
        n_rows, size = len(part.table.lines), PACKED_ID.itemsize
        packed = self._ids[start * size : (start + n_rows) * size]
        if len(packed) != n_rows * size:
            raise FileError("has changed while it was read", "import it again", str(self.path))
        first, end = np.searchsorted(self._dropped, [start, start + n_rows])
        kept = np.delete(np.arange(n_rows), self._dropped[first:end] - start)
        ids = unpacked_ids(packed)
        return stored_rows(part.table, part.rows, ids, part.kinds, self._of_all, kept)
