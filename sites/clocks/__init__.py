"""Clock controls: one file each, registered here by name.

Each module has ``open_control(site: Site, root: Path) -> ClockControl``.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from sites.clocks.control import ClockControl, ClockNotLegal, ClockState, ClocksUnavailable

if TYPE_CHECKING:
    from sites.site_file import Site

CONTROLS = {
    "cpufreq": "sites.clocks.cpufreq",
    "fixed": "sites.clocks.fixed",
    "jetson": "sites.clocks.jetson",
    "nvml": "sites.clocks.nvml",
    "slurm": "sites.clocks.slurm",
    "twin": "sites.clocks.twin",
    "uncore": "sites.clocks.uncore",
}


def open_control(site: Site, root: Path = Path("/")) -> ClockControl:
    """The site's clock control, ready to set and read clocks under ``root``."""
    control: ClockControl = import_module(CONTROLS[site.clocks.control]).open_control(site, root)
    voltage = site.clocks.core_voltage
    if voltage is None:
        return control
    from sites.clocks.hwmon_voltage import with_voltage  # noqa: PLC0415

    return with_voltage(control, root, voltage.chip, voltage.label)


__all__ = [
    "CONTROLS",
    "ClockControl",
    "ClockNotLegal",
    "ClockState",
    "ClocksUnavailable",
    "open_control",
]
