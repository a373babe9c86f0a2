"""Linux hwmon: sensors of power and energy counters below ``/sys/class/hwmon``.

Files and units: Documentation/hwmon/sysfs-interface.rst in the Linux source. ``powerN_average``
and ``powerN_input`` are uW, ``energyN_input`` is uJ, ``powerN_average_interval`` and
``update_interval`` are ms. Of a sensor with both powers the average is read, because it covers the
whole time. ACPI's power meters have their label in ``powerN_oem_info``, and older kernels have
their files in ``device`` (drivers/hwmon/acpi_power_meter.c).

**Sensors** are identified by the name of their chip and their label, not by an index, which changes
between boots.

**Without options** these are read:

- NVIDIA Grace (chip ``power_meter``; "Power and Thermals" in NVIDIA's Grace Performance Tuning
  Guide): ``Module Power Socket N`` is a whole superchip and ``Grace Power Socket N`` its CPU, whose
  cores are ``CPU Power Socket N`` and whose remaining parts are ``SysIO Power Socket N``.
- AMD (chip ``amd_energy``; Documentation/hwmon/amd_energy.rst up to Linux 5.12, a separate module
  since): ``EsocketN``. Its driver unwraps the 32 bits of the hardware.
- Intel's discrete GPUs (Documentation/ABI/testing/sysfs-driver-intel-i915-hwmon and
  sysfs-driver-intel-xe-hwmon): energy 1 of chip ``i915`` is the entire device (chips ``i915_gtN``
  are parts of it); energy 1 of ``xe`` is the card, and energy 2 its package; some devices have only
  energy 2. Both drivers unwrap the 32 bits of the hardware.

**Wraps**: the values have 64 bits, so a counter whose value decreases was reset.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

from sites.described_options import list_option
from sites.meters.shared.counter import Counter
from sites.meters.shared.kept_file import Remedies, explain, parse_number, read_text
from sites.meters.shared.meter import (
    CONTAINS,
    AbsentMeterError,
    Channel,
    MeterDescription,
    MeterError,
)
from sites.meters.shared.open_meter import FileMeter, keep_open
from sites.meters.shared.stopped import UNIT

HWMON = Path("sys/class/hwmon")
SENSOR_FILE = re.compile(r"(power|energy)(\d+)_(average|input)")
LABEL_FILE = re.compile(r"(power|energy)(\d+)_(label|oem_info)")
REMEDIES = Remedies(
    denied=(
        "since 2020 only root can read energies (CVE-2020-12912): give a group access, as root, "
        "with `chgrp GROUP {path} && chmod g+r {path}`"
    ),
    gone="a driver was unloaded or a device removed: discard the measurement",
    other="check `dmesg`, or name the sensors to read in the meter's option `sensors`",
)
ABSENT_REMEDY = (
    "load the driver with `modprobe acpi_power_meter` or `modprobe amd_energy`; containers and "
    "virtual machines rarely have hwmon"
)
ABOUT = MeterDescription(
    kind="hwmon",
    reads="sensors in /sys/class/hwmon (default: NVIDIA Grace, amd_energy, Intel GPUs)",
    domains="module, package, core, uncore, gpu; others as sensors says",
    needs="read access; energies by default for root only",
    options={
        "sensors": "tables of chip, label or number, domain, inside, device",
    },
)
KEYS = ("chip", "label", "number", "domain", "inside", "device")
GRACE_CHIP = "power_meter"
GRACE_LABEL = re.compile(r"(Module|Grace|CPU|SysIO) Power Socket (\d+)")
GRACE_DOMAINS = {"Module": "module", "Grace": "package", "CPU": "core", "SysIO": "uncore"}
GRACE_INSIDE = {"Module": (), "Grace": ("Module",), "CPU": ("Grace", "Module")}
AMD_CHIP = "amd_energy"
AMD_LABEL = re.compile(r"Esocket\d+")
INTEL_CHIPS = ("i915", "xe")
RESOLUTIONS = {GRACE_CHIP: 1e-3, AMD_CHIP: 2.0**-16}
"""In W or J. ACPI's power meters report whole mW; AMD's unit of energy is 15.3 uJ."""
RESOLUTION = UNIT
"""The resolution of other chips: the unit of the files, uW or uJ."""
PERIODS_S = {AMD_CHIP: 1e-3}
"""RAPL's counters are updated about every millisecond."""
PERIOD_S = 1.0
"""The period of chips that do not report their interval: common among hwmon drivers."""


