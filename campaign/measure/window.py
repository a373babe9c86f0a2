"""One window: a kernel runs a number of iterations while meters and clocks are read."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from campaign.measure.energy import counted_channels
from campaign.measure.sampler import MeterTrace, Sampler, UsedMeter, needed_lead_s
from campaign.store.measurement import Trace
from dvfs.dataset import PHASE_PREFIX
from dvfs.setting import Setting
from kernels.host.ranks import Team
from kernels.kernel import Mark, Marked, Prepared
from sites.clocks import ClockControl
from sites.counters.counting import Counters, EventCount
from sites.meters import Channel


@dataclass(frozen=True, kw_only=True)
class Window:
    """The result of a window. ``end_ns`` is its length; trace times count from its start.

    ``start_ns``: CLOCK_MONOTONIC. ``sampling``: see
    :meth:`campaign.measure.sampler.Sampler.costs`. ``conditions``: see
    :meth:`campaign.measure.sampler.Sampler.conditions`.
    """

    end_ns: int
    iterations: int
    traces: list[MeterTrace]
    achieved: Setting
    marks: tuple[Trace, ...] = ()
    """The times of each phase of the kernel, on the first rank: see :func:`phase_traces`."""
    start_ns: int = 0
    timed_mhz: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())
    """The timed core clocks before and after the window, one for each CPU; see
    :mod:`kernels.host.timed_clock`."""
    sampling: dict[str, dict[str, float]] = field(default_factory=dict)
    conditions: dict[str, Any] = field(default_factory=dict)
    counted: dict[str, EventCount] = field(default_factory=dict)
    """Hardware counters of this rank while the kernel ran, by event."""

    @property
    def length_s(self) -> float:
        """The window's length in s."""
        return self.end_ns / 1e9


def run_window(
    prepared: Prepared,
    team: Team,
    iterations: int,
    meters: Sequence[UsedMeter],
    clocks: ClockControl,
    period_s: float,
    counters: Counters | None = None,
    *,
    total_only: bool = False,
) -> Window:
    """Measure on a real node. ``meters`` is empty on ranks that read none. ``total_only``: see
    :func:`lead_of_total_s`."""
    sampler = Sampler(meters, clocks, period_s, lead_of_total_s(meters) if total_only else None)
    sampler.begin()
    team.barrier()
    if counters is not None:
        counters.begin()
    start_ns = time.monotonic_ns()
    prepared.run(iterations)
    elapsed_ns = time.monotonic_ns() - start_ns
    counted = counters.end() if counters is not None else {}
    team.barrier()
    sampler.end()
    end_ns = int(team.maximum(float(elapsed_ns)))
    marks = phase_traces(prepared.marks(), start_ns) if isinstance(prepared, Marked) else ()
    return replace(_window(sampler, start_ns, end_ns, iterations, marks), counted=counted)


def lead_of_total_s(meters: Sequence[UsedMeter]) -> float:
    """How long meters are read before and after a window that needs the node's total power only: as
    long as the channels that count need. Others may be slower: NVML's power of the memory is a mean
    over a second, and its energy counter is not."""
    return needed_lead_s(channels_of_total(meters))


def channels_of_total(meters: Sequence[UsedMeter]) -> list[Channel]:
    """The channels that count in the node's total power."""
    channels = [channel for used in meters for channel in used.channels]
    return [counted.channel for counted in counted_channels(channels)]


def idle_window(
    team: Team, seconds: float, meters: Sequence[UsedMeter], clocks: ClockControl, period_s: float
) -> Window:
    """Measure the node's total power for ``seconds`` while no kernel runs."""
    sampler = Sampler(meters, clocks, period_s, lead_of_total_s(meters))
    team.barrier()
    sampler.begin()
    start_ns = time.monotonic_ns()
    time.sleep(seconds)
    end_ns = time.monotonic_ns() - start_ns
    sampler.end()
    return _window(sampler, start_ns, end_ns, 0, ())


def _window(
    sampler: Sampler, start_ns: int, end_ns: int, iterations: int, marks: tuple[Trace, ...]
) -> Window:
    return Window(
        end_ns=end_ns,
        iterations=iterations,
        traces=sampler.traces(start_ns),
        achieved=sampler.achieved_setting(),
        marks=marks,
        start_ns=start_ns,
        sampling=sampler.costs(),
        conditions=sampler.conditions(),
    )


def phase_traces(marks: Sequence[Mark], start_ns: int) -> tuple[Trace, ...]:
    """A trace for each phase, with times from ``start_ns``: 1 where it begins, 0 where it ends."""
    traces = []
    for name in dict.fromkeys(mark.phase for mark in marks):
        edges = [(m.begin_ns - start_ns, m.end_ns - start_ns) for m in marks if m.phase == name]
        time_ns = np.array(edges, np.int64).reshape(-1)
        value = np.tile(np.array([1, 0], np.float32), len(edges))
        traces.append(Trace(PHASE_PREFIX + name, "", "1", time_ns, value))
    return tuple(traces)
