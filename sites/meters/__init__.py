"""Meters: one file each, registered here by name, and those of installed packages
(:mod:`dvfs.registry`).

Each module has ``ABOUT``, a :class:`MeterDescription` with the options, and
``open_meter(root: Path, options: Mapping) -> Meter``. ``root`` is ``/`` on a machine, and a folder
with recorded files in a test; programs are then looked for in its usr/bin and usr/sbin. It raises
MeterError where the meter, or a device or file that an option names, is missing or cannot be read,
and ValueError for an option with a wrong value. ``parse_options(options)``, if the module has it,
raises the same ValueError without opening the meter. Options that ``ABOUT`` does not list are
refused before the module gets them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dvfs.registry import Registry
from sites.described_options import check_module_options
from sites.meters.shared.meter import (
    AbsentMeterError,
    Buffered,
    Channel,
    FromFiles,
    Meter,
    MeterDescription,
    MeterError,
    Reading,
)

OURS = {
    "amdsmi": "sites.meters.amdsmi",
    "cray": "sites.meters.cray",
    "hwmon": "sites.meters.hwmon",
    "ina3221": "sites.meters.ina3221",
    "ipmi": "sites.meters.ipmi",
    "nvml": "sites.meters.nvml",
    "perf-rapl": "sites.meters.perf_rapl",
    "powercap": "sites.meters.powercap",
    "powermon": "sites.meters.powermon",
    "recorded": "sites.meters.recorded",
    "slurm": "sites.meters.slurm",
}
METERS = Registry("meters", OURS)


def open_meter(kind: str, options: Mapping[str, Any], root: Path = Path("/")) -> Meter:
    """Open the meter registered as ``kind``.

    Raises:
        MeterError: it is not on this machine, or cannot be read.
        ValueError: an unknown option, or one with a wrong value.
        KeyError: no meter of that name is registered.
    """
    module = METERS.load(kind)
    module.ABOUT.check_options(options)
    meter: Meter = module.open_meter(root, options)
    return meter


def check_options(kind: str, options: Mapping[str, Any]) -> None:
    """Check a meter's options without opening it.

    Raises:
        ValueError: an unknown option, or one with a wrong value.
    """
    check_module_options(METERS.load(kind), options)


def describe_meters() -> list[MeterDescription]:
    """The description of every registered meter, without loading a vendor's library."""
    return [METERS.load(name).ABOUT for name in METERS]


__all__ = [
    "METERS",
    "AbsentMeterError",
    "Buffered",
    "Channel",
    "FromFiles",
    "Meter",
    "MeterDescription",
    "MeterError",
    "Reading",
    "check_options",
    "describe_meters",
    "open_meter",
]
