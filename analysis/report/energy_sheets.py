"""What a campaign's energy costs and emits, what the picks would save of it, and the levels at
which it was measured: two tables of a site."""

from __future__ import annotations

import math

import numpy as np

from analysis.figures.labels import natural
from analysis.measurements.campaign_energy import J_PER_KWH, CampaignEnergy
from analysis.report.content import SiteReport
from analysis.report.tables import KERNEL, Field, Row, Sheet

ALL = "all kernels"
SAVED = (("", "picks save"), ("_low", "95 % from"), ("_high", "to"))
"""What ends the key of a saving and of the ends of its interval, and their headings."""


def energy_sheet(site: SiteReport) -> Sheet | None:
    """A row a kernel, and one of all where there are several: energy and node-hours in the windows,
    and what the energy costs and emits by the site's factors; and what the pick saves of the same
    iterations at the kernel's fastest setting, with the pick's 95 % interval. None where nothing
    was measured.

    Sums are over what is known: measurements without an energy, with an estimated one, and without
    a start or duration where a factor depends on the hour, are counted where there are any.
    """
    energy = site.energy
    if energy is None:
        return None
    known = np.isfinite(energy.energy_kwh)
    # What a kWh of each measurement is, in each unit.
    per_kwh = {Field("energy_kwh", "energy", "kWh", -1): np.ones(len(known))} | {
        Field(factor.key, factor.of, factor.unit, -1): factor.over(
            energy.start_unix_s, energy.duration_s
        )
        for factor in site.factors
    }
    priced = np.all([np.isfinite(values) for values in per_kwh.values()], axis=0)
    counted = {
        Field("without_energy", "without energy", "", 0): ~known,
        Field("estimated", "energy estimated", "", 0): known & energy.estimated,
        Field("without_start", "without start", "", 0): known & ~priced,
    }
    counted = {field: some for field, some in counted.items() if some.any()}
    saved_kwh = _saved_kwh(site, energy)

    def row(name: str, mine: np.ndarray, intervals: bool = True) -> Row:
        cells: dict[Field, str | float] = {KERNEL: name}
        cells |= {Field("measurements", "measurements", "", 0): float(len(mine))}
        cells |= {field: float(some[mine].sum()) for field, some in counted.items()}
        cells |= {Field("node_hours", "node-hours", "", -1): float(energy.node_h[mine].sum())}
        for field, values in per_kwh.items():
            cells[field] = _total(energy.energy_kwh[mine] * values[mine])
        for field, values in per_kwh.items() if site.picks else ():
            for (part, heading), own_kwh in zip(SAVED, saved_kwh, strict=True):
                of = Field(f"saved_{field.key}{part}", heading, field.unit, -1)
                total = _total(own_kwh[mine] * values[mine])
                cells[of] = total if intervals or not part else math.nan
        return cells

    rows = [row(label, energy.rows[label]) for label in sorted(energy.rows, key=natural)]
    if len(rows) > 1:
        rows.append(row(ALL, np.arange(len(known)), intervals=False))
    caption = "Energy of the measurements by kernel"
    return Sheet.of("campaign_energy", caption, site.simulated, rows)


def _saved_kwh(site: SiteReport, energy: CampaignEnergy) -> np.ndarray:
    """What the picks save of each measurement's iterations at the kernel's fastest setting, and the
    ends of its interval: float64 (3, measurements), kWh; NaN without an energy or a pick."""
    saved = np.full((len(SAVED), len(energy.energy_kwh)), np.nan)
    for pick in site.picks:
        mine = energy.rows[pick.label]
        fastest_kwh = energy.iterations[mine] * pick.fastest_j / J_PER_KWH
        pct = np.array([[pick.saving_pct], [pick.saving_low_pct], [pick.saving_high_pct]])
        saved[:, mine] = fastest_kwh * pct / 100.0
    saved[:, np.isnan(energy.energy_kwh)] = np.nan
    return saved


def _total(values: np.ndarray) -> float:
    """The sum of what is known; NaN where nothing is."""
    values = values[np.isfinite(values)]
    return float(values.sum()) if len(values) else math.nan


def levels_sheet(site: SiteReport) -> Sheet | None:
    """A row an aspect of the EE HPC WG (2015): the level that it reaches, what is known, and what
    the next level needs. None where nothing was measured, or the machine is simulated."""
    rows: list[Row] = [
        {
            Field("aspect", "aspect"): one.aspect,
            Field("level", "level"): f"{one.level}" if one.level else "none",
            Field("known", "what is known"): one.known,
            Field("missing", "missing for the next level"): one.missing,
        }
        for one in site.levels
    ]
    if not rows:
        return None
    return Sheet.of("measurement_levels", "Levels of measurement (EE HPC WG 2015)", False, rows)
