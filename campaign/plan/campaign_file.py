"""The campaign file: which kernels are measured where, at which settings, how often and how."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from dvfs.input_files import BadValueError, Check, FileError, FileModel, Source, known_in, read_file
from kernels.registry import KERNELS
from kernels.space import WHERE
from sites.site_file import Name, NotNegative, OneLine, PartitionName, Positive
from sites.site_reading import built_in_sites


class Settings(FileModel):
    """Which of a site's legal settings are measured."""

    choose: Literal["all", "pairs", "random"] = "all"
    """Every legal setting, those in pairs, or count at random."""
    pairs: list[list[Positive]] | None = None
    """[core MHz, memory or uncore MHz], or [core MHz] without; a third value, in W, is the only
    power limit."""
    count: Annotated[int, Field(ge=1)] | None = None
    """How many settings are drawn."""
    seed: int = 0
    """The same seed draws the same settings."""
    core_mhz: list[Positive] | None = None
    """Only these core clocks, in MHz."""
    mem_mhz: list[Positive] | None = None
    """Only these memory clocks, in MHz."""
    uncore_mhz: list[Positive] | None = None
    """Only these uncore clocks, in MHz."""
    power_limit_w: list[Positive] | None = None
    """Only these power limits, in W."""
    profile: list[str] | None = None
    """Only these profiles."""

    @field_validator("pairs")
    @classmethod
    def _pairs(cls, value: list[list[float]] | None) -> list[list[float]] | None:
        for pair in value or []:
            if len(pair) not in (1, 2, 3):
                what = "each must be [core MHz, memory MHz] or [core MHz, memory MHz, W]"
                raise BadValueError(f"found {pair!r}", what)
        return value

    @model_validator(mode="after")
    def _pairs_are_used(self) -> Self:
        if self.pairs is not None and self.choose == "random":
            raise BadValueError(
                'not used with choose = "random"',
                'set choose = "pairs", or remove pairs',
                ("pairs",),
            )
        return self


class SiteEntry(FileModel):
    """A site of the campaign."""

    site: OneLine
    """A site file, relative to the campaign file, or a built-in site."""
    partitions: list[PartitionName] | None = None
    """The partitions to measure on (default: all)."""
    settings: Settings | None = None
    """Instead of the campaign's [settings]."""


class KernelEntry(FileModel):
    """A kernel and the parameters with which it is measured."""

    kernel: Annotated[str, known_in(KERNELS, "kernel")]
    """The name of a registered kernel."""
    label: Name | None = None
    """The kernel's name in stores and reports (default: its own)."""
    params: dict[str, Any] = Field(default_factory=dict)
    """Parameter = value, or a list of values; lists are crossed."""
    zip: list[dict[str, list[Any]]] = Field(default_factory=list)
    """Tables of lists of equal length, whose values are used together; each is crossed with the
    rest."""
    exclude: list[dict[str, Any]] = Field(default_factory=list)
    """Combinations to leave out: those with all values of a table, or one of each list."""
    space: dict[str, Any] | None = None
    """Variants: further parameters, each a list, a range 'first : last : step' or an expression;
    and conditions, where."""
    ranks: Annotated[int, Field(ge=1)] = 1
    """MPI ranks on each node that run the kernel together."""
    settings: Settings | None = None
    """Instead of the site's and the campaign's."""
    repeats: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Instead of the campaign's."""


