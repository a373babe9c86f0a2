"""What a fit leaves unexplained: how far measured energies are from it, and what they share.

Where a site's fit is of several nodes together, the scatter of one node is found as follows. About
the model of all nodes, the repeats of a cell (a kernel at a setting) differ for two reasons:
nodes have other coefficients, and each measurement has noise. One more node, whose few points are
fitted from the known coefficients (:mod:`analysis.energy.known_site`), has coefficients of its own
as well; what remains of its points is the second part alone. So each node's coefficients are taken
out first: the logarithm of measured over predicted energy is regressed, node by node, on the share
of each term in the predicted energy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from analysis.energy.fitted import Fit
from analysis.measurements.observations import (
    Observations,
    cell_means,
    kernel_names,
    kernel_numbers,
)

ROUNDING = 1e-9
"""Relative to the largest, smaller singular values are rounding."""
LEAST = 1e-6
"""A thousandth, squared: by at least so much a cell differs."""


def scatter_of_one_node(fitted: Fit, data: Observations) -> tuple[float, float] | None:
    """The variances of log energies on one node, beside what its coefficients do.

    Of one measurement, and of what all kernels of a node have in common at a setting. None where
    fewer than two nodes have a name, or too few rows are left to say it.
    """
    if data.node is None:
        return None
    rows = np.flatnonzero(data.node.astype(str) != "")
    nodes, node = np.unique(data.node[rows].astype(str), return_inverse=True)
    if len(nodes) < 2:
        return None
    parts = fitted.sparse_parts_j(data)[rows]
    predicted_j = parts.sum(axis=1)
    share = sparse.csr_array(parts / predicted_j[:, None])
    away = np.log(data.energy_j[rows] / predicted_j)
    label = data.labels[rows].astype(str)
    freedom = len(rows)
    for one in range(len(nodes)):
        of = np.flatnonzero(node == one)
        away[of], numbers = _beside_coefficients(fitted, share[of], away[of], label[of])
        freedom -= numbers
    _, kernel = np.unique(label, return_inverse=True)
    setting = data.setting[rows]
    cell = kernel * len(data.settings) + setting
    away -= _group_means(away, cell)[0]
    freedom -= len(np.unique(cell))
    # What kernels have in common at a setting of a node, of those that other nodes measured too.
    common, of_group, size = _group_means(away, node * len(data.settings) + setting)
    freedom -= len(size) * (len(nodes) - 1) // len(nodes)
    if freedom < 1:
        return None
    noise = float(((away - common) ** 2).sum() / freedom)
    centred = len(nodes) / (len(nodes) - 1)
    shared = float((of_group**2).mean()) * centred - noise * float((1.0 / size).mean())
    return noise, max(shared, 0.0)


def _beside_coefficients(
    fitted: Fit, share: sparse.csr_array, away: np.ndarray, label: np.ndarray
) -> tuple[np.ndarray, int]:
    """What no change of the coefficients explains of ``away`` (rows,), and how many numbers did.

    The coefficients of single kernels are taken out of each kernel's rows first.
    """
    by_kernel: dict[str, list[int]] = {}
    shared = []
    for i, term in enumerate(fitted.terms):
        if term.pays_for == "kernel":
            by_kernel.setdefault(term.of, []).append(i)
        else:
            shared.append(i)
    left, numbers = np.column_stack([away, share[:, shared].toarray()]), 0
    for name, columns in by_kernel.items():
        of = np.flatnonzero(label == name)
        shares = share[of][:, columns].toarray()
        change, _, rank, _ = np.linalg.lstsq(shares, left[of], rcond=None)
        left[of] -= shares @ change
        numbers += int(rank)
    change, _, rank, _ = np.linalg.lstsq(left[:, 1:], left[:, 0], rcond=ROUNDING)
    return left[:, 0] - left[:, 1:] @ change, numbers + int(rank)


def _group_means(
    values: np.ndarray, group: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The mean of each value's group (rows,); of each group, and its number of values (groups,)."""
    _, number = np.unique(group, return_inverse=True)
    size = np.bincount(number)
    mean = np.bincount(number, values) / size
    return mean[number], mean, size


