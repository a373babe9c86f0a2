"""RAPL through perf: the kernel's event source ``power``, for users who may count events.

Files: Documentation/ABI/testing/sysfs-bus-event_source-devices-events in the Linux source; events:
arch/x86/events/rapl.c. ``type`` is the number of the event source, ``cpumask`` lists one CPU per
package (or die), and ``events/energy-pkg`` is an event, with J per count in ``.scale`` and "Joules"
in ``.unit``. perf_event_open(2) opens one event per CPU.

Counts have 64 bits, because the kernel unwraps the 32 bits of the hardware with a timer. So no gap
between readings is too long, and no count wraps.

``energy-pkg`` is a package, which contains ``energy-cores`` and ``energy-gpu`` (the integrated
GPU); ``energy-ram`` is outside it. AMD has only the package. ``energy-psys`` is not read: its
coverage differs between boards. The meter powercap reads it if its option ``zones`` names it.

On AMD and Hygon a package has one counter. Linux 6.9 to 6.11 list a CPU of each of its dies (CCDs)
in ``cpumask``, each of which shows that counter; Linux 6.12 lists one CPU of a package again
(arch/x86/events/rapl.c, rapl_pmu_is_pkg_scope). So only the first CPU of a package is read.
"""

from __future__ import annotations

import errno
import os
import platform
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from sites.clocks.shared.kernel_files import CPUS, cpu_list, is_amd
from sites.described_options import list_option
from sites.meters.shared.counter import Counter
from sites.meters.shared.kept_file import KeptFile, Remedies, read_once, read_text
from sites.meters.shared.meter import (
    AbsentMeterError,
    Channel,
    MeterDescription,
    MeterError,
    contains,
)
from sites.meters.shared.open_meter import OpenMeter
from sites.perf_event import EventSpec, open_event

ABOUT = MeterDescription(
    kind="perf-rapl",
    reads="RAPL energy counters through perf_event_open",
    domains="package, dram, core, uncore",
    needs="kernel.perf_event_paranoid = 0 or CAP_PERFMON",
    options={
        "events": 'such as ["energy-pkg"] (default: all)',
    },
)

POWER = Path("sys/bus/event_source/devices/power")
RECORDED = Path("perf/power")
"""The folder of a recorded tree's counts: ``EVENT/cpuN``, one decimal number. No kernel path."""
DOMAINS = {
    "energy-pkg": "package",
    "energy-ram": "dram",
    "energy-cores": "core",
    "energy-gpu": "uncore",
}
"""Event -> domain, in the order of channels."""
EVENT_CONFIG = re.compile(r"event=(0x[0-9a-f]+|\d+)")

RESOLUTION_J = 2.0**-14
"""The energy unit of most Intel processors. Counts are finer (2^-32 J) and do not show the unit;
the unit of AMD and of servers' dram is a quarter of this."""
PERIOD_S = 1e-3
"""RAPL counters are updated about every millisecond (Intel SDM volume 3, RAPL interfaces)."""

PERMISSION_REMEDY = (
    "counting a whole package's events needs `sysctl kernel.perf_event_paranoid=0` as root, or "
    "CAP_PERFMON (Linux 5.8 and later): `setcap cap_perfmon=ep PYTHON` for the interpreter's file"
)
ABSENT_REMEDY = (
    "load the driver with `modprobe rapl` (intel-rapl-perf before Linux 5.8); virtual machines "
    "rarely have RAPL, and processors other than x86 have none"
)
REMEDIES = Remedies(
    denied="these files are normally readable by all users: `chmod a+r {path}`",
    gone="the driver was unloaded or a CPU taken offline: discard the measurement",
    other="check `dmesg`, or name the events to read in the meter's option `events`",
)


@dataclass(frozen=True)
class RaplEvent(EventSpec):
    """An event of the kernel's source ``power``."""

    joules_per_count: Fraction = Fraction(1)


class KernelEvent:
    """An event that the kernel counts on a CPU, for all processes.

    Raises:
        MeterError: the kernel refuses it.
    """

    def __init__(self, spec: EventSpec, cpu: int) -> None:
        self.path = f"the event power/{spec.name}/ on CPU {cpu}"
        try:
            self._descriptor = open_event(spec, process=-1, cpu=cpu)
        except OSError as error:
            raise _explain_event(self.path, error.errno or 0) from None

    def read_number(self) -> int:
        """The present count; raises MeterError."""
        try:
            count = os.read(self._descriptor, 8)
        except OSError as error:
            raise _explain_event(self.path, error.errno or 0) from error
        if len(count) != 8:
            raise MeterError(f"{self.path} no longer counts", REMEDIES.gone)
        return int.from_bytes(count, "little")

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def open_meter(root: Path, options: Mapping[str, Any]) -> OpenMeter:
    """Open the events of each package; a recorded tree has their counts in RECORDED."""
    names = parse_options(options)
    specs = _find_events(root, names)
    units = _find_units(root)
    channel_events: list[tuple[Channel, RaplEvent, int]] = []
    for cpu, unit in units.items():
        package = _channel_name("energy-pkg", unit)
        for spec in specs:
            domain = DOMAINS[spec.name]
            is_inside = contains("package", domain) and "energy-pkg" in [s.name for s in specs]
            channel = Channel(
                name=_channel_name(spec.name, unit),
                domain=domain,
                kind="energy",
                resolution=max(RESOLUTION_J, float(spec.joules_per_count)),
                period_s=PERIOD_S,
                inside=package if is_inside else None,
            )
            channel_events.append((channel, spec, cpu))
    is_machine = root.resolve() == Path("/")
    with ExitStack() as resources:
        events = [
            resources.enter_context(
                closing(
                    KernelEvent(spec, cpu)
                    if is_machine
                    else KeptFile(str(root / RECORDED / spec.name / f"cpu{cpu}"), REMEDIES)
                )
            )
            for _, spec, cpu in channel_events
        ]
        return OpenMeter(
            ABOUT.kind,
            [channel for channel, _, _ in channel_events],
            [
                Counter(event.path, spec.joules_per_count)
                for event, (_, spec, _) in zip(events, channel_events, strict=True)
            ],
            lambda: [event.read_number() for event in events],
            resources.pop_all(),
        )


