"""Profile files: an application's operation counts, and its time at the setting of its run."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from dvfs.input_files import FileModel, Source, read_file
from sites.site_file import Name, NotNegative, Positive


class Profile(FileModel):
    """A profile file, checked. Read it with :func:`read_profile`."""

    kernel: Name
    """The application's name."""
    core_mhz: Positive | None = None
    """The core clock of the run, in MHz, if any."""
    mem_mhz: Positive | None = None
    """The memory clock of the run, in MHz, if any."""
    time_s: Positive
    """The time of the run, in s."""
    counts: dict[Name, NotNegative] = Field(min_length=1)
    """Class -> the operations of the run."""


def read_profile(path: Path) -> tuple[Profile, Source]:
    """Read and check a profile file.

    Raises:
        FileError: the file cannot be read, or is not a profile.
    """
    return read_file(path, Profile)
