"""What changed between two sets of measurements of the same points, and how surely.

Ratios of geometric means, of time and of energy: of every point (a cell: a kernel with its
parameters at a setting), of every kernel over its points, and of a whole site. Each ratio has a
95 % interval from the noise of repeats, the nodes' offsets and the drift between sessions
(:mod:`analysis.comparison.noise_model`). Which of them are significant is corrected for their
number: see :data:`ALPHA`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import xarray as xr

from analysis.comparison.common_cells import (
    CELL,
    QUANTITIES,
    Rows,
    common_rows,
    instances_of,
    site_frame,
)
from analysis.comparison.noise_model import NoiseModel, estimate
from analysis.comparison.ratios import ratios
from analysis.measurements.observations import site_names
from dvfs.setting import AXES

ALPHA = 0.05
"""The false alarms that are accepted. It is shared equally among the three levels (site, kernel,
point); within a level, over all sites and both quantities, Benjamini & Hochberg's (1995) procedure
finds what is significant. Between equal sets the chance of any false alarm is then at most this,
and of the changes that are reported at most this share is false."""
Level = Literal["site", "kernel", "point"]
LEVELS: tuple[Level, ...] = ("site", "kernel", "point")
PLACE = {
    "site": [],
    "kernel": ["label"],
    "point": ["label", "partition", *AXES],
}
"""The columns of cells that name a ratio of each level, beside its site."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """One ratio, the second set's geometric mean over the first's.

    ``low``, ``high``: its 95 % interval, of this ratio alone. ``p``: the chance of such a ratio or
    one further from 1 if nothing changed; ``adjusted_p``: corrected for the number of comparisons.
    The four are NaN where noise or nodes cannot be separated from a change. ``before``,
    ``after``: measurements. ``core_mhz`` to ``profile``: NaN or "" where the site has no such
    value, and of kernels and sites.
    """

    level: Level
    site: str
    quantity: str
    ratio: float
    low: float
    high: float
    p: float
    before: int
    after: int
    points: int
    partition: str = ""
    kernel: str = ""
    core_mhz: float = math.nan
    mem_mhz: float = math.nan
    uncore_mhz: float = math.nan
    power_limit_w: float = math.nan
    profile: str = ""
    adjusted_p: float = math.nan

    @property
    def change_pct(self) -> float:
        """The change in %; more time or energy is positive."""
        return (self.ratio - 1.0) * 100.0

    @property
    def significant(self) -> bool:
        """Whether it is no chance, over all comparisons made."""
        return self.adjusted_p <= ALPHA

    def as_dict(self) -> dict[str, Any]:
        """An entry of ``changes`` of ``campaign compare --json``; what is missing is None."""
        fields = vars(self) | {"change_pct": self.change_pct, "significant": self.significant}
        return {
            name: None if isinstance(value, float) and math.isnan(value) else value
            for name, value in fields.items()
        }


@dataclass(frozen=True, kw_only=True)
class SiteComparison:
    """What was compared of one site. ``common``: points that both sets have; ``only_before``,
    ``only_after``: points of one alone. ``notes``: what limits the comparison, in sentences.
    ``noise_pct``: quantity -> the median kernel's noise of one measurement, %; ``drift_pct``:
    quantity -> the standard deviation between sessions, %, NaN where it cannot be seen."""

    site: str
    simulated: bool
    common: int
    only_before: int
    only_after: int
    noise_pct: dict[str, float]
    drift_pct: dict[str, float]
    notes: tuple[str, ...]


def compare_site(
    before: xr.Dataset,
    after: xr.Dataset,
    site: str,
    rows_before: np.ndarray | None = None,
    rows_after: np.ndarray | None = None,
    *,
    alike_nodes: bool = False,
) -> tuple[SiteComparison, list[Change]]:
    """The comparison of one site, and its changes without ``adjusted_p``.

    ``rows_before``, ``rows_after``: bool (measurement,), the measurements to take of each Dataset
    (default: all). ``alike_nodes``: take all nodes for equal, also where nothing shows that they
    are.
    """
    frames = []
    for dataset, taken in ((before, rows_before), (after, rows_after)):
        chosen = dataset if taken is None else dataset.isel(measurement=np.flatnonzero(taken))
        frames.append(site_frame(chosen, site))
    if alike_nodes:
        frames = [frame.assign(node="") for frame in frames]
    instances = instances_of(before, after)
    changes: list[Change] = []
    notes: list[str] = []
    noise_pct, drift_pct = dict.fromkeys(QUANTITIES, math.nan), dict.fromkeys(QUANTITIES, math.nan)
    cells = [frame.drop_duplicates(CELL)[CELL] for frame in frames]
    common = len(cells[0].merge(cells[1], on=CELL))
    for quantity in QUANTITIES:
        rows = common_rows(frames[0], frames[1], quantity, instances)
        if rows is None:
            notes.append(f"no point has the {quantity} in both")
            continue
        model = estimate(rows)
        if model.kernel_df.max() > 0:
            noise_pct[quantity] = 100.0 * math.sqrt(float(np.median(model.kernel_var)))
        if model.session_df > 0:
            drift_pct[quantity] = 100.0 * math.sqrt(
                max(model.session_var - model.session_noise, 0.0)
            )
        own = _changes(rows, model, site, quantity)
        changes += own
        notes += _notes(rows, model, quantity, own)
    simulated = bool(any(frame["simulated"].any() for frame in frames))
    summary = SiteComparison(
        site=site,
        simulated=simulated,
        common=common,
        only_before=len(cells[0]) - common,
        only_after=len(cells[1]) - common,
        noise_pct=noise_pct,
        drift_pct=drift_pct,
        notes=tuple(dict.fromkeys(notes)),
    )
    return summary, changes


def common_sites(before: xr.Dataset, after: xr.Dataset) -> list[str]:
    """The sites that both Datasets have measurements of."""
    return sorted(set(site_names(before)) & set(site_names(after)))


def _changes(rows: Rows, model: NoiseModel, site: str, quantity: str) -> list[Change]:
    """All ratios of one site and quantity."""
    cells = rows.cells
    groups = (np.zeros(len(cells), int), cells["kernel_code"].to_numpy(), np.arange(len(cells)))
    changes = []
    for level, group in zip(LEVELS, groups, strict=True):
        own = ratios(rows, model, group)
        place = cells.loc[own.first, PLACE[level]].rename(columns={"label": "kernel"})
        for i, named in enumerate(place.to_dict("records")):
            middle, half = float(own.log_ratio[i]), float(own.half_width[i])
            changes.append(
                Change(
                    level=level,
                    site=site,
                    quantity=quantity,
                    ratio=math.exp(middle),
                    low=math.exp(middle - half),
                    high=math.exp(middle + half),
                    p=float(own.p[i]),
                    before=int(own.before[i]),
                    after=int(own.after[i]),
                    points=int(own.cells[i]),
                    **{str(name): value for name, value in named.items()},
                )
            )
    return changes


def _notes(rows: Rows, model: NoiseModel, quantity: str, changes: Sequence[Change]) -> list[str]:
    notes = []
    unknown = sum(math.isnan(change.p) for change in changes if change.level == "point")
    points = sum(change.level == "point" for change in changes)
    if unknown and len(rows.nodes) > 1:
        sides = [
            ", ".join(sorted({rows.nodes[i] for i in rows.node[rows.after == side].tolist()}))
            for side in (False, True)
        ]
        notes.append(
            f"the {quantity} of {unknown} of {points} points was measured on other nodes (before: "
            f"{sides[0]}; after: {sides[1]}), which cannot be separated from a change: measure "
            f"both on the same nodes, or take all nodes for equal (--alike-nodes)"
        )
    elif unknown:
        notes.append(f"the noise of the {quantity} is not known: measure with repeats = 2 or more")
    if model.session_df == 0 and unknown < points:
        notes.append("without repeats, drift from one day to another is taken for a change")
    return notes


def with_adjusted(changes: Sequence[Change]) -> list[Change]:
    """The changes with ``adjusted_p``: see :data:`ALPHA`."""
    adjusted = np.full(len(changes), math.nan)
    p = np.array([change.p for change in changes])
    for level in LEVELS:
        own = np.array([change.level == level for change in changes], bool) & np.isfinite(p)
        adjusted[own] = np.minimum(benjamini_hochberg(p[own]) * len(LEVELS), 1.0)
    return [
        replace(change, adjusted_p=float(value))
        for change, value in zip(changes, adjusted, strict=True)
    ]


def benjamini_hochberg(p: np.ndarray) -> np.ndarray:
    """The smallest share of false discoveries at which each is one (Benjamini & Hochberg 1995):
    float64 (tests,) of p float64 (tests,)."""
    n = len(p)
    order = np.argsort(p)[::-1]
    raised = p[order] * n / np.arange(n, 0, -1)
    result = np.empty(n)
    result[order] = np.minimum.accumulate(np.minimum(raised, 1.0)) if n else raised
    return result
