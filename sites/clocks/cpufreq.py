"""The core clock of CPUs through Linux's cpufreq, and optionally the uncore clock.

Format: the kernel's Documentation/admin-guide/pm/cpufreq.rst; which drivers offer what:
intel_pstate.rst and amd-pstate.rst beside it. Frequencies are in kHz.

- If ``userspace`` is among ``scaling_available_governors``, it is selected and the clock is written
  to ``scaling_setspeed``, which then shows the clock that the driver took; the limits are only
  widened.
- Otherwise (intel_pstate and amd-pstate when active) the clock is written to both limits,
  ``scaling_min_freq`` and ``scaling_max_freq``. This is a request: the state has the achieved
  clock, and an idle core may show less.
- CPUs that share a clock have one policy, so all of them are set together.

With ``uncore = true``, a setting's uncore clock is set too (:mod:`sites.clocks.uncore`).

Legal clocks are those in ``scaling_available_frequencies`` of every policy. Drivers without this
file accept any clock from ``cpuinfo_min_freq`` to ``cpuinfo_max_freq``: the site's clocks in this
range are then legal. If the site file lists none, :meth:`Cpufreq.legal` is None.

Not legal is the highest clock of acpi-cpufreq's list where it stands for turbo, in which the
processor itself chooses a clock above the nominal one (drivers/cpufreq/acpi-cpufreq.c):

- On Intel's processors the list has turbo as the nominal clock plus 1 MHz: 2801000 before 2800000.
- On AMD's the highest clock is nominal, and turbo while ``cpufreq/boost`` is 1.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dvfs.setting import Setting
from sites.clocks import uncore
from sites.clocks.shared.control import (
    ClocksError,
    ClockState,
    ControlDescription,
    ControlledSite,
    IllegalClockError,
    Right,
)
from sites.clocks.shared.core_clock import open_core_clock
from sites.clocks.shared.journal import Journal, log_left_over
from sites.clocks.shared.kernel_files import (
    CHECK_DRIVER,
    CPUS,
    cpu_list,
    is_amd,
    offline_cpus,
    optional_number,
    optional_text,
    read_number,
    read_text,
    right_to_write,
    whole_number,
)
from sites.clocks.shared.thermal_zone import find_zones, hottest_c
from sites.clocks.shared.written_files import File, Limits, Value, WrittenFiles, put_back_entries

ABOUT = ControlDescription(
    control="cpufreq",
    writes="scaling_setspeed, or both limits of each policy",
    needs="root, or write access",
    device="cpu",
    options={
        "cpus": "'all' or a list such as '0-7,16' (default: the ranks' CPUs)",
        "uncore": "true: Intel's uncore clock too",
        "domain_ids": "as in uncore",
    },
)

WRITES = (
    rf"{CPUS}/cpu\d+/cpufreq/scaling_(governor|setspeed|min_freq|max_freq)",
    *uncore.WRITES,
)
put_back = partial(put_back_entries, writes=WRITES)
ABSENT = (
    "check `cpupower frequency-info`: the CPU's driver is not loaded, the CPU is offline, or this "
    "is a virtual machine, whose host sets the clocks"
)
TURBO_STEP_KHZ = 1000
"""How far turbo is above the nominal clock in acpi-cpufreq's list on Intel's processors."""
PACKAGE_SENSORS = ("x86_pkg_temp", "cpu-thermal", "cpu_thermal", "soc_thermal")


@dataclass(frozen=True)
class Options:
    """The checked options; see ABOUT."""

    cpus: str | None
    """``all`` (that are online), a list, or None for the CPUs that this process may run on."""
    uncore: bool
    domain_ids: tuple[int, ...] | None


@dataclass(frozen=True)
class Policy:
    """CPUs that share a clock, identified by the folder of the first of them."""

    folder: str
    table_khz: tuple[int, ...] | None
    """The clocks that the driver lists, without turbo; None if it accepts any in the range."""
    turbo_khz: int | None
    """The listed clock that stands for turbo."""
    lowest_khz: int
    highest_khz: int
    userspace: bool


class Cpufreq:
    """Sets the core clock of some CPUs, and the uncore clock if there are uncore domains."""

    def __init__(
        self,
        root: Path,
        cpus: set[int],
        policies: tuple[Policy, ...],
        domains: tuple[uncore.UncoreDomain, ...],
        site_settings: list[Setting],
    ) -> None:
        self.root = root
        self.cpus = cpus
        self.policies = policies
        self.domains = domains
        self._site_core_mhz = sorted(
            {setting.core_mhz for setting in site_settings if setting.core_mhz is not None}
        )
        # While this control sets the uncore, the control `uncore` is locked out.
        journal = Journal(root, "cpufreq", also=("uncore",) if domains else ())
        self.files = WrittenFiles(root, journal, ABSENT, uncore.instead_of(domains))
        self._core = open_core_clock(root, cpus)
        self._sensors = find_zones(root, PACKAGE_SENSORS)
        self._throttle_counts = [
            path
            for cpu in sorted(cpus)
            for name in ("core", "package")
            if (root / (path := f"{CPUS}/cpu{cpu}/thermal_throttle/{name}_throttle_count")).exists()
        ]
        self._throttles_before = self._throttles()

    def legal(self) -> list[Setting] | None:
        mem: list[float] | list[None] = uncore.legal_mhz(self.domains) if self.domains else [None]
        core = self._legal_core_mhz()
        return None if core is None else [Setting(c, m) for m in mem for c in core]

    def set(self, setting: Setting) -> None:
        if setting.clocks[1] is not None and not self.domains:
            raise IllegalClockError(
                f"{setting}: no memory clock is set here; on Intel servers the option "
                "`uncore = true` sets the uncore clock"
            )
        check_online(self.root, self.cpus)
        memory = uncore.limits_for(setting.clocks[1], self.domains)
        self.files.write([*self._core_values(setting.core_mhz), *memory])
        self._throttles_before = self._throttles()

    def state(self) -> ClockState:
        check_online(self.root, self.cpus)
        mem_mhz = uncore.current_mhz(self.root, self.domains) if self.domains else None
        before = self._throttles_before
        throttled = any(n > before.get(path, n) for path, n in self._throttles().items())
        return ClockState(
            Setting(self._core.mhz(), mem_mhz),
            source=self._core.source,
            throttled=("thermal",) if throttled else (),
            temperature_c=hottest_c(self.root, self._sensors),
        )

    def restore(self) -> None:
        self.files.restore()

    def _legal_core_mhz(self) -> list[float] | None:
        lowest = max(policy.lowest_khz for policy in self.policies)
        highest = min(policy.highest_khz for policy in self.policies)
        tables = [set(p.table_khz) for p in self.policies if p.table_khz is not None]
        if tables:
            return [
                khz / 1000
                for khz in sorted(set.intersection(*tables))
                if len(tables) == len(self.policies) or lowest <= khz <= highest
            ]
        if not self._site_core_mhz:
            return None
        return [mhz for mhz in self._site_core_mhz if lowest <= round(mhz * 1000) <= highest]

    def _core_values(self, mhz: float | None) -> list[Value]:
        """The values to write for a core clock, checked for all policies before the first write."""
        if mhz is None:
            return []
        khz = round(mhz * 1000)
        for policy in self.policies:
            table, low, high = policy.table_khz, policy.lowest_khz, policy.highest_khz
            if khz == policy.turbo_khz:
                raise IllegalClockError(means_turbo(mhz))
            if table is not None and khz not in table:
                nearest = sorted(table, key=lambda listed: abs(listed - khz))[:2]
                offered = " and ".join(f"{listed / 1000:g}" for listed in sorted(nearest))
                raise IllegalClockError(
                    f"core {mhz:g} MHz: {policy.folder} lists no such clock; the nearest: {offered}"
                )
            if table is None and not low <= khz <= high:
                raise IllegalClockError(
                    f"core {mhz:g} MHz: {policy.folder} offers {low / 1000:g} to "
                    f"{high / 1000:g} MHz"
                )
        return [value for policy in self.policies for value in self._policy_values(policy, khz)]

    def _policy_values(self, policy: Policy, khz: int) -> list[Value]:
        low, high = (f"{policy.folder}/scaling_{end}_freq" for end in ("min", "max"))
        if not policy.userspace:
            return [Limits(low, high, f"{khz}\n", f"{khz}\n")]
        found_khz = [
            whole_number(self.files.as_found(path), self.root / path) for path in (low, high)
        ]
        return [
            Limits(low, high, f"{min(khz, found_khz[0])}\n", f"{max(khz, found_khz[1])}\n"),
            File(f"{policy.folder}/scaling_governor", "userspace\n"),
            File(f"{policy.folder}/scaling_setspeed", f"{khz}\n"),
        ]

    def _throttles(self) -> dict[str, int]:
        """File -> how often a core or package was throttled by heat since the boot.

        Format: Documentation/ABI/testing/sysfs-devices-system-cpu (thermal_throttle, Intel only).
        """
        counts = {path: optional_number(self.root, path) for path in self._throttle_counts}
        return {path: count for path, count in counts.items() if count is not None}


def rights(root: Path) -> Right:
    """Whether this user may write the clocks' files."""
    file = "cpufreq/scaling_max_freq"
    offline = offline_cpus(root, _with_cpufreq(root))
    skipped = [root / f"{CPUS}/cpu{cpu}/{file}" for cpu in offline]
    return right_to_write("cpufreq", root, f"{CPUS}/cpu*/{file}", skipped)


