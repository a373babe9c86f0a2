"""Caliper's profiles as rows: a region of a profile is a measurement.

They come as the CSV file of a table of Hatchet or Thicket, as Benchpark makes them:
``thicket.dataframe.reset_index().to_csv(FILE, index=False)``. Its column ``node`` has regions, and
no hosts. Which of its times is the run time, a map says: some are summed over ranks.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from campaign.table.delimited import read_table_text, rows_of
from campaign.table.formats import Columns, FormatDescription, columns_of
from campaign.table.map_file import TableMap
from dvfs.input_files import FileError

PROFILE = b"__rec="
MARKER = re.compile(rb"[^\n]*\bnode\b[^\n]*\n[^\n]*\{'name': ")
"""A header with ``node``, and below it a node of Hatchet."""
IS_TIME = re.compile(r"\btime\b")
IS_SUM = re.compile(r"(?i)total time.*|time|time \(inc\)")
"""Times that Caliper summed over a process' threads, and over ranks where it merged them."""
WRITE_IT = (
    "write its table: python -c \"import hatchet; hatchet.GraphFrame.from_caliperreader('FILE')"
    ".dataframe.reset_index().to_csv('new.csv', index=False)\""
)
ABOUT = FormatDescription(
    name="caliper",
    tool="Caliper",
    versions="2.14.0, by Hatchet 2026.2.0 and Thicket 2026.1.1",
    reads="a table of Hatchet or Thicket (Benchpark) as CSV: a row a region and profile",
    needs=("time_s, by `[columns]` of a map",),
    traps="`node` is a region, no host. `time` and `Total time` are sums over ranks and threads. "
    "Other times include the regions inside, but for `(exc)`. A row a rank is refused",
    rows="regions",
    repeats=True,
)


def recognises(path: Path, head: bytes) -> bool:
    """Whether the file is a table of Hatchet's nodes, or a profile of Caliper."""
    return head.startswith(PROFILE) or MARKER.match(head) is not None


def read(path: Path, mapping: TableMap) -> tuple[Columns, list[str]]:
    """The regions as columns, with all columns of the table as labels, ``node`` as ``region``; and
    notes.

    Raises:
        FileError: the file is no such table, has a row per rank, or the map names no time.
    """
    text, notes = read_table_text(path)
    if text.startswith(PROFILE.decode()):
        raise FileError(
            "is a profile, and no table", WRITE_IT.replace("FILE", path.name), str(path)
        )
    header, table = rows_of(path, text)
    if not {"node", "name"} <= {*header}:
        raise FileError("is no table of Hatchet", "name one with node and name", f"{path}:1")
    if "rank" in header:
        raise FileError(
            "has a row for each rank",
            "keep the longest time of each region: graphframe.drop_index_levels(numpy.max)",
            f"{path}:1",
        )
    times = {name: IS_SUM.fullmatch(name) is not None for name in header if IS_TIME.search(name)}
    chosen = mapping.columns["time_s"].names if "time_s" in mapping.columns else []
    if not chosen and "time_s" not in mapping.constants:
        sums = ", ".join(name for name, is_sum in times.items() if is_sum)
        usual = next((name for name in times if name == "Max time/rank"), next(iter(times), "time"))
        raise FileError(
            f"which of its times is the run time is not known ({', '.join(times)})"
            + (f"; summed over ranks and threads: {sums}" * bool(sums)),
            f'give a map file: layout = "caliper", and under [columns] time_s = "{usual}"',
            f"{path}:1",
        )
    notes += [
        f"{path}: {name} may be a sum over ranks and threads, which is no run time"
        for name in chosen
        if times.get(name)
    ]
    rows = [(line, dict(zip(header, fields, strict=True))) for line, fields in table]
    ids = defaultdict(set)
    for _, row in rows:
        ids[row["name"]].add(row.get("nid"))
    return columns_of((line, _row(row, len(ids[row["name"]]) > 1)) for line, row in rows), notes


def _row(row: dict[str, Any], is_ambiguous: bool) -> dict[str, Any]:
    labels = {"region" if name == "node" else name: text for name, text in row.items()}
    kernel = f"{row['name']} (nid {row['nid']})" if is_ambiguous else row["name"]
    return labels | {"kernel": kernel}
