"""Counter groups: the events that are counted together, and the counts derived from them.

A group is a TOML file, in ``sites/counters/groups`` or of a site::

    description = "..."
    [events]
    fills = "cpu/event=0x51,umask=0x01/"
    [derived]
    l2 = { fills = 64 }

A derived count is a sum of events times factors. Its name is a class of operations (``dp``,
``l2`` ...), and it is in the unit of the class.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field

from dvfs.input_files import FileModel, KeyPath, Source, matching, read_file

BUILT_IN_GROUPS = "sites/counters/groups"
NAME = "[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"
Name = Annotated[str, matching(NAME, "must be 1 to 64 letters, digits, _ . -")]
Number = Annotated[float, Field(allow_inf_nan=False)]


class CounterGroup(FileModel):
    """A counter group, checked. Read it with :func:`read_group`."""

    description: str
    """One line: which processors, and what is counted."""
    events: dict[Name, str] = Field(min_length=1)
    """Name -> event as perf writes it: "instructions", "r01c7", or "cpu/event=0xc7,umask=0x01/"."""
    derived: dict[Name, dict[Name, Number]] = Field(default_factory=dict)
    """Class -> event -> factor: l2 = { fills = 64 } counts bytes from events of 64 bytes."""

    def derive(self, counts: Mapping[str, float]) -> dict[str, float]:
        """Class -> count, for the classes whose events were all counted.

        ``counts``: event -> count. A negative sum is left out: the events do not fit together, and
        zero would be wrong.
        """
        derived = {}
        for name, factors in self.derived.items():
            if set(factors) <= set(counts):
                value = sum(factor * counts[event] for event, factor in factors.items())
                if value >= 0:
                    derived[name] = value
        return derived


def read_group(path: Path) -> CounterGroup:
    """Read and check a group file.

    Raises:
        FileError: with file, line, key, what was found and what would be right.
    """
    group, source = read_file(path, CounterGroup)
    check_derived(group, source)
    return group


def check_derived(group: CounterGroup, source: Source, key: KeyPath = ()) -> None:
    """Refuse a derived count of an event that the group, at ``key`` in the file, does not have.

    Raises:
        FileError: with the place and a remedy.
    """
    for name, factors in group.derived.items():
        unknown = [event for event in factors if event not in group.events]
        if unknown:
            raise source.error(
                (*key, "derived", name),
                f"no event {unknown[0]!r}",
                f"use those of [events]: {', '.join(group.events)}",
            )
