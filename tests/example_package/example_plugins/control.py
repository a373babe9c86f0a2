"""A clock control of an accelerator that only remembers what it was asked for."""

from __future__ import annotations

from pathlib import Path

from dvfs.setting import Setting
from sites.clocks.shared.control import ClockState, ControlDescription, ControlledSite, Right

ABOUT = ControlDescription(
    control="as-found",
    writes="nothing",
    needs="nothing",
    options={},
    sets_clocks=False,
    device="gpu",
)


class AsFound:
    """One setting."""

    def __init__(self) -> None:
        self.asked = Setting()

    def legal(self) -> list[Setting]:
        return [Setting(1000.0)]

    def set(self, setting: Setting) -> None:
        self.asked = setting

    def state(self) -> ClockState:
        return ClockState(self.asked, source="the example")

    def restore(self) -> None:
        """Nothing was set."""


def open_control(site: ControlledSite, root: Path) -> AsFound:
    return AsFound()


def rights(root: Path) -> Right:
    return Right("as-found", True, "nothing is set")
