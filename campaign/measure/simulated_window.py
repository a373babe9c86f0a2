"""A window on a simulated machine, made of the simulation's power and times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from campaign.measure.sampler import MeterTrace
from campaign.measure.window import Window, phase_traces
from campaign.store.measurement import Trace
from dvfs.setting import Setting
from kernels.kernel import Mark
from sites.simulated import machine
from sites.site_file import Site

MAX_MARKED_ITERATIONS = 1000
"""Only the phases of the first iterations are marked."""


def simulate_window(
    site: Site,
    counts: Mapping[str, float],
    setting: Setting,
    min_duration_s: float,
    seed: str,
    phases: Mapping[str, Mapping[str, float]] | None = None,
) -> Window:
    """The simulated counterpart of :func:`campaign.measure.window.run_window`.

    Args:
        site: a site with a simulated machine.
        counts: class -> operations of one iteration.
        setting: the requested setting.
        min_duration_s: the least length of the window.
        seed: the seed of the simulated noise.
        phases: phase -> its counts, for a kernel whose phases follow one another.

    Raises:
        SimulationError: the simulated machine has no rate for a class, or the kernel takes no time.
    """
    parts = phases or {"": counts}
    if not machine.phases_s(site, parts, setting).sum() > 0:
        raise machine.SimulationError(
            f"the kernel counts nothing that takes time at {site.name}, and simulated.launch_s is 0"
        )
    ran_at = machine.under_limit(site, parts, setting)
    iteration_s = float(machine.phases_s(site, parts, ran_at).sum())
    iterations = max(1, round(min_duration_s / iteration_s))
    run = machine.run(site, counts, setting, iterations, seed, phases)
    channel = machine.board_channel(site)
    # Single precision is exact to 1e-7 of a power, and takes half the space.
    trace = Trace(channel.name, channel.domain, "W", run.time_ns, run.power_w.astype(np.float32))
    marks = _phase_marks(list(phases or {}), run.part_s, iterations)
    return Window(
        end_ns=round(run.duration_s * 1e9),
        iterations=iterations,
        traces=[MeterTrace("simulated", channel, trace=trace)],
        achieved=run.achieved,
        marks=phase_traces(marks, 0),
    )


def _phase_marks(names: Sequence[str], phase_s: np.ndarray, iterations: int) -> list[Mark]:
    if not names:
        return []
    edge_s = np.concatenate([[0.0], np.cumsum(phase_s)])
    marks = []
    for i in range(min(iterations, MAX_MARKED_ITERATIONS)):
        edge_ns = np.rint((i * edge_s[-1] + edge_s) * 1e9).astype(int).tolist()
        marks += [
            Mark(name, begin_ns, end_ns)
            for name, begin_ns, end_ns in zip(names, edge_ns[:-1], edge_ns[1:], strict=True)
        ]
    return marks
