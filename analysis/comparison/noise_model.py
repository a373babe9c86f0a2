r"""Noise of repeated measurements, offsets of nodes and drift between sessions.

The logarithm of a time or an energy of cell c in set s, on node n, in session t, is

    y = mu_cs + nu_n + u_t + e,    u_t ~ N(0, tau^2),    e ~ N(0, sigma_k^2),

with the mean mu_cs of a cell in each set and the offset nu_n of a node, the same in both sets. A
session is one repeat of the plan on one node: the plan measures all points once before the next
repeat, so tau is the drift between repeats. sigma_k is the noise of the cell's kernel k, moderated
towards that of all kernels (Smyth 2004). Offsets and components are estimated by
weighted least squares and by Henderson's method III (Searle, Casella & McCulloch 1992, ch. 5).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse, special

from analysis.comparison.common_cells import Rows

TOLERANCE = 1e-9
"""Relative: singular values and parts of a contrast below this count as zero."""
UNLIMITED = 1e9
"""The degrees of freedom of an exactly known variance."""
PASSES = 2
"""The number of estimates of the kernels' noise, each weighted by the previous one."""


@dataclass(frozen=True, kw_only=True)
class NoiseModel:
    """The model of one site and quantity.

    ``kernel_var``, ``kernel_df``: float64 (kernels,), sigma^2 and its degrees of freedom.
    ``session_var``, ``session_df``: the observed tau^2, which includes the noise ``session_noise``
    of a session's mean, and its degrees of freedom; df 0 if repeats do not determine it.
    ``node_var``, ``node_df``: the variance of the nodes' offsets; df 0 if they cannot be compared.
    ``offset``: float64 (nodes,); ``offset_cov``: its covariance (nodes, nodes);
    ``node_projection``: onto the differences of nodes that have rows in one cell of one set.
    """

    kernel_var: np.ndarray
    kernel_df: np.ndarray
    session_var: float = 0.0
    session_noise: float = 0.0
    session_df: float = 0.0
    node_var: float = 0.0
    node_df: float = 0.0
    offset: np.ndarray
    offset_cov: np.ndarray
    node_projection: np.ndarray


def estimate(rows: Rows) -> NoiseModel:
    """Estimate the model. Without repeats sigma comes from the differences of a kernel's cells, so
    that a change that differs between settings counts as noise."""
    kernel = rows.cells["kernel_code"].to_numpy()
    if np.bincount(rows.cell_side).max() == 1:
        return _without_repeats(rows, kernel)
    n_kernels = int(kernel.max()) + 1
    weight = np.ones(n_kernels)
    for _ in range(PASSES):
        model = _weighted(rows, kernel, weight)
        weight = 1.0 / np.maximum(model.kernel_var, TOLERANCE**2)
    return model


def _weighted(rows: Rows, kernel: np.ndarray, kernel_weight: np.ndarray) -> NoiseModel:
    row_kernel = kernel[rows.cell]
    weight = kernel_weight[row_kernel]
    nodes, sessions = len(rows.nodes), int(rows.session.max()) + 1
    y = _centred(rows.log_value, rows.cell_side)
    session_node = np.zeros((sessions, nodes))
    session_node[rows.session, rows.node] = 1.0
    gram_s = _gram(rows, weight, rows.session, sessions)
    gram_n = session_node.T @ gram_s @ session_node
    within = _within_df(rows, row_kernel, len(kernel_weight))
    inverse_n, rank_n = _inverse(gram_n, weight.sum(), within.sum())
    moments = np.bincount(rows.node, weight * y, nodes)
    offset = inverse_n @ moments
    y = y - _centred(offset[rows.node], rows.cell_side)
    cross = gram_s @ session_node
    gram_t = gram_s - cross @ inverse_n @ cross.T
    inverse_t, rank_t = _inverse(gram_t, weight.sum(), within.sum() - rank_n)
    session = inverse_t @ np.bincount(rows.session, weight * y, sessions)
    session_ss = float(session @ gram_t @ session)
    y = y - _centred(session[rows.session], rows.cell_side)
    # Each kernel's residual sum of squares and degrees of freedom; kernels share the degrees of
    # freedom of offsets and sessions by their size.
    squares = np.bincount(row_kernel, y**2, len(kernel_weight))
    df = within * (1.0 - (rank_n + rank_t) / within.sum())
    pooled = float((kernel_weight * squares).sum() / df.sum())
    kernel_var, kernel_df = moderated(squares, df)
    trace_t = float(np.trace(gram_t))
    node_ss = float(offset @ gram_n @ offset)
    node_var = max(0.0, (node_ss - pooled * rank_n) / np.trace(gram_n)) if rank_n else 0.0
    return NoiseModel(
        kernel_var=kernel_var,
        kernel_df=kernel_df,
        session_var=session_ss / trace_t if rank_t else 0.0,
        session_noise=pooled * rank_t / trace_t if rank_t else 0.0,
        session_df=float(rank_t),
        node_var=node_var,
        node_df=float(rank_n),
        offset=offset,
        offset_cov=pooled * inverse_n,
        node_projection=inverse_n @ gram_n,
    )


