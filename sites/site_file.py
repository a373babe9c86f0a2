"""The site file: a machine or cluster, its partitions, domains, clock control and meters."""

from __future__ import annotations

from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, StringConstraints, field_validator

from sites.clocks import CONTROLS
from sites.located_toml import BadFile, FileModel, Source, parse, read_text
from sites.meters import METERS
from sites.setting import AS_FOUND, Setting

OF_THE_SHELL = ("_", "UID", "EUID", "PPID", "BASHOPTS", "SHELLOPTS", "BASH_VERSINFO")


def _settable(name: str) -> str:
    if name in OF_THE_SHELL:
        raise ValueError("a name that the shell keeps to itself; choose another")
    return name


NAME = "[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"
Name = Annotated[str, StringConstraints(pattern=f"^{NAME}$")]
Walltime = Annotated[str, StringConstraints(pattern=r"^([0-9]+-)?[0-9]{1,3}(:[0-5][0-9]){1,2}$")]
Variable = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$"),
    AfterValidator(_settable),
]
Interface = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:@-]*$")]
SlurmWord = Annotated[str, StringConstraints(pattern=r"^[^\n\r\x00\\]+$")]
"""sbatch takes a backslash out of its directives, inside quotes too."""
OneLine = Annotated[str, StringConstraints(pattern=r"^[^\n\r\x00]+$")]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=False)]


def voltage_pairs(value: Any) -> Any:
    """A list of [MHz, V] from a file as pairs; what is no list is left for the model to refuse.

    Raises:
        ValueError: an entry that is not of two.
    """
    if isinstance(value, list):
        for pair in value:
            if not isinstance(pair, list) or len(pair) != 2:
                raise ValueError(f"found {pair!r}; each entry must be [MHz, V]")
        return [tuple(pair) for pair in value]
    return value


class Domain(FileModel):
    """A clock domain: its legal frequencies, and its voltage at each where a table is known."""

    frequencies_mhz: list[Positive] = Field(min_length=1)
    voltage_v: list[tuple[Positive, Positive]] | None = None
    """(MHz, V) pairs, one for every legal frequency, or nothing at all."""

    _pairs = field_validator("voltage_v", mode="before")(voltage_pairs)

    @field_validator("voltage_v")
    @classmethod
    def _volts(cls, value: list[tuple[float, float]] | None) -> list[tuple[float, float]] | None:
        for mhz, volt in value or []:
            if volt > 20:
                raise ValueError(f"found {volt:g} V at {mhz:g} MHz; give volts, not millivolts")
        return value

    @cached_property
    def volts(self) -> dict[float, float]:
        """MHz -> V; empty where no table is known."""
        return dict(self.voltage_v or [])


class Domains(FileModel):
    """The domains of a site; a domain that can't be set is left out."""

    core: Domain | None = None
    mem: Domain | None = None


class Legal(FileModel):
    """The core clocks that are legal at one memory clock."""

    mem_mhz: Positive
    core_mhz: list[Positive] = Field(min_length=1)


class CoreVoltage(FileModel):
    """The hwmon input that shows the core voltage (see sites.clocks.shared.hwmon_voltage)."""

    chip: OneLine
    label: OneLine


class Clocks(FileModel):
    """How clocks are set: a control registered in :mod:`sites.clocks`, and whose clocks."""

    control: str = "fixed"
    options: dict[str, Any] = Field(default_factory=dict)
    """What the control takes, such as the number of a GPU; see its module."""
    core_voltage: CoreVoltage | None = None
    """Where the node tells its core voltage: it then comes before the table's."""
    device: Literal["cpu", "gpu"] = "cpu"
    tolerance_pct: NotNegative = 2.0
    """How far an achieved clock may lie from the asked one."""

    @field_validator("control")
    @classmethod
    def _known(cls, value: str) -> str:
        return known(value, CONTROLS, "clock control")


class MeterEntry(FileModel):
    """One meter of a node: a kind registered in :mod:`sites.meters`, and its options."""

    kind: str
    use: Literal["energy", "check"] = "energy"
    """Whether it counts in a point's energy, or is only compared with those that do."""
    options: dict[str, Any] = Field(default_factory=dict)

    @field_validator("kind")
    @classmethod
    def _known(cls, value: str) -> str:
        return known(value, METERS, "meter")


class OperationClass(FileModel):
    """An operation class: the domain whose voltage it pays, and what it is counted as."""

    domain: Literal["core", "mem"]
    counted_as: list[Name] = Field(default_factory=list)
    """Classes of the kernels' counts that are this one here (on a GPU, l1 is shared)."""


