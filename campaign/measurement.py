"""A measurement: what came of a point. And its trace: power or energy against time."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from campaign.plan.point import Point

OK = "ok"
DAMAGED = "trace damaged"
"""It was measured, and a sample of its traces can't be read any more."""

FAILURES = {
    "clock not legal": False,
    "clock not achieved": True,
    "meter unreadable": True,
    "kernel failed": False,
    "wrong result": False,
    "timed out": True,
    "node lost": True,
    DAMAGED: True,
}
"""The classes of failure, and whether trying again can pass."""


PHASE = "phase:"
"""What the channel of a trace that marks a phase begins with; the phase's name follows."""


@dataclass(frozen=True)
class Trace:
    """One channel's readings over a window, or when a phase of the kernel ran.

    ``time_ns``: int64, from the window's start (negative: before it). ``value``: float64, in
    ``unit``: watts of a power channel, joules since the first reading of an energy channel. Of a
    channel that begins with :data:`PHASE`: 1 where the phase begins and 0 where it ends.
    """

    channel: str
    domain: str
    unit: str
    time_ns: np.ndarray
    value: np.ndarray


@dataclass(frozen=True)
class Measurement:
    """One row of the store. NaN is missing; nothing measured is ever replaced by zero."""

    point: Point
    status: str
    """``ok`` or one of :data:`FAILURES`."""
    text: str = ""
    """What a failure was."""
    attempt: int = 0
    node: str = ""
    start_unix_s: float = field(default_factory=time.time)
    time_s: float = float("nan")
    """Seconds of one iteration."""
    iterations: int = 0
    energy_j: float = float("nan")
    """Joules of one iteration, over the channels that lie in no other."""
    energy_std_j: float = float("nan")
    """Standard uncertainty of ``energy_j``."""
    core_mhz_achieved: float = float("nan")
    mem_mhz_achieved: float = float("nan")
    core_v: float = float("nan")
    mem_v: float = float("nan")
    voltage_origin: str = ""
    counts: Mapping[str, float] | None = None
    """The site's operation classes -> operations of one iteration; None when not known."""
    meters: Mapping[str, Any] = field(default_factory=dict)
    """Channel -> what is known of it: domain, kind, resolution, period, energy."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    traces: tuple[Trace, ...] = ()
