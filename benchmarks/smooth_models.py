"""Log energies from models without physics, predicted from some settings or cells.

The benchmarks of few measurements compare picks with two models of both log clocks: a quadratic and
a Gaussian process. Each has a part that kernels share, and deviations of each kernel. K kernels at
S settings.
"""

from __future__ import annotations

import itertools

import numpy as np

SHRINK = (1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0)
SHARES, LEVEL = (0.01, 0.1, 1.0), 100.0
"""Variances of a kernel's deviations over the shared variance; the variance of its level."""
REACHES, NOISES = (0.3, 0.6, 1.2, 2.4), (1e-4, 1e-3, 1e-2, 0.1, 1.0)


def places(mhz):
    """Return log clocks, 0 to 1 over the range of the settings: (S, 1 or 2)."""
    logs = np.log(mhz[:, np.isfinite(mhz).all(axis=0)])
    span = np.ptp(logs, axis=0)
    return ((logs - logs.min(axis=0)) / np.where(span > 0, span, 1.0))[:, span > 0]


def quadratic_columns(place):
    """Return the columns of a quadratic, (S, 3 or 6)."""
    columns = [np.ones(len(place)), *place.T]
    columns += [place[:, i] * place[:, j] for i in range(place.shape[1]) for j in range(i + 1)]
    return np.column_stack(columns)


def by_quadratic(place, log_j, measured):
    """Return log energies (K, S), predicted by a quadratic from the measured settings."""
    x = quadratic_columns(place)

    def predicted(training, shrink):
        y = log_j[:, training]
        mean = y.mean(axis=0)
        penalty = 1e-6 * np.eye(x.shape[1])
        penalty[0, 0] = 0.0
        x_training = x[training]
        shared = np.linalg.solve(x_training.T @ x_training + penalty, x_training.T @ mean)
        own_penalty = np.diag([1e-9] + [shrink] * (x.shape[1] - 1))
        deviations = np.linalg.solve(
            x_training.T @ x_training + own_penalty, x_training.T @ (y - mean).T
        )
        return (x @ shared)[None] + (x @ deviations).T

    errors = []
    for shrink in SHRINK:
        left_out = [
            predicted(np.delete(measured, i), shrink)[:, measured[i]] - log_j[:, measured[i]]
            for i in range(len(measured))
        ]
        errors.append(np.mean(np.square(left_out)))
    return predicted(measured, SHRINK[int(np.argmin(errors))])


def by_process(place, log_j, measured):
    """Return the same by Gaussian processes: the mean over kernels, and each kernel's deviation."""
    y = log_j[:, measured]
    level = y.mean(axis=1, keepdims=True)
    mean = (y - level).mean(axis=0)
    result = np.repeat(level, len(place), axis=1)
    for rows, is_shared in ((mean[None], True), (y - level - mean, False)):
        best = None
        for reach in REACHES:
            correlation = np.exp(-((place[:, None] - place) ** 2).sum(axis=2) / (2 * reach**2))
            for noise in NOISES:
                held = correlation[np.ix_(measured, measured)] + noise * np.eye(len(measured))
                inverse = np.linalg.inv(held)
                scale = np.einsum("ij,jk,ik->", rows, inverse, rows) / rows.size
                likely = (
                    -rows.size * np.log(max(scale, 1e-300)) - len(rows) * np.linalg.slogdet(held)[1]
                )
                if best is None or likely > best[0]:
                    best = (likely, rows @ inverse @ correlation[measured])
        result = result + (best[1] if not is_shared else best[1][0])
    return result


def joint(log_j, cells, shared_parts, kernel_parts, noises):
    """Return log energies (K, S) from some cells, bool (K, S), by a Gaussian process.

    Its covariance is one of ``shared_parts``, (S, S), for all kernels, plus the matching one of
    ``kernel_parts`` within a kernel, plus one of ``noises``: the likeliest ones. Each kernel has
    its level.
    """
    kernel, setting = np.nonzero(cells)
    is_same_kernel = kernel[:, None] == kernel
    y = log_j[cells]
    level = (np.bincount(kernel, y) / np.bincount(kernel))[:, None]
    best = None
    for (shared, deviation), noise in itertools.product(
        zip(shared_parts, kernel_parts, strict=True), noises
    ):
        covariance = shared[np.ix_(setting, setting)] + is_same_kernel * (
            deviation[np.ix_(setting, setting)] + LEVEL
        )
        covariance = covariance + noise * np.eye(len(y))
        root = np.linalg.cholesky(covariance)
        solved = np.linalg.solve(root.T, np.linalg.solve(root, y - level[kernel, 0]))
        scale = float((y - level[kernel, 0]) @ solved) / len(y)
        likely = -0.5 * len(y) * np.log(scale) - np.log(np.diag(root)).sum()
        if best is None or likely > best[0]:
            best = likely, shared, deviation, solved
    _, shared, deviation, solved = best
    by_kernel = np.zeros(cells.shape)
    by_kernel[kernel, setting] = solved
    return level + shared @ by_kernel.sum(axis=0) + by_kernel @ (deviation + LEVEL)


def joint_process(place, log_j, cells):
    """Predict by a smooth process."""
    square = ((place[:, None] - place) ** 2).sum(axis=2)
    correlations = [np.exp(-square / (2 * reach**2)) for reach in REACHES for _ in SHARES]
    return joint(
        log_j,
        cells,
        correlations,
        [s * n for s, n in zip(SHARES * 4, correlations, strict=True)],
        NOISES,
    )


def joint_quadratic(place, log_j, cells):
    """Predict by a quadratic, with deviations of each kernel from its coefficients."""
    x = quadratic_columns(place)[:, 1:]
    shared_parts = [10.0 * x @ x.T] * len(SHARES)
    return joint(log_j, cells, shared_parts, [share * x @ x.T for share in SHARES], NOISES)
