"""ReFrame's performance logs as rows: a run of a test is a measurement, passed or failed.

A log (``perflogs/SYSTEM/PARTITION/TEST.log``) has a header, and of each performance variable a
value and its unit. Which is the time and which the energy, their units say.
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
"""Our column -> the quantity of its units."""
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
    """Whether it has the header of a log."""
    header = head.partition(b"\n")[0]
    return header.startswith("|".join(FIRST).encode()) and b"|unique_name" in header


def read(path: Path, mapping: TableMap) -> tuple[Columns, list[str]]:
    """Runs as columns; and what was noticed. All of ReFrame's columns but the parameters are
    labels.

    Raises:
        FileError: it is no such log, a row has other fields than the header, or several variables
            are times.
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
    lines, rows = [], []
    for line, fields in table:
        if fields == header:  # written again by a later run
            continue
        lines.append(line)
        rows.append(_row(dict(zip(header, fields, strict=True)), f"{path}:{line}", mapping))
    return columns_of(lines, rows), notes


def _row(kept: Mapping[str, str], place: str, mapping: TableMap) -> dict[str, Any]:
    passed = kept["result"] == PASSED
    name, *parameters = kept["name"].split(" %")
    params = dict(parameter.partition("=")[::2] for parameter in parameters)
    setting = {p: number_at(v, p, place) for p, v in params.items() if p in NUMBERS}
    # A log has a test's runs in all of its programming environments.
    environment = kept.get("environ", BUILTIN)
    others: dict[str, Any] = {} if environment == BUILTIN else {"environ": environment}
    others |= {p: number_or_text(v) for p, v in params.items() if p not in setting}
    nodes = expand_nodes(kept.get("job_nodelist", "").replace("null", ""), place)
    labels = {n: v for n, v in kept.items() if v not in ("", "null", "None") and n not in COLUMNS}
    measured = _measured(kept, place, mapping) if passed else {}
    return (
        labels
        | measured
        | setting
        | {
            "kernel": name,
            "params": json.dumps(others),
            "node": nodes[0] if len(nodes) == 1 else None,
            "status": OK if passed else KERNEL_FAILED,
            "text": "" if passed else f"ReFrame: {kept['result']}",
        }
    )


def _measured(kept: Mapping[str, str], place: str, mapping: TableMap) -> dict[str, float]:
    """The variables whose unit is one of time, energy or power, in our units."""
    found: dict[str, dict[str, float]] = {}
    for name, text in kept.items():
        unit = UNITS.get(kept.get(name.removesuffix(VALUE) + UNIT, ""))
        if not name.endswith(VALUE) or unit is None or unit.read or text == "None":
            continue
        for ours, quantity in OURS.items():
            if quantity in unit.factors:
                value = number_at(text, name, place) * unit.factors[quantity]
                found.setdefault(ours, {})[name] = value
    for ours, values in found.items():
        if len(values) > 1 and ours not in mapping.given:
            raise FileError(
                f"several variables may be {ours}: {', '.join(values)}",
                f'name one under [columns] in a map file: {ours} = "{next(iter(values))}"',
                place,
            )
    return {ours: value for ours, values in found.items() for value in values.values()}
