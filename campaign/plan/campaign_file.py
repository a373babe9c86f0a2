"""The campaign file: which kernels are measured where, at which settings, how often and how."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from dvfs.input_files import BadValueError, Check, FileError, FileModel, Source, read_file
from kernels.registry import KERNELS
from kernels.space import WHERE
from sites.site_file import Name, NotNegative, OneLine, PartitionName, Positive, known
from sites.site_reading import built_in_sites


class Settings(FileModel):
    """Which of a site's legal settings are measured."""

    choose: Literal["all", "pairs", "random"] = "all"
    """all: every legal setting. pairs: those listed in pairs. random: count of them, drawn at
    random."""
    pairs: list[list[Positive]] | None = None
    """For choose = 'pairs': settings as [core MHz, memory or uncore MHz], or [core MHz] where the
    site has neither. With a third value, in W, only at this power limit."""
    count: Annotated[int, Field(ge=1)] | None = None
    """For choose = 'random': how many settings are drawn."""
    seed: int = 0
    """For choose = 'random': the same seed draws the same settings."""
    core_mhz: list[Positive] | None = None
    """Of these settings only those with one of these core clocks, in MHz."""
    mem_mhz: list[Positive] | None = None
    """Of these settings only those with one of these memory clocks, in MHz."""
    uncore_mhz: list[Positive] | None = None
    """Of these settings only those with one of these uncore clocks, in MHz."""
    power_limit_w: list[Positive] | None = None
    """Of these settings only those with one of these power limits, in W."""
    profile: list[str] | None = None
    """Of these settings only those with one of these profiles."""

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
    """A site file, relative to the campaign file, or the name of a built-in site."""
    partitions: list[PartitionName] | None = None
    """The partitions to measure on (default: all of the site)."""
    settings: Settings | None = None
    """The settings at this site, instead of the campaign's [settings]."""


class KernelEntry(FileModel):
    """A kernel and the parameters with which it is measured."""

    kernel: str
    """The name of a registered kernel."""
    label: Name | None = None
    """The kernel's name in the store and in reports (default: the kernel's own name). Two entries
    of one label must be of one kernel."""
    params: dict[str, Any] = Field(default_factory=dict)
    """Parameter = value, or a list of values. Every value of one list is combined with every value
    of the others."""
    zip: list[dict[str, list[Any]]] = Field(default_factory=list)
    """Tables of lists of equal length. The first values of a table's lists are used together, then
    the second ones, and so on; each table is combined with the rest."""
    exclude: list[dict[str, Any]] = Field(default_factory=list)
    """Combinations to leave out: those that have all values of a table. A list matches any of its
    values."""
    space: dict[str, Any] | None = None
    """Variants: further parameters, each a list of values, a range 'first : last : step', or an
    expression; and where, a list of conditions. See the page on spaces."""
    ranks: Annotated[int, Field(ge=1)] = 1
    """The number of MPI ranks on each node of a point that run the kernel together. A command is
    one program of them all."""
    settings: Settings | None = None
    """The settings of this kernel, instead of the site's and the campaign's."""
    repeats: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """How often each point of this kernel is measured, instead of the campaign's repeats."""

    @field_validator("kernel")
    @classmethod
    def _known(cls, value: str) -> str:
        return known(value, KERNELS, "kernel")