def _without_repeats(rows: Rows, kernel: np.ndarray) -> NoiseModel:
    nodes = len(rows.nodes)
    difference = np.zeros(len(kernel))
    np.add.at(difference, rows.cell, np.where(rows.after, rows.log_value, -rows.log_value))
    squares = np.bincount(kernel, _centred(difference, kernel) ** 2) / 2.0
    df = np.maximum(np.bincount(kernel) - 1.0, 0.0)
    kernel_var, kernel_df = moderated(squares, df)
    return NoiseModel(
        kernel_var=kernel_var,
        kernel_df=kernel_df,
        offset=np.zeros(nodes),
        offset_cov=np.zeros((nodes, nodes)),
        node_projection=np.zeros((nodes, nodes)),
    )


def moderated(squares: np.ndarray, df: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Variances from sums of squares and degrees of freedom, both float64 (groups,), moderated
    towards a common variance as far as the groups are similar; and their degrees of freedom.

    Smyth (2004), section 6.2: the groups' variances have a scaled inverse chi-squared distribution,
    which is fitted to the moments of their logarithms.
    """
    variance = np.divide(squares, df, out=np.zeros_like(squares, dtype=float), where=df > 0)
    usable = (df > 0) & (variance > 0)
    if not usable.any():
        return np.zeros(len(df)), np.where(df.sum() > 0, df, 0.0)
    half = df[usable] / 2.0
    log_var = np.log(variance[usable]) - special.digamma(half) + np.log(half)
    prior_df, center = UNLIMITED, float(log_var.mean())
    if usable.sum() > 1:
        spread = float(log_var.var(ddof=1) - special.polygamma(1, half).mean())
        prior_df = 2.0 * _inverse_trigamma(spread) if spread > 0 else UNLIMITED
    elif len(df) == 1:
        return variance, df.astype(float)
    prior_df = min(prior_df, float(df.sum()))  # the common variance is no more certain
    half_prior = prior_df / 2.0
    prior = np.exp(center + special.digamma(half_prior) - np.log(half_prior))
    return (prior_df * prior + squares) / (prior_df + df), np.minimum(prior_df + df, df.sum())


def _inverse_trigamma(value: float) -> float:
    """x with trigamma(x) = value > 0, by Newton's method (Smyth 2004, appendix)."""
    x = 0.5 + 1.0 / value
    for _ in range(50):
        trigamma = special.polygamma(1, x)
        step = trigamma * (1.0 - trigamma / value) / special.polygamma(2, x)
        x += step
        if -step / x < TOLERANCE:
            break
    return float(x)


def _within_df(rows: Rows, row_kernel: np.ndarray, kernels: int) -> np.ndarray:
    """The degrees of freedom within cells and sets, by kernel."""
    _, first = np.unique(rows.cell_side, return_index=True)
    cells = np.bincount(row_kernel[first], minlength=kernels).astype(float)
    return np.asarray(np.bincount(row_kernel, minlength=kernels) - cells)


def _centred(values: np.ndarray, group: np.ndarray) -> np.ndarray:
    """The values less the means of their groups."""
    count = np.maximum(np.bincount(group), 1)
    return np.asarray(values - (np.bincount(group, values) / count)[group])


def _gram(rows: Rows, weight: np.ndarray, code: np.ndarray, codes: int) -> np.ndarray:
    """D'WD, D the indicators of a code, centred in each cell and set."""
    shape = (int(rows.cell_side.max()) + 1, codes)
    counts = sparse.coo_array((np.ones(len(code)), (rows.cell_side, code)), shape).tocsr()
    size = np.maximum(np.asarray(counts.sum(axis=1)), 1.0)
    per_cell = np.zeros(shape[0])
    per_cell[rows.cell_side] = weight
    outer = counts.T @ (sparse.diags_array(per_cell / size) @ counts)
    return np.asarray(np.diag(np.bincount(code, weight, codes)) - outer.toarray())


def _inverse(gram: np.ndarray, scale: float, df: float) -> tuple[np.ndarray, int]:
    """The pseudo-inverse of a Gram matrix, and its rank; zeros if the rank is ``df`` or more, which
    leaves no degrees of freedom for the noise. ``scale``: the weight of all rows."""
    values, vectors = np.linalg.eigh(gram)
    nonzero = values > TOLERANCE * scale
    if nonzero.sum() >= df:
        return np.zeros_like(gram), 0
    basis = vectors[:, nonzero]
    return (basis / values[nonzero]) @ basis.T, int(nonzero.sum())
