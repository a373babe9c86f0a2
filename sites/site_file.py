"""The model of a site file: a machine, its partitions, clock domains, clock control and meters."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from dvfs.dataset import POSSIBLE
from dvfs.input_files import BadValueError, FileModel, known_in, matching
from dvfs.registry import Registry
from dvfs.setting import AS_FOUND, Setting
from sites.clocks import CONTROLS
from sites.counters.group_file import CounterGroup
from sites.meters import METERS
from sites.slurm_environment import is_slurms

RESERVED_VARIABLES = ("_", "UID", "EUID", "PPID", "BASHOPTS", "SHELLOPTS", "BASH_VERSINFO")
"""Variables that bash does not let a script set."""


def _settable(name: str) -> str:
    if name in RESERVED_VARIABLES:
        raise BadValueError("the shell reserves this name", "choose another")
    if is_slurms(name):
        raise BadValueError(
            "Slurm's commands do not get this variable", "write the option that it stands for in "
            "the partition's directives",
        )  # fmt: skip
    return name


def _year(value: int) -> int:
    if not 1990 <= value <= 2100:
        raise BadValueError(f"found {value}", "must be a year, such as 2026")
    return value


NAME = "[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"
NAME_CHECK = matching(
    NAME, "must be 1 to 64 letters, digits, _ . -, beginning with a letter or digit"
)
Name = Annotated[str, NAME_CHECK]
PARTITION_NAME = r"\w[\w.:+@=~%&*!()-]{0,63}"
"""The names that Slurm accepts, without characters that separate names, paths and words (comma,
slash, space), and those that shells, job scripts and terminals treat specially."""
PARTITION_NAME_CHECK = matching(
    PARTITION_NAME,
    "must be 1 to 64 letters, digits, _ . : + @ = ~ % & * ! ( ) -, beginning with a letter, digit "
    "or _",
)
PartitionName = Annotated[str, PARTITION_NAME_CHECK]
Walltime = Annotated[
    str,
    matching(
        r"([0-9]+-)?[0-9]{1,3}(:[0-5][0-9]){1,2}",
        'must be HH:MM:SS or D-HH:MM:SS, such as "01:00:00"',
    ),
]
Memory = Annotated[
    str, matching("[0-9]+ ?([KMGT]i?)?B", 'must be a number and a unit, such as "200 MB"')
]
Variable = Annotated[
    str,
    matching(
        "[A-Za-z_][A-Za-z0-9_]*", "must be letters, digits and _, beginning with a letter or _"
    ),
    AfterValidator(_settable),
]
Interface = Annotated[
    str,
    matching("[A-Za-z0-9][A-Za-z0-9_.:@-]*", "must be a network interface, such as ib0"),
]
SlurmWord = Annotated[
    str, matching(r"[^\n\r\x00\\]+", "must be one line without a backslash, and not empty")
]
"""sbatch removes a backslash from its directives, also inside quotes."""
NODES_OPTION = re.compile(r"(?:-N|--nodes)[ =]*([0-9].*?) *")
OneLine = Annotated[str, matching(r"[^\n\r\x00]+", "must be one line, and not empty")]
Identifier = Annotated[
    str, matching("[A-Za-z_][A-Za-z0-9_]*", "must be letters, digits and _, and no digit first")
]
CurrencyName = Annotated[
    str, matching(r"[^\s\x00-\x1f]{1,8}", 'must be 1 to 8 characters, such as "EUR"')
]
Architecture = Annotated[str, matching("sm_[0-9]{2,3}", 'must be sm_ and digits, such as "sm_90"')]
MpiType = Annotated[
    str, matching("[a-z0-9_]+", "must be a name of `srun --mpi=list`, such as pmix")
]
Number = Annotated[int | float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Year = Annotated[int, AfterValidator(_year)]
Participation = Literal["measured", "estimated", "none"]


def voltage_pairs(value: Any) -> Any:
    """Return a file's list of [MHz, V] as pairs; the model refuses anything else.

    Raises:
        ValueError: an entry does not have two elements.
    """
    if isinstance(value, list):
        for pair in value:
            if not isinstance(pair, list) or len(pair) != 2:
                raise BadValueError(f"found {pair!r}", "each entry must be [MHz, V]")
        return [tuple(pair) for pair in value]
    return value


class Domain(FileModel):
    """A clock domain: its legal frequencies, and its voltage at each where a table is known."""

    frequencies_mhz: list[Positive] = Field(min_length=1)
    """The legal clocks, in MHz."""
    voltage_v: list[tuple[Positive, Positive]] | None = None
    """The voltage at each legal clock, as [MHz, V]."""

    _pairs = field_validator("voltage_v", mode="before")(voltage_pairs)

    @field_validator("voltage_v")
    @classmethod
    def _volts(cls, value: list[tuple[float, float]] | None) -> list[tuple[float, float]] | None:
        for mhz, volt in value or []:
            if volt > 20:
                raise BadValueError(
                    f"found {volt:g} V at {mhz:g} MHz", "give volts, not millivolts"
                )
        return value

    @cached_property
    def volts(self) -> dict[float, float]:
        """MHz -> V; empty where no table is known."""
        return dict(self.voltage_v or [])


class Domains(FileModel):
    """The clock domains of a site; leave out a domain whose clock cannot be set."""

    core: Domain | None = None
    """The core clock: of CPU cores or a GPU."""
    mem: Domain | None = None
    """The memory clock."""
    uncore: Domain | None = None
    """Of a CPU in place of mem: the clock of its last level cache, mesh and memory controllers."""

    @field_validator("core", "mem", "uncore")
    @classmethod
    def _clocks(cls, value: Domain | None, info: ValidationInfo) -> Domain | None:
        """Refuse clocks that no device has: they are in another unit."""
        least_mhz, most_mhz, _ = POSSIBLE[f"{info.field_name}_mhz"]
        for mhz in value.frequencies_mhz if value else ():
            if not least_mhz <= mhz <= most_mhz:
                unit = "GHz" if mhz < least_mhz else "kHz" if mhz < 1e8 else "Hz"
                raise BadValueError(
                    f"found {mhz:g}; devices have {least_mhz:g} to {most_mhz:,g} MHz",
                    f"give MHz, not {unit}",
                    ("frequencies_mhz",),
                )
        return value

    @model_validator(mode="after")
    def _one_beside_the_core(self) -> Self:
        if self.mem is not None and self.uncore is not None:
            raise BadValueError(
                "found uncore and mem: the energy model has one clock beside that of the core",
                "leave one of them out",
                ("uncore",),
            )
        return self


class Legal(FileModel):
    """The core clocks that are legal at one memory clock."""

    mem_mhz: Positive
    """A memory clock, in MHz."""
    core_mhz: list[Positive] = Field(min_length=1)
    """The core clocks that are legal with it, in MHz."""


class CoreVoltage(FileModel):
    """The hwmon input that shows the core voltage (see sites.clocks.shared.hwmon_voltage)."""

    chip: OneLine
    """The hwmon chip, such as amdgpu."""
    label: OneLine
    """The label of its voltage input, such as vddgfx."""


class Clocks(FileModel):
    """How clocks are set: a control registered in :mod:`sites.clocks`, and of which device."""

    control: Annotated[str, known_in(CONTROLS, "clock control")] = "fixed"
    """The name of a clock control."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Its options."""
    core_voltage: CoreVoltage | None = None
    """Where the node reports its core voltage, used instead of a table."""
    device: Literal["cpu", "gpu"] = "cpu"
    """Whose clocks they are."""
    tolerance_pct: NotNegative = 2.0
    """How far an achieved clock may be from the requested one, in %."""

    @property
    def in_steps(self) -> bool:
        """Whether the scheduler sets the clocks, of each job step."""
        return self.control == "slurm"


