"""The cells of a table's columns, checked: numbers, whole numbers, text, yes and no."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from campaign.plan.point import canonical_json
from campaign.table.number_text import Numbers
from campaign.table.reading import RawTable
from dvfs.dataset import COUNTERS, ESTIMATED, METRICS
from dvfs.texts import Texts

MISSING = {"power_w": "energy_j: missing; every row needs energy_j or power_w"}
INT64 = 2**63
WHOLE = re.compile(r"([0-9]+)(?:\.0*)?")
TRUTHS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


class TableCells:
    """Converts a table's columns, and collects the errors of each by row."""

    def __init__(self, table: RawTable) -> None:
        self.table = table
        self.wrong: dict[str, dict[int, str]] = {}
        """Column -> row -> its first error; columns in the order in which errors were found."""

    @property
    def wrong_rows(self) -> set[int]:
        """The rows with errors."""
        return set().union(*self.wrong.values())

    def note(self, row: int, column: str, text: str) -> None:
        """Record an error of a row's value in a column."""
        self.wrong.setdefault(column, {}).setdefault(row, text)

    def is_wrong(self, *columns: str) -> np.ndarray:
        """bool, by row: whether one of the columns has an error."""
        noted = np.zeros(len(self.table.lines), bool)
        for column in columns:
            noted[list(self.wrong.get(column, ()))] = True
        return noted

    def texts(self, name: str, convert: Callable[[Any], Any]) -> Texts:
        """A column, each distinct value converted. If ``convert`` raises ValueError, the error is
        recorded, and the value is the empty text."""
        if name not in self.table.columns:
            return Texts.same(convert(None), len(self.table.lines))
        texts = self.table.texts(name)
        converted: list[Any] = []
        refused: dict[int, str] = {}
        for code, value in enumerate(texts.values):
            try:
                converted.append(convert(value))
            except ValueError as error:
                converted.append("")
                refused[code] = str(error)
        if refused:
            for i in np.flatnonzero(np.isin(texts.codes, [*refused])).tolist():
                self.note(i, name, refused[int(texts.codes[i])])
        return texts.mapped(converted)

    def numbers(self, name: str, needed: np.ndarray | bool = False) -> np.ndarray:
        """A column of numbers, float64, NaN if there is none. ``needed``: bool, one or by row: a
        missing number is an error."""
        column = self.table.columns.get(name)
        if isinstance(column, Numbers):
            for i, (_, why) in column.refused.items():
                self.note(i, name, f"{name}: {why}")
            values = column.values
        else:
            values = np.broadcast_to(np.nan, len(self.table.lines))
        if np.any(needed):
            for i in np.flatnonzero(np.isnan(values) & needed).tolist():
                self.note(i, name, MISSING.get(name, f"{name}: missing; every row needs it"))
        return values

    def wholes(self, name: str, default: int, most: int = INT64 - 1) -> np.ndarray:
        """A column of whole numbers from 0 to ``most``, int64; ``default`` if there is none."""

        def whole(value: Any) -> int:
            if not is_present(value):
                return default
            match = WHOLE.fullmatch(str(value).strip())
            if isinstance(value, bool) or match is None or int(match[1][:400]) > most:
                raise ValueError(f"{name}: found {str(value)[:40]}; must be a whole number")
            return int(match[1])

        column = self.table.columns.get(name)
        if isinstance(column, Numbers):
            values = self.numbers(name)
            bad = (values < 0) | (values > most) | (values != np.floor(values))
            for i in np.flatnonzero(bad & ~np.isnan(values)).tolist():
                self.note(i, name, f"{name}: found {values[i]:g}; must be a whole number")
            return np.where(bad | np.isnan(values), default, values).astype(np.int64)
        return self._array(name, whole, np.int64)

    def truths(self, name: str) -> np.ndarray:
        """A column of true and false, bool; False if there is none."""

        def truth(value: Any) -> bool:
            try:
                return is_present(value) and TRUTHS[str(value).strip().lower()]
            except KeyError:
                shown = str(value)[:40]
                raise ValueError(f"{name}: found {shown!r}; must be true or false") from None

        return self._array(name, truth, bool)

    def _array(self, name: str, convert: Callable[[Any], Any], dtype: type) -> np.ndarray:
        """A column of converted values; 0 for values with an error."""
        if name not in self.table.columns:
            return np.broadcast_to(dtype(convert(None)), len(self.table.lines))
        texts = self.texts(name, convert)
        return texts.array(dtype, [value or 0 for value in texts.values])


