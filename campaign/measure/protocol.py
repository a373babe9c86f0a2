"""The protocol of a point: idle power, warm-up, windows as long as its meters need, repeats.

1. Idle: the node's power at the setting with nothing running.
2. Warm-up: the kernel runs for ``warm_up_s`` and then until power is steady: the mean powers of
   two successive stretches differ by no more than ``steady_pct`` or twice their uncertainties.
   If power is not steady after ``warm_up_max_s``, the measurement gets a flag.
3. Window: at least ``min_duration_s``, and as long as the meters need. The uncertainty from their
   resolution and period falls with the length of the window, and must be at most ``window_pct``,
   unless that takes more than ``max_duration_s``.
4. If a meter observes only part of the time: before each window a random wait of up to its period.
   Windows that begin at the same phase of the period would have the same error.
5. On a CPU: a timed loop measures the core clock right before and right after each window, so that
   the window's energy does not include it.
6. Windows are repeated until the energy's random uncertainty is ``uncertainty_pct``, or
   ``max_windows`` have been measured.
7. Cool-down.

With several ranks, the first rank of each node reads the node's meters, and the first rank of all
decides, from the results of all.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from campaign.measure.energy import (
    NodeEnergy,
    added,
    counted_channels,
    mean_of,
    node_energy,
    refuse_stopped,
)
from campaign.measure.sampler import UsedMeter, all_channels
from campaign.measure.window import Window, channels_of_total, idle_window, run_window
from campaign.plan.campaign_file import Protocol
from campaign.store.channel_energy import Energy, channel_energy
from dvfs.setting import Setting
from kernels.host.ranks import Team
from kernels.host.timed_clock import timed_core_mhz
from kernels.kernel import Counts, Prepared
from sites.clocks import ClockControl
from sites.counters.counting import Counters
from sites.meters import Channel, MeterError

STRETCH_PERIODS = 20
"""The shortest stretch of the warm-up, in periods of the slowest meter that counts ..."""
STRETCH_S = 0.5
"""... and in seconds."""
MAX_CALIBRATIONS = 6
MOST_ITERATIONS = 1 << 53
"""The most iterations that a 64-bit float holds exactly: for kernels that take no time."""
FIRST_REPEATS = 3
"""The fewest windows whose spread is certain enough."""


@dataclass(frozen=True)
class PointSetup:
    """The means to measure one point on this rank: the kernel, its team, meters, clocks, protocol
    and hardware counters. ``timed_cpus``: the CPUs on which this rank times the core clock."""

    prepared: Prepared
    team: Team
    meters: Sequence[UsedMeter]
    clocks: ClockControl
    protocol: Protocol
    counters: Counters | None = None
    timed_cpus: frozenset[int] = frozenset()

    @property
    def period_s(self) -> float:
        """The time between two readings."""
        return 1.0 / self.protocol.sampling_hz

    def run(self, iterations: int, *, total_only: bool = False) -> Window:
        """Measure one window; ``total_only``: see :func:`campaign.measure.window.run_window`."""
        return run_window(
            self.prepared,
            self.team,
            iterations,
            self.meters,
            self.clocks,
            self.period_s,
            counters=self.counters,
            total_only=total_only,
        )

    def timed_mhz(self) -> tuple[float, ...]:
        """The core clocks, in MHz, of this node's timed CPUs; the same on all ranks of the node."""
        rank_mhz = timed_core_mhz(self.timed_cpus) if self.timed_cpus else ()
        nodes, gathered_mhz = self.team.nodes, self.team.gather(rank_mhz)
        return tuple(
            mhz
            for node, clocks_mhz in zip(nodes, gathered_mhz, strict=True)
            for mhz in clocks_mhz
            if node == self.team.node
        )

    @property
    def metered(self) -> bool:
        """Whether the first rank reads meters; the same on every rank."""
        return bool(self.team.decide(bool(self.meters)))


@dataclass(frozen=True)
class WindowedMeasurement:
    """The windows of a point.

    ``steps``: results of the protocol's steps by name. ``flags``: sentences about possible errors
    of the energy. ``counters``: see :mod:`analysis.measurements.hardware_counters`. ``metrics``:
    those of a kernel that is :class:`kernels.kernel.WithMetrics`.
    """

    windows: list[Window]
    steps: dict[str, Any]
    flags: list[str]
    counters: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)


