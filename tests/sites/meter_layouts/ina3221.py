"""INA3221: the three rails of a Jetson Orin NX."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from tests.sites.meter_layouts.layout import Layout, deny, replace

DRIVER = Path("sys/bus/i2c/drivers/ina3221")
CHIP = DRIVER / "1-0040/hwmon/hwmon1"
RAILS = {"VDD_IN": 1, "VDD_CPU_GPU_CV": 2, "VDD_SOC": 3}
SUPPLY_MV = 5072
STEP_MA = 8
"""40 uV at a shunt of 5 mOhm."""


def show(root: Path, true: Mapping[str, float]) -> None:
    """The voltage stays, since it is not taken together with the current."""
    for rail, power_w in true.items():
        current_ma = int(power_w * 1e6 / SUPPLY_MV / STEP_MA) * STEP_MA
        replace(root / CHIP / f"in{RAILS[rail]}_input", f"{SUPPLY_MV}\n")
        replace(root / CHIP / f"curr{RAILS[rail]}_input", f"{current_ma}\n")


LAYOUTS = [
    Layout(
        name="jetson-ina3221",
        kind="ina3221",
        tree="jetson-ina3221",
        channels=tuple(RAILS),
        show=show,
        faults={
            "missing": lambda root: (root / CHIP / "curr2_input").unlink(),
            "denied": lambda root: deny(root / CHIP / "in3_input"),
            "empty": lambda root: replace(root / CHIP / "curr1_input", "\n"),
            "garbage": lambda root: replace(root / CHIP / "in1_input", "5072 mV\n"),
            "gone": lambda root: shutil.rmtree(root / DRIVER),
        },
        wrong_options=(
            ({"rails": ["VDD_IN"]}, "label = domain"),
            ({"rails": {"VDD_IN": "input"}}, "one of node"),
            ({"rails": {"VDD_IN": "module", "VDD_SOC": "node"}}, "only one"),
        ),
        from_files=True,
    )
]
