"""RAPL through powercap: two Intel packages, and an AMD one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path

from tests.sites.meter_layouts.layout import Layout, file_faults, number_in, replace

POWERCAP = Path("sys/class/powercap")
INTEL = {
    "package-0": "intel-rapl/intel-rapl:0",
    "package-0/dram": "intel-rapl/intel-rapl:0/intel-rapl:0:1",
    "package-0/core": "intel-rapl/intel-rapl:0/intel-rapl:0:0",
    "package-1": "intel-rapl/intel-rapl:2",
    "package-1/dram": "intel-rapl/intel-rapl:2/intel-rapl:2:1",
    "package-1/core": "intel-rapl/intel-rapl:2/intel-rapl:2:0",
}
AMD = {"package-0": "intel-rapl:0", "package-0/core": "intel-rapl:0:0"}


def show_zones(
    zones: Mapping[str, str],
) -> Callable[[Path, Mapping[str, float]], None]:
    """Shows energies as the hardware counts them: 32 bits of a step, of which the range is all."""

    def show(root: Path, true: Mapping[str, float]) -> None:
        for channel, place in zones.items():
            directory = root / POWERCAP / place
            step_uj = Fraction(number_in(directory / "max_energy_range_uj"), 2**32 - 1)
            counted = int(Fraction(true[channel]) * 10**6 / step_uj) % 2**32
            replace(directory / "energy_uj", f"{int(counted * step_uj)}\n")

    return show


def faults_of(place: str) -> dict[str, Callable[[Path], None]]:
    energy = POWERCAP / place / "energy_uj"
    return file_faults(energy, POWERCAP, "No data\n") | {
        "reset": lambda root: replace(root / energy, "61\n"),
        "went back": lambda root: replace(root / energy, f"{number_in(root / energy) - 1000}\n"),
    }


WRONG_OPTIONS = (
    ({"zone": ["package-0"]}, "zones"),
    ({"zones": "package-0"}, "list"),
    ({"max_power_w": -1}, "watts"),
)
# Powers of no machine, so that the counters may gain much in the short time of a test. They may be
# left unread for 8 s: what holds a test up for longer is no busy machine any more.
LAYOUTS = [
    Layout(
        name=tree,
        kind="powercap",
        tree=tree,
        channels=tuple(zones),
        show=show_zones(zones),
        faults=faults_of(zones[broken]),
        options={"max_power_w": 3e4},
        wrong_options=WRONG_OPTIONS,
        greatest_step_j=2.7e3,
        wraps=True,
        from_files=True,
    )
    for tree, zones, broken in (
        ("powercap-2s-intel", INTEL, "package-1"),
        ("powercap-amd", AMD, "package-0"),
    )
]
