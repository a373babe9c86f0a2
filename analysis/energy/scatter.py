"""The scatter of measured energies about a fit, by kernel, by setting, by cell and by noise.

For a fit of several nodes together, the scatter of one node is found as follows. About the model
of all nodes, the repeats of a cell (a kernel at a setting) differ for two reasons: nodes have
different coefficients, and each measurement has noise. A further node, whose few points are fitted
from the known coefficients (:mod:`analysis.energy.known_site`), gets its coefficients from that
fit, so only the noise remains. So each node's coefficients are taken out first: the logarithm of
measured over predicted energy is regressed, node by node, on each term's share of the predicted
energy.
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
"""Singular values smaller than this share of the largest are rounding."""
LEAST = 1e-6
"""The least variance of a cell: a thousandth, squared."""


def scatter_of_one_node(fitted: Fit, data: Observations) -> tuple[float, float] | None:
    """Return two variances of log energies on one node, without the effect of its coefficients.

    These are of one measurement, and of what all kernels of a node have in common at a setting.
    None where fewer than two nodes have a name, or there are too few rows.
    """
    rows = np.flatnonzero(data.node.astype(str) != "")
    nodes, node = np.unique(data.node[rows].astype(str), return_inverse=True)
    if len(nodes) < 2:
        return None
    parts = fitted.sparse_parts_j(data)[rows]
    predicted_j = parts.sum(axis=1)
    share = sparse.csr_array(parts / predicted_j[:, None])
    residual = np.log(data.energy_j[rows] / predicted_j)
    label = data.labels[rows].astype(str)
    freedom = len(rows)
    for i in range(len(nodes)):
        node_rows = np.flatnonzero(node == i)
        residual[node_rows], numbers = _without_coefficients(
            fitted, share[node_rows], residual[node_rows], label[node_rows]
        )
        freedom -= numbers
    _, kernel = np.unique(label, return_inverse=True)
    setting = data.setting[rows]
    cell = kernel * len(data.settings) + setting
    residual -= _group_means(residual, cell)[0]
    freedom -= len(np.unique(cell))
    # What kernels have in common at a setting of a node, beyond what other nodes also have.
    common, of_group, size = _group_means(residual, node * len(data.settings) + setting)
    freedom -= len(size) * (len(nodes) - 1) // len(nodes)
    if freedom < 1:
        return None
    noise = float(((residual - common) ** 2).sum() / freedom)
    centred = len(nodes) / (len(nodes) - 1)
    shared = float((of_group**2).mean()) * centred - noise * float((1.0 / size).mean())
    return noise, max(shared, 0.0)


def _without_coefficients(
    fitted: Fit, share: sparse.csr_array, residual: np.ndarray, label: np.ndarray
) -> tuple[np.ndarray, int]:
    """Return the part of ``residual`` (rows,) that no change of the coefficients explains, and the
    number of coefficients determined.

    The coefficients of single kernels are taken out of each kernel's rows first.
    """
    by_kernel: dict[str, list[int]] = {}
    shared = []
    for i, term in enumerate(fitted.terms):
        if term.pays_for == "kernel":
            by_kernel.setdefault(term.of, []).append(i)
        else:
            shared.append(i)
    remaining, numbers = np.column_stack([residual, share[:, shared].toarray()]), 0
    for name, columns in by_kernel.items():
        kernel_rows = np.flatnonzero(label == name)
        shares = share[kernel_rows][:, columns].toarray()
        change, _, rank, _ = np.linalg.lstsq(shares, remaining[kernel_rows], rcond=None)
        remaining[kernel_rows] -= shares @ change
        numbers += int(rank)
    change, _, rank, _ = np.linalg.lstsq(remaining[:, 1:], remaining[:, 0], rcond=ROUNDING)
    return remaining[:, 0] - remaining[:, 1:] @ change, numbers + int(rank)


def _group_means(
    values: np.ndarray, group: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the mean of each value's group (rows,); the means and sizes of groups (groups,)."""
    _, number = np.unique(group, return_inverse=True)
    size = np.bincount(number)
    mean = np.bincount(number, values) / size
    return mean[number], mean, size