class Protocol(FileModel):
    """How one point is measured, in the order of its steps (:mod:`campaign.measure.protocol`).

    Steps that serve meters are left out where no meter is read.
    """

    idle_s: NotNegative = 1.0
    """How long idle power is measured, in s."""
    warm_up_s: NotNegative = 0.5
    """Shortest warm-up, in s."""
    steady_pct: NotNegative = 1.0
    """The warm-up ends when two successive mean powers differ by at most this, in %, or twice their
    uncertainties. 0: not checked."""
    warm_up_max_s: NotNegative = 30.0
    """Longest warm-up, in s."""
    min_duration_s: NotNegative = 1.0
    """Shortest window, in s."""
    window_pct: NotNegative = 1.0
    """The meter's resolution and period may cause at most this uncertainty, in %. 0: any."""
    max_duration_s: Positive = 60.0
    """Longest window, in s."""
    trim_s: NotNegative = 0.0
    """What is cut off each end of a window, in s."""
    uncertainty_pct: Positive | None = None
    """Windows are repeated until the energy's random uncertainty is at most this, in % (default:
    once)."""
    max_windows: Annotated[int, Field(ge=1, le=1000)] = 10
    """The most windows that uncertainty_pct may ask for."""
    cool_down_s: NotNegative = 0.0
    """How long the node is idle afterwards, in s."""
    sampling_hz: Positive = 100.0
    """Readings of the meters per second."""
    timeout_s: Positive = 600.0
    """A measurement that takes longer has failed, in s."""


class Retries(FileModel):
    """How often a point is measured again after a failure that another attempt may not have, and
    a worker started again."""

    max: Annotated[int, Field(ge=0, le=100)] = 2
    """Further attempts at a point."""
    starts: Annotated[int, Field(ge=1, le=100)] = 3
    """How many Slurm jobs may end in a row before their worker connects; the partition is then
    given up."""


class Search(FileModel):
    """How campaign tune searches the variants and settings of each problem. campaign run measures
    them all."""

    strategy: str = "auto"
    """How points are chosen: auto, model, neighbours, random, or all."""
    budget: Annotated[int, Field(ge=1)] | None = None
    """The most points of a partition, with repeats (default: all)."""
    objective: str = "energy"
    """What is to be least: energy, time, edp, ed2p or weighted:ALPHA."""
    batch: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Variants at settings chosen together (default: 5, or the partition's nodes if more)."""
    seed: int = 0
    """Seed of random choices."""


class Campaign(FileModel):
    """A campaign file, checked. Read it with :func:`read_campaign`."""

    name: Name
    """The campaign's name."""
    seed: int = 0
    """Seed of the random order of the points."""
    repeats: Annotated[int, Field(ge=1, le=10_000)] = 1
    """How often each point is measured."""
    sites: list[SiteEntry] = Field(min_length=1)
    """Where to measure."""
    kernels: list[KernelEntry] = Field(min_length=1)
    """What to measure."""
    settings: Settings = Field(default_factory=Settings)
    """Which settings to measure."""
    protocol: Protocol = Field(default_factory=Protocol)
    """How each point is measured."""
    retries: Retries = Field(default_factory=Retries)
    """How often a failure is tried again."""
    search: Search | None = None
    """How campaign tune searches."""
    part_of: OneLine | None = None
    """The campaign file from which campaign next chose these points."""

    @property
    def most_repeats(self) -> int:
        """The number of repeats of the kernel with the most repeats."""
        return max(entry.repeats or self.repeats for entry in self.kernels)

    @property
    def tuned(self) -> dict[str, list[str]]:
        """A kernel's name in the store -> the parameters that its spaces declare, in order. Kernels
        without a space are missing."""
        names: dict[str, list[str]] = {}
        for entry in self.kernels:
            for name in entry.space or {}:
                params = names.setdefault(entry.label or entry.kernel, [])
                if name not in (WHERE, *params):
                    params.append(name)
        return names

    @property
    def registered_names(self) -> dict[str, str]:
        """A kernel's name in the store, which may be a label -> its name in the registry."""
        return {entry.label or entry.kernel: entry.kernel for entry in self.kernels}


def read_campaign(path: Path, checks: Sequence[Check] = ()) -> tuple[Campaign, Source]:
    """Read and check a campaign file. The Source has the lines of its keys. ``checks``: further
    checks; see :func:`dvfs.input_files.parse`.

    Raises:
        FileError: with file, line, key, what was found and a remedy.
    """
    name = str(path)
    if name in built_in_sites() and not path.exists():
        raise FileError(
            "is a built-in site, not a campaign file",
            f"name it in a campaign file, under [[sites]], or examine it: campaign doctor {name}",
            name,
        )
    return read_file(path, Campaign, checks)
