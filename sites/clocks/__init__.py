"""Clock controls: one file each, registered here by name.

Each module has ``ABOUT``, a :class:`ControlDescription`,
``open_control(site, root: Path) -> ClockControl`` and ``rights(root: Path) -> Right``; one that
writes to the hardware also has ``put_back(root, found)``, with which a journal is replayed.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from sites.clocks.shared.control import (
    ClockControl,
    ClockNotLegal,
    ClockState,
    ClocksUnavailable,
    ControlDescription,
    ControlledSite,
    Right,
)
from sites.clocks.shared.hwmon_voltage import with_voltage

CONTROLS = {
    "cpufreq": "sites.clocks.cpufreq",
    "fixed": "sites.clocks.fixed",
    "jetson": "sites.clocks.jetson",
    "nvml": "sites.clocks.nvml",
    "slurm": "sites.clocks.slurm",
    "twin": "sites.clocks.twin",
    "uncore": "sites.clocks.uncore",
}


def open_control(site: ControlledSite, root: Path = Path("/")) -> ClockControl:
    """The site's clock control, ready to set and read clocks under ``root``."""
    control: ClockControl = import_module(CONTROLS[site.clocks.control]).open_control(site, root)
    voltage = site.clocks.core_voltage
    if voltage is None:
        return control
    return with_voltage(control, root, voltage.chip, voltage.label)


def describe_controls() -> list[ControlDescription]:
    """The description of every registered control. No vendor's library is loaded for it."""
    return [import_module(module).ABOUT for module in CONTROLS.values()]


def right_to_set(control: str, root: Path = Path("/")) -> Right:
    """Whether this user can set clocks with a control on this node, without setting any."""
    right: Right = import_module(CONTROLS[control]).rights(root)
    return right


__all__ = [
    "CONTROLS",
    "ClockControl",
    "ClockNotLegal",
    "ClockState",
    "ClocksUnavailable",
    "ControlDescription",
    "Right",
    "describe_controls",
    "open_control",
    "right_to_set",
]
