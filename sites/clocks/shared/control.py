"""What every clock control is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from sites.setting import AS_FOUND, Setting


class ClockNotLegal(Exception):
    """The setting asked for is not one that this node can be set to."""


class ClocksUnavailable(Exception):
    """This node's clocks cannot be set or read: a file or device is missing, or forbidden.

    Args:
        what: the file or device and what happened.
        remedy: what would mend it, a command where there is one.
    """

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}; {remedy}")
        self.what = what
        self.remedy = remedy


@dataclass(frozen=True)
class ClockState:
    """What the hardware tells of its clocks at an instant; None where it tells nothing.

    ``throttled``: the reasons, in the hardware's words, for which it runs slower than it was
    asked to. ``temperature_c``: of what is clocked. ``core_v``: the core domain's voltage.
    """

    setting: Setting = AS_FOUND
    throttled: tuple[str, ...] = ()
    temperature_c: float | None = None
    core_v: float | None = None


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
            raise ValueError(f"unknown option {unknown[0]!r} of {self.control}; known: {known}")


@dataclass(frozen=True)
class Right:
    """Whether this user can set clocks with a control on this node, found without setting any.

    ``why``: what allows it, or what is missing; ``remedy``: how to get it, where that is known.
    """

    control: str
    can_set: bool
    why: str
    remedy: str = ""


class VoltageInput(Protocol):
    """Which of hwmon's inputs shows the core voltage."""

    @property
    def chip(self) -> str: ...
    @property
    def label(self) -> str: ...


class ClockEntry(Protocol):
    """The part of a site file that says how its clocks are set."""

    @property
    def control(self) -> str: ...
    @property
    def options(self) -> Mapping[str, Any]: ...
    @property
    def core_voltage(self) -> VoltageInput | None: ...
    @property
    def device(self) -> str: ...
    @property
    def tolerance_pct(self) -> float: ...


class ControlledSite(Protocol):
    """What a control needs of a site (:class:`sites.site_file.Site` has it)."""

    @property
    def clocks(self) -> ClockEntry: ...
    @property
    def settings(self) -> list[Setting]: ...


class ClockControl(Protocol):
    """Sets a node's clocks and puts them back as they were.

    A control that writes to the hardware records in a journal what it found, before it writes
    (:mod:`sites.clocks.shared.journal`), so that the next start can restore what a killed one left.
    """

    def legal(self) -> list[Setting] | None:
        """The settings that the hardware offers; None where it cannot be asked.

        Raises:
            ClocksUnavailable: it should answer, and does not.
        """

    def set(self, setting: Setting) -> None:
        """Ask for a setting, wait until it has settled, and read back that it was taken.

        Raises:
            ClockNotLegal: the node refuses it, or took another one.
            ClocksUnavailable: a file or device is missing or forbidden.
        """

    def state(self) -> ClockState:
        """What the hardware tells now. Cheap: it is called ten times a second in a window."""

    def restore(self) -> None:
        """Put back what was found before the first :meth:`set`."""
