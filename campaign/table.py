"""The measurements table: reading other people's, through a map file, and writing our own."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from pydantic import Field, field_validator

from campaign.measurement import OK, Measurement
from campaign.point import Point, canonical_json, make_point
from campaign.store.compaction import compact
from campaign.store.dataset import COUNT, current_tables
from campaign.store.journal import JournalWriter, encode
from campaign.store.layout import Store, driver_lock
from sites.located_toml import BadFile, FileModel, parse, read_text
from sites.setting import Setting
from sites.site_file import Name, Positive

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
REQUIRED = ("site", "kernel", "core_mhz", "time_s")
MAX_ROWS_NAMED = 10


class Column(FileModel):
    """Another's column, and the factor that brings it to our unit."""

    column: str
    factor: Positive = 1.0


class VoltageTables(FileModel):
    """Voltage by clock where the table carries none: (MHz, V) pairs."""

    core: list[tuple[Positive, Positive]] = Field(default_factory=list)
    mem: list[tuple[Positive, Positive]] = Field(default_factory=list)

    @field_validator("core", "mem", mode="before")
    @classmethod
    def _pairs(cls, value: Any) -> Any:
        if isinstance(value, list):
            for pair in value:
                if not isinstance(pair, list) or len(pair) != 2:
                    raise ValueError(f"found {pair!r}; each entry must be [MHz, V]")
            return [tuple(pair) for pair in value]
        return value


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


@dataclass(frozen=True)
class RawRow:
    """A row as it was read: its line in the file, and its fields as text or numbers."""

    line: int
    fields: dict[str, Any]


def read_map(path: Path | None) -> TableMap:
    """Read and check a map file; the default map without one."""
    return TableMap() if path is None else parse(path, read_text(path), TableMap)[0]


def read_rows(path: Path, mapping: TableMap) -> list[RawRow]:
    """The rows of a table under our column names and units, numbers still unchecked.

    Raises:
        BadFile: it can't be read, lacks a column, or has one that nobody knows.
    """
    if path.suffix == ".parquet":
        header, lines = _parquet(path)
    elif mapping.layout == "blocks":
        header, lines = _blocks(path, mapping)
    else:
        header, lines = _csv(path, mapping)
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
    rows = []
    for line, values in lines:
        fields: dict[str, Any] = dict(mapping.constants)
        fields |= {name: values[name] for name in own}
        for ours, source in theirs.items():
            fields[ours] = _scaled(values[source.column], source.factor)
        fields["labels"] = {name: values[name] for name in labels}
        rows.append(RawRow(line, fields))
    return rows


def _is_ours(name: str) -> bool:
    return name in TEXT_COLUMNS or name in NUMBER_COLUMNS or name.startswith(COUNT)


def _scaled(value: Any, factor: float) -> Any:
    if factor == 1.0:
        return value
    try:
        return float(value) * factor
    except (TypeError, ValueError):
        return value


Lines = Iterator[tuple[int, dict[str, Any]]]


def _parquet(path: Path) -> tuple[list[str], Lines]:
    try:
        frame = pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise BadFile(f"{path}: can't be read as Parquet ({error}); check the file") from None
    names = [str(name) for name in frame.columns]
    records = (dict(zip(names, row, strict=True)) for row in frame.itertuples(index=False))
    return names, ((i + 1, record) for i, record in enumerate(records))


def _csv_lines(path: Path) -> list[tuple[int, list[str]]]:
    reader = csv.reader(read_text(path).splitlines())
    try:
        return [
            (reader.line_num, [field.strip() for field in row])
            for row in reader
            if row and not row[0].lstrip().startswith("#")
        ]
    except csv.Error as error:
        raise BadFile(f"{path}:{reader.line_num}: is not CSV ({error}); mend that line") from None


def _csv(path: Path, mapping: TableMap) -> tuple[list[str], Lines]:
    lines = _csv_lines(path)
    if not lines:
        raise BadFile(f"{path}: is empty; a table has a header line and a row a measurement")
    header = mapping.fields or lines.pop(0)[1]
    return header, (_fields(path, line, header, row) for line, row in lines)


def _blocks(path: Path, mapping: TableMap) -> tuple[list[str], Lines]:
    if not mapping.fields:
        raise BadFile(f'{path}: layout = "blocks" needs fields in the map; list them in order')
    fields = mapping.fields

    def rows() -> Lines:
        kernel = None
        for line, row in _csv_lines(path):
            if len(row) == 1:
                kernel = row[0]
            elif kernel is None:
                raise BadFile(f"{path}:{line}: a row before any kernel's name; mend the file")
            else:
                at, values = _fields(path, line, fields, row)
                yield at, values | {"kernel": kernel}

    return ["kernel", *fields], rows()


