"""Profiles: what an application counts, and how long it took at the one setting where it ran."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from sites.located_toml import FileModel, Source, parse, read_text
from sites.site_file import Name, NotNegative, Positive


class Profile(FileModel):
    """A profile file: ``counts`` of one run, by class, and ``time_s`` of it at its clocks."""

    kernel: Name
    core_mhz: Positive | None = None
    mem_mhz: Positive | None = None
    time_s: Positive
    counts: dict[Name, NotNegative] = Field(min_length=1)


def read_profile(path: Path) -> tuple[Profile, Source]:
    """Read and check a profile file.

    Raises:
        BadFile: it can't be read, or is no profile.
    """
    return parse(path, read_text(path), Profile)
