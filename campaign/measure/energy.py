"""A node's energy over a window: which channels count, and whether meters agree."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from campaign.measure.channel_energy import NONE, Energy, channel_energy
from campaign.measure.sampler import MeterTrace
from sites.meters.shared.domains import contains

APART = 3.0
"""Meters of one domain disagree when they differ by more than this many of their uncertainties."""


@dataclass(frozen=True)
class NodeEnergy:
    """A node's energy over a window.

    ``total``: over the channels in ``counted``. ``each``: every channel's, named
    ``meter:channel``. ``disagreements``: sentences.
    """

    total: Energy
    each: dict[str, Energy]
    counted: tuple[str, ...]
    disagreements: tuple[str, ...]


def node_energy(traces: Sequence[MeterTrace], begin_ns: int, end_ns: int) -> NodeEnergy:
    """The energy of a node from the traces of its meters.

    Nothing is counted twice: not a channel that tells of another one by other means, nor one
    that lies inside another, nor a domain that is part of another that is counted, nor a domain
    that an earlier meter has told already. A meter that is there to check never counts. Without
    any channel the total is NaN.
    """
    each = {t.name: channel_energy(t.trace, t.channel, begin_ns, end_ns) for t in traces}
    counted = counted_channels(traces)
    total = added(each[t.name] for t in counted) if counted else NONE
    return NodeEnergy(
        total, each, tuple(t.name for t in counted), tuple(_disagreements(traces, each))
    )


def counted_channels(traces: Sequence[MeterTrace]) -> list[MeterTrace]:
    """The channels whose energies add up to the node's."""
    own = [t for t in traces if t.use == "energy" and t.channel.same_as is None]
    speaker: dict[tuple[str, str], str] = {}
    told = []
    for t in own:
        # On several nodes the meters' names begin with the node's.
        if speaker.setdefault((t.node, t.channel.domain), t.meter) == t.meter:
            told.append(t)
    names = {(t.meter, t.channel.name) for t in told}
    outer = [t for t in told if (t.meter, t.channel.inside) not in names]
    domains = {(t.node, t.channel.domain) for t in outer}
    return [
        t
        for t in outer
        if not any(node == t.node and contains(d, t.channel.domain) for node, d in domains)
    ]


def added(parts: Iterable[Energy]) -> Energy:
    """The sum; what is random of each is independent, calibrations of one kind are not."""
    every = list(parts)
    return Energy(
        sum(part.energy_j for part in every),
        math.sqrt(sum(part.random_j**2 for part in every)),
        sum(part.gain_j for part in every),
    )


def mean_of(windows: Sequence[Energy]) -> Energy:
    """The mean of a quantity over windows.

    What is random of it is the larger of what each window states and of what the windows show;
    the calibration's part stays.
    """
    n = len(windows)
    mean_j = sum(w.energy_j for w in windows) / n
    stated = sum(w.random_j**2 for w in windows) / n**2
    shown = sum((w.energy_j - mean_j) ** 2 for w in windows) / (n * (n - 1)) if n > 1 else 0.0
    return Energy(mean_j, math.sqrt(max(stated, shown)), sum(w.gain_j for w in windows) / n)


def _disagreements(traces: Sequence[MeterTrace], each: dict[str, Energy]) -> Iterable[str]:
    """What meters of one domain tell apart, and a counter and its own power."""
    by_domain: dict[tuple[str, str], dict[str, list[Energy]]] = {}
    for t in traces:
        if t.channel.same_as is None:
            meters = by_domain.setdefault((t.node, t.channel.domain), {})
            meters.setdefault(t.meter, []).append(each[t.name])
        else:
            other = f"{t.meter}:{t.channel.same_as}"
            if other in each:
                yield from _apart(t.name, each[t.name], other, each[other])
    for (_, domain), meters in by_domain.items():
        (first, told), *others = meters.items()
        for name, energies in others:
            # With another number of parts they do not speak of the same.
            if len(energies) == len(told):
                yield from _apart(
                    f"{name} ({domain})", added(energies), f"{first} ({domain})", added(told)
                )


def _apart(name: str, energy: Energy, other_name: str, other: Energy) -> Iterable[str]:
    apart_j = energy.energy_j - other.energy_j
    if abs(apart_j) > APART * math.hypot(energy.std_j, other.std_j):
        yield (
            f"{name} tells {energy.energy_j:.6g} J ({energy.std_j:.2g}) and {other_name} "
            f"{other.energy_j:.6g} J ({other.std_j:.2g})"
        )
