"""Clock controls: one file each, registered here by name.

Each module has ``open_control(site: ControlledSite, root: Path) -> ClockControl``.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from sites.clocks.shared.control import (
    ClockControl,
    ClockNotLegal,
    ClockState,
    ClocksUnavailable,
    ControlledSite,
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


__all__ = [
    "CONTROLS",
    "ClockControl",
    "ClockNotLegal",
    "ClockState",
    "ClocksUnavailable",
    "open_control",
]
