"""All checks of a site's measurements, one after the other.

What counts as out of line is judged against the noise that the measurements themselves show:
between repeats of one point where there are any, and between neighbouring settings. Every limit
is Student's t at :data:`~analysis.quality.significance.FALSE_ALARM` divided by the number of
comparisons (Bonferroni), so that a clean campaign stays silent however large it is.
"""

from __future__ import annotations

from dataclasses import replace

import xarray as xr

from analysis.quality.against_the_clock import against_the_clock
from analysis.quality.duplicates import identical
from analysis.quality.energy import energy_against_power, plausible
from analysis.quality.finding import Finding, Severity
from analysis.quality.grid import median_grid
from analysis.quality.held_clocks import clocks_not_held
from analysis.quality.name_only import name_only
from analysis.quality.noise import repeat_noise
from analysis.quality.power_caps import power_caps
from analysis.quality.repeats import level_changes, outliers
from analysis.quality.rows import provenance, rows_of


def check(dataset: xr.Dataset, site: str) -> list[Finding]:
    """Everything about a site's measurements that stands against fitting them, worst first.

    Takes the Dataset of a store (dimension ``measurement``) and looks at the rows of ``site``
    with status ok, a positive time (s) and a positive energy (J); none of them: no findings.
    """
    rows = rows_of(dataset, site)
    if not len(rows.index):
        return []
    power_w, labels = provenance(dataset, rows)
    found = identical(rows)
    found += energy_against_power(rows, power_w)
    found += plausible(rows)
    found += power_caps(rows, labels)
    found += clocks_not_held(rows)
    residual, sigma, df = repeat_noise(rows)
    found += outliers(rows, residual, sigma, df)
    found += level_changes(rows, residual, sigma)
    grids = {name: median_grid(rows, name, sigma[name], df) for name in ("time", "power")}
    found += name_only(rows, grids)
    found += against_the_clock(rows, grids)
    worst_first: tuple[Severity, ...] = ("refused", "warning", "note")
    return sorted(
        (replace(finding, kernels=rows.kernels_at(finding.rows)) for finding in found),
        key=lambda finding: worst_first.index(finding.severity),
    )
