"""What every clock control is."""

from __future__ import annotations

from typing import Protocol

from sites.setting import Setting


class ClockNotLegal(Exception):
    """The setting asked for is not one that this node can be set to."""


class ClockControl(Protocol):
    """Sets a node's clocks and puts them back as they were."""

    def set(self, setting: Setting) -> None:
        """Ask for a setting.

        Raises:
            ClockNotLegal: the node refuses it.
        """

    def achieved(self) -> Setting:
        """The clocks as the hardware tells them now; None for a domain that can't be read."""

    def restore(self) -> None:
        """Put back what was found before the first :meth:`set`."""
