"""What the checks of a site's measurements find, with examples."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.quality import check, describe
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
