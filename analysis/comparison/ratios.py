"""Ratios of geometric means of groups of cells, with their variances by the noise model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse, special

from analysis.comparison.common_cells import Rows
from analysis.comparison.noise_model import TOLERANCE, UNLIMITED, NoiseModel

COVERAGE = 0.95


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
    which less is known, counts less. Degrees of freedom are those of Satterthwaite (1946).
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
    kernel_df = np.maximum(model.kernel_df, TOLERANCE)
    kernel_spread = by_kernel.power(2) @ (model.kernel_var**2 / kernel_df)
    parts = [  # (variance, its square over its degrees of freedom)
        (by_kernel @ model.kernel_var, kernel_spread),
        _part(np.einsum("gn,nm,gm->g", nodes, model.offset_cov, nodes), model.kernel_df.max()),
        _part((unseen**2).sum(axis=1) * model.node_var, model.node_df),
        _part((sessions**2).sum(axis=1) * model.session_var, model.session_df),
    ]
    var = sum(part for part, _ in parts)
    spread = sum(part for _, part in parts)
    df = np.divide(var**2, spread, out=np.full(n_groups, UNLIMITED), where=spread > 0)
    unknown = by_kernel @ (model.kernel_df <= 0) > 0
    if model.node_df <= 0:
        unknown |= (unseen**2).sum(axis=1) > TOLERANCE
    error = np.where(unknown, np.nan, np.sqrt(var))
    log_ratio = mean @ (means[:, 1] - means[:, 0])
    return Ratios(
        log_ratio=log_ratio,
        half_width=-special.stdtrit(df, 0.5 * (1.0 - COVERAGE)) * error,
        p=_p(log_ratio, error, df),
        before=np.bincount(group, counts[:, 0]).astype(np.int64),
        after=np.bincount(group, counts[:, 1]).astype(np.int64),
        cells=np.bincount(group),
        first=np.unique(group, return_index=True)[1],
    )


def _part(var: np.ndarray, df: float) -> tuple[np.ndarray, np.ndarray]:
    return var, var**2 / max(df, TOLERANCE)


def _p(log_ratio: np.ndarray, error: np.ndarray, df: np.ndarray) -> np.ndarray:
    """The two-sided p of no change by Student's t; without any noise 1 or 0."""
    exact = np.where(np.abs(log_ratio) < TOLERANCE, 1.0, 0.0)
    t = np.divide(log_ratio, error, out=np.zeros_like(error), where=error > TOLERANCE)
    p = np.where(error > TOLERANCE, 2.0 * special.stdtr(df, -np.abs(t)), exact)
    return np.where(np.isnan(error), np.nan, p)
