"""The campaign file: which kernels run where, at which settings, how often, measured how."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from kernels.registry import KERNELS
from sites.located_toml import BadValue, FileModel, Source, parse, read_text
from sites.site_file import Name, NotNegative, OneLine, Positive, known


class Settings(FileModel):
    """Which of a site's legal settings are measured: all, the pairs listed, or some at random."""

    choose: Literal["all", "pairs", "random"] = "all"
    pairs: list[list[Positive]] | None = None
    """(core MHz, memory MHz), or (core MHz) where the site has no memory clock."""
    count: Annotated[int, Field(ge=1)] | None = None
    seed: int = 0

    @field_validator("pairs")
    @classmethod
    def _pairs(cls, value: list[list[float]] | None) -> list[list[float]] | None:
        for pair in value or []:
            if len(pair) not in (1, 2):
                raise BadValue(f"found {pair!r}", "each must be [core MHz, memory MHz]")
        return value


class SiteEntry(FileModel):
    """A site of the campaign: a built-in's name or a file, and its partitions (default: all)."""

    site: OneLine
    partitions: list[Name] | None = None
    settings: Settings | None = None


class KernelEntry(FileModel):
    """A kernel and its parameter sweep.

    Every list under ``params`` is crossed with the others; the lists of one ``zip`` table go
    together, and each such table is crossed with the rest. A point that matches all values of
    an ``exclude`` table is left out. ``label`` names the kernel in the store and the reports
    (default: the kernel's own name).
    """

    kernel: str
    label: Name | None = None
    params: dict[str, Any] = Field(default_factory=dict)
    zip: list[dict[str, list[Any]]] = Field(default_factory=list)
    exclude: list[dict[str, Any]] = Field(default_factory=list)
    ranks: Annotated[int, Field(ge=1)] = 1
    """Started as so many MPI ranks."""

    @field_validator("kernel")
    @classmethod
    def _known(cls, value: str) -> str:
        return known(value, KERNELS, "kernel")


class Protocol(FileModel):
    """How one point is measured, in the order of its steps (:mod:`campaign.measure.protocol`).

    What serves a meter is left out where none is read.
    """

    idle_s: NotNegative = 1.0
    """The node's idle power is measured for so long, at the point's setting."""
    warm_up_s: NotNegative = 0.5
    """The kernel runs at least so long before anything counts."""
    steady_pct: NotNegative = 1.0
    """Then until the mean powers of two stretches that follow each other differ by no more than
    this, or by no more than they are uncertain; 0: it is not asked."""
    warm_up_max_s: NotNegative = 30.0
    """At most so long; the measurement is then flagged as not steady."""
    min_duration_s: NotNegative = 1.0
    """The kernel is repeated until its window is at least this long."""
    window_pct: NotNegative = 1.0
    """And until the resolution and period of its meter make it uncertain by no more than this."""
    max_duration_s: Positive = 60.0
    """But no longer than this for a meter's sake."""
    trim_s: NotNegative = 0.0
    """So much is cut off each end of a window before its power is taken."""
    uncertainty_pct: Positive | None = None
    """Windows are repeated until the energy is known to this standard uncertainty, as far as
    repeating helps; without it there is one window."""
    max_windows: Annotated[int, Field(ge=1, le=1000)] = 10
    """At most so many."""
    cool_down_s: NotNegative = 0.0
    """The node is left alone for so long after the last window."""
    sampling_hz: Positive = 100.0
    timeout_s: Positive = 600.0
    """A measuring subprocess that takes longer is killed with its children."""


class Retries(FileModel):
    """How often a point is tried again after a failure that can pass."""

    max: Annotated[int, Field(ge=0, le=100)] = 2


class Campaign(FileModel):
    """A campaign file, checked. Read it with :func:`read_campaign`."""

    name: Name
    seed: int = 0
    repeats: Annotated[int, Field(ge=1, le=10_000)] = 1
    sites: list[SiteEntry] = Field(min_length=1)
    kernels: list[KernelEntry] = Field(min_length=1)
    settings: Settings = Settings()
    protocol: Protocol = Protocol()
    retries: Retries = Retries()


def read_campaign(path: Path) -> tuple[Campaign, Source]:
    """Read and check a campaign file; the Source tells where its keys stand.

    Raises:
        BadFile: with file, line, key, what was found and what would do.
    """
    return parse(path, read_text(path), Campaign)
