"""What a fit leaves unexplained: how far measured energies are from it, and what they share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.energy.fitted import Fit
from analysis.energy.node_differences import scatter_of_one_node
from analysis.measurements.cells import cell_means, kernel_numbers
from analysis.measurements.observations import Observations, kernel_names

LEAST = 1e-6
"""A thousandth, squared: by at least so much a cell differs."""


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
        (:mod:`analysis.energy.node_differences`): a further node has coefficients of its own."""
        labels = kernel_names(data)
        log_j = np.log(data.energy_j)
        away = cell_means(data, labels, log_j - np.log(fitted.energy_j(data)))
        known = np.isfinite(away)
        of_kernel = _mean(away, known, 1)
        of_setting = _mean(away - of_kernel[:, None], known, 0)
        own = np.where(known, away - of_kernel[:, None] - of_setting, 0.0)
        settings, kernels = int(known.any(axis=0).sum()), len(labels)
        freedom = max(int(known.sum()) - settings - kernels + 1, 1)
        noise = _noise(data, labels, log_j)
        of_means = _noise_of_means(data, labels, noise)
        own_variance = max(float((own**2).sum()) / freedom - of_means, LEAST)
        by_kernel = (own**2).sum(axis=1) / np.maximum(known.sum(axis=1), 1)
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
