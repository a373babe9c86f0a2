"""A meter and a clock control that differ from node to node, where all nodes are this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dvfs.setting import Setting
from kernels.host.ranks import node_name
from sites.clocks import CONTROLS
from sites.clocks.shared.control import ClockState, ControlDescription, ControlledSite
from sites.meters import METERS, recorded
from sites.meters.shared.meter import MeterDescription

NAME = "of-node"
FOLDER = "FOLDER_OF_NODES"
"""The environment variable that names the folder with the nodes' files."""
ABOUT = ControlDescription(control=NAME, writes="a line for each order", needs="", options={})
METER = MeterDescription(kind=NAME, reads="NODE.csv", domains="node", needs="", options={})
SITECUSTOMIZE = "from tests.campaign import node_devices\nnode_devices.register()\n"
"""Python imports a module of this name as it starts, on the nodes too."""


def register() -> None:
    """Make both known by their name."""
    METERS[NAME] = CONTROLS[NAME] = __name__


def file_of(node: str, end: str) -> Path:
    return Path(os.environ[FOLDER]) / f"{node}.{end}"


def record(node: str, watts: float) -> None:
    """Let the meter of a node give a constant power for two minutes."""
    rows = "".join(f"{i / 100:.2f},{watts}\n" for i in range(12_000))
    file_of(node, "csv").write_text(f"time_s,power\n{rows}")


def orders(node: str) -> list[str]:
    """What the control was told on a node, in order."""
    path = file_of(node, "log")
    return path.read_text().split("\n")[:-1] if path.exists() else []


def open_meter(root: Path, options: Mapping[str, Any]) -> recorded.RecordedMeter:
    channels = {"power": {"domain": "node", "kind": "power", "unit": "W"}}
    path = str(file_of(node_name(), "csv"))
    return recorded.open_meter(root, {"path": path, "channels": channels})


class _Control:
    """Reports what it was set to, or what the file NODE.mhz says."""

    def __init__(self) -> None:
        self._set = Setting()

    def legal(self) -> None:
        pass

    def _say(self, order: str) -> None:
        with file_of(node_name(), "log").open("a") as file:
            file.write(f"{order}\n")

    def set(self, setting: Setting) -> None:
        self._say(f"set {setting.core_mhz:g}")
        other = file_of(node_name(), "mhz")
        self._set = Setting(float(other.read_text())) if other.exists() else setting

    def state(self) -> ClockState:
        return ClockState(self._set)

    def restore(self) -> None:
        self._say("restore")


def open_control(site: ControlledSite, root: Path) -> _Control:
    del site, root
    return _Control()