@dataclass(frozen=True)
class Sensor:
    """A sensor of this machine."""

    chip: str
    label: str | None
    number: int
    """Its number within the chip, which does not change between boots."""
    kind: Literal["energy", "power"]
    device: str
    """The name of the device of its chip, such as 0000:c1:00.0."""
    path: Path

    def __str__(self) -> str:
        return f"{self.chip} {self.label or self.number}"


def find_sensors(root: Path) -> tuple[Sensor, ...]:
    """All sensors of power and energy below ``root``, by chip, device, kind and number.

    Raises:
        MeterError: there is no hwmon, or a name or label cannot be read.
    """
    sensors: dict[tuple[str, str, int], Sensor] = {}
    for chip_directory in _list(root / HWMON):
        if not re.fullmatch(r"hwmon\d+", chip_directory.name) or not chip_directory.is_dir():
            continue
        device = chip_directory / "device"
        folders = [folder for folder in (chip_directory, device) if folder.is_dir()]
        names = [folder / "name" for folder in folders if (folder / "name").exists()]
        if not names:
            continue
        chip, device_name = read_text(names[0], REMEDIES), device.resolve().name
        for folder in folders:
            paths = _list(folder)
            for path in paths:
                if match := SENSOR_FILE.fullmatch(path.name):
                    kind, number = _kind(match[1]), int(match[2])
                    key = (chip_directory.name, kind, number)
                    if key not in sensors or match[3] == "average":
                        label = _read_label(folder / f"{kind}{number}")
                        sensors[key] = Sensor(chip, label, number, kind, device_name, path)
            # A sensor with a label and no value is broken; opening it reports that.
            for path in paths:
                if match := LABEL_FILE.fullmatch(path.name):
                    kind, number = _kind(match[1]), int(match[2])
                    value = folder / f"{kind}{number}_{'average' if 'oem' in match[3] else 'input'}"
                    sensors.setdefault(
                        (chip_directory.name, kind, number),
                        Sensor(chip, read_text(path, REMEDIES), number, kind, device_name, value),
                    )
    return tuple(sorted(sensors.values(), key=lambda s: (s.chip, s.device, s.kind, s.number)))


def _kind(text: str) -> Literal["energy", "power"]:
    return "energy" if text == "energy" else "power"


def _read_label(stem: Path) -> str | None:
    for suffix in ("_label", "_oem_info"):
        path = stem.with_name(stem.name + suffix)
        if path.exists():
            return read_text(path, REMEDIES) or None
    return None