def _fields(path: Path, line: int, header: list[str], row: list[str]) -> tuple[int, dict[str, Any]]:
    if len(row) != len(header):
        raise BadFile(
            f"{path}:{line}: {len(row)} fields where the header has {len(header)}; mend that line"
        )
    return line, dict(zip(header, row, strict=True))


def measurements_of(path: Path, rows: list[RawRow], mapping: TableMap) -> list[Measurement]:
    """Check every row and make it a measurement.

    Raises:
        BadFile: rows with a value that is missing, no number, not finite or out of range, or
            rows that are the same point: all of them named, up to ten.
    """
    wrong: list[str] = []
    found: dict[str, tuple[int, Measurement]] = {}
    for row in rows:
        try:
            measurement = _measurement(row, mapping)
        except ValueError as error:
            wrong.append(f"{path}:{row.line}: {error}")
            continue
        other = found.setdefault(measurement.point.id, (row.line, measurement))
        if other[0] != row.line:
            wrong.append(
                f"{path}:{row.line}: the same point as line {other[0]} ({measurement.point.label} "
                f"at {measurement.point.setting}, repeat {measurement.point.repeat}); number "
                f"them in a column repeat, or rename one"
            )
    if wrong:
        more = len(wrong) - MAX_ROWS_NAMED
        shown = wrong[:MAX_ROWS_NAMED] + ([f"and {more} further rows"] if more > 0 else [])
        raise BadFile("\n".join(shown))
    return [measurement for _, measurement in found.values()]


def _measurement(row: RawRow, mapping: TableMap) -> Measurement:
    fields = row.fields
    site = _name(fields["site"], "site")
    kernel = str(fields["kernel"]).strip()
    if not kernel:
        raise ValueError("kernel: empty; name it")
    params = _params(fields.get("params"))
    setting = Setting(
        _number(fields, "core_mhz", least=0.0, above=True),
        _number(fields, "mem_mhz", least=0.0, above=True, optional=True),
    )
    time_s = _number(fields, "time_s", least=0.0, above=True)
    assert time_s is not None  # noqa: S101
    if _present(fields.get("energy_j")):
        energy_j = _number(fields, "energy_j", least=0.0, above=True)
    else:
        power_w = _number(fields, "power_w", least=0.0, above=True)
        assert power_w is not None  # noqa: S101
        energy_j = power_w * time_s
    repeat = _number(fields, "repeat", least=0.0, optional=True) or 0.0
    if repeat != int(repeat):
        raise ValueError(f"repeat: found {repeat:g}; must be a whole number")
    node = str(fields.get("node") or "")
    counts = {
        name.removeprefix(COUNT): _number(fields, name, least=0.0)
        for name in fields
        if name.startswith(COUNT) and _present(fields[name])
    }
    core_v, mem_v, origin = _volts(fields, setting, mapping)
    point = make_point(site, node or "imported", "import", kernel, params, 1, setting, int(repeat))
    provenance: dict[str, Any] = {"imported": True, "line": row.line}
    labels = {k: str(v) for k, v in fields["labels"].items() if _present(v)}
    return Measurement(
        point,
        OK,
        node=node,
        start_unix_s=0.0,
        time_s=time_s,
        iterations=1,
        energy_j=math.nan if energy_j is None else energy_j,
        core_v=core_v,
        mem_v=mem_v,
        voltage_origin=origin,
        counts={k: v for k, v in counts.items() if v is not None} or None,
        provenance=provenance | ({"labels": labels} if labels else {}),
    )


def _present(value: Any) -> bool:
    return value not in (None, "") and not (isinstance(value, float) and math.isnan(value))


def _name(value: Any, what: str) -> str:
    text = str(value).strip()
    if not text or any(ord(c) < 32 for c in text) or len(text) > 200:
        raise ValueError(f"{what}: found {text[:40]!r}; must be a name of one line")
    return text


def _params(value: Any) -> str:
    if not _present(value):
        return "{}"
    try:
        params = json.loads(str(value))
        if isinstance(params, dict):
            return canonical_json(params)
    except ValueError:
        pass
    return canonical_json({"params": str(value)})


