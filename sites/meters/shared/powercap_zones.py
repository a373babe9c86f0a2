"""The RAPL zones that Linux's powercap shows below ``/sys/class/powercap``.

Zones and their names: drivers/powercap/intel_rapl_common.c in the Linux source. They are identified
by their file ``name``, never by their index: the second zone is package 1 on one machine and psys
on another.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from sites.meters.shared.kept_file import Remedies, explain, read_text
from sites.meters.shared.meter import AbsentMeterError, MeterError

POWERCAP = Path("sys/class/powercap")
CONTROL_TYPES = ("intel-rapl", "amd-rapl", "intel-rapl-mmio")
"""The control types with RAPL zones. If several show a domain, the first one's zone is read."""
ZONE_ID = re.compile(rf"({'|'.join(CONTROL_TYPES)})(:\d+)+")
PACKAGE_NAME = re.compile(r"package-(\d+)(?:-die-(\d+))?")
PSYS_NAME = re.compile(r"psys(?:-(\d+))?")
SUBZONE_DOMAINS = ("core", "uncore", "dram")
DOMAIN_ORDER = ("package", "dram", "core", "uncore", "psys")

PERMISSION_REMEDY = (
    "since Linux 5.10 only root can read energy_uj (CVE-2020-8694): give a group access, as root, "
    "with `chgrp GROUP {path} && chmod g+r {path}`, and for every boot with the udev rule "
    """`SUBSYSTEM=="powercap", KERNEL=="*rapl*:*", ACTION=="add", RUN+="/bin/sh -c """
    """'chgrp GROUP /sys%p/energy_uj && chmod g+r /sys%p/energy_uj'"` """
    "in /etc/udev/rules.d/90-powercap.rules"
)
ABSENT_REMEDY = (
    "load the driver with `modprobe intel_rapl_common; modprobe intel_rapl_msr`; virtual machines "
    "rarely have RAPL, and containers hide /sys/devices/virtual/powercap"
)
GONE_REMEDY = "a driver was unloaded or a CPU taken offline: discard the measurement"
LEAVE_OUT_REMEDY = "check `dmesg`, or name the zones to read in the meter's option `zones`"


REMEDIES = Remedies(denied=PERMISSION_REMEDY, gone=GONE_REMEDY, other=LEAVE_OUT_REMEDY)


@dataclass(frozen=True)
class Zone:
    """A RAPL zone of this machine."""

    channel: str
    """The name of its channel, such as package-0/dram."""
    domain: str
    package: int | None
    """The number of its package; None for psys."""
    die: int
    parent: str | None
    """The channel of the zone that its directory belongs to."""
    control_type: str
    directory: Path

    @property
    def energy_path(self) -> Path:
        return self.directory / "energy_uj"


def find_zones(root: Path) -> tuple[Zone, ...]:
    """The RAPL zones below ``root`` with known names, each domain once, in order.

    Raises:
        MeterError: there are none, or a directory or name cannot be read.
    """
    powercap = root / POWERCAP
    directories = _find_directories(powercap)
    names = {zone_id: _read_name(directory / "name") for zone_id, directory in directories.items()}
    zones: list[Zone] = []
    for zone_id, directory in directories.items():
        parent_id = zone_id.rpartition(":")[0]
        zone = _make_zone(directory, zone_id, names[zone_id], names.get(parent_id))
        if zone is not None:
            zones.append(zone)
    if not zones:
        raise AbsentMeterError(f"{powercap} has no RAPL zones", ABSENT_REMEDY)
    first_type: dict[tuple[int | None, str], str] = {}
    for control_type in CONTROL_TYPES:
        for zone in zones:
            if zone.control_type == control_type:
                first_type.setdefault((zone.package, zone.domain), control_type)
    unique = [zone for zone in zones if first_type[zone.package, zone.domain] == zone.control_type]
    return tuple(sorted(unique, key=_reading_order))


def _find_directories(powercap: Path) -> dict[str, Path]:
    """The directories of zones by their id, such as ``intel-rapl:0:1``.

    In the kernel's layout every zone is a link in ``powercap`` and a directory inside its
    parent's; a tree that was copied without links has one or the other.
    """
    directories: dict[str, Path] = {}
    pending = [powercap]
    while pending:
        directory = pending.pop()
        try:
            # A container that hides the devices shows links to nothing.
            entries = [
                entry
                for entry in sorted(directory.iterdir())
                if ZONE_ID.fullmatch(entry.name)
                or (directory == powercap and entry.name in CONTROL_TYPES)
                if entry.name not in directories and entry.is_dir()
            ]
        except FileNotFoundError as error:
            raise AbsentMeterError(f"{directory} does not exist", ABSENT_REMEDY) from error
        except OSError as error:
            raise explain(str(directory), error, REMEDIES) from error
        pending.extend(entries)
        directories.update({e.name: e for e in entries if ZONE_ID.fullmatch(e.name)})
    return directories


def _make_zone(directory: Path, zone_id: str, name: str, parent_name: str | None) -> Zone | None:
    whole_package = PACKAGE_NAME.fullmatch(name)
    parent = PACKAGE_NAME.fullmatch(parent_name or "") if name in SUBZONE_DOMAINS else None
    package = whole_package or parent
    if package is None and not PSYS_NAME.fullmatch(name):
        return None
    return Zone(
        channel=f"{parent_name}/{name}" if parent else name,
        domain=name if parent else "package" if whole_package else "psys",
        package=int(package[1]) if package else None,
        die=int(package[2] or 0) if package else 0,
        parent=parent_name if parent else None,
        control_type=zone_id.partition(":")[0],
        directory=directory,
    )


def _reading_order(zone: Zone) -> tuple[bool, int, int, int, str]:
    is_last = zone.package is None
    domain = DOMAIN_ORDER.index(zone.domain)
    return (is_last, zone.package or 0, zone.die, domain, zone.channel)


def _read_name(path: Path) -> str:
    name = read_text(path, REMEDIES)
    if not name:
        raise MeterError(f"{path} is empty", LEAVE_OUT_REMEDY)
    return name