class PowerLimit(FileModel):
    """The power limits that can be set, beside the clocks or in their place."""

    limits_w: list[Positive] = Field(min_length=1)
    """The legal power limits of the device, in W."""
    control: Annotated[str, known_in(CONTROLS, "control")] | None = None
    """The name of a control that sets power limits."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Its options."""


class Profiles(FileModel):
    """Profiles: sets of settings that have a name, such as an energy preference of CPUs."""

    names: list[Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:+-]{1,64}$")]] = Field(min_length=1)
    """The profiles to measure at."""
    control: Annotated[str, known_in(CONTROLS, "control")]
    """A control that sets profiles."""
    options: dict[str, Any] = Field(default_factory=dict)
    """The options of the control."""


class MeterEntry(FileModel):
    """One meter of a node: a kind registered in :mod:`sites.meters`, and its options."""

    kind: Annotated[str, known_in(METERS, "meter")]
    """The kind of meter."""
    use: Literal["energy", "check"] = "energy"
    """check: the meter is only compared with those that count."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Its options."""


class OperationClass(FileModel):
    """An operation class of the site."""

    domain: Literal["core", "mem"]
    """The domain whose voltage determines an operation's energy."""
    counted_as: list[Name] = Field(default_factory=list)
    """Classes of the kernels' counts that belong to this one."""