class Protocol(FileModel):
    """How one point is measured, in the order of its steps (:mod:`campaign.measure.protocol`).

    Steps that serve meters are left out where no meter is read.
    """

    idle_s: NotNegative = 1.0
    """How long the node's idle power is measured at the point's setting, in s."""
    warm_up_s: NotNegative = 0.5
    """How long the kernel runs at least before the measurement, in s."""
    steady_pct: NotNegative = 1.0
    """The warm-up ends when the mean powers of two successive stretches differ by at most this, in
    %, or by at most twice their uncertainties. 0: this is not checked."""
    warm_up_max_s: NotNegative = 30.0
    """The longest warm-up, in s. The measurement is flagged where power is not steady by then."""
    min_duration_s: NotNegative = 1.0
    """The shortest window, in s: the kernel is repeated to fill it."""
    window_pct: NotNegative = 1.0
    """The window is made long enough that the meter's resolution and period cause at most this
    uncertainty, in %. 0: this is not considered."""
    max_duration_s: Positive = 60.0
    """The longest window that window_pct may ask for, in s."""
    trim_s: NotNegative = 0.0
    """How much is cut off each end of a window before its power is determined, in s."""
    uncertainty_pct: Positive | None = None
    """Windows are repeated until the random part of the energy's standard uncertainty is at most
    this, in % (default: there is one window)."""
    max_windows: Annotated[int, Field(ge=1, le=1000)] = 10
    """The most windows that uncertainty_pct may ask for."""
    cool_down_s: NotNegative = 0.0
    """How long the node is idle after the last window, in s."""
    sampling_hz: Positive = 100.0
    """How often meters are read, in readings per second."""
    timeout_s: Positive = 600.0
    """A measurement that takes longer is killed with all its processes, and has failed, in s."""


class Retries(FileModel):
    """How often a point is measured again after a failure that another attempt may not have, and
    a worker started again."""

    max: Annotated[int, Field(ge=0, le=100)] = 2
    """Further attempts at a point after the first."""
    starts: Annotated[int, Field(ge=1, le=100)] = 3
    """How many Slurm jobs of a partition may end in a row before their worker has connected. The
    partition is then given up in this run."""


class Search(FileModel):
    """How campaign tune searches the variants and settings of each problem. campaign run measures
    them all."""

    strategy: str = "auto"
    """How the next points are chosen: auto, model (a sum of counts, or a forest), neighbours (local
    search), random, or all (in the order of the space)."""
    budget: Annotated[int, Field(ge=1)] | None = None
    """The most points of a partition that are measured (default: all of them)."""
    objective: str = "energy"
    """What is to be least: energy, time, edp, ed2p or weighted:ALPHA."""
    batch: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """How many variants at settings are chosen together, from the results of all before (default:
    5, or as many as the partition measures at the same time, where these are more)."""
    seed: int = 0
    """The seed of what is drawn at random."""


class Campaign(FileModel):
    """A campaign file, checked. Read it with :func:`read_campaign`."""

    name: Name
    """The campaign's name, which its store keeps."""
    seed: int = 0
    """The seed of the random order of the points."""
    repeats: Annotated[int, Field(ge=1, le=10_000)] = 1
    """How often each point is measured, in blocks one after another."""
    sites: list[SiteEntry] = Field(min_length=1)
    """Where to measure."""
    kernels: list[KernelEntry] = Field(min_length=1)
    """What to measure."""
    settings: Settings = Settings()
    """Which of each site's legal settings to measure."""
    protocol: Protocol = Protocol()
    """How each point is measured."""
    retries: Retries = Retries()
    """How often a failure is tried again."""
    search: Search | None = None
    """How campaign tune searches."""
    part_of: OneLine | None = None
    """The campaign file from which campaign next chose these points, relative to this one. campaign
    next goes on choosing from that file."""

    @property
    def most_repeats(self) -> int:
        """How often the points of the kernel with the most repeats are measured."""
        return max(entry.repeats or self.repeats for entry in self.kernels)

    @property
    def tuned(self) -> dict[str, list[str]]:
        """A kernel's name in the store -> the parameters that its spaces declare, in order. Those
        of kernels without a space are not in it."""
        names: dict[str, list[str]] = {}
        for entry in self.kernels:
            for name in entry.space or {}:
                own = names.setdefault(entry.label or entry.kernel, [])
                if name not in (WHERE, *own):
                    own.append(name)
        return names


def read_campaign(path: Path, checks: Sequence[Check] = ()) -> tuple[Campaign, Source]:
    """Read and check a campaign file. The Source knows the lines of its keys. ``checks``: further
    ones; see :func:`dvfs.input_files.parse`.

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
