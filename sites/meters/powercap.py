"""Linux powercap: the RAPL energy counters below ``/sys/class/powercap``.

The files and their units: Documentation/power/powercap/powercap.rst and
Documentation/ABI/testing/sysfs-class-powercap in the Linux source; which zones there are and what
they are called: drivers/powercap/intel_rapl_common.c there. AMD's processors are read by the same
driver, and so appear as ``intel-rapl`` too.

**Zones** are known by their file ``name``, never by their index: the second zone is package 1 on
one machine and psys on another. A channel is called ``package-0``, ``package-0/dram``,
``package-0/core``, ``package-0/uncore``, ``psys``; with several dies, ``package-0-die-1``. A zone
with another name is not read, since nothing says what it overlaps.

**Nothing is summed twice.** A total adds the channels that are inside no other:

- ``core`` and ``uncore`` are inside their package; ``dram`` is outside it. AMD has package and
  core only, and its core zone is the core of one CPU.
- ``psys`` overlaps all the others, as far as the board's maker wired and calibrated it: on some
  boards it never moves, and on servers it counts whole joules. It is therefore left out unless
  ``zones`` names it, so that a total means packages and memory at every site; where it is named,
  all others are inside it and the total is psys alone. Where there are several psys zones nothing
  documents whether they overlap, so one of them can only be read on its own.
- ``intel-rapl-mmio`` (and any ``amd-rapl``) shows the same package again by another way: it is
  read only where ``intel-rapl`` does not have that domain of that package.
- On AMD processors of several dies older kernels show the package's one counter once for each
  die. Dies whose counters agree when read in between one another are the same counter, and the
  later one is inside the earlier.

**Replacement.** The files are kept open. Before each reading the path is looked up, and a file
that is no longer the open one is opened again, so a recorded tree may be replayed by a writer
that renames files, or whole directories, into place. A writer that truncates a file and then
writes it can be caught in between; the empty file is then an error, as on a real machine.

**Wraps** are counter.py's. The kernel's range is the counter's last value before it starts again
from zero, so that each wrap loses one step of the hardware (61 uJ of 262 kJ).
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from sites.meters.shared.counter import Counter
from sites.meters.shared.domains import contains
from sites.meters.shared.kept_file import KeptFile, Remedies, explain, parse_number
from sites.meters.shared.meter import Channel, MeterDescription, MeterUnreadable, Reading

ABOUT = MeterDescription(
    kind="powercap",
    reads="RAPL energy counters in /sys/class/powercap",
    domains="package, dram, core, uncore; psys if zones names it",
    needs="read access to energy_uj, which since Linux 5.10 only root has by default",
    options={
        "zones": 'channels to read, such as ["package-0"] (default: all but psys)',
        "max_power_w": "the greatest power of any zone, in W (default: 1 kW, 10 kW for psys)",
    },
)

POWERCAP = Path("sys/class/powercap")
CONTROL_TYPES = ("intel-rapl", "amd-rapl", "intel-rapl-mmio")
"""The control types with RAPL zones; of a domain that several have, the first one's is read."""
ZONE_ID = re.compile(rf"({'|'.join(CONTROL_TYPES)})(:\d+)+")
PACKAGE_NAME = re.compile(r"package-(\d+)(?:-die-(\d+))?")
PSYS_NAME = re.compile(r"psys(?:-(\d+))?")
SUBZONE_DOMAINS = ("core", "uncore", "dram")
DOMAIN_ORDER = ("package", "dram", "core", "uncore", "psys")

PERIOD_S = 1e-3
"""RAPL counters are updated about every millisecond (Intel SDM volume 3, RAPL interfaces)."""
LAG_S = 0.1
"""How late an energy may appear: psys is slower than the others, and SMIs delay updates. Generous,
since it only blurs the line between a wrap and a reset, by 100 J at 1 kW."""
COUNTER_STEPS = 2**32 - 1
"""The hardware's counters have 32 bits, whatever the unit: the range says how large a step is."""
MAX_POWER_W = {"package": 1e3, "dram": 1e3, "core": 1e3, "uncore": 1e3, "psys": 1e4}
"""What no such zone draws: far above any part that is sold (500 W for a package in 2025)."""
LIMIT_FACTOR = 4.0
"""constraint_0_max_power_uw is the thermal design power, which turbo exceeds for a while."""