@dataclass(frozen=True, kw_only=True)
class Scatter:
    """Variances of the logarithm of measured over fitted energy.

    ``kernel``: of what a kernel has at all settings; ``setting``: of what all kernels have at a
    setting; ``own``: of a cell's own, with a factor ``scale`` for each kernel; ``noise``: kernel ->
    of one measurement about its cell's mean, empty without repeats.
    """

    kernel: float
    setting: float
    own: float
    scale: dict[str, float]
    noise: dict[str, float]

    @classmethod
    def of(cls, fitted: Fit, data: Observations) -> Scatter:
        """Of the measurements that were fitted; of several nodes, as it is on one node alone
        (:mod:`analysis.energy.scatter`): a further node has coefficients of its own."""
        labels = kernel_names(data)
        log_j = np.log(data.energy_j)
        away = cell_means(data, labels, log_j - np.log(fitted.energy_j(data)))
        known = np.isfinite(away)
        of_kernel = _mean(away, known, 1)
        of_setting = _mean(away - of_kernel[:, None], known, 0)
        residual = np.where(known, away - of_kernel[:, None] - of_setting, 0.0)
        settings, kernels = int(known.any(axis=0).sum()), len(labels)
        freedom = max(int(known.sum()) - settings - kernels + 1, 1)
        noise = _noise(data, labels, log_j)
        of_means = _noise_of_means(data, labels, noise)
        own_variance = max(float((residual**2).sum()) / freedom - of_means, LEAST)
        by_kernel = (residual**2).sum(axis=1) / np.maximum(known.sum(axis=1), 1)
        scale = shrunk(by_kernel, known.sum(axis=1))
        there = of_setting[known.any(axis=0)]
        shared = float((there**2).sum()) / max(settings - 1, 1)
        shared -= (own_variance + of_means) / kernels
        setting = max(shared, 0.0)
        of_node = scatter_of_one_node(fitted, data)
        if of_node is not None:
            noise = dict.fromkeys(labels, of_node[0])
            setting += of_node[1]
        return cls(
            kernel=float(of_kernel.var(ddof=1)) if kernels > 1 else 0.0,
            setting=setting,
            own=own_variance,
            scale=dict(zip(labels, (scale / scale.mean()).tolist(), strict=True)),
            noise=noise,
        )


def _mean(values: np.ndarray, known: np.ndarray, axis: int) -> np.ndarray:
    total = np.where(known, values, 0.0).sum(axis=axis)
    return np.asarray(total / np.maximum(known.sum(axis=axis), 1))


def _noise_of_means(data: Observations, labels: list[str], noise: dict[str, float]) -> float:
    """The mean over cells of the variance of a cell's mean by the noise of its measurements."""
    if not noise:
        return 0.0
    number = kernel_numbers(data, labels)
    cells, n = np.unique(np.stack([number, data.setting]), axis=1, return_counts=True)
    return float(np.mean(np.array([noise[labels[k]] for k in cells[0]]) / n))


def _noise(data: Observations, labels: list[str], log_j: np.ndarray) -> dict[str, float]:
    """Kernel -> the variance of one log energy about its cell's mean; empty without repeats."""
    number = kernel_numbers(data, labels)
    within = log_j - cell_means(data, labels, log_j)[number, data.setting]
    cells = np.unique(np.stack([number, data.setting]), axis=1)
    freedom = np.bincount(number, minlength=len(labels)) - np.bincount(cells[0], None, len(labels))
    if not freedom.any():
        return {}
    total = np.bincount(number, within**2, len(labels))
    factor = np.ones(len(labels))
    seen = freedom > 0
    factor[seen] = shrunk(total[seen] / freedom[seen], freedom[seen])
    return dict(zip(labels, (total.sum() / freedom.sum() * factor).tolist(), strict=True))


def shrunk(square: np.ndarray, n: np.ndarray) -> np.ndarray:
    """Factors (K,) of variances relative to their mean, from mean squares of ``n`` numbers each.

    A mean square of n normal numbers has a relative variance of 2 / n by chance; what the K
    differ by beyond that is taken as real, and each is drawn towards the mean accordingly.
    """
    if len(square) < 2 or not square.mean() > 0:
        return np.ones(len(square))
    relative = square / square.mean()
    by_chance = 2.0 / np.maximum(n, 1)
    real = max(float(relative.var(ddof=1) - by_chance.mean()), 0.0)
    weight = real / (real + by_chance)
    return np.asarray(weight * relative + (1.0 - weight))
