"""EAR's accounting as rows: a measurement is a step of a job, or a loop of a step on a node.

``eacct -l -c FILE`` and the report plugin csv_ts write a row a node and step, or a node and loop
(``-r``), with mean powers of the node and times; its energy is their product. Columns and their
meaning come from EAR's documentation (github.com/eas4dc/EAR/wiki/EAR-commands) and headers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from campaign.policy.accounting import sharing
from campaign.table.delimited import number_of, read_table_text, rows_of
from campaign.table.formats import UNTRIED, Columns, FormatDescription, columns_of
from campaign.table.map_file import TableMap
from dvfs.input_files import FileError

LOOP, PROGRAM = "LOOPID", "JOBNAME"
NEEDED = ("JOBID", "STEPID", "NODENAME", "DC_NODE_POWER_W")
STEP = ("JOBID", "STEPID", "APPID")
TIMES = {"ITER_TIME_SEC": "", "TIME_SEC": "", "NODEMGR_TIME_SEC": "NODEMGR_"}
"""A time -> the prefix of the names of its power and clocks. The times are those of a loop, of the
library, which is 0 if it was not loaded, and of the node manager."""
BATCH = "SLURM_BATCH_SCRIPT"
FIRST_SPECIAL = 2**32 - 16
"""The first of the numbers that Slurm gives to batch scripts and other steps without srun."""
MAKE_IT = "write it by eacct -l -c FILE, or eacct -r -c FILE"
ABOUT = FormatDescription(
    name="ear",
    tool="EAR",
    versions=f"6.2, {UNTRIED}",
    reads="`eacct -l -c F` and the report plugin `csv_ts`: a row a step, its nodes' energies "
    "summed; `eacct -r -c F`: a row a loop and node, of one iteration",
    traps="the batch step has the joules of the whole job, and is left out beside others. Steps "
    "that shared a node have no energy. DEF_FREQ is what was asked for. Loops do not name their "
    "program: one program a file",
    rows="steps or loops",
    repeats=True,
)


def recognises(path: Path, head: bytes) -> bool:
    """Whether the file's first line is a header of EAR."""
    return {*NEEDED} <= {*head.partition(b"\n")[0].decode("utf-8", "replace").strip().split(";")}


def read(path: Path, mapping: TableMap) -> tuple[Columns, list[str]]:
    """The steps or loops as columns; and notes. All of EAR's columns are labels.

    Raises:
        FileError: the file is no such table, a row does not match the header or has no time, or a
            value is no number.
    """
    text, notes = read_table_text(path)
    names, table = rows_of(path, text, "no name may have a semicolon: correct it", ";")
    if not {*NEEDED} <= {*names} or not {LOOP, PROGRAM} & {*names}:
        raise FileError("is no table of EAR", MAKE_IT, f"{path}:1")
    steps: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    for line, fields in table:
        if fields == names:
            continue
        row: dict[str, Any] = dict(zip(names, fields, strict=True))
        key = (str(line),) if LOOP in names else tuple(row.get(name, "") for name in STEP)
        steps[key].append(row | {"_line": line})
    measured = [rows for key, rows in steps.items() if LOOP in names or _is_measured(key, steps)]
    rows = [_row(nodes, path) for nodes in measured]
    if LOOP not in names:
        if len(measured) < len(steps):
            n_left = len(steps) - len(measured)
            notes.append(f"{path}: {n_left} batch steps count joules of others again: left out")
        if all(len(nodes) == 1 for nodes in measured):
            notes.append(f"{path}: a row a step: where it had several nodes, use eacct -l")
        uses = [(row["start_unix_s"], row["_end_s"], row["_nodes"]) for row in rows]
        for i in sharing(uses):
            rows[i]["energy_j"] = None
            notes.append(f"{path}:{rows[i]['_line']}: shared its node with another step: no energy")
    columns = ({n: v for n, v in row.items() if not n.startswith("_")} for row in rows)
    return columns_of(zip((row["_line"] for row in rows), columns, strict=True)), notes


def _is_measured(key: tuple[str, ...], steps: Iterable[tuple[str, ...]]) -> bool:
    """Whether a step is not Slurm's step of a batch script, or its job has no other steps."""
    return not _is_special(key[1]) or all(_is_special(s[1]) for s in steps if s[0] == key[0])


def _is_special(step: str) -> bool:
    return step == BATCH or (step.isdigit() and int(step) >= FIRST_SPECIAL)


def _row(nodes: Sequence[dict[str, Any]], path: Path) -> dict[str, Any]:
    """One row of a step's rows, one per node: the sum of the energies, and the longest time."""
    first = nodes[0]
    parts = [_measured(node, f"{path}:{node['_line']}") for node in nodes]
    times, energies, requested_mhz, average_mhz = zip(*parts, strict=True)
    labels = {name: ",".join(dict.fromkeys(str(node[name]) for node in nodes)) for name in first}
    # Loops may run hours after the job's start.
    names = ("TIMESTAMP" if LOOP in first else "JOB_START_TIME", "JOB_END_TIME")
    start_s, end_s = (number_of(first, name, f"{path}:{first['_line']}") for name in names)
    return labels | {
        "kernel": f"loop {first[LOOP]}" if LOOP in first else first[PROGRAM],
        "time_s": max(times),
        "energy_j": sum(energies) if all(energies) else None,
        "core_mhz": requested_mhz[0] if requested_mhz[0] and len({*requested_mhz}) == 1 else None,
        "core_mhz_achieved": sum(average_mhz) / len(average_mhz) if all(average_mhz) else None,
        "node": first["NODENAME"] if len(nodes) == 1 else None,
        "start_unix_s": start_s,
        "_end_s": end_s,
        "_nodes": [node["NODENAME"] for node in nodes],
        "_line": first["_line"],
    }


def _measured(row: dict[str, Any], place: str) -> tuple[float, float, float, float]:
    """A node's time (s), energy (J), requested clock and average clock (MHz); 0 if not known."""
    times = {name: number_of(row, name, place) for name in TIMES}
    name = next((name for name, time_s in times.items() if time_s > 0), "TIME_SEC")
    start_s, end_s = (number_of(row, name, place) for name in ("JOB_START_TIME", "JOB_END_TIME"))
    time_s = times[name] or end_s - start_s
    if time_s <= 0:
        raise FileError("has no time", "remove this row", place)
    power_w, asked_khz, average_khz = (
        number_of(row, TIMES[name] + column, place)
        for column in ("DC_NODE_POWER_W", "DEF_FREQ_KHZ", "AVG_CPUFREQ_KHZ")
    )
    return time_s, power_w * time_s, asked_khz * 1e-3, average_khz * 1e-3