def open_control(site: ControlledSite, root: Path) -> Cpufreq:
    """See :mod:`sites.clocks`; the options are in ABOUT.

    Raises:
        ClocksError: a CPU has no cpufreq or is offline, a clock of the site stands for turbo,
            or there is no uncore domain to set.
        ValueError: an option has a wrong value.
    """
    options = parse_options(site.clocks.options)
    log_left_over(root)
    cpus = find_cpus(root, options.cpus)
    policies = find_policies(root, cpus)
    turbo_khz = {policy.turbo_khz for policy in policies}
    for setting in site.settings:
        mhz = setting.core_mhz
        if mhz is not None and round(mhz * 1000) in turbo_khz:
            raise ClocksError(means_turbo(mhz), "leave it out of domains.core.frequencies_mhz")
    domains = uncore.find_domains(root, options.domain_ids) if options.uncore else ()
    return Cpufreq(root, cpus, policies, domains, site.settings)


def turbo_mhz(root: Path) -> float | None:
    """The listed clock of the first CPU's driver that stands for turbo; None if none does."""
    try:
        khz = find_policies(root, {min(find_cpus(root, "all"))})[0].turbo_khz
    except ClocksError:
        return None
    return None if khz is None else khz / 1000


def means_turbo(mhz: float) -> str:
    """The reason why the listed clock that stands for turbo is not legal, a clause."""
    return (
        f"core {mhz:g} MHz stands for turbo in acpi-cpufreq's list: the CPU then runs at any clock "
        "above the nominal one"
    )


