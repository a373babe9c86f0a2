"""The clocks of a simulated machine."""

from __future__ import annotations

from pathlib import Path

from dvfs.setting import Setting
from sites.clocks.shared.control import (
    ClockState,
    ControlDescription,
    ControlledSite,
    IllegalClockError,
    Right,
)

ABOUT = ControlDescription(
    control="simulated",
    writes="nothing",
    needs="a [simulated] table",
    sets_clocks=False,
)


class SimulatedClocks:
    """Takes any legal setting of the site and achieves it exactly."""

    def __init__(self, site: ControlledSite) -> None:
        self._legal = site.settings
        self.current = self._legal[-1]
        self._initial = self.current

    def legal(self) -> list[Setting]:
        return self._legal

    def set(self, setting: Setting) -> None:
        if setting not in self._legal:
            raise IllegalClockError(f"{setting}: not a legal setting of this simulated machine")
        self.current = setting

    def state(self) -> ClockState:
        return ClockState(self.current)

    def restore(self) -> None:
        self.current = self._initial


def rights(root: Path) -> Right:
    """A simulated machine needs none."""
    return Right("simulated", True, "the machine is simulated")


def open_control(site: ControlledSite, root: Path) -> SimulatedClocks:
    """See :mod:`sites.clocks`."""
    return SimulatedClocks(site)