def _list(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except FileNotFoundError as error:
        raise AbsentMeterError(f"{directory} does not exist", ABSENT_REMEDY) from error
    except OSError as error:
        raise explain(str(directory), error, REMEDIES) from error


@dataclass(frozen=True)
class ChosenSensor:
    """A sensor to read: an entry of the option ``sensors``, or a default."""

    chip: str
    key: str | int
    """The sensor's label, or its number if it has none."""
    domain: str
    inside: str | int | None = None
    """The label or number of another chosen sensor."""
    device: str | None = None

    @property
    def channel(self) -> str:
        name = self.key if isinstance(self.key, str) else f"{self.chip}-{self.key}"
        return name if self.device is None else f"{self.device}/{name}"

    def fits(self, sensor: Sensor) -> bool:
        """Whether this entry names the sensor."""
        key = sensor.label if isinstance(self.key, str) else sensor.number
        return (sensor.chip, key) == (self.chip, self.key) and self.device in (None, sensor.device)


def open_meter(root: Path, options: Mapping[str, Any]) -> FileMeter:
    """Open the sensors below ``root``.

    In an entry of ``sensors``, ``inside`` is the label or number of the listed sensor whose energy
    includes this one's, and ``device`` the name of the chip's device, if several chips have the
    same name.
    """
    choices = parse_options(options)
    sensors = find_sensors(root)
    if choices is None:
        choices = _choose_known(sensors)
        if not choices:
            raise MeterError(
                f"{root / HWMON} has no sensor of power whose domain is known",
                "name them in the meter's option `sensors`; there are "
                + (", ".join(str(sensor) for sensor in sensors) or "none at all"),
            )
    chosen: list[tuple[Channel, Sensor]] = []
    for choice in choices:
        chosen += _find_channels(choice, choices, sensors)
    names = [channel.name for channel, _ in chosen]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise MeterError(
            f"{root / HWMON}: several channels would be called {', '.join(twice)}",
            "distinguish them with `device` in the option `sensors`",
        )
    with ExitStack() as resources:
        files = keep_open(resources, [sensor.path for _, sensor in chosen], REMEDIES)
        channels = [channel for channel, _ in chosen]
        counters = [
            Counter(file.path, Fraction(1, 10**6)) if channel.kind == "energy" else None
            for file, channel in zip(files, channels, strict=True)
        ]
        file_stack = resources.pop_all()
        return FileMeter(ABOUT.kind, channels, counters, files, file_stack, units_per_w=1e6)


def parse_options(options: Mapping[str, Any]) -> tuple[ChosenSensor, ...] | None:
    entries = list_option(options, "sensors", f"a list of tables with {', '.join(KEYS)}")
    if entries is None:
        return None
    choices = tuple(_parse_entry(entry) for entry in entries)
    for choice in choices:
        if choice.inside is not None:
            _find_outer(choice, choices)
    return choices


def _parse_entry(entry: Any) -> ChosenSensor:
    if not isinstance(entry, Mapping) or not set(entry) <= set(KEYS):
        raise ValueError(f"a sensor is a table with {', '.join(KEYS)}, not {entry!r}")
    label, number = entry.get("label"), entry.get("number")
    if not isinstance(entry.get("chip"), str):
        raise ValueError(f"a sensor needs the name of its chip; found {dict(entry)!r}")
    if (label is None) == (number is None) or not isinstance(label, str | None):
        raise ValueError(f"a sensor needs either label or number; found {dict(entry)!r}")
    if isinstance(number, bool) or not isinstance(number, int | None):
        raise ValueError(f"the number of a sensor is an integer, not {number!r}")
    if entry.get("domain") not in CONTAINS:
        raise ValueError(
            f"the domain of a sensor is one of {', '.join(CONTAINS)}, not {entry.get('domain')!r}"
        )
    inside, device = entry.get("inside"), entry.get("device")
    if isinstance(inside, bool) or not isinstance(inside, str | int | None):
        raise ValueError(f"inside is the label or number of another sensor, not {inside!r}")
    if not isinstance(device, str | None):
        raise ValueError(f"device is the name of a chip's device, not {device!r}")
    key = label if label is not None else number
    return ChosenSensor(entry["chip"], key, entry["domain"], inside, device)  # type: ignore[arg-type]


def _find_outer(choice: ChosenSensor, choices: Sequence[ChosenSensor]) -> ChosenSensor:
    """The chosen sensor whose energy includes that of ``choice``, preferably of the same device."""
    candidates = [c for c in choices if c is not choice]
    outer = [c for c in candidates if c.key == choice.inside and c.device == choice.device]
    outer = outer or [c for c in candidates if c.key == choice.inside]
    if len(outer) != 1 or outer[0].inside == choice.key:
        keys = ", ".join(str(c.key) for c in candidates)
        raise ValueError(
            f"{choice.key} is inside {choice.inside}, which is not one of the other sensors: "
            f"{keys or 'none'}"
        )
    return outer[0]


def _choose_known(sensors: Sequence[Sensor]) -> tuple[ChosenSensor, ...]:
    grace = {
        (match[1], int(match[2])): sensor.label
        for sensor in sensors
        if sensor.chip == GRACE_CHIP and (match := GRACE_LABEL.fullmatch(sensor.label or ""))
    }
    choices = []
    for part, domain in GRACE_DOMAINS.items():
        for (grace_part, socket), label in sorted(grace.items()):
            if grace_part != part or label is None:
                continue
            outer = GRACE_INSIDE.get(part, GRACE_INSIDE["CPU"])
            inside = next((grace[p, socket] for p in outer if (p, socket) in grace), None)
            choices.append(ChosenSensor(GRACE_CHIP, label, domain, inside))
    for sensor in sensors:
        if sensor.chip == AMD_CHIP and AMD_LABEL.fullmatch(sensor.label or ""):
            choices.append(ChosenSensor(AMD_CHIP, str(sensor.label), "package"))
    return tuple(choices + _intel_gpus(sensors))


def _intel_gpus(sensors: Sequence[Sensor]) -> list[ChosenSensor]:
    """The energy of each Intel GPU: of the card, or of its package where the card has none."""
    gpus: dict[str, Sensor] = {}
    for sensor in sensors:  # a chip's sensors are in the order of their numbers
        if sensor.chip in INTEL_CHIPS and sensor.kind == "energy" and sensor.number <= 2:
            gpus.setdefault(sensor.device, sensor)
    return [
        ChosenSensor(
            sensor.chip,
            sensor.label or sensor.number,
            "gpu",
            device=device if len(gpus) > 1 else None,
        )
        for device, sensor in gpus.items()
    ]


def _find_channels(
    choice: ChosenSensor, choices: Sequence[ChosenSensor], sensors: Sequence[Sensor]
) -> list[tuple[Channel, Sensor]]:
    """The channels of a chosen sensor: a counter, a power, or both with the same label."""
    fitting = [sensor for sensor in sensors if choice.fits(sensor)]
    if not fitting:
        raise MeterError(
            f"hwmon has no sensor {choice.channel} of chip {choice.chip}",
            "this machine has " + (", ".join(str(sensor) for sensor in sensors) or "none"),
        )
    kinds = [sensor.kind for sensor in fitting]
    if len(set(kinds)) < len(kinds):
        raise MeterError(
            f"{' and '.join(str(sensor.path) for sensor in fitting)} are both {fitting[0]}",
            "distinguish them with `device` in the option `sensors`: "
            + ", ".join(sensor.device for sensor in fitting),
        )
    inside = None if choice.inside is None else _find_outer(choice, choices).channel
    channels: list[tuple[Channel, Sensor]] = []
    for sensor in sorted(fitting, key=lambda sensor: sensor.kind):
        channel = _make_channel(sensor, choice, inside)
        if channels:
            channel = replace(channel, name=f"{choice.channel}/power", same_as=channels[0][0].name)
        channels.append((channel, sensor))
    return channels


def _make_channel(sensor: Sensor, choice: ChosenSensor, inside: str | None) -> Channel:
    home = sensor.path.parent
    interval_s = _read_s(home / f"power{sensor.number}_average_interval")
    averaging_s = (interval_s or 0.0) if sensor.path.name.endswith("_average") else 0.0
    period_s = averaging_s or _read_s(home / "update_interval")
    return Channel(
        name=choice.channel,
        domain=choice.domain,
        kind=sensor.kind,
        resolution=RESOLUTIONS.get(sensor.chip, RESOLUTION),
        period_s=period_s or PERIODS_S.get(sensor.chip, PERIOD_S),
        inside=inside,
        averaging_s=averaging_s,
    )


def _read_s(path: Path) -> float | None:
    """The interval of a file in ms, in s; None where the file does not exist or holds 0."""
    try:
        text = path.read_bytes()
    except OSError:
        return None
    return parse_number(str(path), text, REMEDIES) / 1000 or None
