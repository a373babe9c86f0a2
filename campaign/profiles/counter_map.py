"""Counter maps: which of a profiler's counters make an operation class, and the time.

A map is a TOML file, one of those in ``campaign/profiles/maps`` or a user's own::

    description = "..."
    layout = "ncu"
    [time_s]
    "gpu__time_duration.sum" = 1
    [counts.dram]
    "dram__bytes.sum" = 1
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from dvfs.input_files import FileModel, find_file, read_file
from sites.counters.group_file import Number
from sites.site_file import Name

Factors = dict[str, Number]
BUILT_IN_MAPS = "campaign/profiles/maps"


class CounterMap(FileModel):
    """A counter map, checked. Read it with :func:`read_counter_map`."""

    description: str
    """One line: which profiler and device."""
    layout: Literal["perf-stat", "likwid", "ncu", "nsys", "nvprof"]
    """How the profiler's file is laid out."""
    time_s: Factors = Field(default_factory=dict)
    """Counter -> factor; their sum is the time in s. Units of time are already converted."""
    counts: dict[Name, Factors] = Field(default_factory=dict)
    """Class -> counter -> factor; their sum is the count. Units of bytes are already converted."""


def read_counter_map(name: str) -> CounterMap:
    """Read and check a map: a built-in's name, or a path that ends in .toml.

    Raises:
        FileError: there is none, or with file, line, key, what was found and what would be right.
    """
    path = find_file(name, Path(), BUILT_IN_MAPS, "counter map")
    return read_file(path, CounterMap)[0]
