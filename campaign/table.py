"""The measurements table: reading other people's, through a map file, and writing our own."""

from __future__ import annotations

import csv
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from pydantic import Field, field_validator

from analysis.dataset import COUNT_PREFIX, OK
from campaign.plan.point import canonical_json, point_ids
from campaign.store.columns import column
from campaign.store.compaction import News, advance, compact, settle
from campaign.store.dataset import current_tables
from campaign.store.generation import Generation, newest
from campaign.store.layout import Store, driver_lock, writing
from campaign.store.summary import with_sites
from sites.located_toml import BadFile, FileModel, parse, read_text
from sites.setting import Setting
from sites.site_file import NAME, Name, Positive, voltage_pairs

TEXT_COLUMNS = ("site", "kernel", "params", "node")
NUMBER_COLUMNS = (
    "repeat",
    "core_mhz",
    "mem_mhz",
    "core_v",
    "mem_v",
    "time_s",
    "energy_j",
    "power_w",
)
OURS = (*TEXT_COLUMNS, *NUMBER_COLUMNS)
REQUIRED = ("site", "kernel", "core_mhz", "time_s")
MAX_ROWS_NAMED = 10
MAX_PARQUET_VALUES = 50_000_000
"""Rows times columns: a small file of Parquet can hold more than any memory."""
MAX_REPEAT = 2**53
"""Up to here every whole number is a float64."""
DISAGREE = 1.01
"""Energy and power times time that differ by more than this factor are not the same."""


class Column(FileModel):
    """Another's column, and the factor that brings it to our unit."""

    column: str
    factor: Positive = 1.0


class VoltageTables(FileModel):
    """Voltage by clock where the table carries none: (MHz, V) pairs."""

    core: list[tuple[Positive, Positive]] = Field(default_factory=list)
    mem: list[tuple[Positive, Positive]] = Field(default_factory=list)

    _pairs = field_validator("core", "mem", mode="before")(voltage_pairs)


