"""Slurm's accounting as rows: a measurement is a job, or a step if steps requested clocks.

The input is a table that ``sacct --parsable2`` wrote. :mod:`campaign.policy.accounting` says which
of a job's rows has its energy, and why other rows repeat the same joules.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from campaign.policy.accounting import (
    clock_mhz,
    expand_nodes,
    failed_step,
    job_energy,
    job_rows,
    row_energy,
    sharing,
    time_of,
)
from campaign.table.delimited import read_table_text
from campaign.table.formats import Columns, FormatDescription, columns_of
from campaign.table.map_file import TableMap
from campaign.table.units import UNITS, sacct_duration
from dvfs.dataset import KERNEL_FAILED, NODE_LOST, OK, TIMED_OUT
from dvfs.input_files import FileError

WANTED = (
    *("JobID", "JobName", "State", "Start", "End", "ElapsedRaw", "ConsumedEnergyRaw"),
    *("ReqCPUFreqMax", "NNodes", "NodeList"),
)
MAKE_IT = f"make it so: sacct --parsable2 --format={','.join(WANTED)}"
STATUSES = {"COMPLETED": OK, "TIMEOUT": TIMED_OUT, "NODE_FAIL": NODE_LOST}
"""State -> status; all other final states are failures of the kernel."""
NOT_ENDED = {"PENDING", "RUNNING", "REQUEUED", "RESIZING", "SUSPENDED", "CONFIGURING"}
ABOUT = FormatDescription(
    name="sacct",
    tool="Slurm",
    versions="22.05.8",
    reads="`sacct --parsable2`: a row a job; a row a step where steps asked for different clocks",
    traps="how the rows of a job are read: [policies](policy.md#verify-it)",
    rows="jobs",
    repeats=True,
)


def recognises(path: Path, head: bytes) -> bool:
    """Whether the file's first line is a header of sacct."""
    header = head.partition(b"\n")[0].decode("utf-8", "replace").strip()
    names = header.split(header[5:6]) if header[5:6] and not header[5].isalnum() else [""]
    return names[0] == "JobID" and bool({"Elapsed", "ElapsedRaw"} & {*names})


def read(path: Path, mapping: TableMap) -> tuple[Columns, list[str]]:
    """The jobs or steps as columns; and notes.

    ``kernel`` is the job's or step's name, ``core_mhz`` the clock that its steps requested,
    ``node`` the node if there is only one. All of sacct's columns are labels.

    Raises:
        FileError: the file is no such table, or a row cannot be read.
    """
    text, notes = read_table_text(path)
    runs = job_rows(text, str(path), ("JobID", "JobName"), MAKE_IT)
    ended = [run for run in runs if _state(run[0]) not in NOT_ENDED]
    if len(ended) < len(runs):
        notes.append(f"{path}: {len(runs) - len(ended)} jobs have not ended, and are left out")
    rows = [row for run in ended for row in _measurements(run, path)]
    if not rows:
        raise FileError("has no jobs that ended", "nothing to import", str(path))
    uses = [row.pop("_use") for row in rows]
    for i in sharing(uses):
        if rows[i].pop("energy_j", None) is not None:
            rows[i]["_why"] = "they shared a node with another one"
    why = Counter(row.pop("_why") for row in rows)
    notes += [f"{path}: {n} rows have no energy: {text}" for text, n in why.items() if text]
    return columns_of((int(row.pop("_line")), row) for row in rows), notes


def _measurements(run: Sequence[dict[str, str]], path: Path) -> list[dict[str, Any]]:
    """A row for a job, or for each of its steps if they requested different clocks."""
    run = [_with_raw_energy(row, path) for row in run]
    job, *steps = run
    numbered = [step for step in steps if step["JobID"].partition(".")[2].isdigit()]
    clocks = {_clock(step) for step in numbered}
    if len(clocks) > 1:
        return [_row(step, job, _clock(step), row_energy(step), path) for step in numbered]
    energy: tuple[float | None, str]
    energy = (None, "the job's own row sums those of its steps; write the table without -X")
    if steps:
        energy = job_energy({"NNodes": ""} | job, steps)
    return [_row(job, job, clocks.pop() if clocks else None, energy, path, failed_step(steps))]


def _row(
    row: dict[str, str],
    job: dict[str, str],
    core_mhz: float | None,
    energy: tuple[float | None, str],
    path: Path,
    failed: str = "",
) -> dict[str, Any]:
    """The measurement of a job or step. ``failed``: the failed step of a completed job."""
    state = _state(row) or "COMPLETED"
    status, text = STATUSES.get(state, KERNEL_FAILED), row.get("State", "")
    if status == OK and failed:
        status, text = KERNEL_FAILED, failed
    place = f"{path}:{row['_line']}"
    nodes = expand_nodes(row.get("NodeList") or job.get("NodeList", ""), place)
    has_times = all(row.get(name) for name in ("Start", "End"))
    use: tuple[float, float, tuple[str, ...]] = (0.0, 0.0, ())
    if has_times:
        start_s, end_s = (time_of(row, name, str(path)) for name in ("Start", "End"))
        use = (start_s, end_s, tuple(nodes))
    elif row is not job:
        energy = (None, "whether the steps overlap is not known; add Start and End to the table")
    return {
        **{name: value for name, value in row.items() if name != "_line"},
        "kernel": row["JobName"],
        "core_mhz": core_mhz,
        "time_s": _time_s(row, place) if status == OK else None,
        "energy_j": energy[0] if status == OK else None,
        "node": nodes[0] if len(nodes) == 1 else None,
        "status": status,
        "text": "" if status == OK else text,
        "_line": row["_line"],
        "_why": energy[1] if status == OK else "",
        "_use": use,
    }


def _state(row: dict[str, str]) -> str:
    return row.get("State", "").partition(" ")[0].rstrip("+")


def _time_s(row: dict[str, str], place: str) -> float:
    if row.get("ElapsedRaw", "").isdigit():
        return float(row["ElapsedRaw"])
    try:
        return sacct_duration(row.get("Elapsed", ""))
    except ValueError as error:
        raise FileError(f"Elapsed: {error}", MAKE_IT, place) from None


def _clock(step: dict[str, str]) -> float | None:
    return clock_mhz(step.get("ReqCPUFreqMax", "")) or clock_mhz(step.get("ReqCPUFreq", ""))


def _with_raw_energy(row: dict[str, str], path: Path) -> dict[str, str]:
    """The row with ConsumedEnergyRaw, computed from a ConsumedEnergy such as 4.58M."""
    if "ConsumedEnergyRaw" in row:
        return row
    text, reader = row.get("ConsumedEnergy", ""), UNITS["sacct-number"].read
    try:
        joules = reader(text, "energy", None) if reader and text else 0.0
    except ValueError as error:
        if "no reading" not in str(error):
            place = f"{path}:{row['_line']}"
            raise FileError(f"ConsumedEnergy: {error}", MAKE_IT, place) from None
        joules = math.inf
    return row | {"ConsumedEnergyRaw": f"{joules:.0f}" if math.isfinite(joules) else str(2**64 - 2)}