class Environment(FileModel):
    """What a worker on this partition needs before it starts."""

    python: OneLine | None = None
    """The Python interpreter on the nodes (default: the one that runs campaign)."""
    modules: list[OneLine] = Field(default_factory=list)
    """Environment modules to load."""
    variables: dict[Variable, OneLine] = Field(default_factory=dict)
    """Environment variables to set. A store keeps no values."""
    secrets: list[Variable] = Field(default_factory=list)
    """Variables whose values `campaign plan --scripts` hides."""
    mpi: MpiType | None = None
    """srun's --mpi (default: as Slurm is configured)."""

    @model_validator(mode="after")
    def _secrets_are_variables(self) -> Self:
        for name in self.secrets:
            if name not in self.variables:
                raise BadValueError(
                    f"found {name!r}, which is not set in variables",
                    "give its value there, or remove it here",
                    ("secrets",),
                )
        return self


SCHEDULERS = Registry(
    "schedulers",
    {
        "local": "campaign.launch.local:LocalScheduler",
        "slurm": "campaign.launch.slurm:SlurmScheduler",
    },
)
"""Name -> its class, a :class:`campaign.launch.scheduler.Scheduler`."""


class Partition(FileModel):
    """A partition of the site, as its scheduler knows it."""

    scheduler: Annotated[str, known_in(SCHEDULERS, "scheduler")] = "local"
    """local, slurm, or one of an installed package."""
    nodes: Annotated[int, Field(ge=1)] = 1
    """How many nodes measure at a time."""
    cores: Annotated[int, Field(ge=1)] = 1
    """Cores of a node to request."""
    memory: Memory = "2GB"
    """Memory of a node to request."""
    walltime: Walltime = "01:00:00"
    """Time limit of a job, as HH:MM:SS or D-HH:MM:SS."""
    account: SlurmWord | None = None
    """The Slurm account to charge (--account)."""
    qos: SlurmWord | None = None
    """The Slurm quality of service (--qos)."""
    directives: list[OneLine] = Field(default_factory=list)
    """Further options of sbatch, such as --gres=gpu:1."""
    exclusive: bool = True
    """Whether a job gets its node alone (--exclusive)."""
    interface: Interface | None = None
    """Network interface of workers and scheduler, such as ib0."""
    local_directory: OneLine = "/tmp"  # noqa: S108  (a private folder is made in it)
    """A folder for temporary files."""
    environment: Environment = Field(default_factory=Environment)
    """What a worker needs before it starts."""

    @property
    def has_jobs(self) -> bool:
        """Whether workers run in jobs of a scheduler, and not as processes of this machine."""
        if self.scheduler in SCHEDULERS.packages:
            return bool(SCHEDULERS.load(self.scheduler).has_jobs)
        return self.scheduler != "local"

    @field_validator("directives")
    @classmethod
    def _directive(cls, value: list[str]) -> list[str]:
        for option in value:
            if not option.startswith("-"):
                raise BadValueError(
                    f"found {option!r}", "write only the option, such as --gres=gpu:1"
                )
            nodes = NODES_OPTION.fullmatch(option)
            if nodes is not None and nodes[1] not in ("1", "1-1"):
                raise BadValueError(
                    f"found {option!r}: the meters of the other nodes would not be read",
                    "leave it out; nodes_per_point = N, at the top of the file, runs each point on "
                    "N nodes",
                )
        return value

    @model_validator(mode="after")
    def _local_workers_have_no_job(self) -> Self:
        for name in ("modules", "python"):
            if not self.has_jobs and (value := getattr(self.environment, name)):
                raise BadValueError(
                    f'found {value!r}, but workers of scheduler = "local" start in no job',
                    "remove it, and run campaign where it is loaded",
                    ("environment", name),
                )
        return self


