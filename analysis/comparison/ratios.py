"""Ratios of geometric means of groups of cells, with their variances by the noise model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse, special

from analysis.comparison.common_cells import Rows
from analysis.comparison.noise_model import TOLERANCE, UNLIMITED, NoiseModel

COVERAGE = 0.95
LOWEST_LOG_P, BISECTIONS = -60.0, 40
Part = tuple[np.ndarray, np.ndarray]
"""A part of each group's variance, and its degrees of freedom; float64 (groups,) both."""


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
    own = (by_kernel @ model.kernel_var) ** 2
    noise_df = np.divide(own, spread, out=np.full(n_groups, UNLIMITED), where=spread > 0)
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
