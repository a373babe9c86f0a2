"""NVIDIA GPUs: the real pynvml with a fake library that reads a tree."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

from tests.sites.fake_nvml import TREE, installed, put
from tests.sites.meter_layouts.layout import Layout, replace

START_MJ = {0: 81234567890, 1: 18446744073000}
"""What the counters of the tree stand at."""
SIGNALS = ("energy_mj", "field_185_0", "field_186_0", "power_usage_mw")


def show(root: Path, true: Mapping[str, float]) -> None:
    """Energy in whole mJ since the driver was loaded, power in whole mW."""
    for channel, value in true.items():
        gpu, what = channel.removeprefix("gpu-").split("/")
        if what == "energy":
            put(root, f"gpu{gpu}/energy_mj", START_MJ[int(gpu)] + int(Fraction(value) * 1000))
        else:
            put(root, f"gpu{gpu}/field_186_0", round(value * 1000))


def remove_signals(root: Path) -> None:
    """A GPU that no longer reports energy or power."""
    for name in SIGNALS:
        (root / TREE / "gpu1" / name).unlink()


LAYOUTS = [
    Layout(
        name="nvml: two H100",
        kind="nvml",
        tree="nvml-2-gpus",
        channels=("gpu-0/energy", "gpu-0/power", "gpu-1/energy", "gpu-1/power"),
        show=show,
        faults={
            "missing": remove_signals,
            "empty": lambda root: replace(root / TREE / "gpu0/energy_mj", ""),
            "garbage": lambda root: put(root, "gpu1/field_186_0", "n/a"),
            "reset": lambda root: put(root, "gpu0/energy_mj", 12),
            "went back": lambda root: put(root, "gpu1/energy_mj", START_MJ[1] - 1),
            "gone": lambda root: shutil.rmtree(root / TREE / "gpu1"),
        },
        options={"devices": [0, 1]},
        running=installed,
        wrong_options=(({"devices": 0}, "a list"), ({"devices": [-1]}, "an index nor a UUID")),
        named=("GPU 0", "GPU 1"),
    )
]
