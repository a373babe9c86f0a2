"""Trying a clock control: one short measurement at the lowest and one at the highest setting."""

from __future__ import annotations

import math
from dataclasses import dataclass

from campaign.measure.point_life import PartitionSetup
from campaign.measure.subprocesses import SubprocessRunner
from campaign.plan.campaign_file import Protocol
from campaign.plan.point import canonical_json, make_point
from campaign.store.journal import decode
from dvfs.dataset import OK
from dvfs.setting import Setting
from kernels.registry import find_kernel
from sites.clocks import device_of
from sites.site_file import Site

SHORT = Protocol(idle_s=0.0, warm_up_s=0.1, min_duration_s=0.3, timeout_s=120.0)
KERNELS = {"cpu": "int_mad", "gpu": "idle"}
"""What runs meanwhile: no kernel of this project keeps a GPU busy."""


@dataclass(frozen=True, kw_only=True)
class ClockTrial:
    """A setting that was asked for, and what came of it. Clocks in MHz, None where not known.

    ``followed``: whether the clock was shown to be the one that was asked for, ``proof``: by what.
    """

    asked: str
    core_mhz: float | None
    mem_mhz: float | None
    core_mhz_timed: float | None
    followed: bool
    proof: str
    text: str


def extreme_settings(site: Site) -> list[Setting]:
    """The lowest and the highest of the site's settings; one where there is only one."""
    return list(dict.fromkeys([min(site.settings), max(site.settings)]))


def try_settings(site: Site) -> list[ClockTrial]:
    """Measure a short kernel at the extreme settings, as a campaign would, without meters."""
    name = KERNELS[device_of(site.clocks)]
    bare = site.model_copy(update={"meters": [], "counters": {}})
    runner = SubprocessRunner(PartitionSetup(bare, SHORT, (name,)))
    try:
        return [_try(runner, site, name, setting) for setting in extreme_settings(site)]
    finally:
        runner.close()


def _try(runner: SubprocessRunner, site: Site, name: str, setting: Setting) -> ClockTrial:
    params = find_kernel(name).params()
    point = make_point(
        site=site.name,
        partition=next(iter(site.partitions)),
        kernel=name,
        label=name,
        params=canonical_json(params.model_dump(mode="json")),
        ranks=1,
        setting=setting,
        repeat=0,
    )
    done = decode(runner.measure(point, 0))
    return ClockTrial(
        asked=str(setting),
        core_mhz=_known(done.core_mhz_achieved),
        mem_mhz=_known(done.mem_mhz_achieved),
        core_mhz_timed=_known(done.core_mhz_timed),
        followed=done.status == OK and bool(done.clock_proof),
        proof=done.clock_proof,
        text=done.text if done.status == OK else f"{done.status}: {done.text}",
    )


def _known(mhz: float) -> float | None:
    return None if math.isnan(mhz) else mhz
