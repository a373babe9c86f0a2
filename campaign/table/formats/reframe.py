"""ReFrame's performance logs as rows: a run of a test is a measurement, passed or failed.

A log (``perflogs/SYSTEM/PARTITION/TEST.log``) has a header, and a value and a unit for each
performance variable. The unit shows which variable is the time and which the energy.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from campaign.policy.accounting import expand_nodes
from campaign.table.delimited import number_at, read_table_text, rows_of
from campaign.table.formats import Columns, FormatDescription, columns_of
from campaign.table.map_file import COLUMNS, TableMap
from campaign.table.number_text import number_or_text
from campaign.table.units import UNITS
from dvfs.dataset import KERNEL_FAILED, OK
from dvfs.input_files import FileError
from dvfs.setting import NUMBERS

FIRST = ("result", "job_completion_time")
VALUE, UNIT = "_value", "_unit"
OURS = {"time_s": "time", "energy_j": "energy", "power_w": "power"}
"""Standard column -> the quantity of its units."""
PASSED = "pass"
BUILTIN = "builtin"
"""ReFrame's environment of a site that names none."""
ABOUT = FormatDescription(
    name="reframe",
    tool="ReFrame",
    versions="4.10",
    reads="a performance log of the default format: variables with a unit of time, energy or "
    "power, the test's parameters",
    needs=("time_s where several variables are times",),
    traps="test parameters `core_mhz`, `power_limit_w` are the setting",
    rows="runs",
    repeats=True,
)


def recognises(path: Path, head: bytes) -> bool:
    """Whether the file has the header of a log."""
    header = head.partition(b"\n")[0]
    return header.startswith("|".join(FIRST).encode()) and b"|unique_name" in header


def read(path: Path, mapping: TableMap) -> tuple[Columns, list[str]]:
    """The runs as columns; and notes. All of ReFrame's columns except the parameters are labels.

    Raises:
        FileError: the file is no such log, a row has other fields than the header, or several
            variables are times.
    """
    text, notes = read_table_text(path)
    header, table = rows_of(
        path,
        text,
        "remove this row: a run that failed early has no values, and what follows shifts; or it is "
        "of a test that was changed: divide the log at its headers",
        "|",
    )
    if tuple(header[:2]) != FIRST or "name" not in header:
        raise FileError(
            "is no performance log of ReFrame", "name one of its default format", f"{path}:1"
        )
    rows = [
        (line, _row(dict(zip(header, fields, strict=True)), f"{path}:{line}", mapping))
        for line, fields in table
        if fields != header  # a later run writes it again
    ]
    return columns_of(rows), notes


def _row(row: Mapping[str, str], place: str, mapping: TableMap) -> dict[str, Any]:
    passed = row["result"] == PASSED
    name, *parameters = row["name"].split(" %")
    params = dict(parameter.partition("=")[::2] for parameter in parameters)
    setting = {p: number_at(v, p, place) for p, v in params.items() if p in NUMBERS}
    # A log contains a test's runs in all programming environments.
    environment = row.get("environ", BUILTIN)
    params_kept: dict[str, Any] = {} if environment == BUILTIN else {"environ": environment}
    params_kept |= {p: number_or_text(v) for p, v in params.items() if p not in setting}
    nodes = expand_nodes(row.get("job_nodelist", "").replace("null", ""), place)
    labels = {n: v for n, v in row.items() if v not in ("", "null", "None") and n not in COLUMNS}
    measured = _measured(row, place, mapping) if passed else {}
    return (
        labels
        | measured
        | setting
        | {
            "kernel": name,
            "params": json.dumps(params_kept),
            "node": nodes[0] if len(nodes) == 1 else None,
            "status": OK if passed else KERNEL_FAILED,
            "text": "" if passed else f"ReFrame: {row['result']}",
        }
    )


def _measured(row: Mapping[str, str], place: str, mapping: TableMap) -> dict[str, float]:
    """The variables with a unit of time, energy or power, in standard units."""
    by_column: dict[str, dict[str, float]] = {}
    for name, text in row.items():
        unit = UNITS.get(row.get(name.removesuffix(VALUE) + UNIT, ""))
        if not name.endswith(VALUE) or unit is None or unit.read or text == "None":
            continue
        for column, quantity in OURS.items():
            if quantity in unit.factors:
                value = number_at(text, name, place) * unit.factors[quantity]
                by_column.setdefault(column, {})[name] = value
    for column, values in by_column.items():
        if len(values) > 1 and column not in mapping.given:
            raise FileError(
                f"several variables may be {column}: {', '.join(values)}",
                f'name one under [columns] in a map file: {column} = "{next(iter(values))}"',
                place,
            )
    return {column: value for column, values in by_column.items() for value in values.values()}
