"""Formats of other tools: one file each, registered here by name, and those of installed packages
(:mod:`dvfs.registry`).

Each module has ``ABOUT``, a :class:`FormatDescription`; ``recognises(path, head) -> bool``, which
is True only where the file has a marker of the tool, ``head`` being its first :data:`HEAD_BYTES`
bytes, unpacked; and ``read(path, mapping) -> (Columns, notes)``: its measurements as columns, of
which those of the table (docs/import-export.md) have our names and units, and all others are
labels under the tool's own names, and what was noticed, a sentence each. It leaves out no field,
and raises :class:`~dvfs.input_files.FileError` for a file that it cannot read.

What a map or the command line says of a column takes the place of what ``read`` gives. Of our
columns ``core_mhz`` and the energy may be missing; ``status`` and ``text`` say what failed, and
``estimated`` why an energy was not measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    :data:`UNTRIED`. ``reads``: what of it. ``needs``: our columns that the file does not have,
    beside ``site``. ``traps``: what is easily taken for something else. ``rows``: what its rows
    are. ``repeats``: whether those of one kernel at one setting are repeats of each other, in the
    order of the file."""

    name: str
    tool: str
    versions: str
    reads: str
    needs: tuple[str, ...] = ()
    traps: str = ""
    rows: str = "rows"
    repeats: bool = False


def recognised(path: Path, head: bytes) -> str | None:
    """The format whose marker a file has; None where no format has it, or several do."""
    found = [name for name in FORMATS if FORMATS.load(name).recognises(path, head)]
    return found[0] if len(found) == 1 else None


def columns_of(lines: Sequence[int], records: Sequence[Mapping[str, Any]]) -> Columns:
    """Records, each from a line, as columns; None where a record lacks one. What is None in all of
    them is no column."""
    given = (name for record in records for name, value in record.items() if value is not None)
    header = list(dict.fromkeys(given))
    return header, list(lines), [[record.get(name) for record in records] for name in header]
