"""How close kernels come to the roof, and what hardware counters showed of them: a table."""

from __future__ import annotations

import math

from analysis.figures.labels import natural
from analysis.report.content import SiteReport
from analysis.report.tables import Field, Sheet
from analysis.rooflines.roof_fractions import roof_fractions


def utilisation_sheet(site: SiteReport) -> Sheet | None:
    """A row a kernel: its fraction of the roof, and where counters were read, instructions per
    cycle and counted over exact operations. None where neither is known."""
    observed = site.data if site.data is not None else site.timing
    roofs = {roof.label: roof for roof in roof_fractions(observed)} if observed else {}
    counters = {entry.label: entry for entry in site.counters}
    labels = sorted({*roofs, *counters}, key=natural)
    if not labels:
        return None
    classes = sorted({name for entry in site.counters for name in entry.counted_over_exact})
    rows: list[list[str | float]] = []
    for label in labels:
        roof, entry = roofs.get(label), counters.get(label)
        row: list[str | float] = [
            label,
            100.0 * roof.fraction if roof else math.nan,
            roof.limited_by if roof else "",
        ]
        if counters:
            row += [
                entry.instructions_per_cycle if entry else math.nan,
                *(
                    entry.counted_over_exact.get(c, math.nan) if entry else math.nan
                    for c in classes
                ),
                100.0 * entry.least_share if entry else math.nan,
            ]
        rows.append(row)
    fields = [
        Field("kernel", "kernel"),
        Field("roof_fraction_pct", "of the roof", "%", 1),
        Field("limited_by", "limited by"),
    ]
    if counters:
        fields += [
            Field("instructions_per_cycle", "instructions per cycle", "", 2),
            *(Field(f"counted_over_exact_{c}", f"counted over exact {c}", "", 3) for c in classes),
            Field("counted_share_pct", "counted for", "% of the time", 0),
        ]
    caption = "Kernels against the roof: the best rate of any kernel at the same setting"
    return Sheet("utilisation", caption, site.simulated, fields, rows)
