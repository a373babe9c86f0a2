"""Formats of other tools: one file each, registered here by name, and those of installed packages
(:mod:`dvfs.registry`).

Each module has ``ABOUT``, a :class:`FormatDescription`; ``recognises(path, head) -> bool``, which
is True only if the file has a marker of the tool, where ``head`` is its first :data:`HEAD_BYTES`
bytes, unpacked; and ``read(path, mapping) -> (Columns, notes)``: the measurements as columns, and
notes, a sentence each. Standard columns (docs/import-export.md) have the standard names and units;
all other fields are labels under the tool's names. ``read`` leaves out no field, and raises
:class:`~dvfs.input_files.FileError` for a file that it cannot read.

A column of the map or the command line replaces that of ``read``. ``core_mhz`` and the energy may
be missing; ``status`` and ``text`` say what failed, and ``estimated`` why an energy was not
measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dvfs.registry import Registry

OURS = {
    "caliper": "campaign.table.formats.caliper",
    "codecarbon": "campaign.table.formats.codecarbon",
    "ear": "campaign.table.formats.ear",
    "geopm": "campaign.table.formats.geopm",
    "kernel-tuner": "campaign.table.formats.kernel_tuner",
    "likwid": "campaign.table.formats.likwid",
    "perf-stat": "campaign.table.formats.perf_stat",
    "perun": "campaign.table.formats.perun",
    "reframe": "campaign.table.formats.reframe",
    "sacct": "campaign.table.formats.sacct",
    "zeus": "campaign.table.formats.zeus",
}
FORMATS = Registry("importers", OURS)
HEAD_BYTES = 1 << 16
UNTRIED = "its documentation alone"

Columns = tuple[list[str], list[int], list[list[Any]]]
"""The header, each record's line in the file, and the values of each column."""


@dataclass(frozen=True, kw_only=True)
class FormatDescription:
    """A format for messages and the docs. ``versions``: those of the tool whose files were read, or
    :data:`UNTRIED`. ``reads``: the files and parts that are read. ``needs``: standard columns that
    the file lacks, in addition to ``site``. ``traps``: what is easily misread. ``rows``: the noun
    for its rows. ``repeats``: whether rows of one kernel at one setting are repeats, in the order
    of the file."""

    name: str
    tool: str
    versions: str
    reads: str
    needs: tuple[str, ...] = ()
    traps: str = ""
    rows: str = "rows"
    repeats: bool = False


def recognised(path: Path, head: bytes) -> str | None:
    """The format whose marker a file has; None if it has no marker, or several."""
    matches = [name for name in FORMATS if FORMATS.load(name).recognises(path, head)]
    return matches[0] if len(matches) == 1 else None


def columns_of(records: Iterable[tuple[int, Mapping[str, Any]]]) -> Columns:
    """Records, each with its line, as columns: None if a record lacks a field. A field that is None
    in all records is left out."""
    rows = list(records)
    names = (name for _, row in rows for name, value in row.items() if value is not None)
    header = list(dict.fromkeys(names))
    lines = [line for line, _ in rows]
    return header, lines, [[row.get(name) for _, row in rows] for name in header]