class Slurm(FileModel):
    """How to reach the site's Slurm from the machine that runs the campaign."""

    conf: OneLine | None = None
    """The cluster's slurm.conf (SLURM_CONF), if not this machine's."""
    submit_prefix: list[OneLine] = Field(default_factory=list)
    """Words before Slurm's commands, such as ["ssh", "login-b"]."""
    no_answer_s: Positive = 1800.0
    """How long Slurm may be silent without a connected worker, in s; then the partition is given
    up."""


class Energy(FileModel):
    """What a kWh costs and emits at the site, for the report."""

    price_per_kwh: Positive | list[Positive] | None = None
    """The price of a kWh, or of each hour of the day."""
    currency: CurrencyName | None = None
    """Its currency."""
    price_source: OneLine | None = None
    """Where it is from."""
    price_year: Year | None = None
    """The year it is of."""
    co2e_kg_per_kwh: NotNegative | list[NotNegative] | None = None
    """Its emissions, in kg of CO2 equivalent, or of each hour."""
    co2e_source: OneLine | None = None
    """Where they are from."""
    co2e_year: Year | None = None
    """The year they are of."""
    utc_offset_h: Annotated[float, Field(ge=-12, le=14)] | None = None
    """The hours are UTC plus this, all year."""

    @field_validator("price_per_kwh", "co2e_kg_per_kwh", mode="before")
    @classmethod
    def _one_or_by_hour(cls, value: Any, info: ValidationInfo) -> Any:
        """Raise one error; a union of types would raise one for each type."""
        if value is None:
            return value
        by_hour, free = isinstance(value, list), info.field_name == "co2e_kg_per_kwh"
        for i, price in enumerate(value if by_hour else [value]):
            number = isinstance(price, int | float) and not isinstance(price, bool)
            if not (number and math.isfinite(price) and (price > 0 or (price == 0 and free))):
                least = ">= 0" if free else "> 0"
                raise BadValueError(
                    f"found {price!r}",
                    f"must be a number {least}, without quotes, or a list of 24",
                    (i,) if by_hour else (),
                )
        if by_hour and len(value) != 24:
            raise BadValueError(
                f"found {len(value)} values", "give one number, or 24: of the hours of the day"
            )
        return value

    @model_validator(mode="after")
    def _complete(self) -> Self:
        for factor, facts in (
            ("price_per_kwh", ("currency", "price_source", "price_year")),
            ("co2e_kg_per_kwh", ("co2e_source", "co2e_year")),
        ):
            for fact in facts:
                for present, absent in ((factor, fact), (fact, factor)):
                    if getattr(self, present) is not None and getattr(self, absent) is None:
                        raise BadValueError(f"{present} without {absent}", "give both", (absent,))
        by_hour = [
            name
            for name in ("price_per_kwh", "co2e_kg_per_kwh")
            if isinstance(getattr(self, name), list)
        ]
        if by_hour and self.utc_offset_h is None:
            raise BadValueError(
                f"{by_hour[0]} by the hour without utc_offset_h",
                "say whose hours these are, such as utc_offset_h = 0 for UTC",
                ("utc_offset_h",),
            )
        if self.utc_offset_h is not None and not by_hour:
            raise BadValueError(
                f"found {self.utc_offset_h:g}, and no values by the hour",
                "give 24 values, or leave it out",
                ("utc_offset_h",),
            )
        return self