class Environment(FileModel):
    """What a job needs before the worker starts, on this partition's nodes."""

    python: OneLine | None = None
    modules: list[OneLine] = Field(default_factory=list)
    variables: dict[Variable, OneLine] = Field(default_factory=dict)


class Partition(FileModel):
    """A partition of the site, as its scheduler knows it."""

    scheduler: Literal["local", "slurm"] = "local"
    nodes: Annotated[int, Field(ge=1)] = 1
    """How many nodes are measured on at once: one worker, one allocation each."""
    cores: Annotated[int, Field(ge=1)] = 1
    memory: Annotated[str, StringConstraints(pattern=r"^[0-9]+ ?([KMGT]i?)?B$")] = "2GB"
    walltime: Walltime = "01:00:00"
    account: SlurmWord | None = None
    qos: SlurmWord | None = None
    directives: list[OneLine] = Field(default_factory=list)
    """Further #SBATCH lines, such as ``--gres=gpu:1``."""
    exclusive: bool = True
    interface: Interface | None = None
    """The network interface that workers and scheduler use to reach each other."""
    local_directory: OneLine = "/tmp"  # noqa: S108  (node-local scratch; a private folder is made)
    environment: Environment = Environment()

    @field_validator("directives")
    @classmethod
    def _directive(cls, value: list[str]) -> list[str]:
        for each in value:
            if not each.startswith("-"):
                raise ValueError(f"found {each!r}; write the option alone, as --gres=gpu:1")
        return value


class Slurm(FileModel):
    """How to reach the site's Slurm from where the campaign runs."""

    conf: OneLine | None = None
    """SLURM_CONF of the cluster, where it is not the host's own."""
    submit_prefix: list[OneLine] = Field(default_factory=list)
    """Words before sbatch, squeue and scancel: ``["ssh", "login-b"]``."""


class Twin(FileModel):
    """A simulated machine: the truth that a fit should find again."""

    energy_pj_per_v2: dict[Name, NotNegative]
    """Class -> pJ/V^2 of one operation (seed 003, eq. 6 and 7)."""
    rate_per_cycle: dict[Name, Positive]
    """Class -> operations in a cycle of the class's domain."""
    leakage_core_w_per_v: NotNegative
    leakage_mem_w_per_v: NotNegative
    misc_w: NotNegative
    overlap: Annotated[float, Field(ge=1, strict=False)] = 8.0
    """Exponent p of T = (sum_k t_k^p)^(1/p): 1 adds the classes' times, infinity is a roofline."""
    launch_s: NotNegative = 20e-6
    meter_hz: Positive = 1024.0
    """Samples a second of its own power meter, on the board's supply."""
    noise: Literal["default", "off"] = "default"
    setting_gain_pct: NotNegative = 1.5
    """Relative standard deviation of the energy that a setting shares over its runs."""
    run_gain_pct: NotNegative = 2.5
    """Relative standard deviation of one run's power."""
    time_pct: NotNegative = 0.3
    sample_w: NotNegative = 0.05
    """Standard deviation of one power sample, in W."""


class Site(FileModel):
    """A site file, checked. Build it with :func:`read_site`."""

    name: Name
    description: str = ""
    domains: Domains = Domains()
    legal: list[Legal] = Field(default_factory=list)
    clocks: Clocks = Clocks()
    meters: list[MeterEntry] = Field(default_factory=list)
    classes: dict[Name, OperationClass] = Field(default_factory=dict)
    partitions: dict[Name, Partition] = Field(min_length=1)
    slurm: Slurm = Slurm()
    twin: Twin | None = None

    @cached_property
    def settings(self) -> list[Setting]:
        """Every legal setting, by memory and then core clock; ``AS_FOUND`` without domains."""
        core = self.domains.core.frequencies_mhz if self.domains.core else [None]
        mem = self.domains.mem.frequencies_mhz if self.domains.mem else [None]
        restricted = {each.mem_mhz: each.core_mhz for each in self.legal}
        found = [
            Setting(c, m)
            for m in mem
            for c in core
            if m is None or m not in restricted or c in restricted[m]
        ]
        return found or [AS_FOUND]

    def volts(self, setting: Setting) -> tuple[float | None, float | None]:
        """(core V, memory V) of a setting from the site's tables; None where there is none."""
        core = self.domains.core.volts if self.domains.core else {}
        mem = self.domains.mem.volts if self.domains.mem else {}
        return core.get(setting.core_mhz or 0.0), mem.get(setting.mem_mhz or 0.0)

    def class_of(self, counted: str) -> str:
        """The site's class of what a kernel counts as ``counted``."""
        for name, entry in self.classes.items():
            if counted in entry.counted_as:
                return name
        return counted

    @property
    def simulated(self) -> bool:
        """Whether this site is a twin: every figure that comes from it is simulated."""
        return self.twin is not None


