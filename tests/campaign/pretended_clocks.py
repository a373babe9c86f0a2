"""A clock control that does nothing, and points that are measured with it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from campaign.measure.point_life import PartitionSetup, measure
from campaign.plan.campaign_file import Protocol
from campaign.plan.point import Point
from campaign.store.measurement import Measurement
from dvfs.setting import Setting
from sites.clocks.shared.control import ClockState, ControlDescription, ControlledSite
from sites.site_file import Site

ABOUT = ControlDescription(
    control="pretends",
    writes="nothing",
    needs="nothing",
    options={"reports_mhz": "a core clock", "reports_mem": "a memory clock"},
)
QUICK = Protocol(min_duration_s=0.01, warm_up_s=0.0, idle_s=0.0)


class Pretends:
    """Sets nothing, and reports the clocks of its options."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.reported = Setting(options.get("reports_mhz"), options.get("reports_mem"))

    def legal(self) -> None:
        """Nothing is known."""

    def set(self, setting: Setting) -> None:
        """Nothing is set."""

    def state(self) -> ClockState:
        return ClockState(self.reported)

    def restore(self) -> None:
        """Nothing was set."""


def open_control(site: ControlledSite, root: Path) -> Pretends:
    """See :mod:`sites.clocks`."""
    return Pretends(site.clocks.options)


def pretending_site(
    core_mhz: list[float],
    mem_mhz: list[float] | None = None,
    pct: float = 5.0,
    device: str = "cpu",
    **options: object,
) -> Site:
    """A site with this control, to be registered as ``pretends``."""
    domains = {"core": {"frequencies_mhz": core_mhz}}
    if mem_mhz:
        domains["mem"] = {"frequencies_mhz": mem_mhz}
    clocks = {"control": "pretends", "options": options, "tolerance_pct": pct, "device": device}
    return Site.model_validate(
        {"name": "pretended", "partitions": {"all": {}}, "domains": domains, "clocks": clocks}
    )


def measured(site: Site, setting: Setting) -> Measurement:
    """The kernel ``idle``, measured at a setting."""
    point = Point(
        site=site.name,
        partition="all",
        kernel="idle",
        label="idle",
        params="{}",
        ranks=1,
        setting=setting,
        repeat=0,
    )
    done = measure(PartitionSetup(site, QUICK, ("idle",)), point, 0)
    assert done is not None
    return done
