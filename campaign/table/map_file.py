"""The map file, and the columns of a measurements table."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator

from campaign.table.formats import FORMATS
from campaign.table.number_text import OTHER, NumberStyle
from campaign.table.units import UNITS, quantity_of, unit_in_name
from dvfs.dataset import COUNT_PREFIX, ESTIMATED, MEASUREMENT_COLUMNS, POSSIBLE
from dvfs.errors import ArgumentError, known_names, unknown_name
from dvfs.input_files import BadValueError, FileModel, read_file
from dvfs.setting import NUMBERS
from sites.site_file import NAME, Name, Positive, voltage_pairs

TEXT_COLUMNS = ("site", "kernel", "params", "node", "profile", "clock_proof", ESTIMATED)
NUMBER_COLUMNS = (
    "repeat",
    *NUMBERS,
    "core_v",
    "mem_v",
    "time_s",
    "energy_j",
    "power_w",
    "energy_std_j",
    "core_mhz_achieved",
    "mem_mhz_achieved",
    "core_mhz_timed",
    "start_unix_s",
)
COLUMNS = (*TEXT_COLUMNS, *NUMBER_COLUMNS, "simulated")
"""The standard columns of a table of measurements, in addition to ``n_<class>``."""
MAPPED_COLUMNS = (*COLUMNS, "partition", "ranks")
"""The columns that a map may name. The last two are part of a row's point, and other tables use
these names for other things."""
POINT_ID = "point_id"
"""The first column of what export writes. A table with it may have every column of the store."""
OF_STORE = {*COLUMNS, *MEASUREMENT_COLUMNS}
"""The columns of a table with ``point_id``, which export wrote, in addition to ``n_<class>``."""
REQUIRED = ("site", "kernel", "core_mhz", "time_s")


def is_number_column(name: str) -> bool:
    """Whether a standard column holds numbers."""
    return name in NUMBER_COLUMNS or name.startswith(COUNT_PREFIX)


def check_possible(name: str, value: float) -> None:
    """Check that a device can have a value; see :data:`dvfs.dataset.POSSIBLE`.

    Raises:
        BadValueError: the value is out of bounds.
    """
    low, high, unit = POSSIBLE[name]
    if not low <= value <= high:
        raise BadValueError(f"found {value:g}", f"must be from {low:g} to {high:g} {unit}")


class ColumnSource(FileModel):
    """Where a standard column is from: one column of the table, or several; and its conversion."""

    column: str | None = None
    """The column in the table. One of column, sum, join."""
    sum: list[str] = Field(default_factory=list)
    """Columns that are added; a row that lacks one has no value."""
    join: list[str] = Field(default_factory=list)
    """Columns of text that are joined; empty ones are left out."""
    separator: str = " "
    """What join puts between two columns."""
    reciprocal: bool = False
    """Take 1 / value first, as for iterations per second."""
    unit: str | None = None
    """The unit of the column, or how it writes numbers, as Import and export lists."""
    factor: Annotated[Positive, Field(ge=1e-30, le=1e30)] = 1.0
    """In place of unit: 1e-3 for time_s in ms."""
    offset: Annotated[float, Field(allow_inf_nan=False)] = 0.0
    """What is added after the factor, in the standard unit."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if sum((self.column is not None, bool(self.sum), bool(self.join))) != 1:
            raise BadValueError("not one source", "give column, sum or join")
        if self.join and (self.unit or self.reciprocal or self.factor != 1.0 or self.offset):
            raise BadValueError(
                "join with a conversion of numbers", "leave out unit, reciprocal, factor and offset"
            )
        if self.unit and (self.reciprocal or self.factor != 1.0):
            raise BadValueError("unit beside factor or reciprocal", "leave out unit, or the others")
        return self

    @field_validator("unit")
    @classmethod
    def _known_unit(cls, value: str | None) -> str | None:
        if value is not None and value not in UNITS:
            raise BadValueError(f"found {value!r}", known_names(value, UNITS, "name one of"))
        return value

    @property
    def is_text(self) -> bool:
        """Whether the column's values are texts that only its unit reads."""
        return self.unit is not None and UNITS[self.unit].read is not None

    def scale(self, ours: str) -> float:
        """The factor from the values to the unit of the standard column ``ours``."""
        return UNITS[self.unit].factors[quantity_of(ours)] if self.unit else self.factor

    @property
    def names(self) -> list[str]:
        """The columns of the table that it takes."""
        return self.sum or self.join or [str(self.column)]


