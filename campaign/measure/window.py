"""One window: a kernel runs so many iterations while meters and clocks are read."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from campaign.measure.sampler import MeterTrace, Sampler
from campaign.measurement import Trace
from kernels.kernel import Prepared
from kernels.ranks import Team
from sites.clocks import ClockControl
from sites.meters import Meter
from sites.setting import Setting
from sites.site_file import Site
from sites.twin import machine as twin_machine


@dataclass(frozen=True)
class Window:
    """What a window brought. ``end_ns`` is its length; trace times count from its start."""

    end_ns: int
    iterations: int
    traces: list[MeterTrace]
    achieved: Setting


def run_window(
    prepared: Prepared,
    team: Team,
    iterations: int,
    meters: list[Meter],
    clocks: ClockControl,
    period_s: float,
) -> Window:
    """Run on the real node; ``meters`` is empty on ranks that read none."""
    sampler = Sampler(meters, clocks, period_s)
    team.barrier()
    sampler.begin()
    start_ns = time.monotonic_ns()
    prepared.run(iterations)
    elapsed_ns = time.monotonic_ns() - start_ns
    team.barrier()
    sampler.end()
    end_ns = int(team.maximum(float(elapsed_ns)))
    return Window(end_ns, iterations, sampler.traces(start_ns), sampler.achieved_setting())


def simulate_window(
    site: Site, counts: Mapping[str, float], setting: Setting, min_duration_s: float, seed: str
) -> Window:
    """What :func:`run_window` would bring on the site's simulated machine."""
    one_s = twin_machine.iteration_s(site, counts, setting)
    iterations = max(1, round(min_duration_s / one_s))
    run = twin_machine.run(site, counts, setting, iterations, seed)
    channel = twin_machine.board_channel(site)
    # Single precision holds a power to 1e-7 of itself, and halves what is stored.
    trace = Trace(channel.name, channel.domain, "W", run.time_ns, run.power_w.astype(np.float32))
    end_ns = round(run.duration_s * 1e9)
    return Window(end_ns, iterations, [MeterTrace("twin", channel, trace)], setting)
