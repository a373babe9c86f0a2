"""A measurement, which is the result of a point, and its traces: power or energy against time."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from campaign.plan.point import Point
from dvfs.dataset import CLOCK_NOT_ACHIEVED, DAMAGED, METER_UNREADABLE, NODE_LOST, TIMED_OUT

CAN_PASS = {CLOCK_NOT_ACHIEVED, METER_UNREADABLE, TIMED_OUT, NODE_LOST, DAMAGED}
"""The failures that another attempt may avoid. Any other failure would occur again."""


def will_be_tried_again(status: str | None, failed_attempts: int, most_retries: int) -> bool:
    """Whether a run measures or retries a point of this status (None: never measured) by itself."""
    if status == DAMAGED:
        return True
    return (status is None or status in CAN_PASS) and failed_attempts <= most_retries


@dataclass(frozen=True)
class Trace:
    """One channel's readings over a window, or the starts and ends of a kernel's phase.

    ``time_ns``: int64, from the window's start (negative: before it). ``value``: float64, in
    ``unit``: watts for a power channel; joules since the first reading for an energy channel; for a
    name that begins with :data:`dvfs.dataset.PHASE_PREFIX`, 1 at the start and 0 at the end of the
    phase.
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
    """Joules of one iteration, over the channels that are not inside another one."""
    energy_std_j: float = float("nan")
    """Standard uncertainty of ``energy_j``."""
    core_mhz_achieved: float = float("nan")
    mem_mhz_achieved: float = float("nan")
    core_v: float = float("nan")
    mem_v: float = float("nan")
    core_mhz_timed: float = float("nan")
    """The core clock by a loop of dependent instructions; NaN if it was not run."""
    voltage_origin: str = ""
    clock_proof: str = ""
    """One of :data:`dvfs.dataset.CLOCK_PROOFS`, or empty."""
    setup: str = ""
    """The id of the record of its set-up; empty if there is none."""
    counts: Mapping[str, float] | None = None
    """The site's operation classes -> operations of one iteration; None if unknown."""
    meters: Mapping[str, Any] = field(default_factory=dict)
    """Channel -> its domain, kind, resolution, period, energy and whether it counts."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    traces: tuple[Trace, ...] = ()