def parse_options(options: Mapping[str, Any]) -> Options:
    """Check a site's options.

    Raises:
        ValueError: an option has a wrong value.
    """
    cpus = options.get("cpus")
    if cpus is not None and (
        not isinstance(cpus, str) or not re.fullmatch(r"all|\d+(-\d+)?(,\d+(-\d+)?)*", cpus)
    ):
        raise ValueError(f"cpus = {cpus!r}; give 'all' or a list such as '0-7,16'")
    with_uncore = options.get("uncore", False)
    if not isinstance(with_uncore, bool):
        raise ValueError(f"uncore = {with_uncore!r}; give true or false")
    domain_ids = uncore.parse_options(options)
    if domain_ids is not None and not with_uncore:
        raise ValueError("domain_ids needs uncore = true; add it, or leave domain_ids out")
    return Options(cpus, with_uncore, domain_ids)


def find_cpus(root: Path, cpus: str | None) -> set[int]:
    """The numbers of the CPUs to set.

    Raises:
        ClocksError: ``all``, and no CPU that is online has cpufreq; or a CPU of the list is
            offline.
        ValueError: a range that ends before it begins.
    """
    if cpus is None:
        return os.sched_getaffinity(0)
    if cpus == "all":
        with_cpufreq = _with_cpufreq(root)
        online = with_cpufreq - offline_cpus(root, with_cpufreq)
        if not online:
            raise ClocksError(f"{root / CPUS}: no CPU has cpufreq", ABSENT)
        return online
    try:
        numbers = cpu_list(cpus)
    except ValueError as error:
        raise ValueError(f"cpus = {cpus!r}; {error}") from None
    check_online(root, numbers)
    return numbers


