"""What the checks of a site's measurements find, with examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from analysis.quality import check, describe
from analysis.quality.unproven_clocks import CHECK as CLOCK_PROOF
from campaign.errors import BadArgument
from campaign.result_tables import SiteFinding

if TYPE_CHECKING:
    import xarray as xr

EXAMPLES = 3
"""Rows that are named of what a check finds."""


def site_findings(dataset: xr.Dataset, site: str) -> tuple[SiteFinding, ...]:
    """What the checks of a site's measurements find in a store's Dataset."""
    return tuple(
        SiteFinding(
            site,
            finding.as_dict(),
            tuple(describe(finding, dataset, EXAMPLES)),
            tuple(dataset["point_id"].values[finding.rows].tolist()),
        )
        for finding in check(dataset, site)
    )


def usable_findings(
    findings: Sequence[SiteFinding], accept_unproven: bool
) -> tuple[SiteFinding, ...]:
    """The findings, where the measurements can be used. ``accept_unproven``: clocks that nothing
    showed are taken as they were asked for, and that finding is a warning.

    Raises:
        BadArgument: no fit can be true to these measurements.
    """
    shown = tuple(
        replace(entry, finding={**entry.finding, "severity": "warning"})
        if accept_unproven and entry.finding["check"] == CLOCK_PROOF
        else entry
        for entry in findings
    )
    for entry in shown:
        if entry.refuses:
            raise BadArgument(f"{entry.site}: {entry.finding['text']}")
    return shown
