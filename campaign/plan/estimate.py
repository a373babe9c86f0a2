"""Estimates the duration of a plan from its files alone.

The estimate assumes the shortest windows that the protocol allows, steady power at the warm-up's
second stretch, no failures, and jobs that start at once. Meters that need longer windows, kernels
of unknown time with an iteration longer than the window, and the queue make a plan take longer.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from campaign.plan.campaign_file import Protocol
from campaign.plan.planned_points import PartitionPoints
from sites.site_file import Partition, Site

SUBPROCESS_S = 0.10
"""The time to launch a point in a subprocess of the worker ..."""
STEP_S = 1.36
"""... in a separate job step (benchmarks/launch_overhead.py, on a test cluster) ..."""
BATCHED_S = 0.28
"""... and in a job step that sets the clocks for several points (docs/reliability.md)."""
SIMULATED_S = 0.003
"""The time of a point on a simulated machine (benchmarks/scale.py)."""
START_S = 10.0
"""The time from a job's start until its worker measures, to load Python and Dask."""
STRETCH_S = 0.5  # campaign.measure.protocol.STRETCH_S
"""The shortest stretch of the warm-up whose power is compared with the next one's."""
LEAST_WINDOWS = 3
"""The fewest windows if uncertainty_pct is set."""

KnownTimes = Mapping[tuple[str, str], float]
"""(kernel's name in the store, parameters) -> measured seconds."""
TimesByPartition = Mapping[tuple[str, str], KnownTimes]
"""(site, partition) -> measured seconds by kernel and parameters."""


@dataclass(frozen=True, kw_only=True)
class PartitionEstimate:
    """The estimate for a partition. ``point_s``: the mean time of a point. ``walltime_points``: the
    number of points in a job's walltime, and ``node_hours``: what its jobs take; both None
    without Slurm. ``known_inputs``: the number of ``inputs`` with a known time of an iteration."""

    site: str
    partition: str
    points: int
    nodes: int
    point_s: float
    wall_s: float
    node_hours: float | None
    walltime_points: int | None
    inputs: int
    known_inputs: int

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return dict(vars(self))


def measuring_s(protocol: Protocol, site: Site, iteration_s: float = 0.0) -> float:
    """The least time of a point's steps, in s. ``iteration_s``: the time of one iteration, if
    known.

    On a simulated machine the steps take no time.
    """
    if site.is_simulated:
        return 0.0
    warm_up_s = max(protocol.warm_up_s, iteration_s)
    idle_s = cool_down_s = 0.0
    windows = 1
    if site.meters:
        idle_s, cool_down_s = protocol.idle_s, protocol.cool_down_s
        if protocol.steady_pct:
            warm_up_s += 2.0 * max(STRETCH_S, iteration_s)
        if protocol.uncertainty_pct is not None:
            windows = min(LEAST_WINDOWS, protocol.max_windows)
    window_s = max(protocol.min_duration_s + 2.0 * protocol.trim_s, iteration_s)
    return idle_s + warm_up_s + windows * window_s + cool_down_s


def launching_s(site: Site, ranks: int = 1) -> float:
    """The time to launch a point, without its steps, in s. ``ranks``: on each node."""
    if site.is_simulated:
        return SIMULATED_S
    if ranks * site.nodes_per_point > 1:
        return STEP_S
    return BATCHED_S if site.clocks.in_steps else SUBPROCESS_S


def walltime_s(text: str) -> float:
    """The seconds of a walltime: HH:MM:SS, MM:SS or D-HH:MM:SS (D-HH:MM)."""
    days, dash, clock = text.rpartition("-")
    parts = [float(part) for part in clock.split(":")]
    units = (3600.0, 60.0, 1.0) if dash or len(parts) == 3 else (60.0, 1.0)
    clock_s = sum(part * unit for part, unit in zip(parts, units, strict=False))
    return 86400.0 * float(days or 0) + clock_s


def holds_no_point(protocol: Protocol, site: Site, partition: Partition) -> str:
    """Why a job's walltime is too short for one point; empty if it is not, and without jobs."""
    least_s = measuring_s(protocol, site)
    if not partition.has_jobs or least_s <= walltime_s(partition.walltime):
        return ""
    return (
        f"a point takes at least {least_s:g} s by the protocol, and a job's walltime is "
        f"{partition.walltime} ({walltime_s(partition.walltime):g} s)"
    )


def estimates(
    parts: Sequence[PartitionPoints],
    protocol: Protocol,
    sites: Mapping[str, Site],
    iteration_times: TimesByPartition,
    point_times: TimesByPartition = MappingProxyType({}),
) -> list[PartitionEstimate]:
    """The estimate of each partition. ``iteration_times``: of one iteration; ``point_times``:
    from the start of a point to the start of the next one on its node. If these have the
    partition, the launch time is the median of their excess over the time of the steps."""
    return [
        _estimate(
            part,
            protocol,
            sites[part.site],
            iteration_times.get((part.site, part.partition), {}),
            point_times.get((part.site, part.partition), {}),
        )
        for part in parts
    ]


def _estimate(
    part: PartitionPoints,
    protocol: Protocol,
    site: Site,
    iteration_times: KnownTimes,
    point_times: KnownTimes,
) -> PartitionEstimate:
    partition = site.partitions[part.partition]
    beyond_s = [
        max(point_s - measuring_s(protocol, site, iteration_times.get(pair, 0.0)), 0.0)
        for pair, point_s in point_times.items()
    ]
    points_of = np.bincount(part.order // len(part.settings), minlength=len(part.inputs))
    steps_s, known_inputs = 0.0, 0
    for entry, points in zip(part.inputs, points_of.tolist(), strict=True):
        iteration_s = iteration_times.get((entry.label, entry.params))
        known_inputs += iteration_s is not None
        launch_s = statistics.median(beyond_s) if beyond_s else launching_s(site, entry.ranks)
        steps_s += points * (launch_s + measuring_s(protocol, site, iteration_s or 0.0))
    point_s = steps_s / len(part)
    workers = min(site.workers(part.partition), len(part))
    nodes = workers * site.nodes_per_point
    measuring_total_s = math.ceil(len(part) / workers) * point_s
    start_s, walltime_points = START_S, None
    if partition.has_jobs:
        walltime_points = max(1, int((walltime_s(partition.walltime) - START_S) / point_s))
        start_s *= math.ceil(len(part) / workers / walltime_points)
    wall_s = measuring_total_s + start_s
    return PartitionEstimate(
        site=part.site,
        partition=part.partition,
        points=len(part),
        nodes=nodes,
        point_s=point_s,
        wall_s=wall_s,
        node_hours=nodes * wall_s / 3600.0 if partition.has_jobs else None,
        walltime_points=walltime_points,
        inputs=len(part.inputs),
        known_inputs=known_inputs,
    )
