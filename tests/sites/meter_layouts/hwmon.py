"""hwmon: two Grace Hopper superchips, and two AMD packages, with and without options."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path

from tests.sites.meter_layouts.layout import Layout, deny, replace

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


def faults_of(place: str) -> dict[str, Callable[[Path], None]]:
    def file(root: Path) -> Path:
        return root / HWMON / place

    return {
        "missing": lambda root: file(root).unlink(),
        "denied": lambda root: deny(file(root)),
        "empty": lambda root: replace(file(root), ""),
        "garbage": lambda root: replace(file(root), "-12\n"),
        "gone": lambda root: shutil.rmtree(root / HWMON),
    }


def resets_of(place: str) -> dict[str, Callable[[Path], None]]:
    def file(root: Path) -> Path:
        return root / HWMON / place

    return {
        "reset": lambda root: replace(file(root), "15\n"),
        "went back": lambda root: replace(file(root), f"{int(file(root).read_text()) - 16}\n"),
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
AMD_FILE = "hwmon1/energy6_input"
LAYOUTS = [
    Layout(
        name="grace-hwmon",
        kind="hwmon",
        tree="grace-hwmon",
        channels=tuple(GRACE),
        show=show_powers,
        faults=faults_of("hwmon8/device/power1_average"),
        wrong_options=WRONG_OPTIONS,
        greatest_power_w=900.0,
        from_files=True,
    ),
    Layout(
        name="amd-energy-hwmon",
        kind="hwmon",
        tree="amd-energy-hwmon",
        channels=tuple(AMD),
        show=show_energies,
        faults={**faults_of(AMD_FILE), **resets_of(AMD_FILE)},
        wrong_options=WRONG_OPTIONS,
        from_files=True,
    ),
    Layout(
        name="amd-energy-hwmon-named",
        kind="hwmon",
        tree="amd-energy-hwmon",
        channels=tuple(AMD_CORE),
        show=show_energies,
        faults={**faults_of(AMD_FILE), **resets_of(AMD_FILE)},
        options={
            "sensors": [
                {"chip": "amd_energy", "label": "Esocket1", "domain": "package"},
                {
                    "chip": "amd_energy",
                    "label": "Ecore002",
                    "domain": "core",
                    "inside": "Esocket1",
                },
            ]
        },
        wrong_options=WRONG_OPTIONS,
        from_files=True,
    ),
]
