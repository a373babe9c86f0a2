"""AMD GPUs: a fake of AMD's package, which reads a tree."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

from tests.sites.meter_layouts.layout import Layout, replace

PACKAGE = Path(__file__).parent.parent / "fake_amdsmi"
FOLDER = Path("amdsmi")
RESOLUTION_UJ = 15.259021759033203
"""15.259 as a float of 32 bits, as the library has it."""
START_TICKS = 10**12


def energy_text(ticks: int, key: str = "energy_accumulator") -> str:
    """An answer of amdsmi_get_energy_count."""
    return f"{key} {ticks}\ncounter_resolution {RESOLUTION_UJ}\ntimestamp 1\n"


def show(root: Path, true: Mapping[str, float]) -> None:
    """Energy in whole ticks, power in whole watts."""
    for channel, value in true.items():
        gpu, what = channel.removeprefix("gpu-").split("/")
        if what == "energy":
            ticks = START_TICKS + int(Fraction(value) * 10**6 / Fraction(RESOLUTION_UJ))
            text = energy_text(ticks)
        else:
            text = f"socket_power {round(value)}\naverage_socket_power N/A\n"
        replace(root / FOLDER / f"gpu{gpu}/{what}", text)


@contextmanager
def importable(root: Path) -> Iterator[None]:
    """The fake as ``amdsmi``, which reads this root, as long as the context lasts."""
    before = os.environ.get("FAKE_AMDSMI_TREE")
    os.environ["FAKE_AMDSMI_TREE"] = str(root / FOLDER)
    sys.path.insert(0, str(PACKAGE))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(PACKAGE))
        sys.modules.pop("amdsmi", None)
        os.environ.pop("FAKE_AMDSMI_TREE")
        if before is not None:
            os.environ["FAKE_AMDSMI_TREE"] = before


def remove_signals(root: Path) -> None:
    """A GPU that no longer reports energy or power."""
    (root / FOLDER / "gpu1/energy").unlink()
    (root / FOLDER / "gpu1/power").unlink()


LAYOUTS = [
    Layout(
        name="amdsmi: two MI210",
        kind="amdsmi",
        tree="amdsmi-2-gpus",
        channels=("gpu-0/energy", "gpu-0/power", "gpu-1/energy", "gpu-1/power"),
        show=show,
        faults={
            "missing": remove_signals,
            "reset": lambda root: replace(root / FOLDER / "gpu0/energy", energy_text(3)),
            "went back": lambda root: replace(
                root / FOLDER / "gpu1/energy", energy_text(START_TICKS - 1)
            ),
            "gone": lambda root: shutil.rmtree(root / FOLDER / "gpu1"),
        },
        options={"devices": [0, 1]},
        running=importable,
        wrong_options=(({"devices": 0}, "a list"), ({"devices": [0, 0]}, "different indices")),
        greatest_power_w=300.0,
        named=("AMD GPU",),
    )
]
