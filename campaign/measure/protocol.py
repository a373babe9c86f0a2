"""How a point is measured: idle power, warm-up, windows as long as its meters need, repeats.

1. Idle: the node's power at the setting with nothing running.
2. Warm-up: the kernel runs for ``warm_up_s`` and then until power is steady: the mean powers of
   two successive stretches differ by no more than ``steady_pct`` or twice their uncertainties.
   The measurement is flagged where power is not steady after ``warm_up_max_s``.
3. Window: at least ``min_duration_s``, and as long as the meters need. The uncertainty from their
   resolution and period falls with the length of the window, and must be at most ``window_pct``,
   unless that takes more than ``max_duration_s``.
4. Before each window a random wait of up to the meter's period, where a meter observes only part
   of the time: windows that begin at the same phase of its period would have the same error.
5. Where the core is a CPU's: a timed loop gives its clock right before and right after each
   window, outside of what the meters see of it.
6. Windows are repeated until the energy's random uncertainty is ``uncertainty_pct``, or
   ``max_windows`` have been measured.
7. Cool-down.

With several ranks the first one of each node reads the node's meters, and the first of all
decides, by what all of them see.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from campaign.measure.energy import NodeEnergy, added, counted_channels, mean_of, node_energy
from campaign.measure.sampler import OpenMeter
from campaign.measure.window import Window, channels_of_total, idle_window, run_window
from campaign.plan.campaign_file import Protocol
from campaign.store.channel_energy import Energy, channel_energy
from dvfs.setting import Setting
from kernels.host.ranks import Team
from kernels.host.timed_clock import timed_core_mhz
from kernels.kernel import Prepared
from sites.clocks import ClockControl
from sites.counters.counting import Counters
from sites.meters import Channel, MeterError
from sites.meters.shared.stopped import stopped

STRETCH_PERIODS = 20
"""The shortest stretch of the warm-up, in periods of the slowest meter that counts ..."""
STRETCH_S = 0.5
"""... and in seconds."""
MAX_CALIBRATIONS = 6
MOST_ITERATIONS = 1 << 53
"""The most iterations that a 64-bit float holds exactly: for kernels that take no time."""
LONGEST_SILENCE_S, SILENT_PERIODS = 0.5, 10
"""How long before a window's end the last reading may be."""
FIRST_REPEATS = 3
"""With fewer windows their spread is too uncertain."""


@dataclass(frozen=True)
class PointSetup:
    """What measures one point on this rank: the kernel, its team, meters, clocks, protocol and
    hardware counters. ``timed_cpus``: the CPUs on which this rank times the core clock."""

    prepared: Prepared
    team: Team
    meters: Sequence[OpenMeter]
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
        """The core clock of every CPU of this node that a rank times, the same on its ranks."""
        of_cpus = timed_core_mhz(self.timed_cpus) if self.timed_cpus else ()
        nodes, timed = self.team.nodes, self.team.gather(of_cpus)
        return tuple(
            mhz
            for node, some in zip(nodes, timed, strict=True)
            for mhz in some
            if node == self.team.node
        )

    @property
    def metered(self) -> bool:
        """Whether the first rank reads meters; the same on every rank."""
        return bool(self.team.decide(bool(self.meters)))


@dataclass(frozen=True)
class WindowedMeasurement:
    """The windows of a point.

    ``steps``: results of the protocol's steps by name. ``flags``: sentences about what may make
    the energy wrong. ``counters``: see :mod:`analysis.measurements.hardware_counters`. ``metrics``:
    those of a kernel that is :class:`kernels.kernel.WithMetrics`.
    """

    windows: list[Window]
    steps: dict[str, Any]
    flags: list[str]
    counters: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)


def idle_power(
    team: Team, meters: Sequence[OpenMeter], clocks: ClockControl, protocol: Protocol
) -> dict[str, float]:
    """The idle power of all nodes in W; empty where ``idle_s`` is 0 or no meter is read.

    Raises:
        MeterError: a meter fails.
    """
    if not protocol.idle_s or not team.decide(bool(meters)):
        return {}
    window = idle_window(team, protocol.idle_s, meters, clocks, 1.0 / protocol.sampling_hz)
    seconds = window.end_ns / 1e9
    node_power = _scaled(node_energy(window.traces, 0, window.end_ns).total, 1.0 / seconds)
    power = of_all_nodes(team, meters, node_power)
    if math.isnan(power.energy_j):
        return {}
    return {"idle_w": power.energy_j, "idle_std_w": power.std_j}


def of_all_nodes(team: Team, meters: Sequence[OpenMeter], energy: Energy) -> Energy:
    """The sum of the energies, or powers, of the ranks that read meters; the same on every rank."""
    read = team.gather(energy if meters else None)
    return added(one for one in read if one is not None)


