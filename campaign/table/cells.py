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
    """Goes through a table's columns, and keeps what is wrong in each, by row."""

    def __init__(self, table: RawTable) -> None:
        self.table = table
        self._wrong: dict[str, dict[int, str]] = {}
        self.wrong_columns: list[str] = []
        """What is wrong with columns as a whole."""

    @property
    def wrong(self) -> Mapping[str, Mapping[int, str]]:
        """Column -> row -> what is wrong there first; in the order in which it was found."""
        return self._wrong

    @property
    def wrong_rows(self) -> set[int]:
        """The rows in which something is wrong."""
        return set().union(*self._wrong.values())

    def note(self, row: int, column: str, text: str) -> None:
        """Something wrong with a row's value in a column."""
        self._wrong.setdefault(column, {}).setdefault(row, text)

    def is_wrong(self, *columns: str) -> np.ndarray:
        """bool, one a row: whether something is wrong in one of some columns."""
        noted = np.zeros(len(self.table.lines), bool)
        for column in columns:
            noted[list(self._wrong.get(column, ()))] = True
        return noted

    def messages(self) -> list[str]:
        """What is wrong: columns as a whole, then the first row of each column, by line."""
        path, lines = self.table.path, self.table.lines
        firsts = []
        for rows in self._wrong.values():
            first = min(rows)
            text = first_of(rows[first], len(rows))
            firsts.append((first, f"{path}:{lines[first]}: {text}"))
        firsts.sort(key=lambda entry: entry[0])
        return [f"{path}: {text}" for text in self.wrong_columns] + [text for _, text in firsts]

    def texts(self, name: str, made: Callable[[Any], Any]) -> Texts:
        """A column, each distinct value through ``made``, which may refuse it (ValueError): then
        it is the empty text."""
        if name not in self.table.columns:
            return Texts.same(made(None), len(self.table.lines))
        texts = self.table.texts(name)
        known: list[Any] = []
        refused: dict[int, str] = {}
        for code, value in enumerate(texts.values):
            try:
                known.append(made(value))
            except ValueError as error:
                known.append("")
                refused[code] = str(error)
        if refused:
            for i in np.flatnonzero(np.isin(texts.codes, [*refused])).tolist():
                self.note(i, name, refused[int(texts.codes[i])])
        return texts.mapped(known)

    def numbers(self, name: str, needed: np.ndarray | bool = False) -> np.ndarray:
        """float64, a column of numbers, NaN where there is none; a row where it is ``needed``
        (bool, one or a row) is wrong without."""
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
        """int64, a column of whole numbers from 0 to ``most``; ``default`` where there is none."""

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
        """bool, a column of true and false; False where there is none."""

        def truth(value: Any) -> bool:
            try:
                return is_present(value) and TRUTHS[str(value).strip().lower()]
            except KeyError:
                shown = str(value)[:40]
                raise ValueError(f"{name}: found {shown!r}; must be true or false") from None

        return self._array(name, truth, bool)

    def _array(self, name: str, made: Callable[[Any], Any], dtype: type) -> np.ndarray:
        """A column through ``made``; 0 where a value was refused."""
        if name not in self.table.columns:
            return np.broadcast_to(dtype(made(None)), len(self.table.lines))
        texts = self.texts(name, made)
        return texts.array(dtype, [value or 0 for value in texts.values])


def first_of(text: str, rows: int) -> str:
    """What is wrong with the first of some rows, and how many others there are."""
    others = rows - 1
    more = f" (and {others} further row{'s' * (others > 1)})" if others else ""
    return f"{text}{more}"


def is_present(value: Any) -> bool:
    """Whether there is a value: not None, empty or NaN."""
    return value not in (None, "") and not (isinstance(value, float) and math.isnan(value))


def one_line(value: Any, what: str, exact: bool = False) -> str:
    """A name of one line, stripped unless ``exact``.

    Raises:
        ValueError: it is empty, long, or has control characters.
    """
    text = str(value) if exact else str(value).strip()
    if not text or any(ord(c) < 32 for c in text) or len(text) > 200:
        raise ValueError(f"{what}: found {text[:40]!r}; must be a name of one line")
    return text


def params_json(value: Any) -> str:
    """A kernel's parameters as canonical JSON; what is no JSON object becomes one parameter."""
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
    """The text of what is kept of a row's meters, unchanged: an object for each channel.

    Raises:
        ValueError: it has another shape.
    """
    return _object_json(value, "meters", {}, _is_channel)


def provenance_json(value: Any) -> str:
    """The text of a row's provenance, unchanged.

    Raises:
        ValueError: it has another shape than the parts that are read have.
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
"""The parts of a measurement's provenance that something reads, and whether one is as expected."""


def _object_json(
    value: Any,
    what: str,
    parts: Mapping[str, Callable[[Any], bool]],
    is_other: Callable[[Any], bool],
) -> str:
    """The text of a JSON object, unchanged; ``{}`` where there is none.

    Raises:
        ValueError: it is no JSON object, or one of its parts is not as expected.
    """
    if not is_present(value):
        return "{}"
    try:
        kept = json.loads(str(value))
    except (ValueError, RecursionError):
        kept = None
    if not isinstance(kept, dict):
        raise ValueError(f"{what}: found {str(value)[:40]!r}; must be a JSON object")
    for name, part in kept.items():
        if not parts.get(name, is_other)(part):
            raise ValueError(
                f"{what}: found {json.dumps({name: part})[:60]}; must be as export writes it"
            )
    return str(value)
