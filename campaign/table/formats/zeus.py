"""Zeus' files as rows: a window of ZeusMonitor, or a power limit that its optimizer tried.

``ZeusMonitor(log_file=...)`` writes a CSV file with a column of energy (J) for each GPU, and
``GlobalPowerLimitOptimizer(profile_path=...)`` a JSON object with a list ``measurements``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from campaign.table.delimited import number_at, read_table_text, rows_of
from campaign.table.formats import Columns, FormatDescription, columns_of
from campaign.table.map_file import TableMap
from dvfs.input_files import FileError

MARKER = b"start_time,window_name,elapsed_time"
LIMIT = ("power_limit", "energy", "time")
ABOUT = FormatDescription(
    name="zeus",
    tool="Zeus",
    versions="0.16.0's writing code",
    reads="the log of `ZeusMonitor`: a row a window, its GPUs' energies summed; the profile of "
    "`GlobalPowerLimitOptimizer`: a row a power limit",
    needs=("kernel of a profile",),
    traps="no energy of CPUs. A profile's limits are of each GPU, its energies of all",
    rows="windows",
    repeats=True,
)


def recognises(path: Path, head: bytes) -> bool:
    """Whether the file has the header of the log, or the keys of the profile."""
    if head.startswith(MARKER):
        return True
    keys = (b'"measurements"', *(f'"{name}"'.encode() for name in LIMIT))
    return head.lstrip().startswith(b"{") and all(key in head for key in keys)


def read(path: Path, mapping: TableMap) -> tuple[Columns, list[str]]:
    """The windows or power limits as columns; and notes.

    Raises:
        FileError: the file is neither of the two, or a value is no number.
    """
    text, notes = read_table_text(path)
    if text.lstrip().startswith("{"):
        return _profile(path, text), notes
    header, table = rows_of(path, text)
    gpus = [name for name in header if name.startswith("gpu")]
    if not gpus or "elapsed_time" not in header:
        raise FileError("is no log of ZeusMonitor", "give it a log_file", f"{path}:1")
    rows = []
    for line, fields in table:
        place, row = f"{path}:{line}", dict(zip(header, fields, strict=True))
        energies = [number_at(row[name], name, place) for name in gpus]
        if 0.0 in energies:
            notes.append(f"{place}: 0 J: the window was shorter than the counter's period")
        labels = (*gpus, "start_time", "window_name", "elapsed_time")
        measured: dict[str, Any] = {name: row[name] for name in labels} | {
            "kernel": row["window_name"],
            "time_s": number_at(row["elapsed_time"], "elapsed_time", place),
            "energy_j": None if 0.0 in energies else sum(energies),
            "start_unix_s": number_at(row["start_time"], "start_time", place),
        }
        rows.append((line, measured))
    return columns_of(rows), notes


def _profile(path: Path, text: str) -> Columns:
    try:
        measured = json.loads(text)["measurements"]
        rows: list[dict[str, Any]] = [
            {
                "power_limit_w": float(entry["power_limit"]),
                "time_s": float(entry["time"]),
                "energy_j": float(entry["energy"]),
            }
            for entry in measured
        ]
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        cause = "is no profile of Zeus' GlobalPowerLimitOptimizer"
        raise FileError(cause, "give the file of its profile_path", str(path)) from None
    entry_lines = [i + 1 for i, line in enumerate(text.splitlines()) if '"power_limit"' in line]
    lines = entry_lines if len(entry_lines) == len(rows) else [1] * len(rows)
    return columns_of(zip(lines, rows, strict=True))
