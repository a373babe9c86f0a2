"""The power and energy sensors that Linux's hwmon shows below ``/sys/class/hwmon``.

Files and units: Documentation/hwmon/sysfs-interface.rst in the Linux source. ACPI's power meters
have their label in ``powerN_oem_info``, and older kernels keep their files in ``device``
(drivers/hwmon/acpi_power_meter.c).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sites.meters.shared.kept_file import Remedies, explain, read_text
from sites.meters.shared.meter import AbsentMeterError

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
        chip = read_text(names[0], REMEDIES)
        for folder in folders:
            paths = _list(folder)
            matches = [(path, SENSOR_FILE.fullmatch(path.name)) for path in paths]
            for path, match in matches:
                if match is not None:
                    kind, number = _kind(match[1]), int(match[2])
                    key = (chip_directory.name, kind, number)
                    if key not in sensors or match[3] == "average":
                        label = _read_label(folder / f"{kind}{number}")
                        sensors[key] = Sensor(
                            chip, label, number, kind, device.resolve().name, path
                        )
            # A sensor with a label and no value is broken; opening it reports that.
            for path in paths:
                match = LABEL_FILE.fullmatch(path.name)
                if match is not None:
                    kind, number = _kind(match[1]), int(match[2])
                    value = folder / f"{kind}{number}_{'average' if 'oem' in match[3] else 'input'}"
                    sensor = Sensor(
                        chip, read_text(path, REMEDIES), number, kind, device.resolve().name, value
                    )
                    sensors.setdefault((chip_directory.name, kind, number), sensor)
    return tuple(
        sorted(sensors.values(), key=lambda one: (one.chip, one.device, one.kind, one.number))
    )


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