class TableMap(FileModel):
    """A map file: how another's table is read."""

    layout: Literal["table", "blocks"] = "table"
    """``blocks``: a line of one field names the kernel of the lines that follow it."""
    fields: list[str] | None = None
    """The columns' names in order, where the file has no header line."""
    columns: dict[str, str | Column] = Field(default_factory=dict)
    """Our column -> theirs, or ``{column, factor}``."""
    constants: dict[str, str | float | int] = Field(default_factory=dict)
    """Our column -> one value for every row."""
    unknown: Literal["refuse", "label"] = "refuse"
    """What becomes of a column that neither we nor the map know."""
    classes: dict[Name, Literal["core", "mem"]] = Field(default_factory=dict)
    """Class -> domain, where it is not core (or mem for dram and mem)."""
    voltage: VoltageTables = VoltageTables()
    device: Literal["cpu", "gpu"] | None = None
    """Whose clocks these are, for the Slurm flags of the picks."""

    @field_validator("columns", "constants")
    @classmethod
    def _ours(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name in value:
            if not _is_ours(name):
                raise ValueError(
                    f"found the column {name!r}; ours are {', '.join(OURS)} and n_CLASS"
                )
        return value


@dataclass(frozen=True)
class RawTable:
    """A table under our column names and units, its values still as they were read: text,
    numbers, or None. Every list has one entry a row; ``lines`` are those of the file."""

    path: Path
    lines: list[int]
    columns: dict[str, list[Any]]
    labels: dict[str, list[Any]]


def read_map(path: Path | None) -> TableMap:
    """Read and check a map file; the default map without one."""
    return TableMap() if path is None else parse(path, read_text(path), TableMap)[0]


def read_table(path: Path, mapping: TableMap) -> RawTable:
    """Read a table; its values are still unchecked.

    Raises:
        BadFile: it can't be read, lacks a column, or has one that nobody knows.
    """
    if path.suffix == ".parquet":
        header, lines, rows = _parquet(path)
    elif mapping.layout == "blocks":
        header, lines, rows = _blocks(path, mapping)
    else:
        header, lines, rows = _csv(path, mapping)
    twice = [name for name, n in Counter(header).items() if n > 1]
    if twice:
        raise BadFile(f"{path}: several columns {twice[0]!r}; rename or remove all but one")
    theirs = {
        ours: (each if isinstance(each, Column) else Column(column=each))
        for ours, each in mapping.columns.items()
    }
    for ours, source in theirs.items():
        if source.column not in header:
            raise BadFile(
                f"{path}: no column {source.column!r}, which the map names for {ours}; "
                f"it has {', '.join(header)}"
            )
    taken = {source.column for source in theirs.values()}
    own = [name for name in header if name not in taken and _is_ours(name)]
    labels = [name for name in header if name not in taken and not _is_ours(name)]
    if labels and mapping.unknown == "refuse":
        raise BadFile(
            f"{path}: unknown column {labels[0]!r}; name it under [columns] in a map file, or set "
            f'unknown = "label" there to keep it as a label'
        )
    have = {*theirs, *own, *mapping.constants}
    missing = [name for name in REQUIRED if name not in have]
    if not {"energy_j", "power_w"} & have:
        missing.append("energy_j or power_w")
    if missing:
        raise BadFile(
            f"{path}: no column {missing[0]}; it has {', '.join(header)}: name theirs under "
            f"[columns] in a map file, or give one value under [constants]"
        )
    for line, row in zip(lines, rows, strict=True):
        if len(row) != len(header):
            raise BadFile(
                f"{path}:{line}: {len(row)} fields where the header has {len(header)}; mend that "
                f"line"
            )
    transposed = zip(*rows, strict=True) if rows else ([] for _ in header)
    values = {name: list(column) for name, column in zip(header, transposed, strict=True)}
    columns: dict[str, list[Any]] = {
        name: [value] * len(lines) for name, value in mapping.constants.items()
    }
    columns |= {name: values[name] for name in own}
    for ours, source in theirs.items():
        columns[ours] = _scaled(values[source.column], source.factor)
    return RawTable(path, lines, columns, {name: values[name] for name in labels})


def _is_ours(name: str) -> bool:
    # A class's name becomes that of a file in the store.
    of = name.removeprefix(COUNT_PREFIX)
    return name in OURS or (of != name and re.fullmatch(NAME, of) is not None)


def _scaled(values: list[Any], factor: float) -> list[Any]:
    """Values in our unit; what is no number stays, to be named later."""
    if factor == 1.0:
        return values
    scaled: list[Any] = []
    for value in values:
        try:
            scaled.append(float(value) * factor)
        except (TypeError, ValueError, OverflowError):
            scaled.append(value)
    return scaled


Read = tuple[list[str], list[int], Sequence[Sequence[Any]]]
"""The header, each row's line in the file, and the rows."""


def _parquet(path: Path) -> Read:
    from pyarrow.parquet import read_metadata  # noqa: PLC0415

    try:
        held = read_metadata(path) if path.is_file() else None
        n_values = held.num_rows * held.num_columns if held else 0
        frame = pd.read_parquet(path) if n_values <= MAX_PARQUET_VALUES else None
        # A text that is no text is found out only here.
        plain = None if frame is None else frame.astype(object).where(frame.notna(), None)
    except Exception as error:  # what a damaged file raises is of many kinds
        raise BadFile(f"{path}: can't be read as Parquet ({error}); check the file") from None
    if plain is None:
        raise BadFile(
            f"{path}: holds {n_values} values, and at most {MAX_PARQUET_VALUES} are read at once; "
            f"divide it"
        )
    names = [str(name) for name in plain.columns]
    rows = list(plain.map(_plain).itertuples(index=False, name=None))
    return names, list(range(1, len(rows) + 1)), rows


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | None) else str(value)


def _csv_lines(path: Path) -> tuple[list[int], list[tuple[str, ...]]]:
    reader = csv.reader(read_text(path).splitlines())
    lines, rows = [], []
    try:
        for row in reader:
            if row and not row[0].lstrip().startswith("#"):
                lines.append(reader.line_num)
                # A tuple of texts is nothing for the garbage collector, a list is.
                rows.append(tuple(map(str.strip, row)))
    except csv.Error as error:
        raise BadFile(f"{path}:{reader.line_num}: is not CSV ({error}); mend that line") from None
    return lines, rows


def _csv(path: Path, mapping: TableMap) -> Read:
    lines, rows = _csv_lines(path)
    if not lines:
        raise BadFile(f"{path}: is empty; a table has a header line and a row a measurement")
    if mapping.fields:
        return mapping.fields, lines, rows
    return list(rows[0]), lines[1:], rows[1:]


def _blocks(path: Path, mapping: TableMap) -> Read:
    if not mapping.fields:
        raise BadFile(f'{path}: layout = "blocks" needs fields in the map; list them in order')
    kernel = None
    lines, rows = [], []
    for line, row in zip(*_csv_lines(path), strict=True):
        if len(row) == 1:
            kernel = row[0]
        elif kernel is None:
            raise BadFile(f"{path}:{line}: a row before any kernel's name; mend the file")
        else:
            lines.append(line)
            rows.append((kernel, *row))
    return ["kernel", *mapping.fields], lines, rows


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
            self.note(i, f"{name}: missing; every row needs it")
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
            "partition": [each or "imported" for each in node],
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
        f"{power_w[i] * time_s[i]:.6g} J; the energy stands, the power is kept beside it"
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
        name: [None if math.isnan(each) else each for each in frame[name].tolist()]
        for name in ("core_mhz", "mem_mhz")
    }
    content = {name: frame[name].tolist() for name in ("site", "partition", "params", "repeat")}
    content |= mhz | {"label": frame["kernel"].tolist()}
    content |= {"kernel": ["import"] * len(frame), "ranks": [1] * len(frame)}
    ids = point_ids(content)
    first: dict[str, int] = {}
    for i, each in enumerate(ids):
        other = i if i in check.wrong else first.setdefault(each, i)
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
    """JSON of where each row is from, and of what its columns have no place for."""
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


