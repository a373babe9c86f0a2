"""Linux powercap: the RAPL energy counters below ``/sys/class/powercap``.

Files and units: Documentation/power/powercap/powercap.rst and
Documentation/ABI/testing/sysfs-class-powercap in the Linux source. The same driver reads AMD's
processors, which therefore appear as ``intel-rapl`` too.

**Channels** are called ``package-0``, ``package-0/dram``, ``package-0/core``, ``package-0/uncore``
and ``psys``; with several dies, ``package-0-die-1``. A zone with another name is not read, because
its overlap with other zones is unknown.

**No energy is summed twice.** A total adds the channels that are inside no other channel:

- ``core`` and ``uncore`` are inside their package; ``dram`` is outside it. AMD has only package and
  core, and its core zone is the core of one CPU.
- ``psys`` overlaps all others, depending on how the board's maker wired and calibrated it: on some
  boards it never changes, and on servers it counts whole joules. So it is left out unless ``zones``
  names it: a total is packages and memory at every site. If it is named, all other channels are
  inside it, and the total is psys alone. It is not documented whether several psys zones overlap,
  so only one of them can be read, and without other zones.
- ``intel-rapl-mmio`` (and any ``amd-rapl``) shows the same package through another interface: it is
  read only where ``intel-rapl`` lacks that domain of that package.
- On AMD processors with several dies, older kernels show the package's single counter once per die.
  If the counters of two dies agree when read in alternation, they are the same counter, and the
  later zone is inside the earlier one.

**Replacement.** The files stay open. Before each reading the path is looked up, and a replaced file
is opened again, so a program may replay a recorded tree by renaming files or directories into
place. If a program truncates a file before writing it, the empty file is an error, as on a real
machine.

**Wraps**: see :mod:`sites.meters.shared.counter`. The kernel's range is the counter's last value
before it restarts at zero, so each wrap loses one step of the hardware (61 uJ of 262 kJ).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path
from typing import Any

from sites.described_options import list_option
from sites.meters.shared.counter import Counter
from sites.meters.shared.kept_file import KeptFile, parse_number, read_once
from sites.meters.shared.meter import Channel, MeterDescription, MeterError, contains
from sites.meters.shared.open_meter import FileMeter, keep_open
from sites.meters.shared.powercap_zones import LEAVE_OUT_REMEDY, REMEDIES, Zone, find_zones

ABOUT = MeterDescription(
    kind="powercap",
    reads="RAPL energy counters in /sys/class/powercap",
    domains="package, dram, core, uncore; psys if zones names it",
    needs="read access to energy_uj, by default for root only",
    options={
        "zones": 'such as ["package-0"] (default: all but psys)',
        "max_power_w": "the most of any zone (default: 1 kW, 10 kW for psys)",
    },
)


PERIOD_S = 1e-3
"""RAPL counters are updated about every millisecond (Intel SDM volume 3, RAPL interfaces)."""
LAG_S = 0.1
"""The longest delay of an update: psys is slower than the others, and SMIs delay updates. A large
value costs little: it adds 100 J at 1 kW to the bound that separates a wrap from a reset."""
COUNTER_STEPS = 2**32 - 1
"""The hardware's counters have 32 bits in any unit: range / this is the size of a step."""
MAX_POWER_W = {"package": 1e3, "dram": 1e3, "core": 1e3, "uncore": 1e3, "psys": 1e4}
"""More than any such zone draws: in 2025, the largest packages are rated at 500 W."""
LIMIT_FACTOR = 4.0
"""constraint_0_max_power_uw is the thermal design power, which turbo exceeds for a short time."""


def open_meter(root: Path, options: Mapping[str, Any]) -> FileMeter:
    """Open the RAPL zones below ``root``.

    Without ``max_power_w``, the limit is the larger of MAX_POWER_W and four times the zone's
    constraint_0_max_power_uw.
    """
    names, max_power_w = parse_options(options)
    zones = find_zones(root)
    chosen = _choose_zones(zones, names)
    if sum(zone.domain == "psys" for zone in zones) > 1 and len(chosen) > 1:
        _refuse_psys_with_others(chosen)
    with ExitStack() as resources:
        files = keep_open(resources, [zone.energy_path for zone in chosen], REMEDIES)
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
        file_stack = resources.pop_all()
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
    return FileMeter(ABOUT.kind, channels, counters, files, file_stack)


def parse_options(options: Mapping[str, Any]) -> tuple[tuple[str, ...] | None, float | None]:
    expected = "a list of channel names such as package-0"
    names = list_option(options, "zones", expected, lambda name: isinstance(name, str))
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
        # If psys is the only zone, it overlaps no other.
        chosen = tuple(zone for zone in zones if zone.domain != "psys") or tuple(zones)
    else:
        listed = [zone.channel for zone in zones]
        missing = [name for name in names if name not in listed]
        if missing:
            raise MeterError(
                f"powercap has no zone {', '.join(missing)}",
                f"this machine has {', '.join(listed)}",
            )
        chosen = tuple(zone for zone in zones if zone.channel in names)
    directories: dict[str, Path] = {}
    for zone in chosen:
        first = directories.setdefault(zone.channel, zone.directory)
        if first != zone.directory:
            raise MeterError(
                f"{first} and {zone.directory} are both {zone.channel}",
                "they may be one counter: leave them out with the option zones",
            )
    return chosen


def _refuse_psys_with_others(chosen: Sequence[Zone]) -> None:
    psys = [zone.channel for zone in chosen if zone.domain == "psys"]
    if psys:
        raise ValueError(
            "this machine has several psys zones, and it is not known what each of them overlaps: "
            f"name only {psys[0]} in zones, or leave it out"
        )


def _find_mirrors(zones: Sequence[Zone], files: Sequence[KeptFile]) -> dict[str, str]:
    """Channel -> channel of the earlier die with the same counter.

    The first file is read, then the second, then the first again. If the values do not decrease,
    the two are one counter: two different 32-bit counters would have to agree to within a few
    microseconds of energy. There are three attempts, because a wrap may fall in between.
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
    # Two different counters that never changed agree at zero.
    return 0 < before_uj <= between_uj <= after_uj


def _find_outer(zone: Zone, chosen: Sequence[Zone], mirrors: Mapping[str, str]) -> str | None:
    """The innermost chosen channel whose energy includes this zone's; None if there is none."""
    by_channel = {z.channel: z for z in chosen}
    if zone.channel in mirrors:
        return mirrors[zone.channel]
    parent = by_channel.get(zone.parent or "")
    if parent is not None and contains(parent.domain, zone.domain):
        return parent.channel
    if zone.domain == "psys":
        return None
    return next((z.channel for z in chosen if z.domain == "psys"), None)


def _read_range_uj(zone: Zone) -> int:
    path = zone.directory / "max_energy_range_uj"
    range_uj = read_once(path, REMEDIES)
    if range_uj < 1:
        raise MeterError(f"{path} is 0, so its counter has no range", LEAVE_OUT_REMEDY)
    return range_uj


def _greatest_power_w(zone: Zone) -> float:
    path = zone.directory / "constraint_0_max_power_uw"
    floor_w = MAX_POWER_W[zone.domain]
    try:
        text = path.read_bytes()
    except OSError:
        return floor_w  # Many zones have no such file, or an unreadable one ("no data").
    return max(floor_w, LIMIT_FACTOR * parse_number(str(path), text, REMEDIES) / 1e6)


def _step_uj(range_uj: int) -> int:
    return -(-range_uj // COUNTER_STEPS)
