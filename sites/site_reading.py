"""Find and read a site file, and check that its keys agree."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from dvfs.input_files import Check, FileError, KeyPath, Source, built_in_files, find_file, read_file
from sites import clocks, meters
from sites.clocks import CONTROLS
from sites.counters.group_file import BUILT_IN_GROUPS, CounterGroup, check_derived, read_group
from sites.site_file import Domain, Site

BUILT_IN_SITES = "sites/builtin"


def built_in_sites() -> dict[str, Path]:
    """Name -> path of the site files that come with the project."""
    return built_in_files(BUILT_IN_SITES)


def read_site(path: Path) -> Site:
    """Read and check a site file.

    Raises:
        FileError: with file, line, key, what was found and what would be right.
    """
    site, source = read_file(path, Site, CHECKS)
    return site.model_copy(update={"counters": _read_groups(site, source, path.parent)})


def _read_groups(site: Site, source: Source, folder: Path) -> dict[str, CounterGroup]:
    """Name -> group of hardware counters; groups named by file are read, from ``folder`` or
    built in."""
    groups = {}
    events: dict[str, str] = {}
    derived: dict[str, dict[str, float]] = {}
    for name, entry in site.counters.items():
        if isinstance(entry, CounterGroup):
            check_derived(entry, source, ("counters", name))
            groups[name] = entry
        else:
            try:
                path = find_file(entry, folder, BUILT_IN_GROUPS, "counter group")
            except FileError as error:
                raise source.error(("counters", name), error.what, error.remedy) from None
            groups[name] = read_group(path)
        for event, counted in groups[name].events.items():
            if events.setdefault(event, counted) != counted:
                raise source.error(
                    ("counters", name),
                    f"the event {event!r} is {counted!r} here and {events[event]!r} in a group "
                    "before",
                    "give one of them another name",
                )
        for counted_class, factors in groups[name].derived.items():
            if derived.setdefault(counted_class, factors) != factors:
                raise source.error(
                    ("counters", name),
                    f"it derives {counted_class!r}, as a group before does from other events",
                    "leave one of the two groups out",
                )
    return groups


def _check_voltages(site: Site, source: Source) -> None:
    for name in ("core", "mem", "uncore"):
        domain: Domain | None = getattr(site.domains, name)
        if domain is None:
            continue
        key = ("domains", name)
        if len(set(domain.frequencies_mhz)) < len(domain.frequencies_mhz):
            raise source.error((*key, "frequencies_mhz"), "a frequency twice", "list it once")
        if len(domain.volts) < len(domain.voltage_v or []):
            raise source.error((*key, "voltage_v"), "a frequency twice", "give it one voltage")
        missing = [mhz for mhz in domain.frequencies_mhz if mhz not in domain.volts]
        if domain.voltage_v is not None and missing:
            raise source.error(
                (*key, "voltage_v"),
                f"no voltage for {missing[0]:g} MHz",
                "give every legal frequency its [MHz, V], or leave voltage_v out",
            )


def _check_control(site: Site, source: Source) -> None:
    control = site.clocks.control
    domains = site.domains
    has_domain = bool(domains.core or domains.mem or domains.uncore)
    if control == "fixed" and has_domain:
        raise source.error(
            ("clocks", "control"),
            "control 'fixed' sets no clocks, and [domains] lists frequencies to set",
            "choose another control, or leave [domains] out",
        )
    if control not in ("fixed", "simulated") and not has_domain:
        raise source.error(
            ("clocks", "control"),
            f"control {control!r} has no clocks to set",
            "list [domains.core] frequencies_mhz, or set control = 'fixed'",
        )
    if (control == "simulated") != site.is_simulated:
        raise source.error(
            ("clocks", "control"),
            f"control {control!r} and {'a' if site.is_simulated else 'no'} [simulated] table",
            "a simulated machine has both: control = 'simulated' and a [simulated] table",
        )
    if site.is_simulated and site.meters:
        raise source.error(
            ("meters", 0, "kind"),
            "a meter of a real node on a simulated machine",
            "leave [[meters]] out: a simulated machine has its own meter (simulated.meter_hz)",
        )
    if control == "slurm":
        if (domains.mem or domains.uncore) and site.clocks.device == "cpu":
            name, clock = ("mem", "memory") if domains.mem else ("uncore", "uncore")
            raise source.error(
                ("domains", name),
                f"the control 'slurm' sets no {clock} clock of a CPU (srun --cpu-freq)",
                f"leave [domains.{name}] out, or set device = 'gpu' in [clocks]",
            )
        local = [name for name, p in site.partitions.items() if p.scheduler != "slurm"]
        if local:
            raise source.error(
                ("partitions", local[0], "scheduler"),
                "the control 'slurm' sets clocks by job steps, and this partition is not Slurm's",
                "set scheduler = 'slurm', or choose another clock control",
            )


def _check_power_limit(site: Site, source: Source) -> None:
    axis = _axis(site.clocks.control)
    if axis:
        table = {"power_limit_w": "[power_limit]", "profile": "[profiles]"}[axis]
        raise source.error(
            ("clocks", "control"),
            f"control {site.clocks.control!r} sets no clock",
            f"name it as control of {table}",
        )
    limit = site.power_limit
    if limit is None:
        return
    key = ("power_limit", "control")
    if len(set(limit.limits_w)) < len(limit.limits_w):
        raise source.error(("power_limit", "limits_w"), "a limit twice", "list it once")
    if site.is_simulated and limit.control is not None:
        raise source.error(key, f"found {limit.control!r}", "a simulated machine needs none")
    if not site.is_simulated:
        limiting = [name for name in CONTROLS if _axis(name) == "power_limit_w"]
        if limit.control not in limiting:
            error = "missing" if limit.control is None else f"{limit.control!r} sets no power limit"
            raise source.error(key, error, f"name one of {', '.join(limiting)}")


def _axis(control: str) -> str:
    axis: str = CONTROLS.load(control).ABOUT.axis
    return axis


def _check_profiles(site: Site, source: Source) -> None:
    profiles = site.profiles
    if profiles is None:
        return
    if len(set(profiles.names)) < len(profiles.names):
        raise source.error(("profiles", "names"), "a profile twice", "list it once")
    if site.is_simulated:
        raise source.error(("profiles",), "a simulated machine has no profiles", "leave them out")
    setting = [name for name in CONTROLS if _axis(name) == "profile"]
    if profiles.control not in setting:
        problem = f"{profiles.control!r} sets no profile"
        raise source.error(("profiles", "control"), problem, f"name one of {', '.join(setting)}")


def _check_options(site: Site, source: Source) -> None:
    """Refuse options that a meter or a control does not have or cannot use."""
    checks: list[tuple[KeyPath, Callable[..., None], str, dict[str, Any]]] = [
        (("clocks",), clocks.check_options, site.clocks.control, site.clocks.options)
    ]
    limit = site.power_limit
    if limit is not None and limit.control is not None:
        checks.append((("power_limit",), clocks.check_options, limit.control, limit.options))
    profiles = site.profiles
    if profiles is not None:
        checks.append((("profiles",), clocks.check_options, profiles.control, profiles.options))
    for i, entry in enumerate(site.meters):
        checks.append((("meters", i), meters.check_options, entry.kind, entry.options))
    for key, check, name, options in checks:
        try:
            check(name, options)
        except ValueError as error:
            named = [option for option in options if option in str(error)]
            problem, _, remedy = str(error).partition("; ")
            remedy = remedy or "see the page Meters and clocks of the documentation"
            raise source.error((*key, "options", *named[:1]), problem, remedy) from None


def _check_legal(site: Site, source: Source) -> None:
    core = site.domains.core.frequencies_mhz if site.domains.core else []
    for i, entry in enumerate(site.legal):
        if entry.mem_mhz in [before.mem_mhz for before in site.legal[:i]]:
            raise source.error(
                ("legal", i, "mem_mhz"),
                f"found {entry.mem_mhz:g} MHz twice",
                "list all of its core clocks in one [[legal]]",
            )
        if site.domains.mem is None or entry.mem_mhz not in site.domains.mem.frequencies_mhz:
            raise source.error(
                ("legal", i, "mem_mhz"),
                f"found {entry.mem_mhz:g} MHz",
                "must be one of domains.mem.frequencies_mhz",
            )
        unlisted = [mhz for mhz in entry.core_mhz if mhz not in core]
        if unlisted:
            raise source.error(
                ("legal", i, "core_mhz"),
                f"found {unlisted[0]:g} MHz",
                "must be one of domains.core.frequencies_mhz",
            )


def _check_meters(site: Site, source: Source) -> None:
    """Refuse points that this machine would measure at the same time."""
    for name, partition in site.partitions.items() if site.meters else ():
        if partition.scheduler == "local" and partition.nodes > 1:
            raise source.error(
                ("partitions", name, "nodes"),
                f"found {partition.nodes}: this machine would measure that many points at the same "
                "time, and its meters count the energy of all of them",
                'leave it out, or measure on the nodes of a cluster by scheduler = "slurm"',
            )


def _check_classes(site: Site, source: Source) -> None:
    """Refuse a class of the kernels' counts that belongs to two classes of the site."""
    owners: dict[str, str] = {}
    for name, entry in site.classes.items():
        for counted in entry.counted_as:
            if owners.setdefault(counted, name) != name:
                raise source.error(
                    ("classes", name, "counted_as"),
                    f"{counted!r} is counted as {owners[counted]!r} already",
                    "let it belong to one class",
                )


