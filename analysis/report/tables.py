"""Tables for the report, and as CSV and LaTeX files."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from dvfs.setting import Setting

MISSING = "–"
PREFIXES = {-5: "f", -4: "p", -3: "n", -2: "µ", -1: "m", 0: "", 1: "k", 2: "M", 3: "G", 4: "T"}


@dataclass(frozen=True)
class TableColumn:
    """A table's column: its name, its unit, and whether its cells are numbers."""

    name: str
    unit: str = ""
    number: bool = True


TextColumn = partial(TableColumn, number=False)
Cells = Mapping[TableColumn, str]


@dataclass(frozen=True)
class RowGroup:
    """Rows of a table that belong together, under a heading if ``name`` is not empty."""

    name: str
    rows: list[list[str]]


@dataclass(frozen=True)
class Table:
    """A table for the report: every cell is text."""

    caption: str
    columns: list[TableColumn]
    groups: list[RowGroup]
    tall: bool = False
    """Whether a table that is taller than its box scrolls inside it."""

    @classmethod
    def of(cls, caption: str, groups: Mapping[str, Sequence[Cells]], tall: bool = False) -> Table:
        """A table of groups of at least one row; all rows have the same columns, in one order."""
        (first, *_), *_ = groups.values()
        rows = [
            RowGroup(name, [list(row.values()) for row in group]) for name, group in groups.items()
        ]
        return cls(caption, list(first), rows, tall)


def fixed(value: float, digits: int = 4) -> str:
    """A number with ``digits`` significant digits, written out; a dash if it is missing."""
    if not math.isfinite(value):
        return MISSING if math.isnan(value) else ("∞" if value > 0 else "−∞")
    if value == 0.0:
        return "0"
    exponent = math.floor(math.log10(abs(value)))
    if not -5 <= exponent <= 7:
        head, _, power = f"{value:.{digits - 1}e}".partition("e")
        return f"{head}e{int(power)}".replace("-", "−")
    return f"{value:,.{max(digits - 1 - exponent, 0)}f}".replace("-", "−")


def decimals(value: float, places: int = 1) -> str:
    """A number with ``places`` decimals; a dash if it is missing, and never a negative zero."""
    if not math.isfinite(value):
        return fixed(value)
    text = f"{value:,.{places}f}"
    return text.removeprefix("-") if not text.strip("-0.,") else text.replace("-", "−")


def scaled(values: Iterable[float], unit: str) -> tuple[str, list[str]]:
    """A column's numbers under one SI prefix: the prefixed unit, and the texts.

    All have the same decimals if they are within three decades; otherwise each has four significant
    digits.
    """
    numbers = np.array(list(values), float)
    sizes = np.abs(numbers[np.isfinite(numbers) & (numbers != 0)])
    if not len(sizes):
        return unit, [fixed(v) for v in numbers]
    power = int(np.clip(math.floor(math.log10(float(np.median(sizes))) / 3 + 1e-9), -5, 4))
    numbers, sizes = numbers / 1000.0**power, sizes / 1000.0**power
    unit = PREFIXES[power] + unit
    if sizes.max() / sizes.min() > 1e3:
        return unit, [fixed(v) for v in numbers]
    places = max(2 - math.floor(math.log10(float(sizes.min()))), 0)
    return unit, [decimals(v, min(places, 4)) for v in numbers]


def clock(mhz: float | None) -> str:
    """The text of a clock in MHz, or ``as found`` if it cannot be set."""
    return "as found" if mhz is None else f"{mhz:g}"


@dataclass(frozen=True)
class Field:
    """A column of a sheet: its key in CSV, its heading and unit in the report, and its decimals.

    ``places`` None: the column is text; -1: a number to three significant digits.
    """

    key: str
    heading: str
    unit: str = ""
    places: int | None = None


Row = Mapping[Field, str | float]
KERNEL = Field("kernel", "kernel")
CORE_MHZ, MEM_MHZ = Field("core_mhz", "core", "MHz", 0), Field("mem_mhz", "memory", "MHz", 0)

UNCORE_MHZ = Field("uncore_mhz", "uncore", "MHz", 0)
LIMIT_W = Field("power_limit_w", "power limit", "W", -1)
PROFILE = Field("profile", "profile")


