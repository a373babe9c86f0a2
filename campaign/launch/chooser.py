"""The interface for choosing a campaign's points during its run, from its measurements."""

from __future__ import annotations

from typing import Protocol

from campaign.plan.plan import Plan
from campaign.plan.point import Point


class Chooser(Protocol):
    """Chooses the points of a campaign, a batch of a partition at a time."""

    command: str
    """The verb that continues the campaign, with its option."""

    def begin(self) -> Plan:
        """The plan with the chosen points. In each partition that is not at its end, at least one
        of them is left to measure."""

    def next_points(self, site: str, partition: str) -> list[Point]:
        """The next points of a partition whose chosen points have all been measured or have failed;
        none at its end. The choice is written to the store first."""

    def most(self, site: str, partition: str) -> int:
        """The most points of a partition that may be left to measure, including chosen ones."""