def _with_cpufreq(root: Path) -> set[int]:
    folders = (root / CPUS).glob("cpu[0-9]*/cpufreq")
    return {int(folder.parent.name.removeprefix("cpu")) for folder in folders}


def check_online(root: Path, cpus: set[int]) -> None:
    """Check that these CPUs are online.

    Raises:
        ClocksError: one is offline.
    """
    offline = sorted(offline_cpus(root, cpus))
    if offline:
        named = f"CPU {offline[0]}" if len(offline) == 1 else f"CPUs {', '.join(map(str, offline))}"
        raise ClocksError(
            f"{named}: offline, so that no clock can be set ({root / CPUS / 'online'})",
            f"as root, `echo 1 > {root / CPUS}/cpu{offline[0]}/online`, or name other CPUs in the "
            "option `cpus`",
        )


def find_policies(root: Path, cpus: set[int]) -> tuple[Policy, ...]:
    """The policies of these CPUs, each once.

    Raises:
        ClocksError: a CPU has none, or it cannot be read.
    """
    folders: dict[Path, str] = {}
    for cpu in sorted(cpus):
        folder = f"{CPUS}/cpu{cpu}/cpufreq"
        if not (root / folder).is_dir():
            raise ClocksError(f"{root / folder} does not exist", ABSENT)
        # CPUs of one policy have links to the same folder.
        folders.setdefault((root / folder).resolve(), folder)
    boosts = optional_number(root, f"{CPUS}/cpufreq/boost") == 1
    return tuple(_read_policy(root, folder, boosts) for folder in folders.values())


def _read_policy(root: Path, folder: str, boosts: bool) -> Policy:
    table: tuple[int, ...] | None = None
    turbo_khz = None
    path = f"{folder}/scaling_available_frequencies"
    if (root / path).exists():
        words = read_text(root, path, ABSENT).split()
        table = tuple(whole_number(word, root / path) for word in words)
        if not table:
            raise ClocksError(f"{root / path} lists no clock", CHECK_DRIVER)
        turbo_khz = _turbo_khz(root, folder, table, boosts)
        table = tuple(khz for khz in table if khz != turbo_khz)
        boost = f"{folder}/scaling_boost_frequencies"
        if boosts and (root / boost).exists():
            words = read_text(root, boost, ABSENT).split()
            table += tuple(whole_number(word, root / boost) for word in words)
    governors = f"{folder}/scaling_available_governors"
    offered = read_text(root, governors, ABSENT).split() if (root / governors).exists() else []
    return Policy(
        folder,
        table,
        turbo_khz,
        read_number(root, f"{folder}/cpuinfo_min_freq", ABSENT),
        read_number(root, f"{folder}/cpuinfo_max_freq", ABSENT),
        "userspace" in offered,
    )


def _turbo_khz(root: Path, folder: str, table: tuple[int, ...], boosts: bool) -> int | None:
    """The highest listed clock if it stands for turbo; otherwise None."""
    driver = optional_text(root, f"{folder}/scaling_driver")
    highest, *below = sorted(table, reverse=True)
    if driver not in ("", "acpi-cpufreq") or not below:
        return None
    stands = highest - below[0] == TURBO_STEP_KHZ or (boosts and is_amd(root))
    return highest if stands else None
