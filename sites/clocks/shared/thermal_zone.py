"""Temperatures that Linux's thermal zones report.

Format: the kernel's Documentation/driver-api/thermal/sysfs-api.rst: ``type`` is the sensor's name
and ``temp`` is in thousandths of a degree Celsius.
"""

from __future__ import annotations

from pathlib import Path

from sites.clocks.shared.kernel_files import optional_number, optional_text


def find_zones(root: Path, types: tuple[str, ...]) -> tuple[str, ...]:
    """The ``temp`` files, below the root, of the zones of these types (in lower case)."""
    paths = []
    for zone in sorted(root.glob("sys/class/thermal/thermal_zone*")):
        folder = str(zone.relative_to(root))
        if optional_text(root, f"{folder}/type").lower() in types:
            paths.append(f"{folder}/temp")
    return tuple(paths)


def hottest_c(root: Path, zones: tuple[str, ...]) -> float | None:
    """The highest temperature in degrees Celsius; None if there is none."""
    millidegrees = [value for zone in zones if (value := optional_number(root, zone)) is not None]
    return max(millidegrees) / 1000.0 if millidegrees else None