class Keep(FileModel):
    """Rows are kept where a column has one of some values, or matches a regular expression."""

    column: str
    """The column in the table."""
    values: list[str | float | int | bool] = Field(default_factory=list)
    """Keep rows with one of these values."""
    matches: str | None = None
    """Keep rows where this regular expression matches some part of the text."""

    @model_validator(mode="after")
    def _one_rule(self) -> Self:
        if bool(self.values) == (self.matches is not None):
            raise BadValueError("not one rule", "give values or matches")
        return self

    @field_validator("matches")
    @classmethod
    def _expression(cls, value: str | None) -> str | None:
        try:
            re.compile(value or "")
        except (re.error, RecursionError, OverflowError) as error:
            raise BadValueError(f"found {value!r} ({error})", "give a regular expression") from None
        return value


class VoltageTables(FileModel):
    """Voltage by clock where the table carries none: (MHz, V) pairs."""

    core: list[tuple[Positive, Positive]] = Field(default_factory=list)
    """The core voltage at each core clock, as [MHz, V]."""
    mem: list[tuple[Positive, Positive]] = Field(default_factory=list)
    """The memory voltage at each memory clock, as [MHz, V]."""

    _pairs = field_validator("core", "mem", mode="before")(voltage_pairs)

    @field_validator("core", "mem")
    @classmethod
    def _volts(cls, value: list[tuple[float, float]], info: ValidationInfo) -> Any:
        for mhz, volts in value:
            check_possible(f"{info.field_name}_mhz", mhz)
            check_possible(f"{info.field_name}_v", volts)
        return value


LAYOUTS = ("table", "blocks")


