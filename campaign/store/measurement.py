"""A measurement, the result of a point, and its traces: power or energy against time."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from campaign.plan.point import Point
from dvfs.dataset import CLOCK_NOT_ACHIEVED, DAMAGED, METER_UNREADABLE, NODE_LOST, TIMED_OUT

CAN_PASS = {CLOCK_NOT_ACHIEVED, METER_UNREADABLE, TIMED_OUT, NODE_LOST, DAMAGED}
"""The failures that another attempt may not have. Any other failure would come again."""


def will_be_tried_again(status: str | None, failed_attempts: int, most_retries: int) -> bool:
    """Whether a run measures a point of this status (None: never measured) again by itself."""
    if status == DAMAGED:
        return True
    return (status is None or status in CAN_PASS) and failed_attempts <= most_retries


@dataclass(frozen=True)
class Trace:
    """One channel's readings over a window, or when a phase of the kernel ran.

    ``time_ns``: int64, from the window's start (negative: before it). ``value``: float64, in
    ``unit``: watts of a power channel, joules since the first reading of an energy channel. Of a
    channel that begins with :data:`dvfs.dataset.PHASE_PREFIX`: 1 where the phase
    begins and 0 where it ends.
    """

    channel: str
    domain: str
    unit: str
    time_ns: np.ndarray
    value: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One row of the store. NaN is missing; nothing measured is ever replaced by zero."""

    point: Point
    status: str
    """One of :data:`dvfs.dataset.STATUSES`."""
    text: str = ""
    """The text of a failure."""
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
    core_mhz_timed: float = float("nan")
    """The core clock that a loop of dependent instructions gives; NaN where it was not run."""
    voltage_origin: str = ""
    clock_proof: str = ""
    """One of :data:`dvfs.dataset.CLOCK_PROOFS`, or empty."""
    setup: str = ""
    """The id of the record of how it was measured; empty where there is none."""
    counts: Mapping[str, float] | None = None
    """The site's operation classes -> operations of one iteration; None where they are unknown."""
    meters: Mapping[str, Any] = field(default_factory=dict)
    """Channel -> its domain, kind, resolution, period, energy and whether it counts."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    traces: tuple[Trace, ...] = ()