PERMISSION_REMEDY = (
    "energy_uj is for root only since Linux 5.10 (CVE-2020-8694): give a group access, as root, "
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
LEAVE_OUT_REMEDY = "see the kernel's log, or name the zones to read in the meter's option `zones`"


REMEDIES = Remedies(PERMISSION_REMEDY, GONE_REMEDY, LEAVE_OUT_REMEDY)


@dataclass(frozen=True)
class Zone:
    """A RAPL zone that a machine shows, by the name of its channel."""

    channel: str
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


def open_meter(root: Path, options: Mapping[str, Any]) -> PowercapMeter:
    """Open the RAPL zones below ``root``.

    Args:
        root: ``/``, or a recorded tree.
        options: ``zones``: the names of the channels to read; without it, all but psys.
            ``max_power_w``: the greatest power that any of them can draw, in W; without it, the
            larger of MAX_POWER_W and four times the zone's own constraint_0_max_power_uw.

    Raises:
        MeterUnreadable: there is no powercap, a named zone is not on this machine, or a file
            can't be read.
        ValueError: an option that there isn't, or that has not its form.
    """
    names, max_power_w = _parse_options(options)
    zones = find_zones(root)
    chosen = _choose_zones(zones, names)
    if sum(zone.domain == "psys" for zone in zones) > 1 and len(chosen) > 1:
        _refuse_psys_with_others(chosen)
    files: list[KeptFile] = []
    try:
        files.extend(KeptFile(str(zone.energy_path), REMEDIES) for zone in chosen)
        mirrors = _find_mirrors(chosen, files)
        ranges_uj = [_read_range_uj(zone) for zone in chosen]
        counters = [
            Counter(
                name=str(zone.energy_path),
                joules_per_unit=Fraction(1, 10**6),
                range_units=range_uj,
                max_power_w=max_power_w or _greatest_power_w(zone),
                lag_s=LAG_S,
                step_units=_step_uj(range_uj),
            )
            for zone, range_uj in zip(chosen, ranges_uj, strict=True)
        ]
    except BaseException:
        for file in files:
            file.close()
        raise
    channels = tuple(
        Channel(
            name=zone.channel,
            domain=zone.domain,
            kind="energy",
            resolution=max(range_uj / COUNTER_STEPS, 1.0) / 1e6,
            period_s=PERIOD_S,
            inside=_find_outer(zone, chosen, mirrors),
            wraps_at_j=range_uj / 1e6,
        )
        for zone, range_uj in zip(chosen, ranges_uj, strict=True)
    )
    return PowercapMeter(channels, files, counters)


def find_zones(root: Path) -> tuple[Zone, ...]:
    """The RAPL zones below ``root`` with names that are understood, each domain once, in order.

    Raises:
        MeterUnreadable: there are none, or a directory or name can't be read.
    """
    powercap = root / POWERCAP
    directories = _find_directories(powercap)
    names = {zone_id: _read_text(directory / "name") for zone_id, directory in directories.items()}
    zones: list[Zone] = []
    for zone_id, directory in directories.items():
        parent_id = zone_id.rpartition(":")[0]
        zone = _make_zone(directory, zone_id, names[zone_id], names.get(parent_id))
        if zone is not None:
            zones.append(zone)
    if not zones:
        raise MeterUnreadable(f"{powercap} has no RAPL zones", ABSENT_REMEDY)
    first_type: dict[tuple[int | None, str], str] = {}
    for control_type in CONTROL_TYPES:
        for zone in zones:
            if zone.control_type == control_type:
                first_type.setdefault((zone.package, zone.domain), control_type)
    once = [zone for zone in zones if first_type[zone.package, zone.domain] == zone.control_type]
    return tuple(sorted(once, key=_reading_order))


class PowercapMeter:
    """The open RAPL zones: one energy channel for each. Not for several threads at once."""

    name = "powercap"

    def __init__(
        self,
        channels: tuple[Channel, ...],
        files: Sequence[KeptFile],
        counters: Sequence[Counter],
    ) -> None:
        self.channels = channels
        self._files = tuple(files)
        self._counters = tuple(counters)
        self._is_open = True

    @property
    def longest_gap_s(self) -> float:
        """How far apart two readings may be, in s; farther apart, :meth:`read` raises."""
        return min(counter.longest_gap_s or 0.0 for counter in self._counters)

    def read(self) -> Reading:
        """All channels, in J since the first reading.

        All files are read before any counter is updated, so that a file that can't be read now
        costs no energy if it can be read later.

        Raises:
            MeterUnreadable: a file can't be read, its counter has no plausible energy since the
                last reading, or the meter is closed.
        """
        self._refuse_closed()
        start_ns = time.monotonic_ns()
        raw_uj = [file.read_number() for file in self._files]
        return self.take(raw_uj, start_ns, time.monotonic_ns())

    def descriptors(self) -> tuple[int, ...]:
        """The open ``energy_uj`` of every channel, in their order.

        They are those of the last :meth:`read`: a file that is replaced later is not noticed by
        who reads them, which can't happen on a machine.

        Raises:
            MeterUnreadable: the meter is closed.
        """
        self._refuse_closed()
        return tuple(file.descriptor for file in self._files)

    def take(self, raw: Sequence[int], start_ns: int, end_ns: int) -> Reading:
        """What :meth:`read` returns for these readings in uJ, one for each descriptor.

        Raises:
            MeterUnreadable: as :meth:`read`.
        """
        self._refuse_closed()
        values = tuple(
            counter.update(each, start_ns, end_ns)
            for counter, each in zip(self._counters, raw, strict=True)
        )
        return Reading((start_ns + end_ns) // 2, values)

    def _refuse_closed(self) -> None:
        if not self._is_open:
            raise MeterUnreadable("the powercap meter is closed", "open it again")

    def close(self) -> None:
        """Close the files; again does nothing."""
        self._is_open = False
        for file in self._files:
            file.close()


def _parse_options(options: Mapping[str, Any]) -> tuple[tuple[str, ...] | None, float | None]:
    ABOUT.check_options(options)
    names = options.get("zones")
    if names is not None and (
        isinstance(names, str)
        or not isinstance(names, Sequence)
        or not names
        or not all(isinstance(name, str) for name in names)
    ):
        raise ValueError(f"zones is a list of channel names such as package-0, not {names!r}")
    max_power_w = options.get("max_power_w")
    if max_power_w is not None and not (
        isinstance(max_power_w, int | float)
        and not isinstance(max_power_w, bool)
        and 0 < max_power_w < float("inf")
    ):
        raise ValueError(f"max_power_w is a number of watts above 0, not {max_power_w!r}")
    return (None if names is None else tuple(names)), max_power_w


def _choose_zones(zones: Sequence[Zone], names: Sequence[str] | None) -> tuple[Zone, ...]:
    if names is None:
        # A machine with psys alone has nothing that it could be summed with.
        chosen = tuple(zone for zone in zones if zone.domain != "psys") or tuple(zones)
    else:
        there = [zone.channel for zone in zones]
        missing = [name for name in names if name not in there]
        if missing:
            raise MeterUnreadable(
                f"powercap has no zone {', '.join(missing)}",
                f"those of this machine are {', '.join(there)}",
            )
        chosen = tuple(zone for zone in zones if zone.channel in names)
    directories: dict[str, Path] = {}
    for zone in chosen:
        other = directories.setdefault(zone.channel, zone.directory)
        if other != zone.directory:
            raise MeterUnreadable(
                f"{other} and {zone.directory} are both {zone.channel}",
                "nothing says whether they are one counter: leave them out with the option zones",
            )
    return chosen


def _refuse_psys_with_others(chosen: Sequence[Zone]) -> None:
    psys = [zone.channel for zone in chosen if zone.domain == "psys"]
    if psys:
        raise ValueError(
            "this machine has several psys zones, and nothing says what each of them overlaps: "
            f"name {psys[0]} alone in zones, or leave it out"
        )


def _find_directories(powercap: Path) -> dict[str, Path]:
    """The directories of zones by their id, such as ``intel-rapl:0:1``.

    In the kernel's layout every zone is a link in ``powercap`` and a directory inside its
    parent's; a tree that was copied without links has the one or the other.
    """
    found: dict[str, Path] = {}
    pending = [powercap]
    while pending:
        directory = pending.pop()
        try:
            # A link to nothing is what a container shows that hides the devices themselves.
            entries = [
                entry
                for entry in sorted(directory.iterdir())
                if ZONE_ID.fullmatch(entry.name)
                or (directory == powercap and entry.name in CONTROL_TYPES)
                if entry.name not in found and entry.is_dir()
            ]
        except FileNotFoundError as error:
            raise MeterUnreadable(f"{directory} does not exist", ABSENT_REMEDY) from error
        except OSError as error:
            raise explain(str(directory), error, REMEDIES) from error
        pending.extend(entries)
        found.update({entry.name: entry for entry in entries if ZONE_ID.fullmatch(entry.name)})
    return found


def _make_zone(directory: Path, zone_id: str, name: str, parent_name: str | None) -> Zone | None:
    control_type = zone_id.partition(":")[0]
    if package := PACKAGE_NAME.fullmatch(name):
        number, die = int(package[1]), int(package[2] or 0)
        return Zone(name, "package", number, die, None, control_type, directory)
    if PSYS_NAME.fullmatch(name):
        return Zone(name, "psys", None, 0, None, control_type, directory)
    parent = PACKAGE_NAME.fullmatch(parent_name or "")
    if name in SUBZONE_DOMAINS and parent:
        number, die = int(parent[1]), int(parent[2] or 0)
        return Zone(
            f"{parent_name}/{name}", name, number, die, parent_name, control_type, directory
        )
    return None


def _reading_order(zone: Zone) -> tuple[bool, int, int, int, str]:
    is_last = zone.package is None
    domain = DOMAIN_ORDER.index(zone.domain)
    return (is_last, zone.package or 0, zone.die, domain, zone.channel)


def _find_mirrors(zones: Sequence[Zone], files: Sequence[KeptFile]) -> dict[str, str]:
    """Channels that show the counter of an earlier die again, with the channel of that die.

    One counter can't be read as more than itself a moment later, so three readings in turn that
    do not go down are one counter: of two, the chance is that of two values of 32 bits agreeing
    to within some microseconds of energy. Three attempts, as a wrap may fall in between.
    """
    mirrors: dict[str, str] = {}
    originals: dict[tuple[int | None, str], list[tuple[Zone, KeptFile]]] = {}
    for zone, file in zip(zones, files, strict=True):
        if zone.domain not in ("package", "dram"):
            continue
        earlier = originals.setdefault((zone.package, zone.domain), [])
        for original, original_file in earlier:
            if any(_agree(original_file, file) for _ in range(3)):
                mirrors[zone.channel] = original.channel
                break
        else:
            earlier.append((zone, file))
    return mirrors


def _agree(first: KeptFile, second: KeptFile) -> bool:
    before_uj, between_uj = first.read_number(), second.read_number()
    after_uj = first.read_number()
    # Counters that never moved agree at zero without being one.
    return 0 < before_uj <= between_uj <= after_uj


def _find_outer(zone: Zone, chosen: Sequence[Zone], mirrors: Mapping[str, str]) -> str | None:
    """The nearest channel, of those that are read, whose energy includes this zone's."""
    by_channel = {other.channel: other for other in chosen}
    if zone.channel in mirrors:
        return mirrors[zone.channel]
    parent = by_channel.get(zone.parent or "")
    if parent is not None and contains(parent.domain, zone.domain):
        return parent.channel
    if zone.domain == "psys":
        return None
    return next((other.channel for other in chosen if other.domain == "psys"), None)


def _read_range_uj(zone: Zone) -> int:
    path = zone.directory / "max_energy_range_uj"
    range_uj = parse_number(str(path), _read_bytes(path), REMEDIES)
    if range_uj < 1:
        raise MeterUnreadable(f"{path} is 0, so its counter holds no energy", LEAVE_OUT_REMEDY)
    return range_uj


def _greatest_power_w(zone: Zone) -> float:
    path = zone.directory / "constraint_0_max_power_uw"
    floor_w = MAX_POWER_W[zone.domain]
    try:
        text = path.read_bytes()
    except OSError:
        return floor_w  # Optional: many zones have none, or one that reads as "no data".
    return max(floor_w, LIMIT_FACTOR * parse_number(str(path), text, REMEDIES) / 1e6)


def _step_uj(range_uj: int) -> int:
    return -(-range_uj // COUNTER_STEPS)


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise explain(str(path), error, REMEDIES) from error


def _read_text(path: Path) -> str:
    text = _read_bytes(path).decode("ascii", errors="replace").strip()
    if not text:
        raise MeterUnreadable(f"{path} is empty", LEAVE_OUT_REMEDY)
    return text
