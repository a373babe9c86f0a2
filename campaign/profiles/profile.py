"""A profile of an application, from one or several files of profilers, by a map of counters.

A map lists the profiler's counters of each operation class, and of the time. It is a TOML file,
one of those in ``campaign/profiles/maps`` or a user's::

    description = "..."
    layout = "ncu"
    [time_s]
    "gpu__time_duration.sum" = 1
    [counts.dram]
    "dram__bytes.sum" = 1
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from campaign.table.profiler_tables import Counted, Selection, read_counted
from dvfs.errors import ArgumentError
from dvfs.input_files import FileError, FileModel, find_file, read_file
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


@dataclass(frozen=True, kw_only=True)
class ApplicationProfile:
    """An application's operation counts, and its time at the one setting of its run.

    ``counts``: class -> operations or bytes. ``time_s`` and the clocks are None where they are not
    known. ``notes``: sentences about what may be wrong with the counts.
    """

    kernel: str
    counts: Mapping[str, float]
    time_s: float | None
    core_mhz: float | None = None
    mem_mhz: float | None = None
    notes: tuple[str, ...] = ()

    def as_toml(self) -> str:
        """The profile file that ``campaign predict --profile`` reads."""
        head = {"core_mhz": self.core_mhz, "mem_mhz": self.mem_mhz, "time_s": self.time_s}
        lines = [f"# {note}" for note in self.notes]
        lines.append(f"kernel = {json.dumps(self.kernel)}")
        lines += [f"{key} = {value!r}" for key, value in head.items() if value is not None]
        if self.time_s is None:
            lines.append("# time_s = the time of the run in s")
        return "\n".join(
            [*lines, "", "[counts]", *(f"{_key(k)} = {v!r}" for k, v in self.counts.items())]
        )


def read_application(
    sources: Sequence[tuple[Path, str]],
    name: str,
    *,
    kernel: str | None = None,
    region: str | None = None,
    time_s: float | None = None,
    core_mhz: float | None = None,
    mem_mhz: float | None = None,
) -> ApplicationProfile:
    """The profile of an application from profilers' files, each with the name of its map.

    ``kernel``: a regular expression for the names of kernels to take. ``region``: a marker region.
    ``time_s``: the run's time, instead of what the maps give: the time of a file of times alone,
    otherwise of the first one that has one.

    Raises:
        FileError: a file or a map cannot be read, or lacks a counter that its map needs; or two
            files count the same class.
        ArgumentError: ``kernel`` is not a regular expression.
    """
    try:
        selection = Selection(re.compile(kernel) if kernel else None, region)
    except re.error as error:
        raise ArgumentError(f"--kernel: {kernel!r} is not a regular expression: {error}") from None
    counts: dict[str, float] = {}
    counted_in: dict[str, Path] = {}
    notes: list[str] = []
    maps = [(path, read_counter_map(map_name)) for path, map_name in sources]
    # A file of times alone comes first, wherever it is listed: counting slows a run down.
    for path, counter_map in sorted(maps, key=lambda source: bool(source[1].counts)):
        needed = {*counter_map.time_s}.union(*counter_map.counts.values())
        counted = read_counted(path, counter_map.layout, selection, needed)
        for class_name, count in _counts(counter_map, counted, path).items():
            if class_name in counts:
                raise FileError(
                    f"counts {class_name}, which {counted_in[class_name]} counts too",
                    "give each class by one file: leave it out of the map of the other",
                    str(path),
                )
            counts[class_name], counted_in[class_name] = count, path
        notes += counted.notes
        if time_s is None and counter_map.time_s:
            time_s = _sum(counter_map.time_s, counted, path, "time_s")
    if not counts:
        raise FileError(
            "the maps give no operation counts", "give a file whose map has [counts]", name
        )
    return ApplicationProfile(
        kernel=name,
        counts=counts,
        time_s=time_s,
        core_mhz=core_mhz,
        mem_mhz=mem_mhz,
        notes=tuple(notes),
    )


def _key(name: str) -> str:
    return name if re.fullmatch("[A-Za-z0-9_-]+", name) else json.dumps(name)


def _counts(counter_map: CounterMap, counted: Counted, path: Path) -> dict[str, float]:
    """Class -> count, for the classes of which the file has every counter.

    A class without any counter in the file is left out: it was not counted, which is not zero.
    """
    counts = {}
    for name, factors in counter_map.counts.items():
        if any(counter in counted.values or counter in counted.not_counted for counter in factors):
            counts[name] = _sum(factors, counted, path, name)
            if counts[name] < 0:
                raise FileError(
                    f"the counters of {name} give {counts[name]:g}, below zero",
                    "count them in one run, or correct the map",
                    str(path),
                )
    return counts


def _sum(factors: Mapping[str, float], counted: Counted, path: Path, name: str) -> float:
    missing = [counter for counter in factors if counter not in counted.values]
    refused = [counter for counter in missing if counter in counted.not_counted]
    if refused:
        raise FileError(
            f"{refused[0]} is {counted.not_counted[refused[0]]}, which the map needs for {name}",
            "choose an event in the map that this processor counts (perf list shows them), or "
            f"leave {name} out of the map",
            str(path),
        )
    if missing:
        raise FileError(
            f"has no value of {missing[0]}, which the map needs for {name}",
            "profile again with that counter, or leave it out of the map",
            str(path),
        )
    return sum(factor * counted.values[counter] for counter, factor in factors.items())
