"""A node's BMC: a program that prints what FreeIPMI's prints."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.sites.meter_layouts.layout import Layout, file_faults, replace

WATTS = Path("bmc/watts")


def show(root: Path, true: Mapping[str, float]) -> None:
    """Whole watts."""
    replace(root / WATTS, f"{round(true['node/power'])}\n")


LAYOUTS = [
    Layout(
        name="ipmi: FreeIPMI",
        kind="ipmi",
        tree="ipmi-node",
        channels=("node/power",),
        show=show,
        faults=file_faults(WATTS, Path("usr/sbin"), "n/a\n"),
        options={"period_s": 0.02},
        wrong_options=(({"command": "ipmi-dcmi"}, "list of words"), ({"limit_s": 0}, "above 0")),
        greatest_power_w=1000.0,
        lag_s=0.6,  # a program is started, perhaps beside others that have the processors
    )
]