def run_protocol(setup: PointSetup) -> WindowedMeasurement:
    """Warm up, and measure window after window.

    Raises:
        MeterError: a meter fails, or does not update any more.
    """
    protocol, team = setup.protocol, setup.team
    steps: dict[str, Any] = {}
    flags: list[str] = []
    one_s, warm = _warm_up(setup, steps, flags)
    length_s = _length_s(setup, warm, steps, flags)
    iterations = int(team.decide(max(1, math.ceil(length_s / one_s * 1.05))))
    windows: list[Window] = []
    while not windows or _again(setup, windows, steps):
        _jitter(setup)
        before = setup.timed_mhz()
        window, iterations = _filled(setup, iterations, length_s)
        _refuse_stopped(window)
        windows.append(replace(window, timed_mhz=(before, setup.timed_mhz())))
    if setup.metered and protocol.cool_down_s:
        time.sleep(protocol.cool_down_s)
    steps["windows"] = len(windows)
    return WindowedMeasurement(windows, steps, flags)


def _warm_up(
    setup: PointSetup, steps: dict[str, Any], flags: list[str]
) -> tuple[float, Window | None]:
    """Seconds of one iteration, and the last stretch of the warm-up where meters are read."""
    protocol, team = setup.protocol, setup.team
    iterations, spent_s, one_s = 1, 0.0, 1e-9
    while True:
        begin = time.monotonic()
        setup.prepared.run(iterations)
        last_s = team.maximum(time.monotonic() - begin)
        spent_s += last_s
        one_s = max(last_s / iterations, 1e-9)
        if spent_s >= protocol.warm_up_s:
            break
        left = protocol.warm_up_s - spent_s
        iterations = int(team.decide(max(1, min(int(left / one_s), iterations * 100))))
    if not setup.metered or not protocol.steady_pct:
        return one_s, None
    stretch_s = float(team.decide(_stretch_s(setup)))
    iterations = int(team.decide(max(1, math.ceil(stretch_s / one_s))))
    before: Energy | None = None
    window = setup.run(iterations, total_only=True)
    while True:
        seconds = window.end_ns / 1e9
        spent_s += seconds
        one_s = seconds / window.iterations
        node_energy_j = node_energy(window.traces, 0, window.end_ns).total
        power = of_all_nodes(team, setup.meters, _scaled(node_energy_j, 1.0 / seconds))
        steady = before is not None and _close(before, power, protocol.steady_pct)
        steady, enough = team.decide((steady, spent_s >= protocol.warm_up_max_s))
        if steady or enough:
            break
        before = power
        iterations = int(team.decide(max(1, math.ceil(stretch_s / one_s))))
        window = setup.run(iterations, total_only=True)
    steps |= {"warm_up_s": spent_s, "steady": bool(steady)}
    if not steady:
        flags.append(f"power was not steady within {protocol.steady_pct:g} % after {spent_s:.0f} s")
    return one_s, window


def _stretch_s(setup: PointSetup) -> float:
    slowest_s = max((c.period_s for c in channels_of_total(setup.meters)), default=0.0)
    return max(STRETCH_S, STRETCH_PERIODS * slowest_s)


def _close(before: Energy, after: Energy, pct: float) -> bool:
    """Whether two mean powers agree within ``pct`` % or within their uncertainties."""
    apart_w = abs(after.energy_j - before.energy_j)
    known_w = 2.0 * math.hypot(before.random_j, after.random_j)
    # At most 5 %: with a larger uncertainty any two powers would agree.
    return apart_w <= max(pct / 100.0 * abs(after.energy_j), min(known_w, 0.05 * after.energy_j))


def _length_s(
    setup: PointSetup, warm: Window | None, steps: dict[str, Any], flags: list[str]
) -> float:
    """The length of a window, from the protocol and from what the meters need."""
    protocol = setup.protocol
    needed_s = 0.0
    if warm is not None and protocol.window_pct:
        seconds = warm.end_ns / 1e9
        for trace in counted_channels(warm.traces):
            energy = channel_energy(trace.trace, trace.channel, 0, warm.end_ns)
            mean_w = energy.energy_j / seconds
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
    """The window in s for which resolution and period cause ``pct`` % uncertainty of the energy.

    Two roundings to the resolution r and two edges within a period p: the relative standard
    uncertainty of a window T is sqrt((r / P)^2 / 6 + p^2 / 6) / T, with a power's resolution
    taken over a period.
    """
    step_s = channel.resolution / mean_w
    if channel.kind == "power":
        step_s *= channel.period_s
    return math.hypot(step_s, channel.period_s) / math.sqrt(6.0) / (pct / 100.0)


def _jitter(setup: PointSetup) -> None:
    """Wait for a random time where a meter observes only part of the time."""
    longest_s = max(
        (c.period_s for m in setup.meters for c in m.meter.channels if c.seen < 1.0), default=0.0
    )
    if longest_s:
        time.sleep(random.uniform(0.0, longest_s))  # noqa: S311


def _filled(setup: PointSetup, iterations: int, length_s: float) -> tuple[Window, int]:
    """A window of at least ``length_s``, and the number of its iterations."""
    for _ in range(MAX_CALIBRATIONS):
        window = setup.run(iterations)
        seconds = window.end_ns / 1e9
        if seconds >= length_s:
            break
        needed = length_s / max(seconds, 1e-9) * 1.1
        most = min(math.ceil(iterations * min(needed, 1000.0)), MOST_ITERATIONS)
        iterations = int(setup.team.decide(most))
    return window, iterations