def known(value: str, registry: dict[str, str], what: str) -> str:
    """``value``, if the registry has it; else a ValueError that lists what it has."""
    if value not in registry:
        raise ValueError(f"unknown {what} {value!r}; known: {', '.join(sorted(registry))}")
    return value


def built_in_sites() -> dict[str, Path]:
    """Name -> path of the site files that come with the project."""
    folder = Path(str(files("sites"))) / "builtin"
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def read_site(path: Path) -> Site:
    """Read and check a site file.

    Raises:
        BadFile: with file, line, key, what was found and what would do.
    """
    site, source = parse(path, read_text(path), Site)
    _check_tables(site, source)
    return site


def _check_tables(site: Site, source: Source) -> None:
    for name in ("core", "mem"):
        domain: Domain | None = getattr(site.domains, name)
        if domain is None:
            continue
        key = ("domains", name)
        if len(set(domain.frequencies_mhz)) < len(domain.frequencies_mhz):
            raise source.error((*key, "frequencies_mhz"), "a frequency twice", "list it once")
        if domain.voltage_v is not None:
            missing = [mhz for mhz in domain.frequencies_mhz if mhz not in domain.volts]
            if missing:
                raise source.error(
                    (*key, "voltage_v"),
                    f"no voltage for {missing[0]:g} MHz",
                    "give every legal frequency its [MHz, V], or leave voltage_v out",
                )
    _check_legal(site, source)
    control = CONTROLS[site.clocks.control]
    if site.clocks.control == "fixed" and (site.domains.core or site.domains.mem):
        raise source.error(
            ("clocks", "control"),
            "control 'fixed' sets no clocks, and [domains] lists frequencies to set",
            "choose another control, or leave [domains] out",
        )
    if (site.clocks.control == "twin") != site.simulated:
        raise source.error(
            ("clocks", "control"),
            f"control {site.clocks.control!r} ({control}) and "
            f"{'a' if site.simulated else 'no'} [twin] table",
            "the control 'twin' and a [twin] table go together",
        )
    if site.simulated and site.meters:
        raise source.error(
            ("meters", 0, "kind"),
            "a meter of a real node on a simulated machine",
            "leave [[meters]] out: the twin has a meter of its own (twin.meter_hz)",
        )
    if site.clocks.control == "slurm":
        local = [n for n, p in site.partitions.items() if p.scheduler != "slurm"]
        if local:
            raise source.error(
                ("partitions", local[0], "scheduler"),
                "clocks by Slurm's job steps on a partition that is not Slurm's",
                "set scheduler = 'slurm', or another clock control",
            )
    if site.twin is not None:
        _check_twin(site, source)


def _check_legal(site: Site, source: Source) -> None:
    for i, entry in enumerate(site.legal):
        if site.domains.mem is None or entry.mem_mhz not in site.domains.mem.frequencies_mhz:
            raise source.error(
                ("legal", i, "mem_mhz"),
                f"found {entry.mem_mhz:g} MHz",
                "must be one of domains.mem.frequencies_mhz",
            )
        core = site.domains.core.frequencies_mhz if site.domains.core else []
        stray = [mhz for mhz in entry.core_mhz if mhz not in core]
        if stray:
            raise source.error(
                ("legal", i, "core_mhz"),
                f"found {stray[0]:g} MHz",
                "must be one of domains.core.frequencies_mhz",
            )


def _check_twin(site: Site, source: Source) -> None:
    twin = site.twin
    assert twin is not None  # noqa: S101
    for name in sorted({*twin.energy_pj_per_v2, *twin.rate_per_cycle}):
        for table in ("energy_pj_per_v2", "rate_per_cycle"):
            if name not in getattr(twin, table):
                raise source.error(("twin", table), f"no value for class {name!r}", "give one")
        if name not in site.classes:
            raise source.error(
                ("twin", "energy_pj_per_v2", name),
                f"class {name!r} has no domain",
                f"add [classes.{name}] with its domain",
            )
    for name in ("core", "mem"):
        domain = getattr(site.domains, name)
        if domain is None or not domain.volts:
            raise source.error(
                ("domains", name),
                "a simulated machine without a voltage table",
                "give the domain its voltage_v",
            )


def find_site(name: str, beside: Path) -> Path:
    """The path of a site that a campaign file names: a built-in's name, or a path beside it."""
    if name.endswith(".toml"):
        return beside / name
    built_in = built_in_sites()
    if name in built_in:
        return built_in[name]
    raise BadFile(
        f"unknown site {name!r}; name a site file (ending in .toml) or one of: "
        f"{', '.join(built_in)}"
    )