def setting_fields(settings: Sequence[Setting]) -> list[dict[Field, str | float]]:
    """The fields of each setting: the core and the memory clock, and those that any setting has;
    NaN or "" for none."""
    further = [
        field
        for field in (UNCORE_MHZ, LIMIT_W, PROFILE)
        if any(getattr(setting, field.key) is not None for setting in settings)
    ]
    missing = {
        field: "" if field is PROFILE else math.nan for field in (CORE_MHZ, MEM_MHZ, *further)
    }
    return [
        {
            field: none if (value := getattr(setting, field.key)) is None else value
            for field, none in missing.items()
        }
        for setting in settings
    ]


MEASURED_J = Field("measured_j", "measured", "J", -1)
PREDICTED_J = Field("predicted_j", "predicted", "J", -1)
ERROR_PCT = Field("error_pct", "error", "%", 2)


@dataclass(frozen=True)
class Sheet:
    """A table of values, for the report and for CSV and LaTeX files.

    ``name``: the stem of its files. Each row has a text or a number for each field; NaN is missing.
    """

    name: str
    caption: str
    simulated: bool
    fields: list[Field]
    rows: list[list[str | float]]

    @classmethod
    def of(cls, name: str, caption: str, simulated: bool, rows: Sequence[Row]) -> Sheet:
        """A sheet of at least one row; all rows have the same fields in the same order."""
        values = [[v if isinstance(v, str) else float(v) for v in row.values()] for row in rows]
        return cls(name, caption, simulated, list(rows[0]), values)


def as_table(sheet: Sheet, tall: bool = False) -> Table:
    """The sheet as a table of the report."""
    columns = [TableColumn(f.heading, f.unit, f.places is not None) for f in sheet.fields]
    rows = [[_shown(v, f) for v, f in zip(r, sheet.fields, strict=True)] for r in sheet.rows]
    return Table(sheet.caption, columns, [RowGroup("", rows)], tall)


def as_records(sheet: Sheet) -> list[dict[str, str | float]]:
    """The sheet's rows by the keys of its fields; NaN is missing."""
    return [dict(zip([f.key for f in sheet.fields], row, strict=True)) for row in sheet.rows]


def as_csv(sheet: Sheet) -> str:
    """The sheet as CSV: keys with units as headings, numbers with ten digits, "" for missing ones.

    A column ``simulated`` is last.
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([*(f.key for f in sheet.fields), "simulated"])
    for row in sheet.rows:
        cells = [v if isinstance(v, str) else "" if math.isnan(v) else f"{v:.10g}" for v in row]
        writer.writerow([*cells, str(sheet.simulated).lower()])
    return buffer.getvalue()


def as_tex(sheet: Sheet) -> str:
    """The sheet as a LaTeX tabular with booktabs' rules, for a table with a caption."""
    columns = "".join("l" if f.places is None else "r" for f in sheet.fields)
    heading = " & ".join(
        (f"{f.heading} ({f.unit})" if f.unit else f.heading).translate(TEX) for f in sheet.fields
    )
    simulated = " (simulated)" if sheet.simulated else ""
    lines = [
        f"% {sheet.caption}{simulated}. Needs the package booktabs.",
        f"\\begin{{tabular}}{{{columns}}}",
        "\\toprule",
        f"{heading} \\\\",
        "\\midrule",
        *(
            " & ".join(_shown(v, f).translate(TEX) for v, f in zip(row, sheet.fields, strict=True))
            + " \\\\"
            for row in sheet.rows
        ),
        "\\bottomrule",
    ]
    if sheet.simulated:
        lines.append(
            f"\\multicolumn{{{len(sheet.fields)}}}{{l}}{{\\footnotesize Simulated data.}} \\\\"
        )
    return "\n".join([*lines, "\\end{tabular}", ""])


TEX = str.maketrans(
    {
        "\\": "\\textbackslash{}",
        "&": "\\&",
        "%": "\\%",
        "$": "\\$",
        "#": "\\#",
        "_": "\\_",
        "{": "\\{",
        "}": "\\}",
        "~": "\\textasciitilde{}",
        "^": "\\textasciicircum{}",
        "−": "$-$",
        MISSING: "--",
        "²": "$^2$",
        "µ": "\\textmu{}",
        "<": "$<$",
        ">": "$>$",
    }
)


def _shown(value: str | float, field: Field) -> str:
    if isinstance(value, str):
        return value
    if field.places is None or field.places < 0:
        return fixed(value, 3)
    return decimals(value, field.places)
