"""The power limit of processor packages: RAPL's long-term constraint, through Linux's powercap.

Format: the kernel's Documentation/power/powercap/powercap.rst, and
drivers/powercap/intel_rapl_common.c. A zone has files ``constraint_N_name``,
``constraint_N_power_limit_uw``, ``constraint_N_time_window_us`` and ``constraint_N_max_power_uw``;
the constraint is the one named ``long_term``, whatever its number. A setting's ``power_limit_w`` is
the limit of each package, not of all together; it holds for the mean power over the time window,
which is left as found unless the option ``time_window_s`` is given.

- The kernel rounds a limit to the processor's power unit, mostly 1/8 W, and a time window to a
  number of 7 bits.
- A zone whose file ``enabled`` is 0 limits nothing: it is refused, and its limit is not read.
- The highest limit is ``constraint_N_max_power_uw``, where it is not 0. RAPL has no lowest one.
- Firmware may lock the limits until the next boot: then root, too, gets "Permission denied".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dvfs.setting import Setting
from sites.clocks.shared.control import (
    ClocksError,
    ClockState,
    ControlDescription,
    IllegalClockError,
    PowerLimitEntry,
    Right,
)
from sites.clocks.shared.journal import Journal, log_left_over
from sites.clocks.shared.kernel_files import (
    optional_number,
    optional_text,
    read_number,
    right_to_write_files,
)
from sites.clocks.shared.limited import value_of_all
from sites.clocks.shared.written_files import File, WrittenFiles, put_back_entries
from sites.meters.shared.meter import MeterError
from sites.meters.shared.powercap_zones import POWERCAP, find_zones

ABOUT = ControlDescription(
    control="powercap",
    writes="for [power_limit]: the long-term limit of each processor package (RAPL)",
    needs="root, or write access",
    options={
        "time_window_s": "seconds of the mean (default: as found)",
    },
    axis="power_limit_w",
    sets_clocks=False,
)

UNIT_UW = 125_000
"""The coarsest power unit: the largest difference between a written and a read-back limit."""
WINDOW_SHARE = 0.2
"""The largest rounding of a time window, as a share of it."""
WRITES = (
    rf"{POWERCAP}(/intel-rapl(-mmio)?(:\d+)*)+/constraint_\d+_(power_limit_uw|time_window_us)",
)
put_back = partial(put_back_entries, writes=WRITES)
ABSENT = "load the driver with `modprobe intel_rapl_msr`; virtual machines have no power limits"


@dataclass(frozen=True)
class PackageLimit:
    """The long-term constraint of a package. ``files``: the prefix of its files, below the root;
    ``highest_w``: None where it is not reported."""

    package: str
    folder: str
    files: str
    highest_w: float | None

    @property
    def limit_file(self) -> str:
        return f"{self.files}_power_limit_uw"

    @property
    def enabled_file(self) -> str:
        return f"{self.folder}/enabled"

    def in_force_w(self, root: Path) -> float | None:
        """The limit in force; None where the zone is not enabled, or it cannot be read."""
        limit_uw = optional_number(root, self.limit_file)
        if limit_uw is None or optional_number(root, self.enabled_file) != 1:
            return None
        return limit_uw / 1e6


class Powercap:
    """Sets the long-term limit of every package."""

    def __init__(
        self,
        root: Path,
        packages: tuple[PackageLimit, ...],
        limits_w: Sequence[float],
        window_s: float | None,
    ) -> None:
        self.root = root
        self.packages = packages
        self.limits_w = limits_w
        self.window_us = None if window_s is None else round(window_s * 1e6)
        self.asked_w: float | None = None
        self.files = WrittenFiles(root, Journal(root, "powercap"), ABSENT)

    def range_w(self) -> tuple[None, float | None]:
        """The lowest limit, which RAPL does not have, and the highest of all packages, in W."""
        highest_w = [p.highest_w for p in self.packages if p.highest_w is not None]
        return None, min(highest_w, default=None)

    def legal(self) -> list[Setting]:
        _, highest_w = self.range_w()
        return [
            Setting(power_limit_w=w) for w in self.limits_w if highest_w is None or w <= highest_w
        ]

    def set(self, setting: Setting) -> None:
        limit_w, (_, highest_w) = setting.power_limit_w, self.range_w()
        if limit_w is not None and highest_w is not None and limit_w > highest_w:
            raise IllegalClockError(
                f"power limit {limit_w:g} W: the processor offers up to {highest_w:g} W"
            )
        self.asked_w = limit_w
        self.files.write([] if limit_w is None else self._values(round(limit_w * 1e6)))

    def state(self) -> ClockState:
        limits_w = [package.in_force_w(self.root) for package in self.packages]
        reported = [limit_w for limit_w in limits_w if limit_w is not None]
        if len(reported) < len(limits_w):
            return ClockState()
        return ClockState(Setting(power_limit_w=value_of_all(reported, self.asked_w)))

    def restore(self) -> None:
        self.asked_w = None
        self.files.restore()

    def _values(self, limit_uw: int) -> list[File]:
        values = [File(p.limit_file, f"{limit_uw}\n", within=UNIT_UW) for p in self.packages]
        if self.window_us is not None:
            within = round(WINDOW_SHARE * self.window_us)
            text = f"{self.window_us}\n"
            values += [
                File(f"{p.files}_time_window_us", text, within=within) for p in self.packages
            ]
        return values


def rights(root: Path) -> Right:
    """Whether this user may write the limits."""
    try:
        packages = find_packages(root)
    except ClocksError as error:
        return Right("powercap", False, error.what, error.remedy)
    return right_to_write_files("powercap", [root / package.limit_file for package in packages])


def open_control(limit: PowerLimitEntry, root: Path) -> Powercap:
    """See :mod:`sites.clocks`; the options are in ABOUT.

    Raises:
        ClocksError: a package has no limit, or none that is in force.
        ValueError: an option has a wrong value.
    """
    window_s = parse_options(limit.options)
    log_left_over(root)
    packages = find_packages(root)
    for package in packages:
        if read_number(root, package.enabled_file, ABSENT) != 1:
            path = root / package.enabled_file
            problem = f"{path} is not 1: the power limit is not in force"
            raise ClocksError(problem, f"as root: `echo 1 > {path}`")
    return Powercap(root, packages, limit.limits_w, window_s)


def parse_options(options: Mapping[str, Any]) -> float | None:
    """The option ``time_window_s``; None where it is not given."""
    value = options.get("time_window_s")
    if value is None:
        return None
    if type(value) not in (int, float) or not 1e-6 <= value <= 1e3:
        raise ValueError(f"time_window_s = {value!r}; give seconds, such as 1.0")
    return float(value)


def find_packages(root: Path) -> tuple[PackageLimit, ...]:
    """The long-term constraints of the packages below ``root``.

    Raises:
        ClocksError: there are none, or a package has none.
    """
    try:
        zones = [zone for zone in find_zones(root) if zone.domain == "package"]
    except MeterError as error:
        raise ClocksError(error.what, error.remedy) from None
    if not zones:
        raise ClocksError(f"{root / POWERCAP} has no package", ABSENT)
    packages = []
    for zone in zones:
        folder = str(zone.directory.relative_to(root))
        files = _long_term(root, folder)
        highest_uw = optional_number(root, f"{files}_max_power_uw") or 0
        highest_w = highest_uw / 1e6 if highest_uw > 0 else None
        packages.append(PackageLimit(zone.channel, folder, files, highest_w))
    return tuple(packages)


def _long_term(root: Path, folder: str) -> str:
    """The prefix of the files of a zone's long-term constraint."""
    for path in sorted((root / folder).glob("constraint_*_name")):
        if re.fullmatch(r"constraint_\d+_name", path.name):
            name = str(path.relative_to(root))
            if optional_text(root, name) == "long_term":
                return name.removesuffix("_name")
    raise ClocksError(
        f"{root / folder} has no constraint named long_term",
        "Linux shows power limits of Intel's processors alone, and none in virtual machines",
    )
