"""RAPL through perf: two packages with their memory, their counts in files."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

from tests.sites.meter_layouts.layout import Layout, file_faults, number_in, replace

POWER = Path("sys/bus/event_source/devices/power")
COUNTS = Path("perf/power")
FILES = {
    "package-0": "energy-pkg/cpu0",
    "package-0/dram": "energy-ram/cpu0",
    "package-1": "energy-pkg/cpu28",
    "package-1/dram": "energy-ram/cpu28",
}


def show(root: Path, true: Mapping[str, float]) -> None:
    """Steps of 2^-14 J, which the kernel counts in 2^-32 J and unwraps."""
    for channel, energy_j in true.items():
        replace(root / COUNTS / FILES[channel], f"{int(Fraction(energy_j) * 2**14) * 2**18}\n")


def remove_all(root: Path) -> None:
    for folder in (POWER, COUNTS):
        shutil.rmtree(root / folder)


COUNT = COUNTS / "energy-ram/cpu28"
LAYOUTS = [
    Layout(
        name="perf-rapl-2s",
        kind="perf-rapl",
        tree="perf-rapl-2s",
        channels=tuple(FILES),
        show=show,
        faults=file_faults(COUNT, POWER, "0x1f\n")
        | {
            "reset": lambda root: replace(root / COUNT, "0\n"),
            "went back": lambda root: replace(root / COUNT, f"{number_in(root / COUNT) - 2**18}\n"),
            "gone": remove_all,
        },
        wrong_options=(
            ({"events": "energy-pkg"}, "list of energy-pkg"),
            ({"events": ["energy-psys"]}, "not one of energy-pkg"),
        ),
    )
]
