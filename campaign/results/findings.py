"""The findings of the checks of a site's measurements, with examples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from analysis.quality import check, describe
from analysis.quality.finding import SEPARATE
from analysis.quality.origins import CLOCK_PROOF, ENERGY_ORIGIN
from campaign.results.tables import SiteFinding
from dvfs.dataset import Columns
from dvfs.errors import ArgumentError

EXAMPLES = 3
"""The number of rows that are named as examples of a finding."""
NAMED_KERNELS = 5


def site_findings(columns: Columns, site: str) -> tuple[SiteFinding, ...]:
    """The findings of the checks of a site's measurements."""
    return tuple(
        SiteFinding(
            site,
            finding.as_dict(),
            tuple(describe(finding.rows, columns, EXAMPLES)),
            tuple(columns["point_id"][finding.rows].tolist()),
        )
        for finding in check(columns, site)
    )


def finding_texts(findings: Sequence[SiteFinding], every_one: bool, remedy: str) -> Iterator[str]:
    """Findings as text for people. Where a check has more than :data:`SEPARATE` findings at a site:
    the first, then the number and the kernels of the others, unless ``every_one``. ``remedy``: the
    option that prints all of them."""

    def cause(entry: SiteFinding) -> tuple[str, str, str]:
        return entry.site, entry.finding["severity"], entry.finding["check"]

    for _, group in groupby(findings, key=cause):
        first, *further = group
        yield first.text_for_people()
        if every_one or len(further) < SEPARATE:
            yield from (entry.text_for_people() for entry in further)
            continue
        kernels = dict.fromkeys(k["label"] for entry in further for k in entry.finding["kernels"])
        unnamed = len(kernels) - NAMED_KERNELS
        named = ", ".join(list(kernels)[:NAMED_KERNELS]) + (
            f" and {unnamed} more" if unnamed > 0 else ""
        )
        yield (
            f"    and {len(further)} more findings of this check, of {named} ({remedy} prints them)"
        )


def usable_findings(
    findings: Sequence[SiteFinding], accept_unproven: bool
) -> tuple[SiteFinding, ...]:
    """Return the findings where the measurements can be used. ``accept_unproven``: unproven clocks
    and estimated energies are accepted, and their finding becomes a warning.

    Raises:
        ArgumentError: no fit can be true to these measurements.
    """
    shown = tuple(
        replace(entry, finding={**entry.finding, "severity": "warning"})
        if accept_unproven and entry.finding["check"] in (CLOCK_PROOF, ENERGY_ORIGIN)
        else entry
        for entry in findings
    )
    for entry in shown:
        if entry.refuses:
            raise ArgumentError(f"{entry.site}: {entry.finding['text']}")
    return shown
