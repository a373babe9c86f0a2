"""Changes between two sets of measurements of the same points, with their significance.

A change is a ratio of geometric means of times or energies: of a point (a cell: a kernel with its
parameters at a setting), of a kernel over its points, or of a site. Each ratio has a 95 % interval
from the noise of repeats, the nodes' offsets and the drift between sessions
(:mod:`analysis.comparison.noise_model`). Significance is corrected for the number of comparisons:
see :data:`ALPHA`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
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
from dvfs.dataset import Columns, complete_rows
from dvfs.setting import AXES

COVERAGE = 0.95
LOWEST_LOG_P, BISECTIONS = -60.0, 40
Part = tuple[np.ndarray, np.ndarray]
"""A part of each group's variance, and its degrees of freedom; both float64 (groups,)."""
ALPHA = 0.05
"""The accepted rate of false alarms, shared equally among the three levels (site, kernel, point).
Within a level, Benjamini & Hochberg's (1995) procedure finds the significant changes over all sites
and both quantities. Between equal sets the probability of any false alarm is then at most this, and
at most this share of the reported changes is false."""
Level = Literal["site", "kernel", "point"]
PLACE: dict[Level, list[str]] = {
    "site": [],
    "kernel": ["label"],
    "point": ["label", "partition", *AXES],
}
"""Level -> the columns of cells that, with the site, identify a ratio."""


@dataclass(frozen=True, kw_only=True)
class Ratios:
    """The ratio of each group, the second set over the first; arrays have one entry a group.

    ``log_ratio``, ``half_width`` (half of its 95 % interval) and ``p`` (of no change): float64; the
    last two are NaN if a part of the variance is unknown. ``before``, ``after``, ``cells``: int64,
    the numbers of measurements in each set and of cells. ``first``: int64, a cell of the group.
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

    A group's log ratio is the weighted mean of its cells'; a cell with few repeats, whose mean is
    less certain, has less weight.
    """
    n_cells, n_groups = len(group), int(group.max()) + 1
    counts = np.bincount(rows.cell_side, minlength=2 * n_cells).reshape(n_cells, 2)
    corrected = rows.log_value - model.offset[rows.node]
    means = np.bincount(rows.cell_side, corrected, 2 * n_cells).reshape(n_cells, 2) / counts
    noise = (1.0 / counts).sum(axis=1)
    weight = (1.0 / noise) / np.bincount(group, 1.0 / noise)[group]
    mean = sparse.coo_array((weight, (group, np.arange(n_cells))), (n_groups, n_cells)).tocsr()
    share = np.where(rows.after, 1.0, -1.0) / counts[rows.cell, rows.after.astype(int)]

    def shares(code: np.ndarray, n_codes: int) -> np.ndarray:
        """The weights of codes in each group's log ratio: float64 (groups, n_codes)."""
        by_cell = sparse.coo_array((share, (rows.cell, code)), (n_cells, n_codes)).tocsr()
        return np.asarray((mean @ by_cell).toarray())

    kernel = rows.cells["kernel_code"].to_numpy()
    by_kernel = sparse.coo_array(
        (weight**2 * noise, (group, kernel)), (n_groups, len(model.kernel_var))
    ).tocsr()
    nodes = shares(rows.node, len(rows.nodes))
    unmatched = nodes - nodes @ model.node_projection.T
    sessions = shares(rows.session, int(rows.session.max()) + 1)
    session_squares = (sessions**2).sum(axis=1)
    noise_var = by_kernel @ model.kernel_var - session_squares * model.session_noise
    # The degrees of freedom of the kernels' noise: Satterthwaite (1946).
    kernel_df = np.maximum(model.kernel_df, TOLERANCE)
    spread = by_kernel.power(2) @ (model.kernel_var**2 / kernel_df)
    variance = (by_kernel @ model.kernel_var) ** 2
    noise_df = np.divide(variance, spread, out=np.full(n_groups, UNLIMITED), where=spread > 0)
    offsets = np.einsum("gn,nm,gm->g", nodes, model.offset_cov, nodes)
    parts = [
        (np.maximum(noise_var, 0.0) + offsets, noise_df),
        ((unmatched**2).sum(axis=1) * model.node_var, np.full(n_groups, model.node_df)),
        (session_squares * model.session_var, np.full(n_groups, model.session_df)),
    ]
    unknown = by_kernel @ (model.kernel_df <= 0) > 0
    if model.node_df <= 0:
        unknown |= (unmatched**2).sum(axis=1) > TOLERANCE
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
    """Half of the interval that excludes a log ratio with probability ``p`` at most.

    Banerjee (1961): each independent part of the variance has the quantile of its degrees of
    freedom, so that an uncertain part that is small by chance does not narrow the interval.
    """
    square = np.zeros(len(parts[0][0]))
    for var, df in parts:
        t = special.stdtrit(np.maximum(df, TOLERANCE), 0.5 * np.asarray(p))
        square += np.multiply(t**2, var, out=np.zeros_like(var), where=var > 0)
    return np.sqrt(square)


