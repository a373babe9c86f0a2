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
    """A column of the imported table, and the factor that converts it to the standard unit."""

    column: str = Field(description="The name of the column in the table.")
    factor: Positive = Field(
        default=1.0,
        description="What a value of the column is multiplied by to give the standard unit: 1e-3 "
        "where a column for time_s is in ms.",
    )


class VoltageTables(FileModel):
    """Voltage by clock where the table carries none: (MHz, V) pairs."""

    core: list[tuple[Positive, Positive]] = Field(
        default_factory=list, description="The core voltage at each core clock, as [MHz, V]."
    )
    mem: list[tuple[Positive, Positive]] = Field(
        default_factory=list, description="The memory voltage at each memory clock, as [MHz, V]."
    )

    _pairs = field_validator("core", "mem", mode="before")(voltage_pairs)


class TableMap(FileModel):
    """A map file: how a table with other column names or units is read."""

    layout: Literal["table", "blocks"] = Field(
        default="table",
        description="table: every line is a row. blocks: a line of one field names the kernel of "
        "the lines that follow it.",
    )
    fields: list[str] | None = Field(
        default=None,
        description="The names of the columns in order, where the file has no header line.",
    )
    columns: dict[str, str | ColumnSource] = Field(
        default_factory=dict,
        description="Standard column -> the name of the column in the table, or a table of column "
        "and factor.",
    )
    constants: dict[str, str | float | int] = Field(
        default_factory=dict, description="Standard column -> one value for every row."
    )
    unknown: Literal["refuse", "label"] = Field(
        default="refuse",
        description="What to do with columns that are neither standard nor named in the map. "
        "refuse: nothing is imported. label: they are kept as labels.",
    )
    classes: dict[Name, Literal["core", "mem"]] = Field(
        default_factory=dict,
        description="Class -> its clock domain, where it is not the default: mem for dram and "
        "mem, core for every other class.",
    )
    voltage: VoltageTables = Field(
        default=VoltageTables(), description="The voltage of each clock, for a table without it."
    )
    device: Literal["cpu", "gpu"] | None = Field(
        default=None,
        description="Whether the clocks are those of a CPU or of a GPU, for the Slurm flags of "
        "the picks (default: gpu where the table has memory clocks, otherwise cpu).",
    )

    @field_validator("columns", "constants")
    @classmethod
    def _ours(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name in value:
            if not is_table_column(name):
                raise BadValue(
                    f"found the column {name!r}",
                    f"standard columns are {', '.join(COLUMNS)} and n_CLASS",
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
