"""Hardware counters of a point: open the site's groups, and summarise the windows' counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from campaign.measure.window import Window
from kernels.host.ranks import Team
from sites.counters.counting import Counters, EventCount, open_counters
from sites.perf_event import EventError
from sites.site_file import Site


@dataclass(frozen=True)
class Counted:
    """Events and derived quantities of one iteration, summed over the ranks.

    ``record``: the entry of the provenance (see :mod:`analysis.measurements.hardware_counters`);
    ``derived``: the classes of operations in it; ``flags``: sentences about missing or estimated
    counts.
    """

    record: dict[str, Any] = field(default_factory=dict)
    derived: dict[str, float] = field(default_factory=dict)
    flags: list[str] = field(default_factory=list)


def open_site_counters(site: Site, team: Team) -> tuple[Counters | None, list[str]]:
    """Open the events of all groups of a site; or return None, and why they cannot be counted."""
    events: dict[str, str] = {}
    for group in site.counter_groups.values():
        events |= group.events
    if not events:
        return None, []
    if team.launcher is not None and not team.launcher.children:
        return None, [
            "hardware counters were not read: Slurm, and no process here, starts the ranks"
        ]
    try:
        return open_counters(events), []
    except EventError as error:
        return None, [f"hardware counters were not read: {error}"]


def counted(site: Site, team: Team, windows: Sequence[Window]) -> Counted:
    """The counts over all windows. Call it on every rank; rank 0 gets the result."""
    if not site.counter_groups:
        return Counted()
    iterations = sum(window.iterations for window in windows)
    counts = _summed([window.counted for window in windows])
    ranks = team.gather(
        {name: EventCount(each.count / iterations, each.share) for name, each in counts.items()}
    )
    if not ranks or not all(ranks):
        return Counted()
    total = _summed(ranks)
    events = {name: each.count for name, each in total.items()}
    partly = {name: each.share for name, each in total.items() if each.multiplexed}
    derived: dict[str, float] = {}
    for group in site.counter_groups.values():
        derived |= group.derive(events)
    flags = []
    if partly:
        least = min(partly, key=partly.__getitem__)
        flags.append(
            f"{len(partly)} hardware counters were counted for a part of the time and scaled; "
            f"{least} for {100 * partly[least]:.0f} %"
        )
    record = {"events": events, "derived": derived} | ({"share": partly} if partly else {})
    return Counted(record, derived, flags)


def _summed(parts: Sequence[dict[str, EventCount]]) -> dict[str, EventCount]:
    """The sums over windows or ranks, for the events that each of them counted."""
    return {
        name: EventCount(
            sum(part[name].count for part in parts), min(part[name].share for part in parts)
        )
        for name in parts[0]
        if all(name in part for part in parts)
    }