def idle_power(
    team: Team, meters: Sequence[UsedMeter], clocks: ClockControl, protocol: Protocol
) -> dict[str, float]:
    """The idle power of all nodes in W; empty if ``idle_s`` is 0 or no meter is read.

    Raises:
        MeterError: a meter fails.
    """
    if not protocol.idle_s or not team.decide(bool(meters)):
        return {}
    window = idle_window(team, protocol.idle_s, meters, clocks, 1.0 / protocol.sampling_hz)
    power = _mean_power(team, meters, window)
    if math.isnan(power.energy_j):
        return {}
    return {"idle_w": power.energy_j, "idle_std_w": power.std_j}


def _mean_power(team: Team, meters: Sequence[UsedMeter], window: Window) -> Energy:
    """The mean power of all nodes in a window: the energy of a second, in J."""
    total = node_energy(window.traces, 0, window.end_ns).total
    return sum_over_nodes(team, meters, _scaled(total, 1.0 / window.length_s))


def sum_over_nodes(team: Team, meters: Sequence[UsedMeter], energy: Energy) -> Energy:
    """The sum of the energies, or powers, of the ranks that read meters; the same on every rank."""
    by_rank = team.gather(energy if meters else None)
    return added(rank_energy for rank_energy in by_rank if rank_energy is not None)


def run_protocol(setup: PointSetup, *, runs_differ: bool = False) -> WindowedMeasurement:
    """Warm up, and measure window after window. ``runs_differ``: whether the counts may differ
    between runs of the kernel, as those that a program reports; if they do, a flag says so.

    Raises:
        MeterError: a meter fails, or has stopped updating.
    """
    protocol, team = setup.protocol, setup.team
    steps: dict[str, Any] = {}
    flags: list[str] = []
    iteration_s, last_stretch = _warm_up(setup, steps, flags)
    counts = [setup.prepared.counts()] if runs_differ else []
    length_s = _window_length_s(setup, last_stretch, steps, flags)
    iterations = int(team.decide(max(1, math.ceil(length_s / iteration_s * 1.05))))
    windows: list[Window] = []
    while not windows or _needs_another_window(setup, windows, steps):
        _jitter(setup)
        before_mhz = setup.timed_mhz()
        window, iterations = _full_window(setup, iterations, length_s)
        refuse_stopped(window.traces, window.end_ns)
        counts += [setup.prepared.counts()] if runs_differ else []
        windows.append(replace(window, timed_mhz=(before_mhz, setup.timed_mhz())))
    if setup.metered and protocol.cool_down_s:
        time.sleep(protocol.cool_down_s)
    steps["windows"] = len(windows)
    return WindowedMeasurement(windows, steps, [*flags, *_other_counts(counts)])


def _other_counts(counts: Sequence[Counts | None]) -> list[str]:
    """A sentence if some runs counted other operations than others, of which the last is kept."""
    known = [run_counts for run_counts in counts if run_counts is not None]
    names = dict.fromkeys(name for run_counts in known for name in run_counts)
    ranges = {
        name: (min(values), max(values))
        for name in names
        if len(values := {run_counts.get(name, 0.0) for run_counts in known}) > 1
    }
    if not ranges:
        return []
    shown = ", ".join(f"{name}: {low:.6g} to {high:.6g}" for name, (low, high) in ranges.items())
    return [f"the program reported other counts in other runs ({shown}); its last ones are kept"]


def _warm_up(
    setup: PointSetup, steps: dict[str, Any], flags: list[str]
) -> tuple[float, Window | None]:
    """The duration of an iteration in s, and the last metered stretch of the warm-up, if any."""
    protocol, team = setup.protocol, setup.team
    iterations, spent_s = 1, 0.0
    while True:
        begin = time.monotonic()
        setup.prepared.run(iterations)
        last_s = team.maximum(time.monotonic() - begin)
        spent_s += last_s
        iteration_s = max(last_s / iterations, 1e-9)
        if spent_s >= protocol.warm_up_s:
            break
        remaining_s = protocol.warm_up_s - spent_s
        iterations = int(team.decide(max(1, min(int(remaining_s / iteration_s), iterations * 100))))
    if not setup.metered or not protocol.steady_pct:
        return iteration_s, None
    stretch_s = float(team.decide(_stretch_s(setup)))
    before: Energy | None = None
    while True:
        iterations = int(team.decide(max(1, math.ceil(stretch_s / iteration_s))))
        window = setup.run(iterations, total_only=True)
        spent_s += window.length_s
        iteration_s = window.length_s / window.iterations
        power = _mean_power(team, setup.meters, window)
        steady = before is not None and _agree(before, power, protocol.steady_pct)
        steady, enough = team.decide((steady, spent_s >= protocol.warm_up_max_s))
        if steady or enough:
            break
        before = power
    steps |= {"warm_up_s": spent_s, "steady": bool(steady)}
    if not steady:
        flags.append(f"power was not steady within {protocol.steady_pct:g} % after {spent_s:.0f} s")
    return iteration_s, window


