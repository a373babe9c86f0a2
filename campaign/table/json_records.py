"""A JSON object that a program appends records to, read up to where it was written so far.

The ``json`` module reads no object without its closing brace, and keeps one of two members of the
same name; this keeps both, with their lines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dvfs.input_files import FileError

SPACE = re.compile(r"[ \t\r\n]*")


@dataclass(frozen=True)
class JsonRecords:
    """An object's members, but for the one that holds the records; the records, each with its line
    in the file; and what was noticed, a sentence each."""

    members: dict[str, Any] = field(default_factory=dict)
    lines: list[int] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_json_records(path: Path, text: str, name: str) -> JsonRecords | None:
    """The object in ``text`` with its records, the values of its member ``name``, an object or a
    list; None where the text is no JSON object.

    Raises:
        FileError: it is damaged elsewhere than at its end, or a record is no object.
    """
    scan = _Scan(path, text)
    if scan.mark() != "{":
        return None
    read = JsonRecords()
    try:
        for _, key in scan.names():
            if key == name and scan.mark() in ("{", "["):
                read.members[key] = None
                for line, _ in scan.names() if scan.mark() == "{" else scan.items():
                    record = scan.value()
                    if not isinstance(record, dict):
                        raise scan.damaged("is a record, but no JSON object", line)
                    read.lines.append(line)
                    read.records.append(record)
            else:
                read.members[key] = scan.value()
        if scan.mark():
            raise scan.damaged("has text after the end of the object", scan.line())
    except EOFError:
        read.notes.append(f"{path}: is not closed, as while it is still written; read to its end")
        if line := scan.cut_off():
            read.notes.append(f"{path}:{line}: its last record is cut off, and left out")
    return read


class _Scan:
    """Where the reading of a text is. What comes to the text's end too early raises EOFError."""

    def __init__(self, path: Path, text: str) -> None:
        self._path, self._text = path, text
        self._decoder = json.JSONDecoder()
        self._at = 0
        self._complete = 0
        """Up to here all members are complete."""
        self._counted = (0, 1)

    def mark(self) -> str:
        """The next character that is no space; empty at the end."""
        space = SPACE.match(self._text, self._at)
        self._at = space.end() if space else self._at
        return self._text[self._at : self._at + 1]

    def names(self) -> Iterator[tuple[int, str]]:
        """Each member's line and name, in an object that begins here; its value comes next."""
        self._at += 1
        while True:
            self._complete = self._at
            if self.mark() == "}":
                break
            line, name = self.line(), self.value()
            if not isinstance(name, str) or self._mark_before_end() != ":":
                raise self.damaged("is no name and value", line)
            self._at += 1
            yield line, name
            self._complete = self._at
            if self._mark_before_end() == ",":
                self._at += 1
            elif self.mark() != "}":
                raise self.damaged("has no comma before it", self.line())
        self._at += 1

    def items(self) -> Iterator[tuple[int, str]]:
        """The line of each item of a list that begins here; the item comes next."""
        self._at += 1
        while self.mark() != "]":
            self._complete = self._at
            yield self.line(), ""
            self._complete = self._at
            if self._mark_before_end() == ",":
                self._at += 1
            elif self.mark() != "]":
                raise self.damaged("has no comma before it", self.line())
        self._at += 1

    def value(self) -> Any:
        """The value that begins here."""
        self.mark()
        try:
            value, self._at = self._decoder.raw_decode(self._text, self._at)
        except json.JSONDecodeError as error:
            if "}" not in self._text[error.pos :]:
                raise EOFError from None
            line = self._text.count("\n", 0, error.pos) + 1
            raise self.damaged(f"is not JSON ({error.msg})", line) from None
        except (ValueError, RecursionError):  # a number of thousands of digits, a deep nesting
            raise self.damaged("is no value that can be read", self.line()) from None
        return value

    def line(self) -> int:
        """The line of the file."""
        at, line = self._counted
        self._counted = self._at, line + self._text.count("\n", at, self._at)
        return self._counted[1]

    def cut_off(self) -> int:
        """The line of what began behind the last complete member; 0 where nothing did."""
        rest = self._text[self._complete :].lstrip(" \t\r\n,")
        return self._text.count("\n", 0, len(self._text) - len(rest)) + 1 if rest else 0

    def damaged(self, what: str, line: int) -> FileError:
        """The error for a file that is damaged at a line."""
        return FileError(what, "correct this line", f"{self._path}:{line}")

    def _mark_before_end(self) -> str:
        if not (mark := self.mark()):
            raise EOFError
        return mark
