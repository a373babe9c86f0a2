"""The cells of a table's columns, checked: numbers, whole numbers, text, yes and no."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from campaign.plan.point import canonical_json
from campaign.table.reading import RawTable

MISSING = {"power_w": "energy_j: missing; every row needs energy_j or power_w"}
INT64 = 2**63
TRUTHS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


class Cells:
    """Goes through a table's columns, and keeps the first thing wrong with each row."""

    def __init__(self, table: RawTable) -> None:
        self.table = table
        self.wrong: dict[int, str] = {}
        self.wrong_columns: list[str] = []
        """What is wrong with columns as a whole."""

    @property
    def is_wrong(self) -> np.ndarray:
        """bool, one a row."""
        noted = np.zeros(len(self.table.lines), bool)
        noted[list(self.wrong)] = True
        return noted

    def note(self, row: int, text: str) -> None:
        """Something wrong with a row."""
        self.wrong.setdefault(row, text)

    def texts(self, name: str, made: Callable[[Any], Any]) -> list[Any]:
        """A column, each distinct value through ``made``, which may refuse it (ValueError)."""
        if name not in self.table.columns:
            return [made(None)] * len(self.table.lines)
        values = self.table.columns[name]
        known: dict[Any, Any] = {}
        refused: dict[Any, str] = {}
        for value in set(values):
            try:
                known[value] = made(value)
            except ValueError as error:
                known[value], refused[value] = "", str(error)
        if refused:
            for i, value in enumerate(values):
                if value in refused:
                    self.note(i, refused[value])
        return [known[value] for value in values]

    def numbers(
        self,
        name: str,
        above: bool = False,
        needed: np.ndarray | bool = True,
        any_sign: np.ndarray | bool = False,
    ) -> np.ndarray:
        """float64, a column of numbers of 0 or more (or ``above`` 0), NaN where there is none;
        a row where it is ``needed`` (bool, one or a row) is wrong without. Where ``any_sign``,
        every finite number will do."""
        numbers = np.full(len(self.table.lines), np.nan)
        present = np.ones(numbers.size, bool)
        values = self.table.columns.get(name)
        if values is None:
            values, present[:] = [], False
        try:
            if not set(map(type, values)) <= {str, float, int}:
                raise ValueError  # None is missing, and a truth value no number
            numbers[: len(values)] = np.fromiter(map(float, values), float, len(values))
        except (ValueError, OverflowError):
            present[:] = list(map(is_present, values))
            for i in np.flatnonzero(present).tolist():
                try:
                    numbers[i] = float(str(values[i]))
                except ValueError:
                    present[i] = False
                    self.note(i, f"{name}: found {str(values[i])[:40]!r}; must be a number")
        else:
            if values and np.isnan(numbers).any():
                present[:] = list(map(is_present, values))
        for i in np.flatnonzero(~present & needed).tolist():
            self.note(i, MISSING.get(name, f"{name}: missing; every row needs it"))
        bound = "above 0" if above else "0 or more"
        good = ((numbers > 0) if above else (numbers >= 0)) | any_sign
        good &= np.isfinite(numbers)
        for i in np.flatnonzero(present & ~good).tolist():
            finite = np.isnan(numbers[i]) or np.isfinite(numbers[i])
            self.note(i, f"{name}: found {numbers[i]:g}; must be {bound if finite else 'finite'}")
        return np.where(good, numbers, np.nan)

    def wholes(self, name: str, default: int, most: int = INT64 - 1) -> np.ndarray:
        """int64, a column of whole numbers from 0 to ``most``; ``default`` where there is none."""

        def whole(value: Any) -> int:
            if not is_present(value):
                return default
            text = str(value)
            try:
                number = int(text)
            except ValueError:  # 3.0, which is whole, or none
                try:
                    number = int(float(text))
                    number = number if number == float(text) else -1
                except (ValueError, OverflowError):
                    number = -1
            if not 0 <= number <= most:
                raise ValueError(f"{name}: found {text[:40]}; must be a whole number")
            return number

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
            return np.full(len(self.table.lines), made(None), dtype)
        return np.array([value or 0 for value in self.texts(name, made)], dtype)


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


def object_json(value: Any, what: str) -> str:
    """The text of a JSON object, unchanged; ``{}`` where there is none.

    Raises:
        ValueError: it is no JSON object.
    """
    if not is_present(value):
        return "{}"
    try:
        if isinstance(json.loads(str(value)), dict):
            return str(value)
    except (ValueError, RecursionError):
        pass
    raise ValueError(f"{what}: found {str(value)[:40]!r}; must be a JSON object")