def _stretch_s(setup: PointSetup) -> float:
    slowest_s = max((c.period_s for c in channels_of_total(setup.meters)), default=0.0)
    return max(STRETCH_S, STRETCH_PERIODS * slowest_s)


def _agree(before: Energy, after: Energy, pct: float) -> bool:
    """Whether two mean powers agree within ``pct`` % or within their uncertainties."""
    change_w = abs(after.energy_j - before.energy_j)
    noise_w = 2.0 * math.hypot(before.random_j, after.random_j)
    # At most 5 %: with a larger uncertainty any two powers would agree.
    return change_w <= max(pct / 100.0 * abs(after.energy_j), min(noise_w, 0.05 * after.energy_j))


def _window_length_s(
    setup: PointSetup, last_stretch: Window | None, steps: dict[str, Any], flags: list[str]
) -> float:
    """The length of a window, from the protocol and the needs of the meters."""
    protocol = setup.protocol
    needed_s = 0.0
    if last_stretch is not None and protocol.window_pct:
        for trace in counted_channels(last_stretch.traces):
            energy = channel_energy(trace.trace, trace.channel, 0, last_stretch.end_ns)
            mean_w = energy.energy_j / last_stretch.length_s
            if mean_w > 0:
                needed_s = max(needed_s, meter_needs_s(trace.channel, mean_w, protocol.window_pct))
    longest_s = max(protocol.max_duration_s, protocol.min_duration_s)
    needed_s = setup.team.maximum(needed_s)
    if needed_s > longest_s:
        flags.append(
            f"the meter needs a window of {needed_s:.3g} s for an uncertainty of "
            f"{protocol.window_pct:g} %, and the longest window is {longest_s:.3g} s"
        )
    length_s = max(protocol.min_duration_s, min(needed_s, longest_s))
    return length_s + 2.0 * protocol.trim_s


def meter_needs_s(channel: Channel, mean_w: float, pct: float) -> float:
    """The window, in s, at which resolution and period cause ``pct`` % uncertainty of the energy.

    Two roundings to the resolution r and two edges within a period p: with the mean power P, the
    relative standard uncertainty of a window T is sqrt((r / P)^2 / 6 + p^2 / 6) / T; for a channel
    of power, r is its resolution times p.
    """
    step_s = channel.resolution / mean_w
    if channel.kind == "power":
        step_s *= channel.period_s
    return math.hypot(step_s, channel.period_s) / math.sqrt(6.0) / (pct / 100.0)


def _jitter(setup: PointSetup) -> None:
    """Wait for a random time if a meter observes only part of the time."""
    longest_s = max((c.period_s for c in all_channels(setup.meters) if c.seen < 1.0), default=0.0)
    if longest_s:
        time.sleep(random.uniform(0.0, longest_s))  # noqa: S311


def _full_window(setup: PointSetup, iterations: int, length_s: float) -> tuple[Window, int]:
    """A window of at least ``length_s``, and the number of its iterations."""
    for _ in range(MAX_CALIBRATIONS):
        window = setup.run(iterations)
        if window.length_s >= length_s:
            break
        factor = length_s / max(window.length_s, 1e-9) * 1.1
        needed = min(math.ceil(iterations * min(factor, 1000.0)), MOST_ITERATIONS)
        iterations = int(setup.team.decide(needed))
    return window, iterations


