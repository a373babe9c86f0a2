"""What is said about a clock control, and about the right to use it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class ControlDescription:
    """What `campaign doctor`, error messages and documentation say about a clock control."""

    control: str
    """Its name in a site file and in :data:`sites.clocks.CONTROLS`."""
    writes: str
    """What it writes: a phrase."""
    needs: str
    """What must be installed or allowed."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Name -> meaning, with the default where there is one."""
    device: str = ""
    """Whose clocks it sets, ``cpu`` or ``gpu``; empty: what the site file's ``device`` says."""
    axis: str = ""
    """What it sets in place of clocks: ``power_limit_w`` or ``profile``."""
    sets_clocks: bool = True
    """Whether it sets clocks of the node by itself: doctor suggests it where none are set yet."""

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Refuse an option that this control does not have.

        Raises:
            ValueError: with the options that it has.
        """
        unknown = sorted(set(options) - set(self.options))
        if unknown:
            known = ", ".join(self.options) or "none"
            raise ValueError(
                f"control {self.control!r} has no option {unknown[0]!r}; known: {known}"
            )


@dataclass(frozen=True)
class Right:
    """Whether this user can set clocks with a control on this node, found without setting any.

    ``can_set``: None where only setting one shows it. ``why``: what allows it, or what is missing;
    ``remedy``: how to get it, where that is known.
    """

    control: str
    can_set: bool | None
    why: str
    remedy: str = ""