class Metering(FileModel):
    """What no store knows of how power is measured at the site: for the levels of measurement of
    the EE HPC WG (2015), which the report shows. What is left out counts as not stated."""

    compute_nodes: Annotated[int, Field(ge=1)] | None = None
    """Compute nodes of the whole machine."""
    nodes_per_supply: Annotated[int, Field(ge=1)] | None = None
    """Nodes that share their power supplies."""
    power_conversion: (
        Literal["upstream", "loss measured", "loss of one supply", "loss by manufacturer"] | None
    ) = None
    """Where the meters are: upstream of the power conversion, or how its loss is known."""
    accuracy_pct: Positive | None = None
    """The documented accuracy of the meters, in %."""
    sampling_hz: Positive | None = None
    """How often meters sample internally, in Hz."""
    interconnect: Participation | None = None
    """How the interconnect's power is known; none: there is none."""
    other_subsystems: Participation | None = None
    """The same of storage, head nodes, cooling inside the machine."""


class SimulatedMachine(FileModel):
    """The constants of a simulated machine, which a fit of its measurements should recover."""

    energy_pj_per_v2: dict[Name, NotNegative]
    """Class -> energy of one operation, in pJ/V^2."""
    rate_per_cycle: dict[Name, Positive]
    """Class -> operations per cycle."""
    leakage_core_w_per_v: NotNegative
    """Leakage of the core domain, in W/V."""
    leakage_mem_w_per_v: NotNegative
    """Leakage of the memory domain, in W/V."""
    misc_w: NotNegative
    """Constant power that depends on no voltage, in W."""
    overlap: Annotated[float, Field(ge=1)] = 8.0
    """Exponent p of T = (sum_k t_k^p)^(1/p)."""
    added: list[Name] = Field(default_factory=list)
    """Classes whose time overlaps with no other, such as stall."""
    attained: dict[Name, Annotated[float, Field(gt=0, le=1)]] = Field(default_factory=dict)
    """Phase of a kernel -> the fraction of the machine's speed that it attains at the highest
    clocks."""
    launch_s: NotNegative = 20e-6
    """Time to launch an iteration, in s."""
    meter_hz: Positive = 1024.0
    """Samples of the simulated meter per second."""
    warming_pct_per_w: NotNegative = 0.0
    """How much each W of power raises the voltages, in %."""
    noise: Literal["default", "off"] = "default"
    """Whether time and power are noisy."""
    setting_gain_pct: NotNegative = 1.5
    """Standard deviation of the power error of a setting, in %."""
    run_gain_pct: NotNegative = 2.5
    """Standard deviation of one run's power, in %."""
    time_pct: NotNegative = 0.3
    """Standard deviation of one run's time, in %."""
    sample_w: NotNegative = 0.05
    """Standard deviation of one power sample, in W."""


