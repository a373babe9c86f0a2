"""Numbers as people and programs write them: 1234.5, 1.234,5, 1 234,5, 1'234.5.

A number is read by the grammar of a style: its decimal mark, and the mark between groups of three
digits. The reader deletes nothing from a text to get a number. The style of a file is stated, or
inferred from all its numbers, each of which excludes some styles. An ambiguous text is refused.
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
"""A mark of thousands in a map file -> a pattern of its characters in a text: French tables have
narrow and no-break spaces, Swiss ones either apostrophe."""
DECIMALS = (".", ",")
OTHER = {".": ",", ",": "."}
PLAIN = frozenset("0123456789+-eE\n")
WORDS_FOR_NOTHING = {"nan", "na", "n/a", "-", "--", "?", "null", "none", "unknown", "missing"}
"""Frequent words for a missing value. A map file must state them, as they may be mistakes."""


@dataclass(frozen=True)
class NumberStyle:
    """How numbers are written. ``thousands``: a key of :data:`GROUPS`, or empty for none."""

    decimal: str = "."
    thousands: str = ""

    def number(self, text: str) -> float | None:
        """The number; None if the text is not a number in this style."""
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
    """Style -> number, for every style in which the text is a number."""
    numbers = {style: style.number(text) for style in STYLES}
    return {style: number for style, number in numbers.items() if number is not None}


class UnclearNumbersError(ValueError):
    """The style of a file's numbers is ambiguous. ``what``: what was found at ``column`` and
    ``row``; ``remedy``: how to correct it."""

    def __init__(self, column: str, row: int, what: str, remedy: str) -> None:
        super().__init__(f"{what}; {remedy}")
        self.column, self.row, self.what, self.remedy = column, row, what, remedy


@dataclass(frozen=True)
class Numbers:
    """A column of numbers. ``values``: float64, NaN if there is none. ``refused``: row -> a text
    that is no number, and the reason."""

    values: np.ndarray
    refused: dict[int, tuple[str, str]] = field(default_factory=dict)

    def __getitem__(self, rows: np.ndarray) -> Self:
        """The column of these rows (int64), in their order."""
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
    """Columns of numbers, texts and None as numbers; and the decimal mark of the texts, empty if no
    text has a mark.

    ``decimal``, ``thousands``: the marks, if the user states them. ``missing``: words for no value,
    in addition to the empty text. ``one_writer``: one program wrote all texts, so that the other
    mark than the decimal one groups digits; otherwise a column must prove that.

    Raises:
        UnclearNumbersError: the decimal mark is ambiguous, or columns have different ones.
    """
    words = {*missing}
    cells = {name: _Cells(values, words) for name, values in columns.items()}
    mark = decimal or OTHER.get(thousands or "") or _decimal_mark(cells)
    usual = OTHER[mark or "."] if one_writer else ""
    return {name: cell.numbers(mark or ".", thousands, usual) for name, cell in cells.items()}, mark


def only_number(text: str, style: NumberStyle | None) -> float:
    """The number that a text is in a style; without a style, in all styles that can read it.

    Raises:
        ValueError: it is no number, or may be several.
    """
    numbers = readings(text) if style is None else {style: style.number(text)}
    values = {*numbers.values()} - {None}
    if len(values) == 1 and math.isfinite(value := float(values.pop() or 0.0)):
        return value
    raise ValueError(_refusal(text, style or PLAIN_STYLE))


def number(text: str) -> float:
    """A number with a decimal point, as programs write it.

    Raises:
        ValueError: the text is no finite number.
    """
    value = PLAIN_STYLE.number(text.strip())
    if value is None or math.isinf(value):
        raise ValueError(_refusal(text, PLAIN_STYLE))
    return value


def number_or_text(text: Any) -> Any:
    """The number or truth value that a text is in JSON; otherwise the text."""
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
        if match := cell.first(lambda text: len({s.decimal for s in readings(text)}) == 1):
            row, text = match
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
        if match := cell.first(lambda text: len(set(readings(text).values())) > 1):
            row, text = match
            mark = "," if "," in text else "."
            raise UnclearNumbersError(
                name,
                row,
                f"found {text!r}, which may be {_either(text)}, and no other number shows which",
                f'state decimal = "{mark}" or thousands = "{mark}" in a map file',
            )
    return ""


class _Cells:
    """The texts of a column and their rows; the column's other values are numbers or None."""

    def __init__(self, values: Sequence[Any], words: Collection[str]) -> None:
        self._values = np.full(len(values), np.nan)
        self._rows: np.ndarray | None = None
        """None: every row has a text."""
        try:
            texts, joined = values, "\n".join(values)
        except TypeError:  # not all are texts
            numbers = {i for i, v in enumerate(values) if type(v) in (int, float)}
            self._values[[*numbers]] = [_as_float(values[i]) for i in numbers]
            rows = [i for i, v in enumerate(values) if v is not None and i not in numbers]
            self._rows = np.array(rows, np.int64)
            texts = [str(values[i]) for i in rows]
            joined = "\n".join(texts)
        if words or not joined or "\n\n" in joined or "\n" in (joined[0], joined[-1]):
            rows = [i for i, text in enumerate(texts) if text and text not in words]
            self._rows = np.array(rows, np.int64) if self._rows is None else self._rows[rows]
            texts = [texts[i] for i in rows]
            joined = "\n".join(texts)
        self._texts = texts
        if joined.isascii():
            counts = np.bincount(np.frombuffer(joined.encode(), np.uint8))
            characters = set(map(chr, np.flatnonzero(counts).tolist()))
        else:
            characters = set(joined)
        self.marks = characters - PLAIN
        """The characters except digits, signs and exponents."""

    def first(self, condition: Callable[[str], bool]) -> tuple[int, str] | None:
        """The first row and text for which the condition is true."""
        for i, text in enumerate(self._texts):
            if condition(text.strip()):
                return (i if self._rows is None else int(self._rows[i])), text.strip()
        return None

    def numbers(self, decimal: str, thousands: str | None, usual: str) -> Numbers:
        """The column as numbers. The mark of thousands is the stated one, else the one that a text
        of the column proves, else ``usual``."""
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
        text_rows = range(len(self._texts)) if self._rows is None else self._rows.tolist()
        row_texts = zip(text_rows, self._texts, strict=True)
        refused = {row: (text, why[text]) for row, text in row_texts if text in why}
        self._values[list(refused)] = np.nan
        return Numbers(self._values, refused)

    def _plainly(self, decimal: str) -> np.ndarray | None:
        """The numbers by Python's reader, which is faster, if the texts have no mark but the
        decimal one. None if a text has another mark or is no number."""
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
        """The mark of thousands that a text of the column proves; empty if none does."""
        marks = [mark for mark in "., '\u00a0\u2009\u202f\u2019" if mark in self.marks]

        def proves(text: str) -> bool:
            if all(mark == decimal or mark not in text for mark in marks):
                return False
            numbers = readings(text)
            return len(set(numbers.values())) == 1 and all(style.thousands for style in numbers)

        proof = self.first(proves)
        return "" if proof is None else next(iter(readings(proof[1]))).thousands


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _either(text: str) -> str:
    return " or ".join(f"{value:.10g}" for value in sorted(set(readings(text).values())))


def _refusal(text: str, style: NumberStyle) -> str:
    """The reason why a text is not a number in a style."""
    cause, numbers = f"found {text[:40]!r}", readings(text.strip())
    if any(map(math.isinf, numbers.values())):
        return f"{cause}; must be finite"
    if len(set(numbers.values())) > 1:
        return (
            f"{cause}, which may be {_either(text.strip())}; state thousands = "
            f'"{OTHER[style.decimal]}" in a map file if the mark groups digits, or correct it'
        )
    if numbers:
        return f"{cause}; must be a number with the decimal mark {style.decimal!r}"
    if text.strip().lower() in WORDS_FOR_NOTHING:
        return (
            f"{cause}; must be a number; if it stands for a missing value, set missing = "
            f"[{json.dumps(text.strip())}] in a map file"
        )
    return f"{cause}; must be a number"