def _number(
    fields: Mapping[str, Any], name: str, least: float, above: bool = False, optional: bool = False
) -> float | None:
    value = fields.get(name)
    if not _present(value):
        if optional:
            return None
        raise ValueError(f"{name}: missing; every row needs it")
    try:
        number = float(str(value))
    except ValueError:
        raise ValueError(f"{name}: found {str(value)[:40]!r}; must be a number") from None
    if not math.isfinite(number) or number < least or (above and number == least):
        bound = f"above {least:g}" if above else f"{least:g} or more"
        raise ValueError(f"{name}: found {number:g}; must be {bound}")
    return number


def _volts(
    fields: Mapping[str, Any], setting: Setting, mapping: TableMap
) -> tuple[float, float, str]:
    own = [_number(fields, n, 0.0, above=True, optional=True) for n in ("core_v", "mem_v")]
    if own[0] is not None:
        return own[0], math.nan if own[1] is None else own[1], "measured"
    core, mem = dict(mapping.voltage.core), dict(mapping.voltage.mem)
    if not core:
        return math.nan, math.nan, ""
    found = []
    for table, mhz, name in ((core, setting.core_mhz, "core"), (mem, setting.mem_mhz, "mem")):
        if mhz is None or not table:
            found.append(math.nan)
        elif mhz in table:
            found.append(table[mhz])
        else:
            raise ValueError(f"{name}_mhz: no voltage for {mhz:g} MHz in the map; add [MHz, V]")
    return found[0], found[1], "table"


def site_facts(measurements: list[Measurement], mapping: TableMap) -> dict[str, dict[str, Any]]:
    """What the store should know of each imported site: its classes' domains and its device."""
    facts: dict[str, dict[str, Any]] = {}
    for measurement in measurements:
        point = measurement.point
        both = point.setting.mem_mhz is not None
        facts.setdefault(
            point.site,
            {
                "classes": dict(mapping.classes),
                "device": mapping.device or ("gpu" if both else "cpu"),
                "legal": [],
            },
        )
    return facts


def import_table(path: Path, store: Store, mapping: TableMap) -> tuple[int, int]:
    """Read a table into a store: (rows new, rows that were there already).

    All of it or nothing: a row that is wrong refuses the table.

    Raises:
        BadFile: see :func:`read_rows` and :func:`measurements_of`; or a point that the store
            holds with another energy or time.
        StoreBusy: a driver runs on the store.
    """
    measurements = measurements_of(path, read_rows(path, mapping), mapping)
    if not measurements:
        raise BadFile(f"{path}: has no rows; nothing to import")
    with driver_lock(store):
        held = current_tables(store)[0].measurements.set_index("point_id")
        fresh = []
        for measurement in measurements:
            point: Point = measurement.point
            if point.id not in held.index:
                fresh.append(measurement)
                continue
            row = held.loc[point.id]
            if row["energy_j"] != measurement.energy_j or row["time_s"] != measurement.time_s:
                raise BadFile(
                    f"{path}:{measurement.provenance['line']}: the store holds this point with "
                    f"{row['energy_j']:g} J and {row['time_s']:g} s; give the new one another "
                    f"repeat, or import into another store"
                )
        for site, facts in site_facts(measurements, mapping).items():
            if store.read_json(f"sites/{site_file_name(site)}") is None:
                store.write_json(f"sites/{site_file_name(site)}", facts)
        if fresh:
            with JournalWriter(store.journals) as journal:
                journal.append(b"".join(encode(m) for m in fresh))
            compact(store)
    return len(fresh), len(measurements) - len(fresh)


def site_file_name(site: str) -> str:
    """A file name for a site of any name."""
    from urllib.parse import quote  # noqa: PLC0415

    return quote(site, safe="") + ".json"


def export_table(store: Store) -> pd.DataFrame:
    """Every measurement that is ok, a row each, in the columns that import reads."""
    frame = current_tables(store)[0].measurements
    frame = frame[frame["status"] == OK] if len(frame) else frame
    counts = sorted(name for name in frame.columns if name.startswith(COUNT))
    columns = [
        "site",
        "kernel",
        "params",
        "node",
        "repeat",
        "core_mhz",
        "mem_mhz",
        "core_v",
        "mem_v",
        "time_s",
        "energy_j",
        *counts,
    ]
    table = frame[columns].reset_index(drop=True)
    for i, text in enumerate(frame["provenance"]):
        for name, value in json.loads(text).get("labels", {}).items():
            table.loc[i, name] = value
    return table