class Site(FileModel):
    """A site file, checked. Build it with :func:`~sites.site_reading.read_site`."""

    name: Name
    """The site's name in stores and reports."""
    description: str = ""
    """One line about the machine."""
    domains: Domains = Field(default_factory=Domains)
    """The clock domains that can be set."""
    legal: list[Legal] = Field(default_factory=list)
    """Core clocks that are legal at a memory clock (default: all)."""
    clocks: Clocks = Field(default_factory=Clocks)
    """How clocks are set."""
    power_limit: PowerLimit | None = None
    """The power limits at each of which every pair of clocks is measured."""
    profiles: Profiles | None = None
    """The profiles under each of which every other setting is measured."""
    meters: list[MeterEntry] = Field(default_factory=list)
    """The meters of the site's nodes."""
    counters: dict[Name, OneLine | CounterGroup] = Field(default_factory=dict)
    """Name -> group of hardware counters: a built-in one, a group file, or a table with its
    keys."""
    device: dict[Identifier, Number] = Field(default_factory=dict)
    """Numbers that spaces of variants may use as device.NAME."""
    architecture: Architecture | None = None
    """The GPUs', such as "sm_90"; variants that it cannot run are left out of spaces."""
    classes: dict[Name, OperationClass] = Field(default_factory=dict)
    """Operation classes that differ from the defaults."""
    partitions: dict[PartitionName, Partition] = Field(min_length=1)
    """Partition name -> how to run on it."""
    slurm: Slurm = Field(default_factory=Slurm)
    """How to reach the site's Slurm."""
    nodes_per_point: Annotated[int, Field(ge=1)] = 1
    """Nodes on which each point runs; its energy is the sum over them."""
    energy: Energy = Field(default_factory=Energy)
    """What energy costs and emits."""
    metering: Metering = Field(default_factory=Metering)
    """How power is measured."""
    simulated: SimulatedMachine | None = None
    """The constants of a simulated machine."""

    @cached_property
    def settings(self) -> list[Setting]:
        """Every legal setting, by memory or uncore clock, core clock, power limit and profile;
        ``AS_FOUND`` where nothing can be set."""
        core_clocks = self.domains.core.frequencies_mhz if self.domains.core else [None]
        mem_clocks = self.domains.mem.frequencies_mhz if self.domains.mem else [None]
        uncore_clocks = self.domains.uncore.frequencies_mhz if self.domains.uncore else [None]
        restricted = {entry.mem_mhz: entry.core_mhz for entry in self.legal}
        limits: Sequence[float | None] = self.power_limit.limits_w if self.power_limit else [None]
        profiles: Sequence[str | None] = self.profiles.names if self.profiles else [None]
        legal = [
            Setting(core_mhz, mem_mhz, uncore_mhz, limit_w, profile=profile)
            for mem_mhz in mem_clocks
            for uncore_mhz in uncore_clocks
            for core_mhz in core_clocks
            if mem_mhz is None or mem_mhz not in restricted or core_mhz in restricted[mem_mhz]
            for limit_w in limits
            for profile in profiles
        ]
        return legal or [AS_FOUND]

    def volts(self, setting: Setting) -> tuple[float | None, float | None]:
        """(core V, memory V) of a setting from the site's tables; None where there is none."""
        core_v, mem_v = (
            None if domain is None or mhz is None else domain.volts.get(mhz)
            for domain, mhz in zip(
                (self.domains.core, self.domains.uncore or self.domains.mem),
                setting.clocks,
                strict=True,
            )
        )
        return core_v, mem_v

    @model_validator(mode="after")
    def _nodes_come_together(self) -> Self:
        together = self.nodes_per_point
        if together > 1 and self.simulated is not None:
            raise BadValueError(
                f"found {together}, but a simulated machine is one node",
                "leave it out",
                ("nodes_per_point",),
            )
        for name, partition in self.partitions.items() if together > 1 else ():
            if not partition.has_jobs:
                raise BadValueError(
                    f"found {together}, but partition {name} is of this machine alone",
                    'set its scheduler = "slurm", or leave nodes_per_point out',
                    ("nodes_per_point",),
                )
            if partition.nodes % together:
                raise BadValueError(
                    f"found {partition.nodes}, of which {together} measure each point",
                    f"must be a multiple of nodes_per_point, such as {together}",
                    ("partitions", name, "nodes"),
                )
        return self

    def workers(self, partition: str) -> int:
        """How many points of a partition are measured at the same time."""
        return self.partitions[partition].nodes // self.nodes_per_point

    @property
    def counter_groups(self) -> dict[str, CounterGroup]:
        """Name -> group of hardware counters, once the site's files are read."""
        return {n: group for n, group in self.counters.items() if isinstance(group, CounterGroup)}

    def class_of(self, counted: str) -> str:
        """The site's class for the operations that a kernel counts as ``counted``."""
        for name, entry in self.classes.items():
            if counted in entry.counted_as:
                return name
        return counted

    @property
    def is_simulated(self) -> bool:
        """Whether this site is a simulated machine: all numbers from it are simulated."""
        return self.simulated is not None
