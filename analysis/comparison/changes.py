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
from scipy import sparse, special

from analysis.comparison.common_cells import (
    CELL,
    QUANTITIES,
    Rows,
    common_rows,
    instances_of,
    site_frame,
)
from analysis.comparison.noise_model import TOLERANCE, UNLIMITED, NoiseModel, estimate
from analysis.measurements.observations import site_names
from analysis.measurements.provenance import estimated_energies
from dvfs.dataset import complete_rows
from dvfs.setting import AXES

COVERAGE = 0.95
LOWEST_LOG_P, BISECTIONS = -60.0, 40
Part = tuple[np.ndarray, np.ndarray]
"""A part of each group's variance, and its degrees of freedom; float64 (groups,) both."""
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
class Ratios:
    """The ratio of each group, the second set over the first; arrays have one entry a group.

    ``log_ratio``, ``half_width`` (half of its 95 % interval) and ``p`` (of no change): float64,
    the last two NaN where a part of the variance is not known. ``before``, ``after``, ``cells``:
    int64, the measurements of each set and the cells. ``first``: int64, a cell of the group.
    """

    log_ratio: np.ndarray
    half_width: np.ndarray
    p: np.ndarray
    before: np.ndarray
    after: np.ndarray
    cells: np.ndarray
    first: np.ndarray


def ratios(rows: Rows, model: NoiseModel, group: np.ndarray) -> Ratios:
    """The ratios of groups of cells: ``group`` is int64 (cells,), from 0 without gaps.

    A group's ratio is the weighted mean of its cells' log ratios; a cell with few repeats, of
    which less is known, counts less.
    """
    n_cells, n_groups = len(group), int(group.max()) + 1
    counts = np.bincount(rows.cell_side, minlength=2 * n_cells).reshape(n_cells, 2)
    corrected = rows.log_value - model.offset[rows.node]
    means = np.bincount(rows.cell_side, corrected, 2 * n_cells).reshape(n_cells, 2) / counts
    noise = (1.0 / counts).sum(axis=1)
    weight = (1.0 / noise) / np.bincount(group, 1.0 / noise)[group]
    mean = sparse.coo_array((weight, (group, np.arange(n_cells))), (n_groups, n_cells)).tocsr()
    share = np.where(rows.after, 1.0, -1.0) / counts[rows.cell, rows.after.astype(int)]

    def shares(code: np.ndarray, codes: int) -> np.ndarray:
        """Each group's log ratio as a sum over codes: float64 (groups, codes)."""
        of_cell = sparse.coo_array((share, (rows.cell, code)), (n_cells, codes)).tocsr()
        return np.asarray((mean @ of_cell).toarray())

    kernel = rows.cells["kernel_code"].to_numpy()
    by_kernel = sparse.coo_array(
        (weight**2 * noise, (group, kernel)), (n_groups, len(model.kernel_var))
    ).tocsr()
    nodes = shares(rows.node, len(rows.nodes))
    unseen = nodes - nodes @ model.seen.T
    sessions = shares(rows.session, int(rows.session.max()) + 1)
    by_session = (sessions**2).sum(axis=1)
    noise_var = by_kernel @ model.kernel_var - by_session * model.session_noise
    # The kernels' noise has the degrees of freedom of Satterthwaite (1946).
    kernel_df = np.maximum(model.kernel_df, TOLERANCE)
    spread = by_kernel.power(2) @ (model.kernel_var**2 / kernel_df)
    variance = (by_kernel @ model.kernel_var) ** 2
    noise_df = np.divide(variance, spread, out=np.full(n_groups, UNLIMITED), where=spread > 0)
    offsets = np.einsum("gn,nm,gm->g", nodes, model.offset_cov, nodes)
    parts = [
        (np.maximum(noise_var, 0.0) + offsets, noise_df),
        ((unseen**2).sum(axis=1) * model.node_var, np.full(n_groups, model.node_df)),
        (by_session * model.session_var, np.full(n_groups, model.session_df)),
    ]
    unknown = by_kernel @ (model.kernel_df <= 0) > 0
    if model.node_df <= 0:
        unknown |= (unseen**2).sum(axis=1) > TOLERANCE
    log_ratio = mean @ (means[:, 1] - means[:, 0])
    return Ratios(
        log_ratio=log_ratio,
        half_width=np.where(unknown, np.nan, _half_width(parts, 1.0 - COVERAGE)),
        p=np.where(unknown, np.nan, _p(log_ratio, parts)),
        before=np.bincount(group, counts[:, 0]).astype(np.int64),
        after=np.bincount(group, counts[:, 1]).astype(np.int64),
        cells=np.bincount(group),
        first=np.unique(group, return_index=True)[1],
    )


def _half_width(parts: Sequence[Part], p: np.ndarray | float) -> np.ndarray:
    """Half of the interval outside of which a ratio is with probability ``p`` at most.

    Banerjee (1961): each independent part of the variance has the quantile of its own degrees of
    freedom, so that a part that is known badly cannot be taken for a small one by chance.
    """
    square = np.zeros(len(parts[0][0]))
    for var, df in parts:
        t = special.stdtrit(np.maximum(df, TOLERANCE), 0.5 * np.asarray(p))
        square += np.multiply(t**2, var, out=np.zeros_like(var), where=var > 0)
    return np.sqrt(square)


def _p(log_ratio: np.ndarray, parts: Sequence[Part]) -> np.ndarray:
    """The p of no change: at which the interval just reaches the ratio, by bisection; without any
    noise 1 or 0."""
    size = np.abs(log_ratio)
    low, high = np.full(len(size), LOWEST_LOG_P), np.zeros(len(size))
    for _ in range(BISECTIONS):
        middle = (low + high) / 2.0
        outside = size > _half_width(parts, np.exp(middle))
        low, high = np.where(outside, low, middle), np.where(outside, middle, high)
    silent = sum(var for var, _ in parts) < TOLERANCE**2
    exact = np.where(size < TOLERANCE, 1.0, 0.0)
    return np.where(silent, exact, np.exp(high))


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
    notes: list[str] = []
    for side, dataset, taken in (("before", before, rows_before), ("after", after, rows_after)):
        chosen = dataset if taken is None else dataset.isel(measurement=np.flatnonzero(taken))
        frames.append(site_frame(chosen, site))
        estimated = estimated_energies(chosen, np.flatnonzero(complete_rows(chosen, site))) != ""
        if estimated.any():
            n = int(estimated.sum())
            notes.append(f"{side}: the energies of {n} measurements are estimated, not measured")
    if alike_nodes:
        frames = [frame.assign(node="") for frame in frames]
    instances = instances_of(before, after)
    changes: list[Change] = []
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
        of_quantity = _changes(rows, model, site, quantity)
        changes += of_quantity
        notes += _notes(rows, model, quantity, of_quantity)
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
        found = ratios(rows, model, group)
        place = cells.loc[found.first, PLACE[level]].rename(columns={"label": "kernel"})
        for i, named in enumerate(place.to_dict("records")):
            middle, half = float(found.log_ratio[i]), float(found.half_width[i])
            changes.append(
                Change(
                    level=level,
                    site=site,
                    quantity=quantity,
                    ratio=math.exp(middle),
                    low=math.exp(middle - half),
                    high=math.exp(middle + half),
                    p=float(found.p[i]),
                    before=int(found.before[i]),
                    after=int(found.after[i]),
                    points=int(found.cells[i]),
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
        at_level = np.array([change.level == level for change in changes], bool) & np.isfinite(p)
        adjusted[at_level] = np.minimum(benjamini_hochberg(p[at_level]) * len(LEVELS), 1.0)
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
