"""likwid-perfctr's output as rows: a marker region, or the run, is a measurement.

A CSV file (``likwid-perfctr -O -g ENERGY``) has a table of events and one of metrics for each
region and group of counters.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from campaign.table.delimited import read_table_text
from campaign.table.formats import Columns, FormatDescription, columns_of
from campaign.table.map_file import TableMap
from campaign.table.profiler_tables import Selection, counted_by_likwid
from dvfs.input_files import FileError

MARKER = re.compile(rb"(?m)^TABLE,(?:Region [^,]*,)?Group [0-9]+ Raw,")
TIME, CLOCK = "Runtime (RDTSC)", "Clock"
PACKAGES = ("Energy", "Energy PKG")
"""The package's energy, by the name that groups of Intel's processors have, and of AMD's."""
MEMORY = "Energy DRAM"
IS_ENERGY = re.compile(r"Energy\b.*")
ABOUT = FormatDescription(
    name="likwid",
    tool="likwid-perfctr",
    versions="5.2.2's printing code",
    reads="`likwid-perfctr -O -g ENERGY`, with and without `-m`: package and DRAM energy by region",
    needs=("kernel without -m",),
    traps="sockets are summed; the longest runtime of the threads is taken, and the mean clock",
    rows="regions",
    repeats=True,
)


def recognises(path: Path, head: bytes) -> bool:
    """Whether the file has the heading of one of LIKWID's tables."""
    return MARKER.search(head) is not None


def read(path: Path, mapping: TableMap) -> tuple[Columns, list[str]]:
    """The regions as columns, with all metrics as labels; and notes.

    Raises:
        FileError: it has no table with a runtime.
    """
    text, notes = read_table_text(path)
    lines = text.splitlines()
    starts = [
        (i + 1, parts[1].removeprefix("Region ") if parts[1].startswith("Region ") else None)
        for i, line in enumerate(lines)
        if MARKER.match(line.encode()) and (parts := line.split(","))
    ]
    rows = []
    for region in dict.fromkeys(region for _, region in starts):
        starts_of_region = [line for line, name in starts if name == region]
        groups = counted_by_likwid(path, lines, Selection(region=region))
        for line, group in zip(starts_of_region, groups, strict=True):
            if TIME not in group.values:
                notes.append(f"{path}:{line}: group {group.name} has no runtime, and is left out")
                continue
            package = next((name for name in PACKAGES if name in group.values), "")
            parts = list(filter(IS_ENERGY.fullmatch, group.values))
            if parts and not package and "energy_j" not in mapping.given:
                notes.append(
                    f"{path}:{line}: has energies of parts of the processor alone "
                    f"({', '.join(parts)}), so none is taken; name one as energy_j under "
                    "[columns] of a map"
                )
            energies = [group.values[n] for n in (package, MEMORY) if n in group.values]
            row: dict[str, Any] = dict(group.values) | {
                "group": group.name,
                "kernel": region,
                "time_s": group.values[TIME],
                "energy_j": sum(energies) if package else None,
                "core_mhz_achieved": group.values.get(CLOCK) or None,
            }
            rows.append((line, row))
    if not rows:
        raise FileError(
            "has no table of LIKWID with a runtime",
            "write it by likwid-perfctr -O -g ENERGY",
            str(path),
        )
    return columns_of(rows), notes