def _needs_another_window(setup: PointSetup, windows: list[Window], steps: dict[str, Any]) -> bool:
    """Whether the requested uncertainty needs another window."""
    protocol = setup.protocol
    if protocol.uncertainty_pct is None or not setup.metered:
        return False
    node_energies, _ = energy_of(windows, protocol.trim_s)
    energy = sum_over_nodes(setup.team, setup.meters, node_energies)
    relative_pct = 100.0 * energy.random_j / abs(energy.energy_j) if energy.energy_j else math.nan
    reached = len(windows) >= FIRST_REPEATS and relative_pct <= protocol.uncertainty_pct
    reached = bool(setup.team.decide(reached))
    steps["random_pct"] = relative_pct
    return not reached and len(windows) < protocol.max_windows


def energy_of(windows: Sequence[Window], trim_s: float) -> tuple[Energy, list[NodeEnergy]]:
    """The energy of one iteration over all windows, and the node's energy in each window.

    With ``trim_s``, the mean power between the trimmed edges stands for the whole window.
    """
    by_window = []
    trim_ns = round(trim_s * 1e9)
    for window in windows:
        cut_ns = trim_ns if 2 * trim_ns < window.end_ns else 0
        trimmed = node_energy(window.traces, cut_ns, window.end_ns - cut_ns)
        factor = window.end_ns / (window.end_ns - 2 * cut_ns)
        by_channel = {name: _scaled(part, factor) for name, part in trimmed.by_channel.items()}
        total = _scaled(trimmed.total, factor)
        by_window.append(replace(trimmed, total=total, by_channel=by_channel))
    return mean_of([w.total for w in by_window], [w.iterations for w in windows]), by_window


def _scaled(energy: Energy, factor: float) -> Energy:
    return Energy(energy.energy_j * factor, energy.random_j * factor, energy.gain_j * factor)


def joined(measured: WindowedMeasurement, team: Team) -> WindowedMeasurement:
    """Join the windows of all nodes: their traces, each with the name of its node, all timed
    clocks, and the mean of the clocks that were read back.

    Raises:
        MeterError: no channel counts on one of the nodes, so that the sum would lack it.
    """
    windows = []
    for window in measured.windows:
        node_window = replace(
            window, traces=[replace(trace, node=team.node) for trace in window.traces]
        )
        gathered = team.gather(node_window if team.first_on_node() else None)
        by_node = [rank_window for rank_window in gathered if rank_window is not None]
        traces = [trace for node_window in by_node for trace in node_window.traces]
        counting = {trace.node for trace in counted_channels(traces)}
        for node in dict.fromkeys(team.nodes) if counting else ():
            if node not in counting:
                raise MeterError(
                    f"{node}: no meter there counts, and {', '.join(sorted(counting))} have one",
                    "measure on nodes with the same meters",
                )
        windows.append(
            replace(
                window,
                traces=traces,
                achieved=_mean_setting([node_window.achieved for node_window in by_node]),
                conditions=joined_conditions([node_window.conditions for node_window in by_node]),
                timed_mhz=(
                    tuple(mhz for node_window in by_node for mhz in node_window.timed_mhz[0]),
                    tuple(mhz for node_window in by_node for mhz in node_window.timed_mhz[1]),
                ),
            )
        )
    flags = [flag for rank_flags in team.gather(measured.flags) for flag in rank_flags]
    return replace(measured, windows=windows, flags=list(dict.fromkeys(flags)))


def _mean_setting(settings: Sequence[Setting]) -> Setting:
    """The mean of each number over nodes, None if a node does not report it; and the profile, None
    if the nodes differ."""
    values = list(zip(*(setting.numbers for setting in settings), strict=True))
    means = (None if None in numbers else statistics.fmean(numbers) for numbers in values)
    profiles = {setting.profile for setting in settings}
    return Setting(*means, profile=profiles.pop() if len(profiles) == 1 else None)


def joined_conditions(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Join the conditions of several nodes or windows: the largest of numbers that show a fault,
    the mean of temperatures and voltages, and all texts."""
    joint: dict[str, Any] = {}
    for name in dict.fromkeys(name for conditions in parts for name in conditions):
        values = [conditions[name] for conditions in parts if name in conditions]
        if isinstance(values[0], str):
            joint[name] = ", ".join(dict.fromkeys(values))
        elif isinstance(values[0], list):
            joint[name] = sorted({text for conditions in values for text in conditions})
        elif name in ("temperature_c", "core_v"):
            joint[name] = statistics.fmean(values)
        else:
            joint[name] = max(values)
    return joint
