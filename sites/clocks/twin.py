"""The clocks of a simulated machine."""

from __future__ import annotations

from pathlib import Path

from sites.clocks.shared.control import ClockNotLegal, ClockState, ControlledSite
from sites.setting import Setting


class TwinClocks:
    """Takes any legal setting of the site, and achieves it."""

    def __init__(self, site: ControlledSite) -> None:
        self._legal = site.settings
        self.current = self._legal[-1]
        self.found = self.current

    def legal(self) -> list[Setting]:
        return self._legal

    def set(self, setting: Setting) -> None:
        if setting not in self._legal:
            raise ClockNotLegal(f"{setting}: not a legal pair of this simulated machine")
        self.current = setting

    def state(self) -> ClockState:
        return ClockState(self.current)

    def restore(self) -> None:
        self.current = self.found


def open_control(site: ControlledSite, root: Path) -> TwinClocks:
    """See :mod:`sites.clocks`."""
    return TwinClocks(site)
