"""What every meter is: channels that say their unit and behaviour, and a reading of all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol


class MeterUnreadable(Exception):
    """A meter, or one of its channels, can't be read.

    Args:
        what: the file or device and what happened.
        remedy: what would mend it, a command where there is one.
    """

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}; {remedy}")
        self.what = what
        self.remedy = remedy


@dataclass(frozen=True)
class Channel:
    """One signal of a meter.

    ``kind`` says what a reading is: ``energy`` is joules since some past instant, already
    unwrapped by the meter, so that it never goes back; ``power`` is watts. ``inside`` names the
    channel of the same meter whose energy includes this one's, or None: a total adds only
    channels that are inside no other.
    """

    name: str
    domain: str
    kind: Literal["energy", "power"]
    resolution: float
    """The smallest step of a reading, in J or W."""
    period_s: float
    """The nominal time between two updates of the reading."""
    inside: str | None = None


@dataclass(frozen=True)
class Reading:
    """All channels of a meter, read together: ``values[i]`` belongs to ``channels[i]``."""

    time_ns: int
    """CLOCK_MONOTONIC, in the middle of the reading."""
    values: tuple[float, ...]


class Meter(Protocol):
    """An open meter. ``read`` raises :class:`MeterUnreadable`, and never returns a stand-in."""

    name: str
    channels: tuple[Channel, ...]

    def read(self) -> Reading: ...

    def close(self) -> None: ...
