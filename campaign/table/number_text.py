"""Numbers as people and programs write them: 1234.5, 1.234,5, 1 234,5, 1'234.5.

A number is read by the grammar of a style: its decimal mark, and the mark between groups of three
digits. Nothing is deleted from a text to make it a number. The style of a file is stated, or found
from all of its numbers by what each of them rules out; a text that may mean two numbers is refused.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Self

import numpy as np

SPACE, APOSTROPHE = " ", "'"
GROUPS = {
    ".": r"\.",
    ",": ",",
    SPACE: "[ \u00a0\u2009\u202f]",
    APOSTROPHE: "['\u2019]",
}
"""A mark of thousands, as a map file states it -> what stands for it in a text: French tables have
narrow and no-break spaces, Swiss ones either apostrophe."""
DECIMALS = (".", ",")
OTHER = {".": ",", ",": "."}
PLAIN = frozenset("0123456789+-eE\n")
WORDS_FOR_NOTHING = {"nan", "na", "n/a", "-", "--", "?", "null", "none", "unknown", "missing"}
"""What tables often have where there is no value; a map file states it, since it may be a slip."""


@dataclass(frozen=True)
class NumberStyle:
    """How numbers are written. ``thousands``: a key of :data:`GROUPS`, or empty for none."""

    decimal: str = "."
    thousands: str = ""

    def number(self, text: str) -> float | None:
        """The number; None where the text is none in this style."""
        match = _grammar(self).fullmatch(text)
        if match is None:
            return None
        sign, whole, fraction, exponent = match.groups(default="")
        digits = "".join(re.findall("[0-9]+", whole))
        if not digits and not fraction:
            return None
        return float(f"{sign}{digits or '0'}.{fraction or '0'}{exponent}")


PLAIN_STYLE = NumberStyle()
STYLES = tuple(
    NumberStyle(decimal, thousands)
    for decimal in DECIMALS
    for thousands in ("", *GROUPS)
    if thousands != decimal
)


@cache
def _grammar(style: NumberStyle) -> re.Pattern[str]:
    whole = "[0-9]*"
    if style.thousands:
        whole = f"[1-9][0-9]{{0,2}}(?:{GROUPS[style.thousands]}[0-9]{{3}})+|{whole}"
    point = re.escape(style.decimal)
    return re.compile(rf"([-+]?)({whole})(?:{point}([0-9]*))?([eE][-+]?[0-9]{{1,4}})?")


def readings(text: str) -> dict[NumberStyle, float]:
    """Every style in which a text is a number, and that number."""
    read = {style: style.number(text) for style in STYLES}
    return {style: number for style, number in read.items() if number is not None}


class UnclearNumbersError(ValueError):
    """The numbers of a file do not show how they are written. ``what`` was found, and ``remedy``;
    ``column`` and ``row``: where."""

    def __init__(self, column: str, row: int, what: str, remedy: str) -> None:
        super().__init__(f"{what}; {remedy}")
        self.column, self.row, self.what, self.remedy = column, row, what, remedy


@dataclass(frozen=True)
class Numbers:
    """A column of numbers: float64, NaN where there is none; and by row each text that is refused,
    with the reason."""

    values: np.ndarray
    refused: dict[int, tuple[str, str]] = field(default_factory=dict)

    def __getitem__(self, rows: np.ndarray) -> Self:
        """These rows of it (int64), in their order."""
        place = {row: i for i, row in enumerate(rows.tolist())} if self.refused else {}
        refused = {place[row]: why for row, why in self.refused.items() if row in place}
        return type(self)(self.values[rows], refused)


def read_numbers(
    columns: Mapping[str, Sequence[Any]],
    decimal: str | None = None,
    thousands: str | None = None,
    missing: Collection[str] = (),
    one_writer: bool = False,
) -> tuple[dict[str, Numbers], str]:
    """Columns of numbers, texts and None as numbers; and the decimal mark of the texts, empty where
    none has any mark.

    ``decimal``, ``thousands``: the marks, where the reader's user states them. ``missing``: words
    that stand for no value, as the empty text does. ``one_writer``: one program wrote all of them,
    so that the mark that is not the decimal one groups digits; without it, a column must show that.

    Raises:
        UnclearNumbersError: the decimal mark cannot be found, or columns have different ones.
    """
    words = {*missing}
    cells = {name: _Cells(values, words) for name, values in columns.items()}
    mark = decimal or OTHER.get(thousands or "") or _decimal_mark(cells)
    usual = OTHER[mark or "."] if one_writer else ""
    return {name: cell.numbers(mark or ".", thousands, usual) for name, cell in cells.items()}, mark


def only_number(text: str, style: NumberStyle | None) -> float:
    """One number, in a style or, without one, in every style in which it is a number.

    Raises:
        ValueError: it is none, or may be two.
    """
    read = readings(text) if style is None else {style: style.number(text)}
    values = {*read.values()} - {None}
    if len(values) == 1 and math.isfinite(value := float(values.pop() or 0.0)):
        return value
    raise ValueError(_refusal(text, style or PLAIN_STYLE))


def number(text: str) -> float:
    """One number as programs write it, with a decimal point.

    Raises:
        ValueError: it is none.
    """
    value = PLAIN_STYLE.number(text.strip())
    if value is None or math.isinf(value):
        raise ValueError(_refusal(text, PLAIN_STYLE))
    return value


def number_or_text(text: Any) -> Any:
    """The number or truth value that a text is in JSON; else the text."""
    try:
        value = json.loads(text)
        return value if isinstance(value, int | float) and math.isfinite(value) else text
    except (TypeError, ValueError, OverflowError, RecursionError):
        return text


def _decimal_mark(cells: Mapping[str, _Cells]) -> str:
    proofs: dict[str, tuple[str, int, str]] = {}
    for name, cell in cells.items():
        if not cell.marks & ({","} if "." in proofs else {",", "."}):
            continue
        if found := cell.first(lambda text: len({s.decimal for s in readings(text)}) == 1):
            row, text = found
            proofs.setdefault(next(iter(readings(text))).decimal, (name, row, text))
    if len(proofs) == 2:
        (name, row, comma), (_, _, point) = proofs[","], proofs["."]
        raise UnclearNumbersError(
            name,
            row,
            f"numbers with a comma ({comma!r}) and with a point ({point!r})",
            "write all with a point; or state decimal and thousands in a map file",
        )
    if proofs:
        return next(iter(proofs))
    for name, cell in cells.items():
        if not cell.marks & {",", "."}:
            continue
        if found := cell.first(lambda text: len(set(readings(text).values())) > 1):
            row, text = found
            mark = "," if "," in text else "."
            raise UnclearNumbersError(
                name,
                row,
                f"found {text!r}, which may be {_both(text)}, and no other number shows which",
                f'state decimal = "{mark}" or thousands = "{mark}" in a map file',
            )
    return ""


class _Cells:
    """The texts of a column, with the rows that they stand in; other values are numbers or None."""

    def __init__(self, values: Sequence[Any], words: Collection[str]) -> None:
        self._values = np.full(len(values), np.nan)
        self._rows: np.ndarray | None = None
        """None: every row has a text."""
        try:
            texts, joined = values, "\n".join(values)
        except TypeError:  # not all are texts
            numbers = {i for i, v in enumerate(values) if type(v) in (int, float)}
            self._values[[*numbers]] = [_as_float(values[i]) for i in numbers]
            kept = [i for i, v in enumerate(values) if v is not None and i not in numbers]
            self._rows = np.array(kept, np.int64)
            texts = [str(values[i]) for i in kept]
            joined = "\n".join(texts)
        if words or not joined or "\n\n" in joined or "\n" in (joined[0], joined[-1]):
            kept = [i for i, text in enumerate(texts) if text and text not in words]
            self._rows = np.array(kept, np.int64) if self._rows is None else self._rows[kept]
            texts = [texts[i] for i in kept]
            joined = "\n".join(texts)
        self._texts = texts
        if joined.isascii():
            counts = np.bincount(np.frombuffer(joined.encode(), np.uint8))
            characters = set(map(chr, np.flatnonzero(counts).tolist()))
        else:
            characters = set(joined)
        self.marks = characters - PLAIN
        """The characters that are no digit, sign or exponent."""

    def first(self, wanted: Callable[[str], bool]) -> tuple[int, str] | None:
        """The first row and text for which something is true."""
        for i, text in enumerate(self._texts):
            if wanted(text.strip()):
                return (i if self._rows is None else int(self._rows[i])), text.strip()
        return None

    def numbers(self, decimal: str, thousands: str | None, usual: str) -> Numbers:
        """The column, with this decimal mark; ``thousands``: as stated, else as some text of the
        column shows it, else as is ``usual``."""
        rows = slice(None) if self._rows is None else self._rows
        plain = self._plainly(decimal)
        if plain is not None:
            self._values[rows] = plain
            return Numbers(self._values)
        style = NumberStyle(decimal, thousands or self._proven_thousands(decimal) or usual)
        distinct = {text: style.number(text.strip()) for text in set(self._texts)}
        self._values[rows] = [distinct[text] for text in self._texts]  # None becomes NaN
        why = {
            text: _refusal(text, style)
            for text, value in distinct.items()
            if value is None or math.isinf(value)
        }
        at = range(len(self._texts)) if self._rows is None else self._rows.tolist()
        refused = {
            row: (text, why[text]) for row, text in zip(at, self._texts, strict=True) if text in why
        }
        self._values[list(refused)] = np.nan
        return Numbers(self._values, refused)

    def _plainly(self, decimal: str) -> np.ndarray | None:
        """The texts by Python's own reader, where they have no other mark than the decimal one:
        the same numbers, sooner. None where one of them is none."""
        if not self.marks <= {decimal}:
            return None
        texts = self._texts
        if decimal == "," and self.marks:
            texts = [text.replace(",", ".") for text in texts]
        try:
            values = np.fromiter(map(float, texts), float, len(texts))
        except ValueError:
            return None
        return values if np.isfinite(values).all() else None

    def _proven_thousands(self, decimal: str) -> str:
        """The mark of thousands that some text of the column has and can only have as such."""
        marks = [mark for mark in "., '\u00a0\u2009\u202f\u2019" if mark in self.marks]

        def proves(text: str) -> bool:
            if all(mark == decimal or mark not in text for mark in marks):
                return False
            read = readings(text)
            return len(set(read.values())) == 1 and all(style.thousands for style in read)

        found = self.first(proves)
        return "" if found is None else next(iter(readings(found[1]))).thousands


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _both(text: str) -> str:
    return " or ".join(f"{value:.10g}" for value in sorted(set(readings(text).values())))


def _refusal(text: str, style: NumberStyle) -> str:
    """Why a text is no number of a style."""
    found, read = f"found {text[:40]!r}", readings(text.strip())
    if any(map(math.isinf, read.values())):
        return f"{found}; must be finite"
    if len(set(read.values())) > 1:
        return (
            f"{found}, which may be {_both(text.strip())}; state thousands = "
            f'"{OTHER[style.decimal]}" in a map file if the mark groups digits, or correct it'
        )
    if read:
        return f"{found}; must be a number with the decimal mark {style.decimal!r}"
    if text.strip().lower() in WORDS_FOR_NOTHING:
        return (
            f"{found}; must be a number; if it stands for a missing value, set missing = "
            f"[{json.dumps(text.strip())}] in a map file"
        )
    return f"{found}; must be a number"