def first_of(text: str, rows: int) -> str:
    """The error of the first of some rows, and the number of further ones."""
    n_further = rows - 1
    more = f" (and {n_further} further row{'s' * (n_further > 1)})" if n_further else ""
    return f"{text}{more}"


def is_present(value: Any) -> bool:
    """Whether a value is neither None nor empty nor NaN."""
    return value not in (None, "") and not (isinstance(value, float) and math.isnan(value))


def one_line(value: Any, name: str, exact: bool = False) -> str:
    """A name of one line, stripped unless ``exact``.

    Raises:
        ValueError: it is empty, long, or has control characters.
    """
    text = str(value) if exact else str(value).strip()
    if not text or any(ord(c) < 32 for c in text) or len(text) > 200:
        raise ValueError(f"{name}: found {text[:40]!r}; must be a name of one line")
    return text


def params_json(value: Any) -> str:
    """A kernel's parameters as canonical JSON. A text that is no JSON object is one parameter."""
    if not is_present(value):
        return "{}"
    try:
        params = json.loads(str(value))
        if isinstance(params, dict):
            return canonical_json(params)
    except (ValueError, RecursionError):
        pass
    return canonical_json({"params": str(value)})


def meters_json(value: Any) -> str:
    """The JSON text of a row's meters, unchanged: an object for each channel.

    Raises:
        ValueError: the text has another structure.
    """
    return _object_json(value, "meters", {}, _is_channel)


def provenance_json(value: Any) -> str:
    """The JSON text of a row's provenance, unchanged.

    Raises:
        ValueError: one of :data:`PROVENANCE` has another structure.
    """
    return _object_json(value, "provenance", PROVENANCE, lambda _: True)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and value >= 1


def _is_scalar(value: Any) -> bool:
    return isinstance(value, str | int | float | None)


def _is_channel(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and all(map(_is_scalar, value.values()))
        and all(value.get(n) is None or _is_number(value[n]) for n in METER_NUMBERS)
    )


def _holds(is_one: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, dict) and all(map(is_one, value.values()))


METER_NUMBERS = ("period_s", "energy_j", "energy_std_j")
PROVENANCE: dict[str, Callable[[Any], bool]] = {
    "labels": _holds(_is_scalar),
    "flags": lambda value: isinstance(value, list) and all(isinstance(f, str) for f in value),
    "power_w": _is_number,
    ESTIMATED: lambda value: isinstance(value, str),
    "protocol": lambda value: isinstance(value, dict) and _is_count(value.get("windows", 1)),
    "sampling": _holds(_holds(_is_number)),
    COUNTERS: _holds(_holds(_is_number)),
    METRICS: _holds(_is_number),
}
"""A part of a measurement's provenance that is read -> the check of its structure."""


def _object_json(
    value: Any,
    column: str,
    parts: Mapping[str, Callable[[Any], bool]],
    is_other: Callable[[Any], bool],
) -> str:
    """The text of a JSON object, unchanged; ``{}`` if there is none.

    Raises:
        ValueError: the text is no JSON object, or one of its parts fails its check.
    """
    if not is_present(value):
        return "{}"
    try:
        parsed = json.loads(str(value))
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise ValueError(f"{column}: found {str(value)[:40]!r}; must be a JSON object")
    for key, part in parsed.items():
        if not parts.get(key, is_other)(part):
            raise ValueError(
                f"{column}: found {json.dumps({key: part})[:60]}; must be as export writes it"
            )
    return str(value)
