"""Checking a table: every row becomes a row of the store, or is reported with what is wrong."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.dataset import COUNT_PREFIX, OK
from campaign.plan.point import canonical_json, point_ids
from campaign.table.map_file import TableMap
from campaign.table.reading import RawTable
from sites.located_toml import BadFile
from sites.setting import Setting

MAX_ROWS_NAMED = 10
MAX_REPEAT = 2**53
"""Up to here every whole number is a float64."""
MISSING = {"power_w": "energy_j: missing; every row needs energy_j or power_w"}
DISAGREE = 1.01
"""Energy and power times time disagree when they differ by more than this factor."""


class _Check:
    """Goes through a table's columns, and keeps the first thing wrong with each row."""

    def __init__(self, table: RawTable) -> None:
        self.table = table
        self.wrong: dict[int, str] = {}

    def note(self, row: int, text: str) -> None:
        self.wrong.setdefault(row, text)

    def texts(self, name: str, made: Callable[[Any], str]) -> list[str]:
        """A column of text, each distinct value through ``made``, which may refuse it."""
        values = self.table.columns.get(name, [None] * len(self.table.lines))
        known: dict[Any, str] = {}
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
    ) -> np.ndarray:
        """float64, a column of numbers of 0 or more (or ``above`` 0), NaN where there is none;
        a row where it is ``needed`` (bool, one or a row) is wrong without."""
        values = self.table.columns.get(name, [None] * len(self.table.lines))
        numbers = np.full(len(values), np.nan)
        present = np.ones(len(values), bool)
        try:
            if not set(map(type, values)) <= {str, float, int}:
                raise ValueError  # None is missing, and a truth value no number
            numbers = np.fromiter(map(float, values), float, len(values))
        except (ValueError, OverflowError):
            present[:] = list(map(_present, values))
            for i in np.flatnonzero(present).tolist():
                try:
                    numbers[i] = float(str(values[i]))
                except ValueError:
                    present[i] = False
                    self.note(i, f"{name}: found {str(values[i])[:40]!r}; must be a number")
        else:
            if np.isnan(numbers).any():
                present[:] = list(map(_present, values))
        for i in np.flatnonzero(~present & needed).tolist():
            self.note(i, MISSING.get(name, f"{name}: missing; every row needs it"))
        bound = "above 0" if above else "0 or more"
        good = np.isfinite(numbers) & ((numbers > 0) if above else (numbers >= 0))
        for i in np.flatnonzero(present & ~good).tolist():
            self.note(i, f"{name}: found {numbers[i]:g}; must be {bound}")
        return np.where(good, numbers, np.nan)


@dataclass(frozen=True)
class Checked:
    """A table's rows as the store keeps them (columns of its measurements table), and notes."""

    path: Path
    rows: pd.DataFrame
    lines: np.ndarray
    """int64: each row's line in the file."""
    disagreements: list[str]
    """Rows whose energy is not their power times time, at most ten of them named."""


def checked_rows(table: RawTable, mapping: TableMap) -> Checked:
    """Check every row and make it one of the store.

    Raises:
        BadFile: rows with a value that is missing, no number, not finite or out of range, or
            rows that are the same point: all of them named, up to ten.
    """
    check = _Check(table)
    site = check.texts("site", lambda value: _name(value, "site"))
    kernel = check.texts("kernel", _kernel)
    params = check.texts("params", _params)
    core_mhz = check.numbers("core_mhz", above=True)
    mem_mhz = check.numbers("mem_mhz", above=True, needed=False)
    time_s = check.numbers("time_s", above=True)
    energy_j = check.numbers("energy_j", above=True, needed=False)
    given = np.isfinite(energy_j)
    power_w = check.numbers("power_w", needed=~given & ~_noted(check, len(given)))
    for i in np.flatnonzero(~given & (power_w == 0)).tolist():
        check.note(i, "power_w: found 0; must be above 0")
    with np.errstate(over="ignore", under="ignore"):
        product_j = power_w * time_s
    away_j = ~given & ((product_j == 0) | np.isinf(product_j)) & (power_w > 0)
    for i in np.flatnonzero(away_j).tolist():
        check.note(i, f"power_w: {power_w[i]:g} W x time_s is no energy; check both units")
    repeat = np.nan_to_num(check.numbers("repeat", needed=False))
    for i in np.flatnonzero((repeat != np.floor(repeat)) | (repeat > MAX_REPEAT)).tolist():
        check.note(i, f"repeat: found {repeat[i]:g}; must be a whole number")
        repeat[i] = 0
    node = check.texts("node", lambda value: _name(value, "node") if value else "")
    counts = {
        name: check.numbers(name, needed=False)
        for name in table.columns
        if name.startswith(COUNT_PREFIX)
    }
    core_v, mem_v, origin = _volts(check, core_mhz, mem_mhz, mapping)
    frame = pd.DataFrame(
        {
            "site": site,
            "partition": [name or "imported" for name in node],
            "kernel": kernel,
            "params": params,
            "node": node,
            "status": OK,
            "text": "",
            "voltage_origin": origin,
            "meters": "{}",
            "core_mhz": core_mhz,
            "mem_mhz": mem_mhz,
            "time_s": time_s,
            "energy_j": np.where(given, energy_j, product_j),
            **dict.fromkeys(("energy_std_j", "core_mhz_achieved", "mem_mhz_achieved"), np.nan),
            "core_v": core_v,
            "mem_v": mem_v,
            "start_unix_s": 0.0,
            "repeat": repeat.astype(np.int64),
            "ranks": 1,
            "iterations": 1,
            "attempt": 0,
            "simulated": False,
            "imported": True,
            **{name: values for name, values in counts.items() if np.isfinite(values).any()},
        }
    )
    frame["point_id"] = _point_ids(check, frame)
    if check.wrong:
        raise BadFile(
            listed(
                [f"{table.path}:{table.lines[i]}: {check.wrong[i]}" for i in sorted(check.wrong)]
            )
        )
    power_w = np.where(given, power_w, np.nan)
    frame["provenance"] = _provenance(table, power_w)
    with np.errstate(all="ignore"):
        ratio = np.where(power_w > 0, energy_j / product_j, 1.0)
        away = np.flatnonzero(np.abs(np.log(ratio)) > np.log(DISAGREE))
    disagreements = [
        f"{table.path}:{table.lines[i]}: energy_j is {energy_j[i]:.6g} J, but power_w x time_s is "
        f"{power_w[i] * time_s[i]:.6g} J; energy_j is used, and power_w is kept for information"
        for i in away
    ]
    return Checked(table.path, frame, np.array(table.lines, np.int64), disagreements)


