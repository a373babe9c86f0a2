"""A node's energy over a window: which channels count, and whether meters agree."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from campaign.measure.sampler import MeterChannel, MeterTrace
from campaign.store.channel_energy import NONE, Energy, channel_energy
from sites.meters.shared.meter import MeterError, contains
from sites.meters.shared.stopped import stopped

DISAGREEMENT = 3.0
"""Meters of one domain disagree if they differ by more than this multiple of the uncertainty."""
LONGEST_SILENCE_S, SILENT_PERIODS = 0.5, 10
"""The longest silence before a window's end, in s and in periods; the larger one counts."""


AChannel = TypeVar("AChannel", bound=MeterChannel)


@dataclass(frozen=True)
class NodeEnergy:
    """A node's energy over a window.

    ``total``: over the channels in ``counted``. ``by_channel``: of every channel, named
    ``meter:channel``. ``disagreements``: sentences.
    """

    total: Energy
    by_channel: dict[str, Energy]
    counted: tuple[str, ...]
    disagreements: tuple[str, ...]


def node_energy(traces: Sequence[MeterTrace], begin_ns: int, end_ns: int) -> NodeEnergy:
    """The energy of a node from the traces of its meters; NaN if no channel counts."""
    energies = {t.name: channel_energy(t.trace, t.channel, begin_ns, end_ns) for t in traces}
    counted = counted_channels(traces)
    return NodeEnergy(
        total=added(energies[t.name] for t in counted) if counted else NONE,
        by_channel=energies,
        counted=tuple(t.name for t in counted),
        disagreements=tuple(_disagreements(traces, energies)),
    )


def counted_channels(channels: Sequence[AChannel]) -> list[AChannel]:
    """The channels whose sum is the node's energy, with nothing counted twice.

    These do not count: channels of a meter with ``use = "check"``; a channel that measures by other
    means what another one measures; a channel inside another; a domain that is part of another
    domain that counts; and a domain that an earlier meter measures.
    """
    usable = [c for c in channels if c.use == "energy" and c.channel.same_as is None]
    # The first meter of a domain counts. On several nodes the meters' names begin with the node's.
    meter_of: dict[tuple[str, str], str] = {}
    first = [
        c for c in usable if meter_of.setdefault((c.node, c.channel.domain), c.meter) == c.meter
    ]
    names = {(c.meter, c.channel.name) for c in first}
    outer = [c for c in first if (c.meter, c.channel.inside) not in names]
    domains = {(c.node, c.channel.domain) for c in outer}
    return [
        c
        for c in outer
        if not any(
            node == c.node and contains(domain, c.channel.domain) for node, domain in domains
        )
    ]


def refuse_stopped(traces: Sequence[MeterTrace], end_ns: int) -> None:
    """Check that the channels that count were updated in a window.

    Raises:
        MeterError: one has stopped, has a single reading or none since the window's begin, or is a
            counter that did not change: its energy is not 0.
    """
    remedy = "see the kernel's log; reload the driver or reboot the node"
    for trace in counted_channels(traces):
        time_ns, value = trace.trace.time_ns, trace.trace.value
        inside = time_ns <= end_ns
        problem = stopped(trace.channel, time_ns[inside].tolist(), value[inside].tolist())
        if problem:
            raise MeterError(f"{trace.name}: {problem}", remedy)
        # A stopped meter that stamps its readings gives no new ones.
        silent_s = (end_ns - int(time_ns[-1])) / 1e9 if time_ns.size else math.inf
        if silent_s > max(LONGEST_SILENCE_S, SILENT_PERIODS * trace.channel.period_s):
            raise MeterError(f"{trace.name}: no reading for {silent_s:.3g} s", remedy)
        seconds = (int(time_ns[-1]) - int(time_ns[0])) / 1e9
        if time_ns.size < 2 or time_ns[-1] <= 0:
            few = "a single reading" if time_ns.size < 2 else "no reading since the begin"
            raise MeterError(
                f"{trace.name}: {few} of a window of {end_ns / 1e9:.3g} s, which gives no energy",
                "measure for longer (min_duration_s), or use a faster meter",
            )
        if trace.channel.kind == "energy" and (value == value[0]).all():
            raise MeterError(
                f"{trace.name}: the counter did not change in {seconds:.3g} s",
                f"measure for longer; if it still does not change, {remedy}",
            )


def added(parts: Iterable[Energy]) -> Energy:
    """The sum of energies. Random parts are independent; calibration errors add up."""
    energies = list(parts)
    return Energy(
        sum(energy.energy_j for energy in energies),
        math.sqrt(sum(energy.random_j**2 for energy in energies)),
        sum(energy.gain_j for energy in energies),
    )


def mean_of(windows: Sequence[Energy], iterations: Sequence[int]) -> Energy:
    """The energy of one iteration over all windows. ``iterations``: the number in each window.

    The random uncertainty is the larger one of the windows' uncertainties and their spread. The
    uncertainty of the calibration does not fall with the number of windows.
    """
    n, total = len(windows), sum(iterations)
    mean_j = sum(w.energy_j for w in windows) / total
    stated = sum(w.random_j**2 for w in windows)
    squares = ((w.energy_j - mean_j * i) ** 2 for w, i in zip(windows, iterations, strict=True))
    spread = sum(squares) * n / (n - 1) if n > 1 else 0.0
    gain_j = sum(w.gain_j for w in windows)
    return Energy(mean_j, math.sqrt(max(stated, spread)) / total, gain_j / total)


def _disagreements(traces: Sequence[MeterTrace], energies: dict[str, Energy]) -> Iterable[str]:
    """Sentences where meters of one domain, or a counter and its meter's power, differ."""
    by_domain: dict[tuple[str, str], dict[str, list[Energy]]] = {}
    for t in traces:
        if t.channel.same_as is None:
            meters = by_domain.setdefault((t.node, t.channel.domain), {})
            meters.setdefault(t.meter, []).append(energies[t.name])
        else:
            twin = t.name.removesuffix(t.channel.name) + t.channel.same_as
            if twin in energies:
                yield from _difference(t.name, energies[t.name], twin, energies[twin])
    for (node, domain), meters in by_domain.items():
        front = f"{node}/".removeprefix("/")
        (first_meter, first), *later = meters.items()
        for meter, parts in later:
            # Another number of parts means that the meters measure different things.
            if len(parts) == len(first):
                names = f"{front}{meter} ({domain})", f"{front}{first_meter} ({domain})"
                yield from _difference(names[0], added(parts), names[1], added(first))


def _difference(name: str, energy: Energy, second_name: str, second: Energy) -> Iterable[str]:
    difference_j = energy.energy_j - second.energy_j
    if abs(difference_j) > DISAGREEMENT * math.hypot(energy.std_j, second.std_j):
        yield (
            f"{name} measured {energy.energy_j:.6g} J ({energy.std_j:.2g}) and {second_name} "
            f"{second.energy_j:.6g} J ({second.std_j:.2g})"
        )
