"""Cray EX: a node with a CPU, its memory and four accelerators."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path

from tests.sites.meter_layouts.layout import Layout, deny, replace

PM_COUNTERS = Path("sys/cray/pm_counters")
COUNTERS = ("node", "cpu", "memory", "accel0", "accel1", "accel2", "accel3")
CHANNELS = tuple(channel for name in COUNTERS for channel in (name, f"{name}/power"))
RESTARTED = "1716999999\n"


def counter_file(root: Path, channel: str) -> Path:
    name, _, power = channel.partition("/")
    kind = power or "energy"
    return root / PM_COUNTERS / (kind if name == "node" else f"{name}_{kind}")


def show(root: Path, true: Mapping[str, float]) -> None:
    """One scan: whole J and W with the time of the scan, and then its number."""
    stamp_us = time.time_ns() // 1000
    for channel, value in true.items():
        unit = "W" if channel.endswith("/power") else "J"
        replace(counter_file(root, channel), f"{int(value)} {unit} {stamp_us} us\n")
    freshness = root / PM_COUNTERS / "freshness"
    replace(freshness, f"{int(freshness.read_text()) + 1}\n")


def go_back(root: Path) -> None:
    path = counter_file(root, "accel2")
    number, rest = path.read_text().split(" ", 1)
    replace(path, f"{int(number) - 7} {rest}")


LAYOUTS = [
    Layout(
        name="cray-ex-4gpu",
        kind="cray",
        tree="cray-ex-4gpu",
        channels=CHANNELS,
        show=show,
        faults={
            "missing": lambda root: counter_file(root, "node").unlink(),
            "denied": lambda root: deny(counter_file(root, "accel1/power")),
            "empty": lambda root: replace(counter_file(root, "accel1"), ""),
            "garbage": lambda root: replace(counter_file(root, "cpu/power"), "171 J 1717 us\n"),
            "reset": lambda root: replace(root / PM_COUNTERS / "startup", RESTARTED),
            "went back": go_back,
            "gone": lambda root: shutil.rmtree(root / PM_COUNTERS),
        },
        wrong_options=(
            ({"stale_s": 0}, "seconds above 0"),
            ({"stale_s": float("inf")}, "below 3600"),
        ),
        greatest_power_w=4000.0,
        # A scan lasts longer than a reading, also of a busy machine.
        update_s=0.02,
    )
]
