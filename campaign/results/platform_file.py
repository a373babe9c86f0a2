"""Platform files: the constants of a machine for rooflines, where nothing was measured."""

from __future__ import annotations

import math
from pathlib import Path

from pydantic import Field

from analysis.rooflines.platforms import Operation, Platform
from dvfs.input_files import FileModel, read_file
from sites.site_file import Name, NotNegative, OneLine, Positive


class PlatformOperation(FileModel):
    """A class of operations of a platform file."""

    gop_s: Positive
    """Peak, in 1e9 operations/s."""
    eps_pj: NotNegative
    """Energy of an operation, in pJ."""
    attained_gop_s: Positive | None = None
    """Highest measured rate, in 1e9 operations/s."""
    attained_gb_s: Positive | None = None
    """Highest measured rate of memory, in GB/s."""


class PlatformFile(FileModel):
    """A platform file, checked. Read it with :func:`read_platform`."""

    name: Name
    """The platform's name in figures and tables."""
    model: OneLine = ""
    """The machine (default: its name)."""
    source: OneLine = ""
    """Where its constants are from (default: the file)."""
    gb_s: Positive
    """Peak of memory, in GB/s."""
    eps_mem_pj: NotNegative
    """Energy of a byte of memory, in pJ."""
    constant_w: NotNegative
    """Constant power, in W."""
    tdp_w: Positive | None = None
    """Thermal design power, in W."""
    operations: dict[Name, PlatformOperation] = Field(min_length=1)
    """Class -> its constants."""
    caches_pj: dict[Name, NotNegative] = Field(default_factory=dict)
    """Cache -> energy of a byte, in pJ."""


def read_platform(path: Path) -> Platform:
    """The platform that a file describes.

    Raises:
        FileError: it cannot be read, or is not a platform file.
    """
    own, _ = read_file(path, PlatformFile)
    return Platform(
        name=own.name,
        model=own.model or own.name,
        source=own.source or path.name,
        operations={
            name: Operation(
                of.gop_s, of.eps_pj, of.attained_gop_s or math.nan, of.attained_gb_s or math.nan
            )
            for name, of in own.operations.items()
        },
        gb_s=own.gb_s,
        eps_mem_pj=own.eps_mem_pj,
        constant_w=own.constant_w,
        tdp_w=own.tdp_w or math.nan,
        caches_pj=own.caches_pj,
    )
