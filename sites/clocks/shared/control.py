"""The interface of a clock control, its description, and the parts of a site that it uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from dvfs.errors import UserError
from dvfs.setting import AS_FOUND, Setting


@dataclass(frozen=True)
class ControlDescription:
    """The description of a clock control in `campaign doctor`, messages and documentation."""

    control: str
    """Its name in a site file and in :data:`sites.clocks.CONTROLS`."""
    writes: str
    """What it writes: a phrase."""
    needs: str
    """What must be installed or allowed."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Name -> meaning, with the default where there is one."""
    device: str = ""
    """The device whose clocks it sets, ``cpu`` or ``gpu``; empty: the site file's ``device``."""
    axis: str = ""
    """The field of a setting that it sets instead of clocks: ``power_limit_w`` or ``profile``."""
    sets_clocks: bool = True
    """Whether it sets clocks of the node by itself: doctor suggests it where none are set yet."""

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Refuse an option that this control does not have.

        Raises:
            ValueError: with the options that it has.
        """
        unknown = sorted(set(options) - set(self.options))
        if unknown:
            names = ", ".join(self.options) or "none"
            raise ValueError(
                f"control {self.control!r} has no option {unknown[0]!r}; known: {names}"
            )


@dataclass(frozen=True)
class Right:
    """Whether this user can set clocks with a control on this node; finding this out sets none.

    ``can_set``: None where only setting a clock shows it. ``why``: what allows it, or what is
    missing; ``remedy``: how to get it, where that is known.
    """

    control: str
    can_set: bool | None
    why: str
    remedy: str = ""


class IllegalClockError(Exception):
    """This node cannot be set to the requested setting."""


class ClocksError(UserError):
    """This node's clocks cannot be set or read: a file or device is missing, or forbidden."""

    exit_code = 1


@dataclass(frozen=True)
class ClockState:
    """The clocks that the hardware reports at one time; None where it reports none.

    A clock that was only requested, or that a driver repeats, is left out. ``source``: what the
    core clock was read from, a phrase. ``apart_pct``: the largest difference between the clocks of
    several devices, in %. ``throttled``: the reasons, in the hardware's words, why it runs slower
    than requested. ``temperature_c``: of the device with these clocks. ``core_v``: the core
    voltage.
    """

    setting: Setting = AS_FOUND
    source: str = ""
    apart_pct: float = 0.0
    throttled: tuple[str, ...] = ()
    temperature_c: float | None = None
    core_v: float | None = None


class VoltageInput(Protocol):
    """The hwmon input that shows the core voltage."""

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


class PowerLimitEntry(Protocol):
    """The part of a site file that says how its power limit is set."""

    @property
    def limits_w(self) -> Sequence[float]: ...
    @property
    def control(self) -> str | None: ...
    @property
    def options(self) -> Mapping[str, Any]: ...


class ProfilesEntry(Protocol):
    """The part of a site file that says how its profile is set."""

    @property
    def names(self) -> Sequence[str]: ...
    @property
    def control(self) -> str: ...
    @property
    def options(self) -> Mapping[str, Any]: ...


class ControlledSite(Protocol):
    """The parts of a site that a control uses (:class:`sites.site_file.Site` has them)."""

    @property
    def clocks(self) -> ClockEntry: ...
    @property
    def power_limit(self) -> PowerLimitEntry | None: ...
    @property
    def profiles(self) -> ProfilesEntry | None: ...
    @property
    def settings(self) -> list[Setting]: ...


class ClockControl(Protocol):
    """Sets a node's clocks and restores them.

    A control that writes to the hardware first records the values that it found in a journal
    (:mod:`sites.clocks.shared.journal`), so that they can be restored after a process was killed.
    """

    def legal(self) -> list[Setting] | None:
        """The settings that the hardware offers; None if it cannot report them.

        Raises:
            ClocksError: it should report them, and does not.
        """

    def set(self, setting: Setting) -> None:
        """Request a setting, wait until it has settled, and read back that the hardware took it.

        Raises:
            IllegalClockError: the node refuses it, or took another setting.
            ClocksError: a file or device is missing or forbidden.
        """

    def state(self) -> ClockState:
        """The present state. It must be cheap: it is called ten times a second during a window."""

    def restore(self) -> None:
        """Restore the clocks to their values before the first :meth:`set`."""