def listed(rows: list[str]) -> str:
    """Messages about rows, a line each, the first ten of them."""
    more = len(rows) - MAX_ROWS_NAMED
    return "\n".join(rows[:MAX_ROWS_NAMED] + ([f"and {more} further rows"] if more > 0 else []))


def _noted(check: _Check, n_rows: int) -> np.ndarray:
    noted = np.zeros(n_rows, bool)
    noted[list(check.wrong)] = True
    return noted


def _present(value: Any) -> bool:
    return value not in (None, "") and not (isinstance(value, float) and math.isnan(value))


def _name(value: Any, what: str) -> str:
    text = str(value).strip()
    if not text or any(ord(c) < 32 for c in text) or len(text) > 200:
        raise ValueError(f"{what}: found {text[:40]!r}; must be a name of one line")
    return text


def _kernel(value: Any) -> str:
    text = str(value).strip()
    if not text:
        raise ValueError("kernel: empty; name it")
    return _name(text, "kernel")


def _params(value: Any) -> str:
    if not _present(value):
        return "{}"
    try:
        params = json.loads(str(value))
        if isinstance(params, dict):
            return canonical_json(params)
    except (ValueError, RecursionError):
        pass
    return canonical_json({"params": str(value)})


def _volts(
    check: _Check, core_mhz: np.ndarray, mem_mhz: np.ndarray, mapping: TableMap
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The voltages of every row (V, float64, NaN where not known) and where they are from."""
    core_v = check.numbers("core_v", above=True, needed=False)
    mem_v = check.numbers("mem_v", above=True, needed=False)
    own = np.isfinite(core_v)
    origin = np.where(own, "measured", "").astype(object)
    mem_v = np.where(own, mem_v, np.nan)
    if not mapping.voltage.core:
        return core_v, mem_v, origin
    origin[~own] = "table"
    for volts, mhz, pairs, name in (
        (core_v, core_mhz, mapping.voltage.core, "core"),
        (mem_v, mem_mhz, mapping.voltage.mem, "mem"),
    ):
        table = dict(pairs)
        for clock in np.unique(mhz[~own & np.isfinite(mhz)]) if table else ():
            rows = np.flatnonzero(~own & (mhz == clock))
            volts[rows] = table.get(clock, np.nan)
            if clock not in table:
                for i in rows:
                    check.note(
                        int(i), f"{name}_mhz: no voltage for {clock:g} MHz in the map; add [MHz, V]"
                    )
    return core_v, mem_v, origin


def _point_ids(check: _Check, frame: pd.DataFrame) -> list[str]:
    """The id of every row's point; a row that is the same point as one before it is wrong."""
    mhz = {
        name: [None if math.isnan(clock) else clock for clock in frame[name].tolist()]
        for name in ("core_mhz", "mem_mhz")
    }
    content = {name: frame[name].tolist() for name in ("site", "partition", "params", "repeat")}
    content |= mhz | {"label": frame["kernel"].tolist()}
    content |= {"kernel": ["import"] * len(frame), "ranks": [1] * len(frame)}
    ids = point_ids(content)
    first: dict[str, int] = {}
    for i, point_id in enumerate(ids):
        other = i if i in check.wrong else first.setdefault(point_id, i)
        if other != i:
            setting = Setting(mhz["core_mhz"][i], mhz["mem_mhz"][i])
            check.note(
                i,
                f"the same point as line {check.table.lines[other]} ({content['label'][i]} at "
                f"{setting}, repeat {content['repeat'][i]}); number them in a column repeat, or "
                f"rename one",
            )
    return ids


def _provenance(table: RawTable, power_w: np.ndarray) -> list[str]:
    """JSON of each row's line in the file, and of its values that no column holds."""
    # Most rows say no more than this: by json.dumps they would take a second.
    made = [f'{{"imported": true, "line": {line}}}' for line in table.lines]
    known = np.isfinite(power_w)
    for i in np.flatnonzero(known | bool(table.labels)).tolist():
        row: dict[str, Any] = {"imported": True, "line": table.lines[i]}
        if known[i]:
            row["power_w"] = float(power_w[i])
        kept = {k: str(v[i]) for k, v in table.labels.items() if _present(v[i])}
        made[i] = json.dumps(row | {"labels": kept} if kept else row)
    return made