class TableMap(FileModel):
    """A map file: how a table with other column names or units is read."""

    layout: str = "table"
    """table: every line is a row. blocks: a line of one field names the kernel of those below. Or
    another tool's."""
    fields: list[str] | None = None
    """The columns in order, where the file has no header line."""
    delimiter: Literal[",", ";", "\t", "|", " "] | None = None
    """What separates the columns (default: recognised, but for spaces)."""
    decimal: Literal[".", ","] | None = None
    """The decimal mark (default: recognised)."""
    thousands: Literal[".", ",", " ", "'"] | None = None
    """The mark between groups of three digits (default: recognised)."""
    missing: list[str] = Field(default_factory=list)
    """Words that stand for a missing number, such as "NA"."""
    columns: dict[str, ColumnSource] = Field(default_factory=dict)
    """Standard column -> the column in the table, or its source and conversion."""
    constants: dict[str, str | float | int | bool] = Field(default_factory=dict)
    """Standard column -> one value for every row."""
    params: list[str] = Field(default_factory=list)
    """Columns that are parameters of the kernel."""
    keep: list[Keep] = Field(default_factory=list)
    """Rules that the rows to keep fulfil."""
    number_repeats: bool = False
    """Number the rows of the same point as repeats."""
    clocks: Literal["grouped", "exact"] = "grouped"
    """Whether clocks with jitter are taken for the settings that they mean."""
    unknown: Literal["refuse", "label"] = "refuse"
    """What to do with columns that are neither standard nor named here."""
    classes: dict[Name, Literal["core", "mem"]] = Field(default_factory=dict)
    """Class -> its clock domain, if not the default."""
    voltage: VoltageTables = Field(default_factory=VoltageTables)
    """The voltage of each clock, for a table without it."""
    legal: list[list[Positive]] = Field(default_factory=list)
    """The legal settings, as [core MHz, memory MHz] or [core MHz]."""
    device: Literal["cpu", "gpu"] | None = None
    """Whose clocks they are (default: gpu where the table has memory clocks)."""

    @field_validator("columns", mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        for name, source in value.items():
            if not isinstance(source, str | dict):
                raise BadValueError(
                    f"found {source!r}",
                    "give the name of a column, or a table of its keys",
                    (name,),
                )
        return {
            name: {"column": source} if isinstance(source, str) else source
            for name, source in value.items()
        }

    @field_validator("legal")
    @classmethod
    def _settings(cls, value: list[list[float]]) -> list[list[float]]:
        for setting in value:
            if not 1 <= len(setting) <= 2:
                raise BadValueError(
                    f"found {setting}", "give [core MHz, memory MHz], or [core MHz] alone"
                )
            for mhz, name in zip(setting, NUMBERS, strict=False):
                check_possible(name, mhz)
        return value

    @field_validator("columns", "constants")
    @classmethod
    def _ours(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name in value:
            if not is_table_column(name, MAPPED_COLUMNS):
                raise BadValueError(
                    f"unknown column {name!r}",
                    f"standard columns are {', '.join(MAPPED_COLUMNS)} and n_CLASS",
                    (name,),
                )
        return value

    @field_validator("constants")
    @classmethod
    def _of_right_type(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name, constant in value.items():
            is_number = isinstance(constant, int | float) and not isinstance(constant, bool)
            numeric = is_number_column(name) or name == "ranks"
            if numeric and not is_number:
                raise BadValueError(
                    f"found {constant!r}", "must be a number, without quotes", (name,)
                )
        return value

    @field_validator("columns")
    @classmethod
    def _of_right_unit(cls, value: dict[str, ColumnSource]) -> dict[str, ColumnSource]:
        for name, source in value.items():
            if source.unit and quantity_of(name) not in UNITS[source.unit].factors:
                fit = [unit for unit, entry in UNITS.items() if quantity_of(name) in entry.factors]
                remedy = f"its units are {', '.join(fit)}" if fit else "leave unit out"
                raise BadValueError(f"{name} in the unit {source.unit!r}", remedy, (name, "unit"))
            if name in TEXT_COLUMNS and (
                source.reciprocal or source.factor != 1.0 or source.offset
            ):
                remedy = "it is a text: leave out reciprocal, factor and offset"
                raise BadValueError(f"{name} as a number", remedy, (name,))
        return value

    @field_validator("columns")
    @classmethod
    def _unit_of_name(cls, value: dict[str, ColumnSource]) -> dict[str, ColumnSource]:
        for name, source in value.items():
            if source.model_fields_set & {"unit", "factor", "reciprocal"}:
                continue
            for file_column in source.names:
                if unit := unit_in_name(file_column, quantity_of(name)):
                    raise BadValueError(
                        f"{file_column!r} seems to be in {unit}",
                        f'state its unit: {name} = {{ column = "{file_column}", unit = "{unit}" }}',
                        (name,),
                    )
        return value

    @model_validator(mode="after")
    def _two_marks(self) -> Self:
        if self.thousands is not None and self.thousands == self.decimal:
            raise BadValueError("thousands and decimal are the same mark", "leave out one of them")
        return self

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        for name in self.constants:
            if name in self.columns:
                raise BadValueError(
                    f"{name} stands under [columns] and under [constants]", "leave out one of them"
                )
        return self

    @field_validator("layout")
    @classmethod
    def _known_layout(cls, value: str) -> str:
        if value == "kernel_tuner":  # as maps of earlier versions have it
            return "kernel-tuner"
        if value not in LAYOUTS and value not in FORMATS:
            names = [*LAYOUTS, *sorted(FORMATS)]
            raise BadValueError(f"unknown layout {value!r}", known_names(value, names))
        return value

    @property
    def given(self) -> set[str]:
        """The standard columns for which the map names a column or gives a value."""
        return {*self.columns, *self.constants}

    @property
    def named(self) -> set[str]:
        """The columns of the table that are sources of standard ones."""
        return {name for source in self.columns.values() for name in source.names}

    @property
    def imported(self) -> bool:
        """Whether the table is in another tool's format. Its rows may lack clocks and energy, and
        may be failures."""
        return self.layout not in LAYOUTS

    @property
    def rows(self) -> str:
        """The noun for the rows in messages."""
        return str(FORMATS.load(self.layout).ABOUT.rows) if self.imported else "rows"

    @property
    def numbers_repeats(self) -> bool:
        """Whether to number rows of the same point: by the map, else by the format."""
        if not self.imported or "number_repeats" in self.model_fields_set:
            return self.number_repeats
        return bool(FORMATS.load(self.layout).ABOUT.repeats) and "repeat" not in self.given

    @property
    def keeps_unknown(self) -> bool:
        """Whether columns that are neither standard nor named are kept as labels."""
        return self.unknown == "label" or (self.imported and "unknown" not in self.model_fields_set)

    @property
    def style(self) -> NumberStyle | None:
        """The style of the numbers; None if the map states neither mark."""
        if self.decimal is None and self.thousands is None:
            return None
        thousands = self.thousands or ""
        return NumberStyle(self.decimal or OTHER.get(thousands, "."), thousands)

    @model_validator(mode="after")
    def _no_text_keys(self) -> Self:
        text_keys = [
            n
            for n in ("fields", "delimiter", "decimal", "thousands", "params")
            if n in self.model_fields_set
        ]
        if self.imported and text_keys:
            raise BadValueError(
                f"{text_keys[0]} with layout {self.layout}, whose file names its fields itself",
                f"leave out {text_keys[0]}",
            )
        return self

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        for key, name in (("number_repeats", "repeat"), ("params", "params")):
            if getattr(self, key) and name in self.given:
                raise BadValueError(
                    f"{key} beside a column or constant {name}", "leave out one of the two"
                )
        return self


def read_map(path: Path | None) -> TableMap:
    """Read and check a map file; the default map without one."""
    return TableMap() if path is None else read_file(path, TableMap)[0]


def with_arguments(
    mapping: TableMap, layout: str | None, constants: Mapping[str, str | float]
) -> TableMap:
    """The map with the arguments of the command line: the file's format, and constants, which
    replace columns and constants of the map.

    Raises:
        ArgumentError: the map states another format, or a constant is invalid.
    """
    if layout is not None and layout not in FORMATS:
        raise ArgumentError(f"--from: {unknown_name('format', layout, sorted(FORMATS))}")
    if layout not in (None, mapping.layout) and "layout" in mapping.model_fields_set:
        raise ArgumentError(
            f"--from {layout}: the map file says layout = {mapping.layout!r}; leave out one of them"
        )
    fields = mapping.model_dump(exclude_unset=True, exclude={"voltage"})
    fields["columns"] = {
        name: source for name, source in fields.get("columns", {}).items() if name not in constants
    }
    fields["constants"] = fields.get("constants", {}) | dict(constants)
    try:
        merged = TableMap.model_validate(fields | ({"layout": layout} if layout else {}))
        return merged.model_copy(update={"voltage": mapping.voltage})
    except ValidationError as error:
        cause = error.errors()[0]
        detail = cause.get("ctx", {}).get("error", cause["msg"])
        where = "--set" if cause["loc"][:1] == ("constants",) else f"--from {layout}"
        name = "".join(f" {part}" for part in getattr(detail, "key", ()))
        raise ArgumentError(f"{where}{name}: {detail}") from None


def is_table_column(name: str, columns: Container[str]) -> bool:
    """Whether a column is one of ``columns``, or ``n_<class>``."""
    # The class's name becomes the name of a file in the store.
    class_name = name.removeprefix(COUNT_PREFIX)
    return name in columns or (class_name != name and re.fullmatch(NAME, class_name) is not None)


def number_columns(header: Iterable[str], mapping: TableMap) -> list[str]:
    """The names of a table's columns that are read as numbers."""
    header = list(header)
    standard = OF_STORE if POINT_ID in header else {*COLUMNS}
    mapped = {*mapping.params, *mapping.named}
    names = [
        name
        for name in header
        if name not in mapped and is_table_column(name, standard) and is_number_column(name)
    ]
    for ours, source in mapping.columns.items():
        if is_number_column(ours) and not source.join and not source.is_text:
            names += source.names
    names += [
        rule.column for rule in mapping.keep if any(type(v) in (int, float) for v in rule.values)
    ]
    return list(dict.fromkeys(names))