def parse_options(options: Mapping[str, Any]) -> tuple[str, ...] | None:
    names = list_option(options, "events", f"a list of {', '.join(DOMAINS)}")
    if names is None:
        return None
    for name in names:
        if name not in DOMAINS:
            raise ValueError(f"{name!r} in events is not one of {', '.join(DOMAINS)}")
    return tuple(names)


def _find_events(root: Path, names: Sequence[str] | None) -> tuple[RaplEvent, ...]:
    power = root / POWER
    if not power.is_dir():
        raise AbsentMeterError(f"{power} does not exist", ABSENT_REMEDY)
    listed = [name for name in DOMAINS if (power / "events" / name).exists()]
    if not listed:
        raise AbsentMeterError(f"{power / 'events'} has no energy event", ABSENT_REMEDY)
    missing = [name for name in names or () if name not in listed]
    if missing:
        raise MeterError(
            f"{power / 'events'} has no event {', '.join(missing)}",
            f"this machine has {', '.join(listed)}",
        )
    source_type = read_once(power / "type", REMEDIES)
    return tuple(
        _read_event(power / "events" / name, source_type)
        for name in listed
        if names is None or name in names
    )


def _read_event(path: Path, source_type: int) -> RaplEvent:
    text = read_text(path, REMEDIES)
    config = EVENT_CONFIG.fullmatch(text)
    if config is None:
        raise MeterError(f"{path} holds {text[:40]!r}, not event=NUMBER", REMEDIES.other)
    unit_path = path.with_name(f"{path.name}.unit")
    unit = read_text(unit_path, REMEDIES)
    if unit != "Joules":
        raise MeterError(f"{unit_path} holds {unit[:40]!r}, not Joules", REMEDIES.other)
    scale_path = path.with_name(f"{path.name}.scale")
    scale = read_text(scale_path, REMEDIES)
    try:
        joules = Fraction(scale)
    except (ValueError, ZeroDivisionError):
        joules = Fraction(0)
    if joules <= 0:
        raise MeterError(f"{scale_path} holds {scale[:40]!r}, not J above 0", REMEDIES.other)
    return RaplEvent(path.name, source_type, int(config[1], 0), joules_per_count=joules)


def _find_units(root: Path) -> dict[int, str]:
    """CPU -> the package that it counts: ``package-0``, or with dies ``package-0-die-1``."""
    path = root / POWER / "cpumask"
    text = read_text(path, REMEDIES)
    try:
        cpus = sorted(cpu_list(text))
    except ValueError:
        message = f"{path} holds {text[:40]!r}, not a list of CPUs"
        raise MeterError(message, REMEDIES.other) from None
    topology = {cpu: root / CPUS / f"cpu{cpu}/topology" for cpu in cpus}
    packages = {cpu: read_once(topology[cpu] / "physical_package_id", REMEDIES) for cpu in cpus}
    if is_amd(root):
        first = {package: cpu for cpu, package in reversed(packages.items())}
        packages = {cpu: package for cpu, package in packages.items() if first[package] == cpu}
    names = {}
    for cpu, package in packages.items():
        names[cpu] = f"package-{package}"
        if list(packages.values()).count(package) > 1:
            names[cpu] += f"-die-{read_once(topology[cpu] / 'die_id', REMEDIES)}"
    return names


def _channel_name(event: str, unit: str) -> str:
    domain = DOMAINS[event]
    return unit if domain == "package" else f"{unit}/{domain}"


def _explain_event(name: str, code: int) -> MeterError:
    if code in (errno.EACCES, errno.EPERM):
        return MeterError(f"this user may not count {name}", PERMISSION_REMEDY)
    if code == errno.ENOSYS:
        return MeterError(
            f"{name} cannot be opened on {platform.machine()}",
            "only x86 processors have RAPL: use hwmon, nvml or ina3221",
        )
    if code in (errno.ENOENT, errno.ENODEV, errno.ENXIO, errno.EINVAL, errno.EOPNOTSUPP):
        return MeterError(f"{name} does not exist ({os.strerror(code)})", REMEDIES.gone)
    return MeterError(f"{name}: {os.strerror(code)}", REMEDIES.other)
