"""Clock controls: one file each, registered here by name, and those of installed packages
(:mod:`dvfs.registry`).

Each module has ``ABOUT``, a :class:`ControlDescription`,
``open_control(site, root: Path) -> ClockControl`` and ``rights(root: Path) -> Right``. A module
that writes to the hardware also has ``put_back(root, entries)``, which replays a journal.
``parse_options(options)``, if the module has it, raises ValueError for options with a wrong value,
without access to the hardware. Options that ``ABOUT`` does not list are refused before the module
gets them. A module with ``ABOUT.axis`` sets this axis instead of clocks:
``open_control(site.power_limit, root) -> LimitControl``, or
``open_control(site.profiles, root) -> ClockControl``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dvfs.registry import Registry
from sites.clocks.shared.control import (
    ClockControl,
    ClockEntry,
    ClocksError,
    ClockState,
    ControlDescription,
    ControlledSite,
    IllegalClockError,
    PowerLimitEntry,
    ProfilesEntry,
    Right,
)
from sites.clocks.shared.hwmon_voltage import find_input
from sites.clocks.shared.limited import LimitControl, Together
from sites.described_options import check_module_options

OURS = {
    "amdsmi": "sites.clocks.amdsmi",
    "amdsmi-power-cap": "sites.clocks.amdsmi_power_cap",
    "command": "sites.clocks.command",
    "command-power-limit": "sites.clocks.command_power_limit",
    "command-profile": "sites.clocks.command_profile",
    "cpufreq": "sites.clocks.cpufreq",
    "energy-preference": "sites.clocks.energy_preference",
    "fixed": "sites.clocks.fixed",
    "jetson": "sites.clocks.jetson",
    "nvml": "sites.clocks.nvml",
    "nvml-power-limit": "sites.clocks.nvml_power_limit",
    "powercap": "sites.clocks.powercap",
    "slurm": "sites.clocks.slurm",
    "simulated": "sites.clocks.simulated",
    "uncore": "sites.clocks.uncore",
}
CONTROLS = Registry("clocks", OURS)


def open_control(site: ControlledSite, root: Path = Path("/")) -> ClockControl:
    """The site's control of clocks, profile and power limit, ready to set and read them under
    ``root``.

    Raises:
        ClocksError: a device or file is missing, or cannot be read.
        ValueError: an unknown option, or one with a wrong value.
    """
    control: ClockControl = _load(site.clocks).open_control(site, root)
    set_first = {"profile": open_profile, "power_limit_w": open_power_limit}
    opened = {axis: open_axis(site, root) for axis, open_axis in set_first.items()}
    axes = {axis: of_axis for axis, of_axis in opened.items() if of_axis is not None}
    voltage = site.clocks.core_voltage
    file = None if voltage is None else find_input(root, voltage.chip, voltage.label)
    return Together(control, axes, file) if axes or file else control


def open_profile(site: ControlledSite, root: Path = Path("/")) -> ClockControl | None:
    """The site's control of the profile; None where none is set."""
    if site.profiles is None:
        return None
    control: ClockControl = _load(site.profiles).open_control(site.profiles, root)
    return control


def open_power_limit(site: ControlledSite, root: Path = Path("/")) -> LimitControl | None:
    """The site's control of the power limit; None where no control sets it."""
    limit = site.power_limit
    if limit is None or limit.control is None:
        return None
    control: LimitControl = _load(limit).open_control(limit, root)
    return control


def _load(entry: ClockEntry | PowerLimitEntry | ProfilesEntry) -> Any:
    """The module of the control that a part of a site file names, with options that it has."""
    module = CONTROLS.load(str(entry.control))
    module.ABOUT.check_options(entry.options)
    return module


def check_options(control: str, options: Mapping[str, Any]) -> None:
    """Check a control's options without opening it.

    Raises:
        ValueError: an unknown option, or one with a wrong value.
    """
    check_module_options(CONTROLS.load(control), options)


def device_of(clocks: ClockEntry) -> str:
    """The device that a site's core clock belongs to: ``cpu`` or ``gpu``."""
    about: ControlDescription = CONTROLS.load(clocks.control).ABOUT
    return about.device or clocks.device


def describe_controls() -> list[ControlDescription]:
    """The description of every registered control, without loading a vendor's library."""
    return [CONTROLS.load(name).ABOUT for name in CONTROLS]


def right_to_set(control: str, root: Path = Path("/")) -> Right:
    """Whether this user can set clocks with a control on this node, without setting any."""
    right: Right = CONTROLS.load(control).rights(root)
    return right


__all__ = [
    "CONTROLS",
    "ClockControl",
    "ClockState",
    "ClocksError",
    "ControlDescription",
    "IllegalClockError",
    "Right",
    "check_options",
    "describe_controls",
    "device_of",
    "open_control",
    "open_power_limit",
    "open_profile",
    "right_to_set",
]
