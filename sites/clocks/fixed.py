"""Clocks as found: no clock is set, and those that the node shows are recorded."""

from __future__ import annotations

from pathlib import Path

from dvfs.setting import AS_FOUND, Setting
from sites.clocks.shared.control import ControlDescription, ControlledSite, IllegalClockError, Right
from sites.clocks.shared.reading import ReadClocks

ABOUT = ControlDescription(
    control="fixed",
    writes="nothing: clocks as found",
    needs="nothing",
    sets_clocks=False,
)


class Fixed(ReadClocks):
    """Leaves every clock as it is."""

    def legal(self) -> list[Setting]:
        return [AS_FOUND]

    def set(self, setting: Setting) -> None:
        if setting != AS_FOUND:
            raise IllegalClockError(f"{setting}: the control 'fixed' sets no clocks")


def rights(root: Path) -> Right:
    """Nothing is set."""
    return Right("fixed", True, "nothing is set")


def open_control(site: ControlledSite, root: Path) -> Fixed:
    """See :mod:`sites.clocks`."""
    return Fixed(root, site.clocks.device)
