"""What chooses a campaign's points while it runs, from what has been measured."""

from __future__ import annotations

from typing import Protocol

from campaign.plan.plan import Plan
from campaign.plan.point import Point


class Chooser(Protocol):
    """Chooses the points of a campaign, a batch of a partition at a time."""

    command: str
    """The verb that goes on with it, with its option."""

    def begin(self) -> Plan:
        """The plan with the points that have been chosen, at least one of which is left to measure
        in each partition that is not at its end."""

    def next_points(self, site: str, partition: str) -> list[Point]:
        """The next points of a partition, all of whose chosen points have been measured or have
        failed; none at its end. The store keeps the choice before it is returned."""

    def most(self, site: str, partition: str) -> int:
        """How many points of a partition may be left to measure, chosen ones among them."""
