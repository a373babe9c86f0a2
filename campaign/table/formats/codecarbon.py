"""CodeCarbon's emissions.csv, or its file of tasks, as rows: a tracker's run or a task is a
measurement.

The file does not say whether the CPU's energy was read (RAPL) or computed from the load and a TDP.
Energies that RAPL's counter gave are whole numbers of microjoules; computed ones are not. RAM is
always an estimate, and no part of ``energy_j``.
"""

from __future__ import annotations

import math
import re
from operator import itemgetter
from pathlib import Path
from typing import Any

from campaign.table.delimited import number_of, read_table_text, rows_of
from campaign.table.formats import Columns, FormatDescription, columns_of
from campaign.table.map_file import TableMap
from dvfs.dataset import ESTIMATED
from dvfs.input_files import FileError

MARKER = b"timestamp,project_name,run_id"
TASK = "task_name"
AGAIN = re.compile(r"(?<=.)_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
"""The suffix that CodeCarbon adds to a repeated name of a task."""
KWH_J = 3.6e6
UJ_KWH = 2.77778e-13
"""CodeCarbon's factor from microjoules to kWh (codecarbon/core/units.py, 3.3.2)."""
WHOLE_UJ = 1e-3
"""A reading of a counter is at most this far from a whole number."""
COUNTER_UJ = 2.6e11
"""A counter's largest reading, which sets the rounding error of differences."""
SAMPLE_S = 1.0
SURE_UJ = 0.05
"""With a larger rounding error, whole numbers cannot be recognised."""
ESTIMATES = dict.fromkeys(("energy_consumed", "ram_energy"), "CodeCarbon estimates RAM")
OF_LOAD = "CodeCarbon without RAPL: its CPU energy is computed from the load"
TOO_LARGE = "CodeCarbon does not say whether the CPU's energy was read"
ABOUT = FormatDescription(
    name="codecarbon",
    tool="CodeCarbon",
    versions="3.3.2",
    reads="`emissions.csv`: CPU and GPU energy and duration of each run or task",
    traps="without RAPL the CPU's energy is computed from load: such rows are `estimated` "
    "(`--set estimated=no` where another meter was read). RAM's computed energy is left out. "
    "`pue` is divided out",
    rows="runs or tasks",
    repeats=True,
)


def recognises(path: Path, head: bytes) -> bool:
    """Whether the file's header is CodeCarbon's."""
    header = head.partition(b"\n")[0].removeprefix(b"\xef\xbb\xbf")
    has_marker = header.removeprefix(f"{TASK},".encode()).startswith(MARKER)
    return has_marker and b"cpu_energy" in header


def read(path: Path, mapping: TableMap) -> tuple[Columns, list[str]]:
    """The runs or tasks as columns; and notes. All of CodeCarbon's columns are labels.

    Raises:
        FileError: the file is not of CodeCarbon, or a row does not match the header.
    """
    text, notes = read_table_text(path)
    header, table = rows_of(path, text, "rows of one version a file: divide it")
    if not {"project_name", "duration", "cpu_energy"} <= {*header}:
        raise FileError("is no emissions.csv of CodeCarbon", "name one", f"{path}:1")
    runs: dict[str, tuple[int, dict[str, Any]]] = {}
    n_read = 0
    for line, fields in table:
        n_read += 1
        row = dict(zip(header, fields, strict=True))
        # Each row of a run covers the time from the run's start: only the last one counts.
        run = str(line) if TASK in row else row.get("run_id") or str(line)
        runs[run] = line, _row(row, f"{path}:{line}", mapping)
    if n_left := n_read - len(runs):
        notes.append(f"{path}: rows that flush wrote before a run's last are left out: {n_left}")
    if TASK in header:
        notes.append(f"{path}: a file of tasks has no pue: where one was set, energies include it")
    if "energy_j" not in mapping.columns:
        notes.append(f"{path}: energies are CPU and GPU; ram_energy, an estimate, is left out")
    return columns_of(sorted(runs.values(), key=itemgetter(0))), notes


def _row(row: dict[str, str], place: str, mapping: TableMap) -> dict[str, Any]:
    duration_s, cpu_kwh = (number_of(row, name, place) for name in ("duration", "cpu_energy"))
    gpu_kwh = number_of(row, "gpu_energy", place)
    pue = number_of(row, "pue", place) or 1.0
    source = mapping.columns.get("energy_j")
    names = {"cpu_energy", "gpu_energy"} if source is None else {*source.names}
    reasons = [reason for name, reason in ESTIMATES.items() if name in names]
    if names & {"cpu_energy", "energy_consumed"} and cpu_kwh:
        reasons.append(_origin(cpu_kwh / pue, duration_s))
    return dict(row) | {
        "kernel": AGAIN.sub("", row[TASK]) if row.get(TASK) else row["project_name"],
        "time_s": duration_s,
        "energy_j": (cpu_kwh + gpu_kwh) / pue * KWH_J or None,
        ESTIMATED: "; ".join(filter(None, reasons)) or None,
    }


def _origin(cpu_kwh: float, duration_s: float) -> str:
    """The reason why a CPU's energy is an estimate; empty if it is from RAPL's counter."""
    energy_uj = cpu_kwh / UJ_KWH
    error_uj = 2.0**-52 * max(COUNTER_UJ, energy_uj) * math.sqrt(duration_s / SAMPLE_S + 1)
    if error_uj > SURE_UJ:
        return TOO_LARGE
    is_whole = abs(energy_uj - round(energy_uj)) <= max(WHOLE_UJ, 4 * error_uj)
    return "" if is_whole else OF_LOAD
