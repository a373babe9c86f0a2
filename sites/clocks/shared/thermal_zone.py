"""Temperatures that Linux's thermal zones report.

Format: the kernel's Documentation/driver-api/thermal/sysfs-api.rst: ``type`` is the sensor's name
and ``temp`` is in thousandths of a degree Celsius.
"""

from __future__ import annotations

from pathlib import Path

from sites.clocks.shared.kernel_files import optional_number


def find_zones(root: Path, types: tuple[str, ...]) -> tuple[str, ...]:
    """The ``temp`` files, below the root, of the zones of these types (in lower case)."""
    paths = []
    for zone in sorted(root.glob("sys/class/thermal/thermal_zone*")):
        try:
            kind = (zone / "type").read_text().strip()
        except (OSError, ValueError):
            continue
        if kind.lower() in types:
            paths.append(str((zone / "temp").relative_to(root)))
    return tuple(paths)


def hottest_c(root: Path, zones: tuple[str, ...]) -> float | None:
    """The highest temperature in degrees Celsius; None if there is none."""
    millidegrees = [value for zone in zones if (value := optional_number(root, zone)) is not None]
    return max(millidegrees) / 1000.0 if millidegrees else None