def _again(setup: PointSetup, windows: list[Window], steps: dict[str, Any]) -> bool:
    """Whether another window is needed for the uncertainty asked for."""
    protocol = setup.protocol
    if protocol.uncertainty_pct is None or not setup.metered:
        return False
    node_energies, _ = energy_of(windows, protocol.trim_s)
    energy = of_all_nodes(setup.team, setup.meters, node_energies)
    relative_pct = 100.0 * energy.random_j / abs(energy.energy_j) if energy.energy_j else math.nan
    reached = len(windows) >= FIRST_REPEATS and relative_pct <= protocol.uncertainty_pct
    reached = bool(setup.team.decide(reached))
    steps["random_pct"] = relative_pct
    return not reached and len(windows) < protocol.max_windows


def _refuse_stopped(window: Window) -> None:
    """Raise MeterError for a channel that counts and does not update any more."""
    remedy = "see the kernel's log; reload the driver or reboot the node"
    for trace in counted_channels(window.traces):
        time_ns, value = trace.trace.time_ns, trace.trace.value
        inside = time_ns <= window.end_ns
        problem = stopped(trace.channel, time_ns[inside].tolist(), value[inside].tolist())
        if problem:
            raise MeterError(f"{trace.name}: {problem}", remedy)
        # A stopped meter that stamps its readings gives no new ones.
        silent_s = (window.end_ns - int(time_ns[-1])) / 1e9 if time_ns.size else math.inf
        if silent_s > max(LONGEST_SILENCE_S, SILENT_PERIODS * trace.channel.period_s):
            raise MeterError(f"{trace.name}: no reading for {silent_s:.3g} s", remedy)


def energy_of(windows: Sequence[Window], trim_s: float) -> tuple[Energy, list[NodeEnergy]]:
    """Joules of one iteration over all windows, and the node's energy in each window.

    With ``trim_s`` the mean powers between the trimmed edges are used for the whole window.
    """
    by_window = []
    trim_ns = round(trim_s * 1e9)
    for window in windows:
        cut_ns = trim_ns if 2 * trim_ns < window.end_ns else 0
        kept = node_energy(window.traces, cut_ns, window.end_ns - cut_ns)
        whole = window.end_ns / (window.end_ns - 2 * cut_ns)
        of_channels = {name: _scaled(one, whole) for name, one in kept.by_channel.items()}
        by_window.append(replace(kept, total=_scaled(kept.total, whole), by_channel=of_channels))
    return mean_of([w.total for w in by_window], [w.iterations for w in windows]), by_window


def _scaled(energy: Energy, factor: float) -> Energy:
    return Energy(energy.energy_j * factor, energy.random_j * factor, energy.gain_j * factor)


def joined(measured: WindowedMeasurement, team: Team) -> WindowedMeasurement:
    """The windows of all nodes as one: their traces, which carry the names of their nodes, all
    timed clocks, and the mean of the clocks that were read back.

    Raises:
        MeterError: nothing counts on one of the nodes, so that their sum would lack it.
    """
    windows = []
    for window in measured.windows:
        of_node = replace(
            window, traces=[replace(trace, node=team.node) for trace in window.traces]
        )
        gathered = team.gather(of_node if team.first_on_node() else None)
        of_nodes = [one for one in gathered if one is not None]
        traces = [trace for one in of_nodes for trace in one.traces]
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
                achieved=_mean_setting([one.achieved for one in of_nodes]),
                conditions=joined_conditions([one.conditions for one in of_nodes]),
                timed_mhz=(
                    tuple(mhz for one in of_nodes for mhz in one.timed_mhz[0]),
                    tuple(mhz for one in of_nodes for mhz in one.timed_mhz[1]),
                ),
            )
        )
    flags = [f for some in team.gather(measured.flags) for f in some]
    return replace(measured, windows=windows, flags=list(dict.fromkeys(flags)))


def _mean_setting(settings: Sequence[Setting]) -> Setting:
    """The mean of each number over nodes, and the profile of all; None where one of them does not
    report it."""
    values = list(zip(*(setting.numbers for setting in settings), strict=True))
    means = (None if None in of_axis else statistics.fmean(of_axis) for of_axis in values)
    return Setting(*means, profile=_same_profile(settings))


def _same_profile(settings: Sequence[Setting]) -> str | None:
    profiles = {setting.profile for setting in settings}
    return profiles.pop() if len(profiles) == 1 else None


def joined_conditions(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The conditions of several nodes or windows as one: of numbers that say that something is
    wrong the largest, of others the mean, and all texts."""
    joined_: dict[str, Any] = {}
    for name in dict.fromkeys(name for conditions in parts for name in conditions):
        values = [conditions[name] for conditions in parts if name in conditions]
        if isinstance(values[0], str):
            joined_[name] = ", ".join(dict.fromkeys(values))
        elif isinstance(values[0], list):
            joined_[name] = sorted({text for conditions in values for text in conditions})
        elif name in ("temperature_c", "core_v"):
            joined_[name] = statistics.fmean(values)
        else:
            joined_[name] = max(values)
    return joined_
