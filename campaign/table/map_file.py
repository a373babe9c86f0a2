"""The map file, and the columns of a measurements table."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from analysis.dataset import COUNT_PREFIX
from sites.located_toml import BadValue, FileModel, parse, read_text
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
COLUMNS = (*TEXT_COLUMNS, *NUMBER_COLUMNS)
REQUIRED = ("site", "kernel", "core_mhz", "time_s")


class ColumnSource(FileModel):
    """A column of the table that is imported, and the factor that converts it to our unit."""

    column: str
    factor: Positive = 1.0


class VoltageTables(FileModel):
    """Voltage by clock where the table carries none: (MHz, V) pairs."""

    core: list[tuple[Positive, Positive]] = Field(default_factory=list)
    mem: list[tuple[Positive, Positive]] = Field(default_factory=list)

    _pairs = field_validator("core", "mem", mode="before")(voltage_pairs)


class TableMap(FileModel):
    """A map file: how a table with other column names or units is read."""

    layout: Literal["table", "blocks"] = "table"
    """``blocks``: a line of one field names the kernel of the lines that follow it."""
    fields: list[str] | None = None
    """The columns' names in order, where the file has no header line."""
    columns: dict[str, str | ColumnSource] = Field(default_factory=dict)
    """Our column -> the table's, or ``{column, factor}``."""
    constants: dict[str, str | float | int] = Field(default_factory=dict)
    """Our column -> one value for every row."""
    unknown: Literal["refuse", "label"] = "refuse"
    """What to do with a column that neither this program nor the map knows."""
    classes: dict[Name, Literal["core", "mem"]] = Field(default_factory=dict)
    """Class -> domain, where it is not core (or mem for dram and mem)."""
    voltage: VoltageTables = VoltageTables()
    device: Literal["cpu", "gpu"] | None = None
    """Whose clocks these are, for the Slurm flags of the picks."""

    @field_validator("columns", "constants")
    @classmethod
    def _ours(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name in value:
            if not is_table_column(name):
                raise BadValue(
                    f"found the column {name!r}", f"ours are {', '.join(COLUMNS)} and n_CLASS"
                )
        return value


def read_map(path: Path | None) -> TableMap:
    """Read and check a map file; the default map without one."""
    return TableMap() if path is None else parse(path, read_text(path), TableMap)[0]


def is_table_column(name: str) -> bool:
    """Whether a column is one that import reads: see :data:`COLUMNS`, or ``n_<class>``."""
    # The class's name becomes the name of a file in the store.
    of = name.removeprefix(COUNT_PREFIX)
    return name in COLUMNS or (of != name and re.fullmatch(NAME, of) is not None)