def _check_simulated(site: Site, source: Source) -> None:
    machine = site.simulated
    if machine is None:
        return
    for name in sorted({*machine.energy_pj_per_v2, *machine.rate_per_cycle}):
        for table in ("energy_pj_per_v2", "rate_per_cycle"):
            if name not in getattr(machine, table):
                raise source.error(("simulated", table), f"no value for class {name!r}", "give one")
        if name not in site.classes:
            raise source.error(
                ("simulated", "energy_pj_per_v2", name),
                f"class {name!r} has no domain",
                f"add [classes.{name}] with its domain",
            )
    for i, name in enumerate(machine.added):
        if name not in machine.rate_per_cycle:
            raise source.error(
                ("simulated", "added", i),
                f"no rate for class {name!r}",
                f"name classes of rate_per_cycle: {', '.join(machine.rate_per_cycle)}",
            )
    if site.domains.uncore is not None:
        problem = "a simulated machine has no uncore clock"
        raise source.error(("domains", "uncore"), problem, "leave it out")
    for name in ("core", "mem"):
        domain = getattr(site.domains, name)
        if domain is None or not domain.volts:
            raise source.error(
                ("domains", name),
                "a simulated machine without a voltage table",
                "give the domain its voltage_v",
            )


CHECKS: list[Check] = [
    (["domains"], _check_voltages),
    (["domains", "legal"], _check_legal),
    (["clocks", "domains", "simulated", "meters", "partitions"], _check_control),
    (["clocks", "power_limit"], _check_power_limit),
    (["clocks", "profiles"], _check_profiles),
    (["clocks", "power_limit", "profiles", "meters"], _check_options),
    (["partitions", "meters"], _check_meters),
    (["classes"], _check_classes),
    (["simulated", "classes", "domains"], _check_simulated),
]
"""Keys -> the check that they agree."""


def find_site(name: str, folder: Path) -> Path:
    """The path of a site that a campaign file in ``folder`` names: a built-in site's name, or a
    path in that folder.

    Raises:
        FileError: it is neither.
    """
    return find_file(name, folder, BUILT_IN_SITES, "site")
