"""A format of lines such as ``dgemm 1000 2.5 30``: kernel, core MHz, s and J."""

from __future__ import annotations

from pathlib import Path

from campaign.table.formats import Columns, FormatDescription
from campaign.table.map_file import TableMap

ABOUT = FormatDescription(
    name="lines", tool="example", versions="1.0", reads="kernel, clock, time and energy"
)


def recognises(path: Path, head: bytes) -> bool:
    return head.startswith(b"dgemm ")


def read(path: Path, mapping: TableMap) -> tuple[Columns, list[str]]:
    rows = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
    kernel, core_mhz, time_s, energy_j = map(list, zip(*rows, strict=True))
    header = ["kernel", "core_mhz", "time_s", "energy_j"]
    return (header, list(range(1, len(rows) + 1)), [kernel, core_mhz, time_s, energy_j]), []
