"""hwmon: two Grace Hopper superchips, and two AMD packages, with and without options."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path

from tests.sites.meter_layouts.layout import Layout, file_faults, number_in, replace

HWMON = Path("sys/class/hwmon")
GRACE = {
    "Module Power Socket 0": "hwmon4",
    "Module Power Socket 1": "hwmon7",
    "Grace Power Socket 0": "hwmon8",
    "Grace Power Socket 1": "hwmon2",
    "CPU Power Socket 0": "hwmon3",
    "CPU Power Socket 1": "hwmon5",
    "SysIO Power Socket 0": "hwmon6",
    "SysIO Power Socket 1": "hwmon0",
}
AMD = {"Esocket0": "energy5_input", "Esocket1": "energy6_input"}
AMD_CORE = {"Esocket1": "energy6_input", "Ecore002": "energy3_input"}


def show_powers(root: Path, true: Mapping[str, float]) -> None:
    """Powers as ACPI reports them: whole mW, which the kernel shows in uW."""
    for channel, power_w in true.items():
        path = root / HWMON / GRACE[channel] / "device/power1_average"
        replace(path, f"{round(power_w * 1000) * 1000}\n")


def show_energies(root: Path, true: Mapping[str, float]) -> None:
    """As amd_energy counts them: 2^-16 J, unwrapped, in whole uJ."""
    for channel, energy_j in true.items():
        counted = int(Fraction(energy_j) * 2**16)
        path = root / HWMON / "hwmon1" / (AMD | AMD_CORE)[channel]
        replace(path, f"{counted * 10**6 // 2**16}\n")


def resets_of(file: Path) -> dict[str, Callable[[Path], None]]:
    return {
        "reset": lambda root: replace(root / file, "15\n"),
        "went back": lambda root: replace(root / file, f"{number_in(root / file) - 16}\n"),
    }


SENSOR = {"chip": "amd_energy", "label": "Esocket0", "domain": "package"}
WRONG_OPTIONS: tuple[tuple[Mapping[str, object], str], ...] = (
    ({"sensors": "Esocket0"}, "list of tables"),
    ({"sensors": []}, "list of tables"),
    ({"sensors": [{**SENSOR, "index": 1}]}, "chip, label, number"),
    ({"sensors": [{**SENSOR, "domain": "cpu"}]}, "one of node"),
    ({"sensors": [{"label": "Esocket0", "domain": "package"}]}, "chip"),
    ({"sensors": [{**SENSOR, "number": 1}]}, "label"),
    ({"sensors": [{**SENSOR, "inside": "Esocket9"}]}, "other sensors"),
)
GRACE_FILE = HWMON / "hwmon8/device/power1_average"
AMD_FILE = HWMON / "hwmon1/energy6_input"
AMD_LAYOUT = Layout(
    name="amd-energy-hwmon",
    kind="hwmon",
    tree="amd-energy-hwmon",
    channels=tuple(AMD),
    show=show_energies,
    faults={**file_faults(AMD_FILE, HWMON, "-12\n"), **resets_of(AMD_FILE)},
    wrong_options=WRONG_OPTIONS,
    from_files=True,
)
SOCKET = {"chip": "amd_energy", "label": "Esocket1", "domain": "package"}
CORE = {"chip": "amd_energy", "label": "Ecore002", "domain": "core", "inside": "Esocket1"}
LAYOUTS = [
    AMD_LAYOUT,
    dataclasses.replace(
        AMD_LAYOUT,
        name="amd-energy-hwmon-named",
        channels=tuple(AMD_CORE),
        options={"sensors": [SOCKET, CORE]},
    ),
    dataclasses.replace(
        AMD_LAYOUT,
        name="grace-hwmon",
        tree="grace-hwmon",
        channels=tuple(GRACE),
        show=show_powers,
        faults=file_faults(GRACE_FILE, HWMON, "-12\n"),
        greatest_power_w=900.0,
    ),
]
