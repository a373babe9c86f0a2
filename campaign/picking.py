"""Picks of a site's kernels, or of an application from its profile."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from analysis.choice.pick import Candidates, Pick, Volts, all_candidates, pick, profile_candidates
from analysis.energy.fitted import Fit
from analysis.measurements.observations import (
    CantFit,
    Observations,
    kernel_names,
    setting_text,
)
from campaign.errors import BadArgument
from campaign.plan.profile_file import read_profile


def kernel_candidates(
    fit: Fit, data: Observations, kernel: str | None, volts: Volts | None
) -> list[Candidates]:
    """The candidates of the kernels of this name or label, of all by default."""
    labels = [
        label for label in kernel_names(data) if kernel in (None, label, data.instance(label).name)
    ]
    if not labels:
        names = sorted({data.instance(label).name for label in kernel_names(data)})
        raise BadArgument(
            f"--kernel: {data.site} has no kernel {kernel!r}; it has {', '.join(names)}"
        )
    return list(all_candidates(fit, data, labels, volts).values())


def application_candidates(
    path: Path, fit: Fit, data: Observations, volts: Volts | None
) -> Candidates:
    """The candidates of an application that was profiled at one setting, from its profile."""
    profile, source = read_profile(path)
    settings = {
        tuple(None if math.isnan(mhz) else mhz for mhz in pair): pair
        for pair in [*data.settings, *(volts or {})]
    }
    measured_at = settings.get((profile.core_mhz, profile.mem_mhz))
    if measured_at is None:
        known = ", ".join(setting_text(pair) for pair in data.settings[:6])
        raise source.error(
            ("core_mhz",),
            f"{profile.core_mhz}, mem_mhz {profile.mem_mhz}: not a setting of {fit.site}",
            f"known: {known} ...",
        )
    return profile_candidates(
        fit,
        data,
        profile.kernel,
        counts=profile.counts,
        measured_s=profile.time_s,
        measured_at=measured_at,
        volts=volts,
    )


def picks_within_limits(
    among: Sequence[Candidates],
    objective: str,
    max_slowdown: float | None,
    max_power_w: float | None,
) -> tuple[list[Pick], list[str]]:
    """The picks, and a line for each kernel that has none within the limits; CantFit if all."""
    picks, without = [], []
    for candidates in among:
        try:
            picks.append(
                pick(candidates, objective, max_slowdown=max_slowdown, max_power_w=max_power_w)
            )
        except CantFit as error:
            without.append(str(error))
    if not picks:
        raise CantFit(without[0])
    return picks, without