@dataclass(frozen=True, kw_only=True)
class Scatter:
    """Variances of the logarithm of measured over fitted energy.

    ``kernel``: of what a kernel has in common at all settings; ``setting``: of what all kernels
    have in common at a setting; ``cell``: of the rest in single cells, with a factor ``scale`` for
    each kernel; ``noise``: kernel -> of one measurement about its cell's mean, empty without
    repeats.
    """

    kernel: float
    setting: float
    cell: float
    scale: dict[str, float]
    noise: dict[str, float]

    @classmethod
    def of(cls, fitted: Fit, data: Observations) -> Scatter:
        """Return the scatter of the fitted measurements ``data``; of several nodes, that of one
        node (:mod:`analysis.energy.scatter`)."""
        labels = kernel_names(data)
        log_j = np.log(data.energy_j)
        residual = cell_means(data, labels, log_j - np.log(fitted.energy_j(data)))
        measured = np.isfinite(residual)
        kernel_mean = _mean(residual, measured, 1)
        setting_mean = _mean(residual - kernel_mean[:, None], measured, 0)
        cell_residual = np.where(measured, residual - kernel_mean[:, None] - setting_mean, 0.0)
        settings, kernels = int(measured.any(axis=0).sum()), len(labels)
        freedom = max(int(measured.sum()) - settings - kernels + 1, 1)
        noise = _noise(data, labels, log_j)
        mean_noise = _noise_of_means(data, labels, noise)
        cell_variance = max(float((cell_residual**2).sum()) / freedom - mean_noise, LEAST)
        by_kernel = (cell_residual**2).sum(axis=1) / np.maximum(measured.sum(axis=1), 1)
        scale = shrunk(by_kernel, measured.sum(axis=1))
        measured_settings = setting_mean[measured.any(axis=0)]
        shared = float((measured_settings**2).sum()) / max(settings - 1, 1)
        shared -= (cell_variance + mean_noise) / kernels
        setting = max(shared, 0.0)
        node_scatter = scatter_of_one_node(fitted, data)
        if node_scatter is not None:
            noise = dict.fromkeys(labels, node_scatter[0])
            setting += node_scatter[1]
        return cls(
            kernel=float(kernel_mean.var(ddof=1)) if kernels > 1 else 0.0,
            setting=setting,
            cell=cell_variance,
            scale=dict(zip(labels, (scale / scale.mean()).tolist(), strict=True)),
            noise=noise,
        )


def _mean(values: np.ndarray, measured: np.ndarray, axis: int) -> np.ndarray:
    total = np.where(measured, values, 0.0).sum(axis=axis)
    return np.asarray(total / np.maximum(measured.sum(axis=axis), 1))


def _noise_of_means(data: Observations, labels: list[str], noise: dict[str, float]) -> float:
    """Return the mean over cells of the variance of a cell's mean by measurement noise."""
    if not noise:
        return 0.0
    number = kernel_numbers(data, labels)
    cells, n = np.unique(np.stack([number, data.setting]), axis=1, return_counts=True)
    return float(np.mean(np.array([noise[labels[k]] for k in cells[0]]) / n))


def _noise(data: Observations, labels: list[str], log_j: np.ndarray) -> dict[str, float]:
    """Return kernel -> variance of one log energy about its cell's mean; empty without repeats."""
    number = kernel_numbers(data, labels)
    within = log_j - cell_means(data, labels, log_j)[number, data.setting]
    cells = np.unique(np.stack([number, data.setting]), axis=1)
    freedom = np.bincount(number, minlength=len(labels)) - np.bincount(cells[0], None, len(labels))
    if not freedom.any():
        return {}
    total = np.bincount(number, within**2, len(labels))
    factor = np.ones(len(labels))
    has_repeats = freedom > 0
    factor[has_repeats] = shrunk(total[has_repeats] / freedom[has_repeats], freedom[has_repeats])
    return dict(zip(labels, (total.sum() / freedom.sum() * factor).tolist(), strict=True))


def shrunk(square: np.ndarray, n: np.ndarray) -> np.ndarray:
    """Return factors (K,) of variances relative to their mean, from mean squares of ``n`` values.

    A mean square of n normal values has a relative variance of 2 / n by chance. The K mean squares'
    variance beyond that counts as real, and each is shrunk towards the mean accordingly.
    """
    if len(square) < 2 or not square.mean() > 0:
        return np.ones(len(square))
    relative = square / square.mean()
    by_chance = 2.0 / np.maximum(n, 1)
    real = max(float(relative.var(ddof=1) - by_chance.mean()), 0.0)
    weight = real / (real + by_chance)
    return np.asarray(weight * relative + (1.0 - weight))