def site_facts(rows: pd.DataFrame, mapping: TableMap) -> dict[str, dict[str, Any]]:
    """What the store should know of each imported site: its classes' domains and its device."""
    first = rows.drop_duplicates("site")
    return {
        site: {
            "classes": dict(mapping.classes),
            "device": mapping.device or ("gpu" if both else "cpu"),
            "legal": [],
        }
        for site, both in zip(first["site"], first["mem_mhz"].notna(), strict=True)
    }


@dataclass(frozen=True)
class Imported:
    """What an import did: the rows that were new, those that were there already, the sites of
    the table, all measurements that the store holds now, and what was damaged in it."""

    new: int
    held: int
    sites: list[str]
    measurements: pd.DataFrame
    damage: list[str]


def import_rows(checked: Checked, store: Store, mapping: TableMap) -> Imported:
    """Put a table's rows into a store: all of them or none.

    They become a new generation of the index, which one rename commits: killed at any moment,
    the store holds the table whole or not at all, and importing again completes it.

    Raises:
        BadFile: the table has no rows, or the store holds a point of it with another energy
            or time.
        StoreBusy: a driver runs on the store.
    """
    rows = checked.rows
    if not len(rows):
        raise BadFile(f"{checked.path}: has no rows; nothing to import")
    with driver_lock(store):
        with writing(store):
            damage = compact(store).told(writers_gone=True)  # what is in journals goes first
        tables, _ = current_tables(store)
        held = tables.measurements.set_index("point_id")[["energy_j", "time_s"]]
        there = rows["point_id"].isin(held.index).to_numpy()
        mine = rows.loc[there, ["energy_j", "time_s"]].to_numpy()
        theirs = held.loc[rows["point_id"][there]].to_numpy(dtype=float)
        for i in np.flatnonzero((mine != theirs).any(axis=1))[:1]:
            raise BadFile(
                f"{checked.path}:{checked.lines[there][i]}: the store holds this point with "
                f"{theirs[i, 0]:g} J and {theirs[i, 1]:g} s; give the new one another "
                f"repeat, or import into another store"
            )
        with writing(store):
            for site, facts in site_facts(rows, mapping).items():
                if store.read_json(f"sites/{site_file_name(site)}") is None:
                    store.write_json(f"sites/{site_file_name(site)}", facts)
            if not there.all():
                _add(store, rows[~there])
            settle(store)
        tables, _ = current_tables(store)
    sites = sorted(set(rows["site"]))
    return Imported(int((~there).sum()), int(there.sum()), sites, tables.measurements, damage)


def _add(store: Store, rows: pd.DataFrame) -> None:
    """Commit rows of points that the store does not hold."""
    base, _ = newest(store)
    own = {str(name): column(str(name), rows[name].to_numpy()) for name in rows.columns}
    told = base or Generation(store.index)
    told = replace(told, summary=with_sites(told.summary, Counter(rows["site"])))
    advance(store, base, News(own, {}, {}), told)


def site_file_name(site: str) -> str:
    """A file name for a site of any name, in the folder that it is put in."""
    from urllib.parse import quote  # noqa: PLC0415

    quoted = quote(site, safe="")
    return (f"%2E{quoted[1:]}" if quoted.startswith(".") else quoted) + ".json"


def export_table(store: Store) -> pd.DataFrame:
    """Every measurement that is ok, a row each, in the columns that import reads."""
    frame = current_tables(store)[0].measurements
    frame = frame[frame["status"] == OK] if len(frame) else frame
    counts = sorted(name for name in frame.columns if name.startswith(COUNT_PREFIX))
    own = [name for name in (*TEXT_COLUMNS, *NUMBER_COLUMNS) if name != "power_w"]
    table = frame[[*own, *counts]].reset_index(drop=True)
    kept: dict[str, list[Any]] = {}
    for i, text in enumerate(frame["provenance"]):
        if '"labels"' in text or '"power_w"' in text:
            provenance = json.loads(text)
            power = {name: provenance[name] for name in ("power_w",) if name in provenance}
            for name, value in (power | provenance.get("labels", {})).items():
                kept.setdefault(name, [None] * len(table))[i] = value
    return table.assign(**kept)