def _p(log_ratio: np.ndarray, parts: Sequence[Part]) -> np.ndarray:
    """The p of no change, at which the interval just reaches the ratio, by bisection; without any
    noise 1 or 0."""
    size = np.abs(log_ratio)
    low, high = np.full(len(size), LOWEST_LOG_P), np.zeros(len(size))
    for _ in range(BISECTIONS):
        middle = (low + high) / 2.0
        outside = size > _half_width(parts, np.exp(middle))
        low, high = np.where(outside, low, middle), np.where(outside, middle, high)
    noiseless = sum(var for var, _ in parts) < TOLERANCE**2
    exact = np.where(size < TOLERANCE, 1.0, 0.0)
    return np.where(noiseless, exact, np.exp(high))


@dataclass(frozen=True, kw_only=True)
class Change:
    """One ratio, the geometric mean of the second set over that of the first.

    ``low``, ``high``: the 95 % interval of this ratio alone. ``p``: the probability of a ratio at
    least this far from 1 if nothing changed; ``adjusted_p``: corrected for the number of
    comparisons. The four are NaN if noise or nodes cannot be separated from a change. ``before``,
    ``after``: numbers of measurements. ``core_mhz`` to ``profile``: NaN or "" if the site has no
    such value, and for kernels and sites.
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
        """Whether the change is significant, over all comparisons."""
        return self.adjusted_p <= ALPHA

    def as_dict(self) -> dict[str, Any]:
        """An entry of ``changes`` of ``campaign compare --json``; missing values are None."""
        fields = vars(self) | {"change_pct": self.change_pct, "significant": self.significant}
        return {
            name: None if isinstance(value, float) and math.isnan(value) else value
            for name, value in fields.items()
        }


@dataclass(frozen=True, kw_only=True)
class SiteComparison:
    """The summary of one site's comparison. ``common``: points in both sets; ``only_before``,
    ``only_after``: points in one set alone. ``notes``: the limits of the comparison, in sentences.
    ``noise_pct``: quantity -> the median kernel's noise of one measurement, %; ``drift_pct``:
    quantity -> the standard deviation between sessions, %, NaN if unknown."""

    site: str
    simulated: bool
    common: int
    only_before: int
    only_after: int
    noise_pct: dict[str, float]
    drift_pct: dict[str, float]
    notes: tuple[str, ...]


def compare_site(
    before: Columns,
    after: Columns,
    site: str,
    rows_before: np.ndarray | None = None,
    rows_after: np.ndarray | None = None,
    *,
    alike_nodes: bool = False,
) -> tuple[SiteComparison, list[Change]]:
    """The comparison of one site, and its changes without ``adjusted_p``.

    ``rows_before``, ``rows_after``: bool (measurement,), the measurements of each that are compared
    (default: all). ``alike_nodes``: treat all nodes as equal, without evidence.
    """
    frames = []
    notes: list[str] = []
    for side, columns, mask in (("before", before, rows_before), ("after", after, rows_after)):
        complete = complete_rows(columns, site)
        index = np.flatnonzero(complete if mask is None else complete & mask)
        frames.append(site_frame(columns, index))
        estimated = estimated_energies(columns, index) != ""
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
        quantity_changes = _changes(rows, model, site, quantity)
        changes += quantity_changes
        notes += _notes(rows, model, quantity, quantity_changes)
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


def common_sites(before: Columns, after: Columns) -> list[str]:
    """The sites that have measurements in both, sorted."""
    return sorted(set(site_names(before)) & set(site_names(after)))


def _changes(rows: Rows, model: NoiseModel, site: str, quantity: str) -> list[Change]:
    """The changes of one site and quantity, at all levels."""
    cells = rows.cells
    groups = (np.zeros(len(cells), int), cells["kernel_code"].to_numpy(), np.arange(len(cells)))
    changes = []
    for level, group in zip(PLACE, groups, strict=True):
        group_ratios = ratios(rows, model, group)
        identity = cells.loc[group_ratios.first, PLACE[level]].rename(columns={"label": "kernel"})
        for i, names in enumerate(identity.to_dict("records")):
            log_ratio, half = float(group_ratios.log_ratio[i]), float(group_ratios.half_width[i])
            changes.append(
                Change(
                    level=level,
                    site=site,
                    quantity=quantity,
                    ratio=math.exp(log_ratio),
                    low=math.exp(log_ratio - half),
                    high=math.exp(log_ratio + half),
                    p=float(group_ratios.p[i]),
                    before=int(group_ratios.before[i]),
                    after=int(group_ratios.after[i]),
                    points=int(group_ratios.cells[i]),
                    **{str(name): value for name, value in names.items()},
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
    for level in PLACE:
        at_level = np.array([change.level == level for change in changes], bool)
        adjusted[at_level] = np.minimum(benjamini_hochberg(p[at_level]) * len(PLACE), 1.0)
    return [
        replace(change, adjusted_p=float(value))
        for change, value in zip(changes, adjusted, strict=True)
    ]


def benjamini_hochberg(p: np.ndarray) -> np.ndarray:
    """The smallest rate of false discoveries at which each test is a discovery (Benjamini &
    Hochberg 1995): float64 (tests,), from ``p``, float64 (tests,). A p of NaN is of no test."""
    n = int(np.isfinite(p).sum())
    order = np.argsort(p)[:n][::-1]
    raised = p[order] * n / np.arange(n, 0, -1)
    result = np.full(len(p), np.nan)
    result[order] = np.minimum.accumulate(np.minimum(raised, 1.0))
    return result
