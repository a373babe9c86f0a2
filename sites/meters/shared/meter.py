"""The interface of meters: channels with their units, domains and properties, and readings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from dvfs.errors import UserError

CONTAINS: dict[str, tuple[str, ...]] = {
    "node": ("module", "psys", "package", "dram", "gpu", "board", "network"),
    "module": ("package", "dram", "gpu"),
    "psys": ("package", "dram"),
    "package": ("core", "uncore"),
    "gpu": ("gpu-memory",),
    "dram": (),
    "core": (),
    "uncore": (),
    "gpu-memory": (),
    "board": (),
    "network": (),
}
"""Domain -> the domains whose energy is part of its energy.

``node``: everything that the node's power supply feeds. ``module``: a superchip with its memory
(GH200, or a Jetson's whole module). ``psys``: the parts that Intel's platform counter covers.
``package``: a CPU socket; ``dram``: its memory; ``gpu``: a whole accelerator with its memory.
``board``: other parts of a board, such as regulators and I/O chips; ``network``: network adapters.
"""


def contains(outer: str, inner: str) -> bool:
    """Whether the energy of domain ``inner`` is part of that of ``outer``, at any depth."""
    return any(inner == part or contains(part, inner) for part in CONTAINS.get(outer, ()))


class MeterError(UserError):
    """A meter, or one of its channels, cannot be read."""

    exit_code = 1


class AbsentMeterError(MeterError):
    """The node lacks the hardware, driver or program that the meter reads."""


@dataclass(frozen=True)
class MeterDescription:
    """The description of a kind of meter in `campaign doctor`, messages and documentation."""

    kind: str
    """Its name in a site file and in :data:`sites.meters.METERS`."""
    reads: str
    """The quantities that it reads, and their source: a phrase."""
    domains: str
    """The domains that its channels measure."""
    needs: str
    """What must be installed or allowed."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Name -> meaning, with the default where there is one."""
    probed: bool = True
    """Whether doctor tries it: opening it without options then shows whether a node has it."""
    is_check: bool = False
    """Whether other meters measure energy better: a drafted site file then prefers those."""

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Refuse an option that this meter does not have.

        Raises:
            ValueError: with the options that it has.
        """
        unknown = sorted(set(options) - set(self.options))
        if unknown:
            raise ValueError(
                f"the {self.kind} meter has no option {unknown[0]}; "
                f"it has {', '.join(self.options) or 'none'}"
            )


@dataclass(frozen=True, kw_only=True)
class Channel:
    """One signal of a meter.

    ``kind`` is the quantity of a reading: ``energy`` is joules since some past instant, unwrapped
    by the meter, so that it never decreases; ``power`` is watts. ``domain`` is one of
    :data:`CONTAINS`. ``inside`` names the channel of the same meter whose energy includes this
    channel's; ``same_as`` names another channel that measures the same energy, such as the counter
    for a power. A total counts a channel only if both are None.
    """

    name: str
    domain: str
    kind: Literal["energy", "power"]
    resolution: float
    """The smallest step of a reading, in J or W."""
    period_s: float
    """The nominal time between two updates of the reading."""
    inside: str | None = None
    same_as: str | None = None
    stamped: bool = False
    """Whether the meter time-stamps its readings; if not, an update is seen up to a period late."""
    averaging_s: float = 0.0
    """A power reading is the mean over this time before it; 0: an instantaneous value."""
    seen: float = 1.0
    """The share of the time that the meter samples (NVML power of an A100: 0.25)."""
    gain_pct: float = 0.0
    """Standard uncertainty of the meter's calibration, in % of a reading."""
    offset_w: float = 0.0
    """Standard uncertainty of the meter's zero, in W."""
    wraps_at_j: float | None = None
    """The energy at which the underlying counter wraps; None: it does not, or this is a power."""


@dataclass(frozen=True)
class Reading:
    """All channels of a meter, read together: ``values[i]`` belongs to ``channels[i]``."""

    time_ns: int
    """CLOCK_MONOTONIC: the middle of the reading, or the meter's time stamp converted to it."""
    values: tuple[float, ...]


class Meter(Protocol):
    """An open meter. ``read`` returns measured values only; otherwise it raises MeterError."""

    name: str
    channels: tuple[Channel, ...]

    def read(self) -> Reading:
        """The present values. A meter with time stamps may return the same stamp again."""

    def close(self) -> None:
        """Release files and devices; closing again does nothing."""


@runtime_checkable
class Buffered(Protocol):
    """A meter that samples at a fixed rate and stores its readings until they are fetched."""

    def drain(self) -> list[Reading]:
        """All readings since the last call, in order of their time; raises as ``read``."""


@runtime_checkable
class FromFiles(Protocol):
    """A meter whose readings are whole numbers in files: a compiled loop can sample them."""

    def descriptors(self) -> tuple[int, ...]:
        """The open files, each to be read from its start."""

    def take(self, raw: Sequence[int], start_ns: int, end_ns: int) -> Reading:
        """The result of ``read`` for these numbers, read between two times of CLOCK_MONOTONIC.

        Call it in the order in which the numbers were read; raises as ``read``.
        """
